"""Hardmax of extensive rank: which denoiser the published curve has, and which one the package has.

Two tokens choose by the signs of u_1 = h_11 - h_12 and u_2 = h_22 - h_12, so that g is the derivative of the logarithm
of Phi_2.  Its numerators are phi(kappa_1) Phi(...); the published code has the density phi_2 in both.  Here with
nothing of the channel: sums over a grid of cavities.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from smisym.prior.spectrum import NoisyWishart

RHO = 0.5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
# Points a side; probabilities below the least are zero to rounding, and so is what they add.
SIDE, REACH, LEAST = 601, 7.0, 1e-11
WITH = Path(__file__).parents[2] / "docs" / "published_aim.csv"
with open(WITH, encoding="utf-8") as stream:
    ROWS = [row for row in csv.DictReader(stream) if row["what"] == "hardmax" and float(row["rho"]) == RHO]
PUBLISHED = [(float(row["alpha"]), float(row["error"])) for row in (*ROWS[::8], ROWS[-1])]


def density(a: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    return np.asarray(np.exp(-(a * a - 2 * c * a * b + b * b) / (2 * (1 - c * c))) / (2 * np.pi * math.sqrt(1 - c * c)))


def probability(a: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    """Phi_2, as an integral over the correlation (Plackett)."""
    parts = (0.5 * c * w * density(a, b, 0.5 * c * (x + 1)) for x, w in zip(NODES, WEIGHTS, strict=True))
    return np.asarray(ndtr(a) * ndtr(b) + sum(parts))


def what_it_leaves(alpha: float, left: float, published: bool) -> float:
    """F(1 / Q_hat) at V = left: the right side of the equation of state evolution."""
    scale = math.sqrt(3 * (1 + RHO - left))
    line = np.linspace(-REACH, REACH, SIDE)
    x, y = np.meshgrid(line, line, indexing="ij")
    law = density(x, y, 1 / 3) * (line[1] - line[0]) ** 2
    told = 0.0
    for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        a, b, c = s * x * scale / math.sqrt(3 * left), t * y * scale / math.sqrt(3 * left), s * t / 3
        p = probability(a, b, c)
        first = second = density(a, b, c)
        if not published:
            root = math.sqrt(1 - c * c)
            first = np.exp(-a * a / 2) / math.sqrt(2 * np.pi) * ndtr((b - c * a) / root)
            second = np.exp(-b * b / 2) / math.sqrt(2 * np.pi) * ndtr((a - c * b) / root)
        # Fields are h_11 / sqrt(2), h_12, h_22 / sqrt(2).
        squares = 2 * first**2 + 2 * second**2 + (s * first + t * second) ** 2
        told += float(np.sum(law * np.where(p > LEAST, squares / np.maximum(p, LEAST), 0.0))) / (3 * left)
    return NoisyWishart(RHO, 1 / (2 * alpha * told)).left


@pytest.mark.parametrize(("alpha", "error"), PUBLISHED)
def test_published_errors_are_those_of_the_density_alone(alpha: float, error: float) -> None:
    assert what_it_leaves(alpha, error, published=True) == pytest.approx(error, rel=0.01)
    assert what_it_leaves(alpha, error, published=False) < 0.985 * error


@pytest.mark.parametrize(("alpha", "error"), [(0.1416, 0.6426223), (1.1058, 0.0670871)])
def test_the_derivative_has_the_errors_of_the_package(alpha: float, error: float) -> None:
    """Those of tests/theory/test_extensive_rank.py, to more digits: its equation, which holds here."""
    assert what_it_leaves(alpha, error, published=False) == pytest.approx(error, rel=1e-5)
