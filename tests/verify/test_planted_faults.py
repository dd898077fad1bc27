"""Power: every property fails where the fault that it names is planted, with lines of Python that show it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from planted import (
    Alike,
    Apart,
    Confident,
    Forgetful,
    Misweighed,
    Overstated,
    Restless,
    SeedIgnored,
    Shrinking,
    Stale,
    StaleFile,
    boxed,
    compiled,
    deaf,
    first_alone,
    gamp_with,
    halved,
    heavy,
    in_floats,
    miscounted,
    of_an_activation,
    scaled,
    shifted,
    solved,
    sure,
    tailed,
    with_channel,
    with_chart,
    with_noise,
    with_symmetry,
    with_transposes,
)

import smisym
from smisym import Architecture, Attention, OverlapMap
from smisym.verify import PROPERTIES, check
from smisym.verify.reports import Report


def another(**changes: Any) -> Any:
    """A change of moments by name: a factor."""
    return lambda found, omega: dataclasses.replace(
        found,
        **{name: factor * getattr(found, name) for name, factor in changes.items() if getattr(found, name) is not None},
    )


def tilted(found: Any, omega: Any) -> Any:
    """log Zout with a term of omega that is not there."""
    return dataclasses.replace(found, log_partition=found.log_partition + 0.2 * (omega**2).sum(axis=(1, 2)))


def turned(found: Any, omega: Any) -> Any:
    """Covariances of which the second token is transposed."""
    return found if found.cov is None else dataclasses.replace(found, cov=found.cov.swapaxes(2, 4))


def bold(found: Any, omega: Any) -> Any:
    """Covariances that are too small."""
    return found if found.cov is None else dataclasses.replace(found, cov=0.7 * found.cov)


def as_it_is(found: Any, omega: Any) -> Any:
    return found


def uncoupled(found: Any, omega: Any) -> Any:
    """Covariances of different tokens left out."""
    if found.cov is None:
        return found
    apart = np.eye(omega.shape[2])[None, None, :, None, :]
    return dataclasses.replace(found, cov=found.cov * apart)


# Of every layer but the last a little more is done.
FEWER = Architecture(2, (*[Attention(readout=0.13)] * 5, Attention()), limit="ode")

# Name of the fault: the property that names it, what makes the model, and what makes its maps.
FAULTS: dict[str, tuple[str, Any, type[OverlapMap]]] = {
    "another network is run": (
        "mapping",
        lambda: dataclasses.replace(
            compiled("two layers"), architecture=Architecture(2, (Attention(beta=1.001), Attention()))
        ),
        OverlapMap,
    ),
    "a sign: attention is subtracted": (
        "mapping",
        lambda: dataclasses.replace(
            compiled("two layers"), architecture=Architecture(2, (Attention(readout=-1.0), Attention()))
        ),
        OverlapMap,
    ),
    "a transpose: keys attend to queries": ("mapping", lambda: with_transposes("untied"), OverlapMap),
    "a flip that is no symmetry": (
        "symmetry", lambda: with_symmetry("untied", [[1, 1], [-1, 1]]), OverlapMap,
    ),
    "a flip that is missed": (
        "no-symmetry-missed", lambda: with_symmetry("two layers", [[1, 1], [1, -1]], elements=True), OverlapMap,
    ),
    "a point off the level set": ("level-set", lambda: with_chart("two layers", solved(shifted)), OverlapMap),
    "a sheet is lost": ("sheets", lambda: with_chart("two layers", solved(first_alone)), OverlapMap),
    "a sheet is lost, of one layer": ("sheets", lambda: with_chart("one layer", solved(first_alone)), OverlapMap),
    "a sheet is lost, to posteriors": ("truth", lambda: with_chart("one layer", solved(first_alone)), OverlapMap),
    "rounding that is not stated": ("rounding", lambda: with_chart("flat", sure), OverlapMap),
    "half of a level set": ("sheets", lambda: with_chart("untied", solved(halved)), OverlapMap),
    "a truncated box": ("sheets", lambda: with_chart("two layers", solved(boxed)), OverlapMap),
    "a wrong tail": ("measure", lambda: with_chart("two layers", solved(tailed)), OverlapMap),
    "a wrong Jacobian": ("measure", lambda: with_chart("two layers", solved(heavy)), OverlapMap),
    "a wrong derivative of the activation": (
        "measure", lambda: with_chart("activation", of_an_activation(lambda v: 1 - np.abs(v))), OverlapMap,
    ),
    "a sheet is lost, to probabilities": (
        "probability", lambda: with_chart("two layers", solved(first_alone)), OverlapMap,
    ),
    "a term in log Zout, to probabilities": (
        "probability", lambda: with_channel("one layer", tilted), OverlapMap,
    ),
    "a factor in g_out": ("score", lambda: with_channel("one layer", another(g=1.001)), OverlapMap),
    "a sign of g_out": ("gradient", lambda: with_channel("one layer", another(g=-1.0)), OverlapMap),
    "a sign of g_out, in the map": ("nishimori", lambda: with_channel("one layer", another(g=-1.0)), OverlapMap),
    "a transpose of a covariance": ("score", lambda: with_channel("two layers", turned), OverlapMap),
    "a factor in g_out, to its potential": (
        "gradient", lambda: with_channel("two layers", another(g=1.01)), OverlapMap,
    ),
    "a term in log Zout": ("gradient", lambda: with_channel("one layer", tilted), OverlapMap),
    "a factor in dg_out": ("curvature", lambda: with_channel("one layer", another(dg=1.01)), OverlapMap),
    "1e-3 added to V": ("truth", lambda: with_channel("untied", as_it_is, wider=1e-3), OverlapMap),
    "1e-3 added to V, to the score": ("score", lambda: with_channel("one layer", as_it_is, wider=1e-3), OverlapMap),
    "covariances too small": ("truth", lambda: with_channel("one layer", bold), OverlapMap),
    "an overlap map off by a factor": ("overlap-map", lambda: compiled("one layer"), scaled(white=1.1)),
    "g_out off by a factor in the map": (
        "nishimori", lambda: with_channel("one layer", another(g=1.1)), OverlapMap,
    ),
    "a map that shrinks": ("monotone", lambda: compiled("one layer"), Shrinking),
    "a factor in the slope": ("slope", lambda: compiled("one layer"), scaled(slope=1.3)),
    "a factor in E log Zout": ("free-entropy", lambda: compiled("one layer"), scaled(log_partition=2.0)),
    "an error bar too small by 3": ("error-bars", lambda: compiled("one layer"), Alike),
    "a stale cache": ("slope", lambda: compiled("one layer"), Stale),
    "a stale file": ("kept", lambda: compiled("one layer"), StaleFile),
    "error bars too small": ("fixed-point", lambda: compiled("one layer"), Confident),
    "another alpha": ("onset", lambda: compiled("one layer"), scaled(white=1.4, slope=1.4, raw=1.4)),
    "E log Zout with another sign": ("convex", lambda: compiled("one layer"), scaled(log_partition=-1.0)),
    "a first threshold a fifth too low": (
        "closed-forms", lambda: compiled("one layer"), scaled(beside=1.2),
    ),
    "a posterior up to a sign with wrong odds": (
        "closed-forms", lambda: with_channel("one layer", as_it_is, wider=0.01), OverlapMap,
    ),
    "first thresholds by quadrature and of samples a tenth apart": (
        "closed-forms", lambda: compiled("two layers"), scaled(beside=1.1),
    ),
    "side information not counted": ("side-information", lambda: deaf("one layer"), OverlapMap),
    "a second threshold too high": ("later", lambda: compiled("two layers"), Apart),
    "errors that a map states too large": ("error-bars", lambda: compiled("one layer"), Overstated),
    "a threshold below its floor": (
        "thresholds", lambda: compiled("two layers"), scaled(beside=1.3),
    ),
    "a wrong Jacobian, to weak noise": ("small-noise", lambda: with_chart("two layers", solved(heavy)), OverlapMap),
    "single precision in the chart": ("digits", lambda: with_chart("two layers", in_floats), OverlapMap),
    "covariances of tokens lost": ("moments", lambda: with_channel("one layer", uncoupled), OverlapMap),
    "another noise": ("moments", lambda: with_noise(0.06), OverlapMap),
    "fewer layers than infinitely many": (
        "many-layers", lambda: dataclasses.replace(compiled("many layers"), architecture=FEWER), OverlapMap,
    ),
    "a seed ignored": ("bits", lambda: compiled("one layer"), SeedIgnored),
    "numbers that are never the same": ("bits", lambda: compiled("one layer"), Restless),
    "digits lost in a file": ("kept", lambda: compiled("one layer"), Forgetful),
    "perfect recovery too late": ("perfect", lambda: miscounted("two layers", 0.7), OverlapMap),
    "perfect recovery too early": ("perfect", lambda: miscounted("two layers", 1.5), OverlapMap),
    "the wrong sign of an infinite free entropy": (
        "perfect-entropy", lambda: miscounted("two layers", 0.5), OverlapMap,
    ),
    "a rule with other weights where little is learned": ("slope", lambda: compiled("two layers"), Misweighed),
}  # fmt: skip


# Of GAMP the algorithm is handed in.
ALGORITHMS = {
    "no Onsager term": gamp_with(given_back=1.0),
    "an Onsager term of the wrong sign": gamp_with(given_back=2.0),
    "V that is not updated": gamp_with(kept=True),
}
FAULTS |= {name: ("gamp", lambda: compiled("one layer"), OverlapMap) for name in ALGORITHMS}


def found_of(name: str, seed: int = 0) -> Report:
    named, model, maps = FAULTS[name]
    return check(model(), only=named, maps=maps, algorithm=ALGORITHMS.get(name, smisym.gamp), seed=seed)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_by_the_property_that_names_it(name: str) -> None:
    report = found_of(name)
    (row,) = report.rows
    assert row.verdict == "fails", row
    assert not report.ok
    assert row.tried.counterexample and row.name in report.summary()
    compile(row.tried.counterexample, name, "exec")


def test_every_property_has_a_fault_that_it_catches() -> None:
    assert {named for named, _, _ in FAULTS.values()} == {one.name for one in PROPERTIES}


@pytest.mark.parametrize(
    "name",
    ["a sheet is lost", "a wrong Jacobian", "a flip that is no symmetry", "1e-3 added to V, to the score",
     "another network is run"],
)  # fmt: skip
def test_a_counterexample_runs_and_is_small(name: str) -> None:
    """Lines of Python with the model that was handed in; numbers of a few digits."""
    model, shown = FAULTS[name][1](), found_of(name).rows[0].tried.counterexample
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(shown, name, "exec"), {"model": model})
    assert len(printed.getvalue().splitlines()) >= 2
    assert len(shown) < 1500


def test_a_right_model_has_none_of_these() -> None:
    """Of the same models, with nothing planted."""
    quick = ["mapping", "symmetry", "no-symmetry-missed", "level-set", "sheets", "measure"]
    assert check(compiled("two layers"), only=quick).ok
    rest = ["level-set", "sheets", "measure"]
    assert check(with_chart("activation", of_an_activation(lambda v: 1 - v**2)), only=rest).ok
