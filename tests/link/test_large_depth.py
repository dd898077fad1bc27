"""The mixing of infinitely many layers, where symmetry or a closed form says what attention is on average."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from smisym import Attention
from smisym.link.large_depth import limiting_mixing

POSITION = ((0.0, 0.5), (-0.25, 1.0))
HALVES, CAUSAL = np.full((2, 2), 0.5), np.array([[1.0, 0.0], [0.5, 0.5]])
ALONE = {"tied": False, "activation": "linear"}


@pytest.mark.parametrize(
    ("layer", "mean"),
    [
        # Keys of independent weights are as often on one side of a query as on the other.
        ({"tied": False}, HALVES),
        ({"tied": False, "activation": "hardmax"}, HALVES),
        ({"tied": False, "activation": "hardmax", "mask": "causal"}, CAUSAL),
        ({"tied": False, "mask": "causal"}, CAUSAL),
        ({"tied": False, "activation": "sign(s)"}, np.zeros((2, 2))),
        ({"tied": False, "activation": "tanh(s)"}, np.zeros((2, 2))),
        ({"tied": False, "activation": "1 + tanh(s)"}, np.ones((2, 2))),
        ({"tied": False, "activation": "1 + tanh(s)", "mask": "causal"}, np.tril(np.ones((2, 2)))),
        (ALONE, np.zeros((2, 2))),
        ({**ALONE, "position": POSITION}, np.array(POSITION)),
        ({**ALONE, "position": POSITION, "mask": "causal"}, np.tril(POSITION)),
    ],
)
def test_attention_whose_mean_is_known_mixes_as_its_exponential(layer: dict[str, object], mean: np.ndarray) -> None:
    """dB/ds = o M B with M that does not depend on B."""
    layers = tuple(Attention(readout=0.25, **layer) for _ in range(3))  # type: ignore[arg-type]
    found = np.array(limiting_mixing(2, layers), dtype=float)
    np.testing.assert_allclose(found, expm(0.75 * mean), atol=2e-3)


@pytest.mark.parametrize(("tokens", "rank", "beta"), [(2, 1, 0.5), (3, 1, 0.4), (2, 2, 0.3)])
def test_linear_attention_of_tied_weights_grows_as_its_differential_equation(
    tokens: int, rank: int, beta: float
) -> None:
    """dB/ds = c B B^T B with B = b I: b = (1 - 2 c)^(-1/2) at s = 1, c of the mean of h^T h."""
    layer = Attention(readout=0.2, rank=rank, beta=beta, activation="linear")
    c = 2 * 0.2 * beta * layer.scale * rank
    found = np.array(limiting_mixing(tokens, (layer, layer)), dtype=float)
    np.testing.assert_allclose(found, np.eye(tokens) / np.sqrt(1 - 2 * c), atol=2e-3)
