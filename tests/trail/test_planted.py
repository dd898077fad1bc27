"""A fault in any one pass stops the document: planted ones, each handed in, and the step that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import planted
import pytest

import smisym
from smisym import DerivationError, OverlapMap
from smisym.prior import GaussianRows, Prior

compiled = planted.compiled
# Seconds of the processor in which every claim is tried on any machine: what is planted must not be left out for time.
PLENTY = 60.0


class Wrapped:
    """Another object, some of whose answers are replaced."""

    def __init__(self, inner: Any, **answers: Any) -> None:
        self._inner, self._answers = inner, answers

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__["_answers"]
        return answers[name] if name in answers else getattr(self.__dict__["_inner"], name)


def with_prior(name: str, change: Callable[[Prior], dict[str, Any]]) -> smisym.Model:
    """The model with a prior that is wrong in one answer; solvers take it for what it was."""
    model = compiled(name)
    inner = model.prior
    made = type("Planted", (GaussianRows,), {k: lambda self, *a, f=f: f(*a) for k, f in change(inner).items()})
    return dataclasses.replace(model, prior=made(model.fields))


def scaled_derivative(found: Any, omega: np.ndarray) -> Any:
    return found if found.dg is None else dataclasses.replace(found, dg=1.2 * found.dg)


def scaled_gradient(found: Any, omega: np.ndarray) -> Any:
    return dataclasses.replace(found, g=-found.g, mean=2 * omega - found.mean)


class RanksOff(smisym.Model):
    """Counts one equation too many."""

    def jacobian_ranks(self, rng: np.random.Generator) -> Any:
        ranks: Any = super().jacobian_ranks(rng)
        wrong: Any = Wrapped(ranks)
        wrong.__class__ = type("Counts", (Wrapped,), {"__call__": lambda self, span: (ranks(span)[0] + 1, 0.0)})
        return wrong


def with_ranks_off(name: str) -> smisym.Model:
    model = compiled(name)
    return RanksOff(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})


class Skewed(smisym.OverlapMap):
    """A stability operator that is a third too large: the rates at Q = 0 alone."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        return made if Q.any() else dataclasses.replace(made, slope=1.35 * made.slope, raw=1.35 * made.raw)


FEWER = smisym.Architecture(2, (*[smisym.Attention(readout=0.1)] * 3, smisym.Attention()), limit="ode")
FIRST_ORDER = smisym.Architecture(2, (*[smisym.Attention(readout=0.1)] * 2, smisym.Attention()), limit="first_order")

# What is planted: the title of the step that stops, the network, and what makes maps and runs GAMP.
FAULTS: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "a transposed softmax": ("The model against", lambda: planted.with_transposes("two layers"), {}),
    "a wrong symmetry": ("The model against", lambda: planted.with_symmetry("untied", [[1, 1], [-1, 1]]), {}),
    "a lost sheet": (
        "The model against", lambda: planted.with_chart("one layer", planted.solved(planted.first_alone)), {},
    ),
    "a wrong Jacobian": (
        "The model against", lambda: planted.with_chart("two layers", planted.solved(planted.heavy)), {},
    ),
    "a wrong derivative of g_out": (
        "The denoiser is", lambda: planted.with_channel("one layer", scaled_derivative), {},
    ),
    "g_out of the wrong sign": ("The denoiser is", lambda: planted.with_channel("one layer", scaled_gradient), {}),
    "1e-2 added to V": ("The denoiser is", lambda: planted.with_channel("one layer", lambda f, o: f, wider=0.01), {}),
    "another noise": ("The truth is", lambda: planted.with_noise(0.15), {}),
    "a wrong prior term": (
        "The law of", lambda: with_prior("one layer", lambda p: {"entropy": lambda Q: 2 * p.entropy(Q)}), {},
    ),
    "fields narrower than they are": (
        "The law of",
        lambda: with_prior("one layer", lambda p: {"roots": lambda Q: tuple(0.9 * root for root in p.roots(Q))}), {},
    ),
    "fewer layers than infinitely many": (
        "Large depth", lambda: dataclasses.replace(compiled("many layers"), architecture=FEWER), {},
    ),
    "no Onsager term": (
        "GAMP and", lambda: compiled("one layer"), {"algorithm": planted.gamp_with(given_back=1.0)},
    ),
    "an Onsager term of the wrong sign": (
        "GAMP and", lambda: compiled("one layer"), {"algorithm": planted.gamp_with(given_back=2.0)},
    ),
    "another alpha in the overlap map": (
        "The recursion", lambda: compiled("one layer"), {"maps": planted.scaled(white=1.3)},
    ),
    "the wrong sign in Phi": (
        "Free entropy", lambda: compiled("one layer"), {"maps": planted.scaled(log_partition=-1.0)},
    ),
    "a wrong stability operator": ("Linear stability", lambda: compiled("one layer"), {"maps": Skewed}),
    "a wrong counting rank": ("Perfect recovery", lambda: with_ranks_off("one layer"), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_stops_the_document_at_the_step_that_it_is_in(name: str) -> None:
    title, model, how = FAULTS[name]
    with pytest.raises(DerivationError, match=f"stops at '{title}") as stopped:
        smisym.derive(model(), seconds=PLENTY, **how)
    assert stopped.value.found and stopped.value.claim


def test_a_right_model_has_its_document() -> None:
    """Of the same models, with nothing planted: every step is there, and nothing that was not tried is ticked off."""
    for name in ("one layer", "noise"):
        trail = smisym.derive(compiled(name), seconds=PLENTY)
        assert len(trail) > 15
        assert trail.stage("stability")[0].checks


def test_a_fault_is_not_looked_for_where_no_checks_are_asked() -> None:
    trail = smisym.derive(planted.with_transposes("two layers"), checks=False)
    later = [step for step in trail if step.stage in ("trial", "gamp", "entropy", "stability")]
    assert not any(step.checks for step in later)
    assert sum("Not run" in step.text for step in later) >= 4


def test_maps_are_made_by_the_class_that_is_handed_in() -> None:
    with pytest.raises(smisym.InputError, match="what is derived"):
        smisym.derive(OverlapMap)  # type: ignore[arg-type]
