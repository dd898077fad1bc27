"""What the strategies draw is legal, of every kind, and shrinks to what a person can read."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings

import smisym
from smisym import SMI, Architecture, Attention
from smisym.verify.strategies import architectures, cavities, fields, models_by_expressions, overlaps

MODELS = {
    "two layers": Architecture(2, (Attention(), Attention())),
    "split": Architecture(2, (Attention(heads=2),), head_layout="split"),
    "coupled": SMI("z1*z2 + z1**4", 2),
}
COMPILED = {name: smisym.compile(declared) for name, declared in MODELS.items()}


@given(architectures())
@settings(deadline=None)
def test_architectures_are_their_python_and_their_file(declared: Architecture) -> None:
    assert eval(repr(declared), {"Architecture": Architecture, "Attention": Attention}) == declared
    with TemporaryDirectory() as folder:
        smisym.save(declared, Path(folder) / "network.toml")
        assert smisym.load(Path(folder) / "network.toml") == declared


KINDS: dict[str, Any] = {
    "masked": lambda a: any(isinstance(layer.mask, tuple) for layer in a.layers),
    "split": lambda a: a.head_layout == "split" and len(a.layers) > 1,
    "position": lambda a: a.layers[0].position is not None,
    "own": lambda a: a.layers[0].elementwise,
    "sum": lambda a: a.combine == "sum",
    "readouts": lambda a: isinstance(a.layers[0].readout, tuple),
    "noise": lambda a: a.noise > 0,
    "sequence": lambda a: a.output == "sequence" and not a.layers[0].tied,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_drawn_and_shrinks(kind: str) -> None:
    """To as few layers as it takes."""
    found = find(architectures(), KINDS[kind], settings=settings(max_examples=2000, database=None))
    assert len(found.layers) <= 2
    assert len(repr(found)) < 400


@given(models_by_expressions())
@settings(max_examples=30, deadline=None)
def test_expressions_are_models(declared: SMI) -> None:
    assert 1 <= len(declared.fields) <= 3
    assert all(any(name in text for text in declared.expressions) for name in declared.fields)


@pytest.mark.parametrize("name", MODELS)
def test_overlaps_are_those_of_the_model(name: str) -> None:
    model, seen = COMPILED[name], list[np.ndarray]()

    @given(overlaps(model))
    @settings(max_examples=60, deadline=None, database=None)
    def held(Q: np.ndarray) -> None:
        seen.append(Q)
        values = np.linalg.eigvalsh(Q)
        assert values[0] > -1e-12 and values[-1] < 1
        np.testing.assert_allclose(model.symmetry.project(Q), Q, atol=1e-12)
        np.testing.assert_allclose(Q * model.prior.together(), Q, atol=1e-12)

    held()
    spectra = np.array([np.linalg.eigvalsh(Q) for Q in seen])
    assert spectra[:, -1].min() < 0.02 and spectra[:, 0].max() > 0.98
    # Slices that a symmetry exchanges are learned alike.
    assert (spectra[:, 0] < 1e-3).any() and (spectra[:, -1] - spectra[:, 0] > 0.5).any() == (name != "split")
    # Only where symmetries leave them are rows of an overlap coupled.
    assert any(abs(Q[0, 1]) > 1e-3 for Q in seen) == (name == "coupled")


def test_cavities_fit_and_shrink() -> None:
    model = COMPILED["two layers"]
    found = find(cavities(model), lambda c: abs(c.omega[0, 0]) > 0.5, settings=settings(database=None))
    assert found.omega.tolist() == [[0.501, 0.0], [0.0, 0.0]] or abs(found.omega).sum() < 0.6
    assert np.linalg.eigvalsh(found.V)[0] > 0
    assert find(fields(model), lambda Z: Z[1, 1] > 1, settings=settings(database=None))[1, 1] == 1.001
