"""Kernels written out as arithmetic of scalars are what the kernels are; programs as text are what the programs are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cases import DECLARED, charted
from scipy.special import log_ndtr

from smisym.kernels.expanding import LARGEST, NotWrittenOut, expanded
from smisym.kernels.numba_code import NotCompiled, check, scalar_function
from smisym.kernels.tracing import call, trace

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("row_softmax_4", 4),
        ("row_hardmax_3", 3),
        ("solve_logdet_2", 6),
        ("solve_logdet_5", 30),
        ("solve_columns_3", 18),
        ("inverse_logdet_4", 16),
    ],
)
def test_written_out_kernels_are_the_kernels(name: str, entries: int) -> None:
    values = RNG.standard_normal((entries, 200))
    values[0, :50] *= 1e-9  # a pivot that must be exchanged
    program = trace(lambda *given: call(name, given), [f"a{k}" for k in range(entries)])
    own = expanded(program)
    assert not any(line.operation == name for line in own.lines)
    for mine, theirs in zip(own.compile()(*values), program.compile()(*values), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)


def test_the_first_of_equals_is_the_largest() -> None:
    program = expanded(trace(lambda *given: call("row_hardmax_3", given), ["a", "b", "c"]))
    np.testing.assert_array_equal(program.compile()(*np.array([1.0, 1.0, 0.0])), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(program.compile()(*np.array([1.0, 1.0, 1.0])), [1.0, 0.0, 0.0])


def test_a_singular_matrix_has_no_log_determinant() -> None:
    program = expanded(trace(lambda *given: call("solve_columns_2", given), [f"a{k}" for k in range(6)]))
    with np.errstate(all="ignore"):
        assert math.isnan(program.compile()(*np.array([1.0, 2.0, 2.0, 4.0, 1.0, 1.0]))[-1])


@pytest.mark.parametrize("name", [f"solve_logdet_{LARGEST + 1}", "least_norm_1_2"])
def test_what_is_not_written_out_says_so(name: str) -> None:
    size = (LARGEST + 1) * (LARGEST + 2) if "solve" in name else 4
    program = trace(lambda *given: call(name, given), [f"a{k}" for k in range(size)])
    with pytest.raises(NotWrittenOut, match=name):
        expanded(program)


# ------------------------------------------------------------------------------------------- programs as scalar Python


def carried_out(text: str, values: np.ndarray) -> list[float]:
    """The text of a scalar function carried out by Python itself, number by number."""
    names: dict[str, Any] = {
        "inlined": lambda function: function,
        "math": np,
        "exp": np.exp,
        "log": np.log,
        "log1p": np.log1p,
        "logaddexp": np.logaddexp,
        "sign": np.sign,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "isfinite": np.isfinite,
        "where": lambda c, a, b: a if c else b,
        "inf": np.inf,
        "nan": np.nan,
    }
    for new, old in {"atan": "arctan", "asinh": "arcsinh", "atanh": "arctanh"}.items():
        text = text.replace(f"math.{new}(", f"math.{old}(")
    exec(text, names)
    with np.errstate(all="ignore"):
        return [float(value) for value in names["point"](*map(np.float64, values))]


@pytest.mark.parametrize("name", DECLARED)
def test_every_chart_as_scalar_python(name: str) -> None:
    found = charted(name)
    if found is None or found[1].program is None:
        return
    link, chart = found
    try:
        program = expanded(chart.program)  # type: ignore[arg-type]
        check(program)
    except (NotWrittenOut, NotCompiled) as error:
        assert str(error) in {"least_norm_1_2", "log_ndtr"}, "numpy carries this chart out; say so in the guide"
        return
    u = chart.coordinates(link.observe(RNG.standard_normal((3, link.fields, link.tokens)))).values
    free = RNG.standard_normal((len(chart.free_rows) * link.tokens + len(chart.latents), 3))
    text = scalar_function(program, "point")
    with np.errstate(all="ignore"):
        arrays = chart.program.compile()(*free, *u.T)  # type: ignore[union-attr]
    for k, point in enumerate(np.concatenate([free, u.T]).T):
        own = [float(np.broadcast_to(a, (3,))[k]) for a in arrays]
        np.testing.assert_allclose(carried_out(text, point), own, rtol=1e-8, atol=1e-9)


def test_an_operation_that_is_not_compiled_is_named() -> None:
    with pytest.raises(NotCompiled, match="log_ndtr"):
        scalar_function(trace(lambda a: [log_ndtr(a)], ["a"]), "point")
