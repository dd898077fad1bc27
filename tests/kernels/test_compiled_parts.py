"""Functions that compiled loops are made of are handed on as they were written: the same numbers, made of less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from smisym.kernels.parts import Parts
from smisym.kernels.scalars import WITHIN


def chained(**how: Any) -> tuple[Callable[..., float], list[Any]]:
    """A function that calls one that calls another, and those two."""
    options = {"fastmath": {"contract"}, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    @numba.njit(**(options | how))
    def inner(x: Any, k: int) -> Any:
        if k > 10_000:
            raise ValueError("more than there are")
        return np.sin(x[k]) / (1.0 + x[k] * x[k])

    @numba.njit(**(options | how))
    def middle(x: Any, start: int) -> Any:
        total = 0.0
        for k in range(start, x.shape[0]):
            total += inner(x, k)
        return total

    @numba.njit("float64(float64[::1])", fastmath={"contract"}, error_model="numpy")
    def outer(x: Any) -> Any:
        return middle(x, 1) * inner(x, 0)

    return outer, [inner, middle]


def machine_code(functions: list[Any]) -> list[bool]:
    """Whether these functions have machine code of their own, once for each of their signatures."""
    compiled = [found for function in functions for found in function.overloads.values()]
    return [found.library.codegen._engine.is_symbol_defined(found.fndesc.mangled_name) for found in compiled]


def test_the_same_numbers_as_those_of_functions_compiled_apart() -> None:
    x = np.random.default_rng(0).standard_normal(1000)
    apart, _ = chained()
    together, _ = chained(pipeline_class=Parts)
    assert apart(x) == together(x) != 0.0
    with pytest.raises(ValueError, match="more than there are"):
        together(np.ones(20_000))


def test_parts_have_no_machine_code_of_their_own() -> None:
    """As numba has it now; another version may do more work, and not other work."""
    _, apart = chained()
    _, parts = chained(pipeline_class=Parts)
    assert set(machine_code(apart)) == {True}
    assert set(machine_code(parts)) == {False}
    assert WITHIN["pipeline_class"] is Parts


def test_what_a_part_replaces_is_there() -> None:
    """Two steps of numba's: a version that names them otherwise compiles every part apart, in twice the time."""
    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        assert callable(getattr(JITCodeLibrary, name))
