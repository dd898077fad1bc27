"""JAX, where it is asked for, and what it computes on."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from contextlib import AbstractContextManager
from typing import Any

from smisym.base.errors import InputError, Words


def jax() -> Any:
    """The package; raises InputError, which names the extra that brings it, where it is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise InputError("package jax", Words("none"), "version 0.8 or newer", "pip install 'smisym[gpu]'")
    return importlib.import_module("jax")


def wide() -> AbstractContextManager[Any]:
    """Inside, in this thread, numbers of JAX have 64 bits; what the user has set stays as it is outside."""
    found: AbstractContextManager[Any] = jax().enable_x64(True)
    return found


@functools.cache
def device() -> str:
    """What JAX computes on, in words: platform, kind, and how many of them there are."""
    found = jax().devices()
    return f"{found[0].platform} ({found[0].device_kind}, the first of {len(found)})"


@functools.cache
def on_processor() -> bool:
    """Whether what JAX computes on is the processor itself."""
    return bool(jax().devices()[0].platform == "cpu")
