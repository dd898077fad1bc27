"""What solvers refuse at their edge, whichever of them is asked: always an InputError with a remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, InputError

DECLARED = Architecture(2, (Attention(),))
MODEL = smisym.compile(DECLARED)
RNG = np.random.default_rng(0)
Z = np.zeros((1, 1))
DATA = smisym.generate(MODEL, 4, 2.0, RNG)
SMALL: dict[str, Any] = {"samples": 16, "scrambles": 2}

SOLVERS: dict[str, Any] = {
    "overlap_map": lambda model: smisym.overlap_map(model),
    "state_evolution": lambda model: smisym.state_evolution(model, 1.0),
    "curve": lambda model: smisym.curve(model, [1.0]),
    "free_entropy": lambda model: smisym.free_entropy(model, Z, 1.0),
    "weak_recovery": lambda model: smisym.weak_recovery(model),
    "weak_recovery, quadrature": lambda model: smisym.weak_recovery(model, quadrature=True),
    "perfect_recovery": lambda model: smisym.perfect_recovery(model),
    "prediction_errors": lambda model: smisym.prediction_errors(model, Z),
    "gamp": lambda model: smisym.gamp(model, DATA.X, DATA.y),
    "generate": lambda model: smisym.generate(model, 4, 1.0, RNG),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("given", [DECLARED, None, "model"], ids=["architecture", "None", "text"])
def test_solvers_want_a_model(solver: Any, given: Any) -> None:
    with pytest.raises(InputError, match=r"^model: given .*use smisym.compile\(architecture\)"):
        solver(given)


BAD: dict[str, tuple[str, Any]] = {
    "rng of generate": ("rng", lambda: smisym.generate(MODEL, 4, 1.0, 0)),
    "alpha of generate": ("alpha", lambda: smisym.generate(MODEL, 4, "1", RNG)),
    "no samples": ("alpha", lambda: smisym.generate(MODEL, 4, 0.0, RNG)),
    "D": ("D", lambda: smisym.generate(MODEL, True, 1.0, RNG)),
    "workers": ("workers", lambda: smisym.overlap_map(MODEL, workers=-1)),
    "no workers": ("workers", lambda: smisym.overlap_map(MODEL, workers=0)),
    "workers as text": ("workers", lambda: smisym.weak_recovery(MODEL, workers="2")),
    "samples as text": ("samples", lambda: smisym.overlap_map(MODEL, samples="many")),
    "rtol as text": ("rtol", lambda: smisym.overlap_map(MODEL, rtol="a")),
    "rtol of zero": ("rtol", lambda: smisym.overlap_map(MODEL, rtol=0.0)),
    "seed": ("seed", lambda: smisym.overlap_map(MODEL, seed=-1)),
    "stages": ("stages", lambda: smisym.weak_recovery(MODEL, stages="1")),
    "no stages": ("stages", lambda: smisym.weak_recovery(MODEL, stages=0)),
    "warm": ("warm", lambda: smisym.state_evolution(MODEL, 1.0, warm=3, **SMALL)),
    "start": ("start", lambda: smisym.state_evolution(MODEL, 1.0, start=np.ones(2))),
    "tol": ("tol", lambda: smisym.state_evolution(MODEL, 1.0, tol="a")),
    "tol of zero": ("tol", lambda: smisym.state_evolution(MODEL, 1.0, tol=0)),
    "max_steps": ("max_steps", lambda: smisym.state_evolution(MODEL, 1.0, max_steps=1.5)),
    "side information": ("side_information", lambda: smisym.state_evolution(MODEL, 1.0, side_information="a")),
    "alphas": ("alphas", lambda: smisym.curve(MODEL, 3.0)),
    "an alpha as text": ("alpha", lambda: smisym.curve(MODEL, ["1"])),
    "alpha of the free entropy": ("alpha", lambda: smisym.free_entropy(MODEL, Z, "1")),
    "damping": ("damping", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, damping="a")),
    "seed of gamp": ("seed", lambda: smisym.gamp(MODEL, DATA.X, DATA.y, seed=-1)),
    "a row beyond the last": ("rows", lambda: MODEL.jacobian_rank((3,), RNG)),
    "a negative row": ("rows", lambda: MODEL.jacobian_rank((-1,), RNG)),
    "no row": ("rows", lambda: MODEL.jacobian_rank((), RNG)),
    "rng of the rank": ("rng", lambda: MODEL.jacobian_rank((0,), 0)),
}


@pytest.mark.parametrize(("what", "bad"), BAD.values(), ids=BAD.keys())
def test_bad_values_say_how_to_fix_them(what: str, bad: Any) -> None:
    with pytest.raises(InputError, match="To fix") as caught:
        bad()
    assert caught.value.what == what


WITH_Q: dict[str, Any] = {
    "overlap_map": lambda Q: smisym.overlap_map(MODEL, **SMALL)(Q),
    "free_entropy": lambda Q: smisym.free_entropy(MODEL, Q, 1.0, **SMALL),
    "prediction_errors": lambda Q: smisym.prediction_errors(MODEL, Q, **SMALL),
}
OVERLAPS: dict[str, tuple[Any, str]] = {
    "shape": (np.zeros((2, 2)), r"shape \(2, 2\)'; allowed: .*shape \(1, 1\)"),
    "vector": (np.zeros(1), r"shape \(1,\)'; allowed"),
    "NaN": (np.full((1, 1), np.nan), "NaN or infinity"),
    "text": ("a", "give real numbers"),
    "ragged": ([[0.0], [0.0, 1.0]], "one row per field"),
}


@pytest.mark.parametrize("solver", WITH_Q.values(), ids=WITH_Q.keys())
@pytest.mark.parametrize(("Q", "words"), OVERLAPS.values(), ids=OVERLAPS.keys())
def test_bad_overlaps_are_named(solver: Any, Q: Any, words: str) -> None:
    with pytest.raises(InputError, match=rf"^Q: given .*{words}"):
        solver(Q)


def test_a_start_of_other_scrambles_is_refused() -> None:
    warm = smisym.state_evolution(MODEL, 0.1, **SMALL).value
    assert smisym.state_evolution(MODEL, 0.2, warm=warm, **SMALL).value.alpha == 0.2
    with pytest.raises(InputError, match=r"^warm: given 'overlaps of shape \(2, 1\)'; allowed: .*\(4, 1\)"):
        smisym.state_evolution(MODEL, 0.2, warm=warm, samples=16, scrambles=4)


def test_no_alphas_no_points_and_iterators_are_read_once() -> None:
    assert smisym.curve(MODEL, [], **SMALL) == []
    found = smisym.curve(MODEL, iter([0.1, 0.05]), **SMALL)  # type: ignore[arg-type]
    assert [point.value.alpha for point in found] == [0.05, 0.1]


def test_the_least_noise_and_the_largest_position_are_in_reach() -> None:
    for declared in (
        Architecture(2, (Attention(),), noise=1e-20),
        Architecture(2, (Attention(position=((0.0, 1e6), (0.0, 0.0))),)),
    ):
        E, _ = smisym.overlap_map(smisym.compile(declared), **SMALL)(Z)
        assert np.isfinite(E).all()
