"""Straight-line programs as functions of JAX, for accelerators: every line is one operation of ``jax.numpy``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from smisym.base.accelerators import jax
from smisym.kernels.straight_line import StraightLine


class NotOnDevice(ValueError):
    """A program calls what JAX does not have; the text names all of it."""


def jax_function(program: StraightLine) -> Callable[..., list[Any]]:
    """The program as a function of arrays that broadcast, which JAX can trace; constant outputs have the shape ().

    Raises :class:`NotOnDevice` where it calls what JAX does not have: kernels, which are to be written out before
    (:func:`smisym.kernels.expanding.expanded`), and functions of scipy without a counterpart; InputError without JAX.
    """
    known = {line.operation: _operation(line.operation) for line in program.lines}
    missing = sorted(name for name, found in known.items() if found is None)
    if missing:
        raise NotOnDevice(f"JAX has no {', '.join(missing)}")

    def function(*arguments: Any) -> list[Any]:
        values: dict[str, Any] = dict(zip(program.arguments, arguments, strict=True))
        for line in program.lines:
            operands = [values[o] if isinstance(o, str) else o for o in line.operands]
            # One target a line: only kernels have several.
            values[line.targets[0]] = known[line.operation](*operands)  # type: ignore[misc]
        return [values[o] if isinstance(o, str) else jax().numpy.asarray(float(o)) for o in program.outputs]

    return function


def _operation(name: str) -> Callable[..., Any] | None:
    """The function of JAX for a ufunc of numpy or scipy, or ``where``; None where there is none."""
    if name == "where" or isinstance(getattr(np, name, None), np.ufunc):
        return getattr(jax().numpy, name, None)
    if isinstance(getattr(scipy.special, name, None), np.ufunc):
        jax()
        return getattr(importlib.import_module("jax.scipy.special"), name, None)
    return None
