"""Outputs that say no more than others, as the last of a row that sums to one: left out, and held against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.charts.base import Arrays, Fault, faults
from smisym.charts.numpy_code import lambdified

# Random fields, and their spread: nearer to zero than usual, where nothing has saturated.
_TRIALS, _SPREAD = 64, 0.7
# Singular values below this share of the largest one are zero; how far an output may be from what the others say.
_ZERO, _EQUAL = 1e-9, 1e-3

Fields = tuple[sp.Symbol, ...]


def independent(expressions: Sequence[sp.Expr], fields: Fields) -> tuple[int, ...]:
    """Numbers of the simplest expressions that all others are functions of, near almost every field.

    All of them where none is left out, or where that is not the same everywhere, as with outputs that are constant on
    some orthants.
    """
    everything = tuple(range(len(expressions)))
    J = _jacobians(expressions, fields)
    if len(expressions) < 2 or len(J) < _TRIALS // 2 or not J.any(axis=2).all():
        return everything
    # Outputs may have any units, of which squares are no floats.
    J /= np.abs(J).max(axis=2, keepdims=True)
    J /= np.linalg.norm(J, axis=2, keepdims=True)
    rank = _ranks(J)
    if rank.min() != rank.max() or rank.max() == len(expressions):
        return everything
    kept: list[int] = []
    for k in sorted(everything, key=lambda k: (sp.count_ops(expressions[k]), k)):
        if (_ranks(J[:, [*kept, k]]) > len(kept)).all():
            kept.append(k)
    return tuple(sorted(kept)) if len(kept) == rank.max() else everything


def _jacobians(expressions: Sequence[sp.Expr], fields: Fields) -> np.ndarray:
    """(n, K, fields) at random fields where all is finite; signs are constants."""
    smooth = [e.replace(sp.sign, _Constant) for e in expressions]
    slopes = [sp.diff(e, f).replace(_Constant, sp.sign) for e in smooth for f in fields]
    Z = _SPREAD * np.random.default_rng(5).standard_normal((len(fields), _TRIALS))
    with np.errstate(all="ignore"):
        values = np.array([np.broadcast_to(v, (_TRIALS,)) for v in lambdified(fields, slopes)(*Z)], dtype=float)
    J = values.reshape(len(expressions), len(fields), _TRIALS).transpose(2, 0, 1)
    return J[np.isfinite(J).all(axis=(1, 2))]


def _ranks(J: np.ndarray) -> np.ndarray:
    sizes = np.linalg.svd(J, compute_uv=False)
    return np.asarray((sizes > _ZERO * sizes[:, :1]).sum(axis=1))


class _Constant(sp.Function):
    """A sign, which has no slope but where it jumps."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.Integer(0)


class Implied:
    """The expressions that were left out, at fields that the others were solved for."""

    def __init__(self, expressions: Sequence[sp.Expr], kept: tuple[int, ...], fields: Fields) -> None:
        self.kept = kept
        self.numbers = [k for k in range(len(expressions)) if k not in kept]
        self._code: Any = lambdified(fields, [expressions[k] for k in self.numbers])

    def __str__(self) -> str:
        says = "says" if len(self.numbers) == 1 else "say"
        return f"{counted(len(self.numbers), 'output')} {says} no more than the others"

    def _wrong(self, fields: Arrays, told: np.ndarray) -> np.ndarray:
        """(S,) where solutions, some arrays (S,), do not give the outputs that were left out, told (all of them, S)."""
        with np.errstate(all="ignore"):
            gaps = [
                np.abs(own - told[k]) > _EQUAL * (1e-3 + np.abs(told[k]))
                for k, own in zip(self.numbers, self._code(*fields), strict=True)
            ]
        return np.asarray(np.any(np.broadcast_arrays(*gaps, np.zeros(told.shape[1:], dtype=bool)), axis=0))

    def faults(self, sheets: Callable[[], list[tuple[Arrays, np.ndarray]]], told: np.ndarray) -> tuple[Fault, ...]:
        """Of outputs (all of them, S) that contradict one another on all of the sheets that hold any fields."""
        if not self.numbers:
            return ()
        # At one point of each level set: along it these outputs are the same.
        there, right = np.zeros((2, *told.shape[1:]), dtype=bool)
        for fields, weight in sheets():
            here = np.isfinite(np.broadcast_to(weight, there.shape))
            there |= here
            right |= here & ~self._wrong(fields, told)
        return faults(
            there & ~right,
            lambda sample: f"{told[:, sample].tolist()}, which contradict one another",
            "outputs of these expressions",
            "check that y comes from this model; with noise, declare the noise",
        )
