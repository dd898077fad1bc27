"""Straight-line programs as functions of JAX, for accelerators: every line is one operation of ``jax.numpy``.

Numbers have 64 bits inside :func:`wide` alone: what the user has set for JAX stays as it is, in other threads too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import scipy.special

from smisym.base.errors import InputError, Words
from smisym.kernels.straight_line import StraightLine


class NotOnDevice(ValueError):
    """A program calls what JAX does not have; the text names all of it."""


def jax() -> Any:
    """The package; raises InputError, which names the extra that brings it, where it is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise InputError(
            "package jax", Words("none"), "version 0.8 or newer", "pip install 'smisym[gpu]', or unset SMISYM_BACKEND"
        )
    return importlib.import_module("jax")


def wide() -> AbstractContextManager[Any]:
    """Inside, in this thread, numbers of JAX have 64 bits."""
    found: AbstractContextManager[Any] = jax().enable_x64(True)
    return found


@functools.cache
def device() -> str:
    """What JAX computes on, in words: platform, kind, and how many of them there are."""
    found = jax().devices()
    return f"{found[0].platform} ({found[0].device_kind}; {len(found)} found, the first is used)"


@functools.cache
def on_cpu() -> bool:
    """Whether what JAX computes on is the processor itself."""
    return bool(jax().devices()[0].platform == "cpu")


def jax_function(program: StraightLine) -> Callable[..., list[Any]]:
    """The program as a function of arrays that broadcast, which JAX can trace; constant outputs have the shape ().

    Raises :class:`NotOnDevice` where it calls what JAX does not have: kernels, which are to be written out before
    (:func:`smisym.kernels.expanding.expanded`), and functions of scipy without a counterpart.
    """
    known = {line.operation: _operation(line.operation) for line in program.lines}
    missing = sorted(name for name, found in known.items() if found is None)
    if missing:
        raise NotOnDevice(f"JAX has no {', '.join(missing)}")

    def function(*arguments: Any) -> list[Any]:
        numpy = jax().numpy
        values: dict[str, Any] = dict(zip(program.arguments, arguments, strict=True))
        for line in program.lines:
            found = known[line.operation]
            operands = [values[o] if isinstance(o, str) else o for o in line.operands]
            # One target a line: only kernels have several.
            values[line.targets[0]] = found(*operands)  # type: ignore[misc]
        return [values[o] if isinstance(o, str) else numpy.asarray(float(o)) for o in program.outputs]

    return function


def _operation(name: str) -> Callable[..., Any] | None:
    """The function of JAX for a ufunc of numpy or scipy, or ``where``; None where there is none."""
    if name == "where" or isinstance(getattr(np, name, None), np.ufunc):
        return getattr(jax().numpy, name, None)
    if isinstance(getattr(scipy.special, name, None), np.ufunc):
        return getattr(importlib.import_module("jax.scipy.special"), name, None)
    return None
