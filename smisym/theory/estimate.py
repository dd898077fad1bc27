"""One scramble's estimates at one overlap, in units of what is left to learn.

With V, what is left, everything is kept as V^{1/2} . V^{1/2}, in which it is of order one however small V is in some
directions: what rounding leaves of a direction that is known perfectly does not spill into one that is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from smisym.base.matrices import square_root
from smisym.model.compiled import Model
from smisym.prior import remaining
from smisym.theory.controls import NUMBERS


@dataclass(frozen=True)
class Estimate:
    """What one scramble's points tell at one overlap Q (P, P).

    white (P, P): V^{1/2} E V^{1/2}, with E = E[g g^T] in units of the prior, times its multiplicity (1 but for split
    heads), the combination of three estimators of least variance.
    three (3, P, P): the three, equal by Nishimori: E[g g^T], -E[dg] and E[g g*^T] with g* = V^{-1}(Z* - omega), each
    between two V^{1/2}.
    slope (P, P, P, P): the derivative of E with V^{1/2} dE[V^{1/2} M V^{1/2}] V^{1/2} = sum_ab slope[p,a,q,b] M_ab,
    from E[(dg) M (dg)^T] (theory: the Ito derivative of E).
    raw (P, P, P, P): the same without controls.  shares (k or 0, P, P, P, P): what was taken from it for each unit of
    the first gap; nothing where that would be many numbers.  gains (2, k): what ``white`` takes of both gaps.
    unclear (k, k): how much of the rates at which overlaps along the basis of invariant ones (as unit matrices) grow,
    tr(B_i slope[B_j]), may be nothing but errors of the inner integrals: of each sample at most its squared error.
    log_partition: E log Zout.
    inner_error: bound on the error of tr(V E) from the inner integration; tr(V E) is between 0 and the rank of df/dZ.
    accurate: whether every inner integral met its tolerance.
    gap, gap_error (2, k): what the first of the three has above the second and the third in the invariant coordinates,
    and its standard error if the points were independent draws (Sobol points do better).
    beside (k, k, 9, 10): at Q = 0 the rates of growth and what is known of their fluctuations
    (:func:`smisym.theory.controls.beside`), times the multiplicity; zeros at any other Q, and where the
    mean of the weights tells of the fields.
    """

    Q: np.ndarray
    white: np.ndarray
    three: np.ndarray
    slope: np.ndarray
    raw: np.ndarray
    shares: np.ndarray
    gains: np.ndarray
    unclear: np.ndarray
    log_partition: float
    inner_error: float
    accurate: bool
    gap: np.ndarray
    gap_error: np.ndarray
    beside: np.ndarray

    @cached_property
    def root(self) -> np.ndarray:
        """V^{1/2} (P, P)."""
        return _fixed(square_root(remaining(self.Q)))

    @cached_property
    def E(self) -> np.ndarray:
        """E(Q) (P, P)."""
        inverse = np.linalg.inv(self.root)
        return _fixed(inverse @ self.white @ inverse)

    def derivative(self, M: np.ndarray) -> np.ndarray:
        """dE(Q)[M] for a symmetric M (P, P)."""
        inverse = np.linalg.inv(self.root)
        return np.asarray(inverse @ np.einsum("paqb,ab->pq", self.slope, inverse @ M @ inverse) @ inverse)


def _fixed(array: np.ndarray) -> np.ndarray:
    """The array, which nobody can write to any more: one estimate serves every solver."""
    array.flags.writeable = False
    return array


def estimate_from(values: Mapping[str, Any], model: Model) -> Estimate | None:
    """The estimate that a file holds, or None where it is no estimate of this model: of an older version, or forged."""
    P, k = model.fields, len(model.symmetry.basis)
    shapes = {
        "Q": (P, P), "white": (P, P), "three": (3, P, P), "slope": (P,) * 4, "raw": (P,) * 4, "gains": (2, k),
        "unclear": (k, k), "gap": (2, k), "gap_error": (2, k),
        "beside": (k, k, NUMBERS, NUMBERS + 1),
    }  # fmt: skip
    try:
        arrays = {name: np.array(values[name], dtype=float) for name in shapes}
        arrays["shares"] = np.array(values["shares"], dtype=float).reshape(-1, *(P,) * 4)
        # Files hold what is not finite as null.
        numbers = {n: math.nan if values[n] is None else float(values[n]) for n in ("log_partition", "inner_error")}
        accurate = values["accurate"]
    except (KeyError, TypeError, ValueError):
        return None
    if (
        any(arrays[name].shape != shape for name, shape in shapes.items())
        or len(arrays["shares"]) not in (0, k)
        or not isinstance(accurate, bool | np.bool_)
    ):
        return None
    if not np.allclose(arrays["white"], arrays["white"].T, atol=1e-12, rtol=1e-9, equal_nan=True):
        return None
    for array in arrays.values():
        _fixed(array)
    whole: dict[str, Any] = {**arrays, **numbers, "accurate": bool(accurate)}
    return Estimate(**whole)
