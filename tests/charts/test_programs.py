"""Charts as straight-line programs: the numbers that thirty digits give line by line, and the bits of numpy."""

from __future__ import annotations

import ast
import tracemalloc
from typing import Any

import numpy as np
import pytest
from cases import DECLARED, charted

from smisym import SMI
from smisym.base.derivation import Derivation
from smisym.charts import RULES, LevelSet, find_level_set
from smisym.charts.base import Sheets
from smisym.charts.programs import Counts, programmed, sheets_program
from smisym.kernels.straight_line import INFIX, PREFIX, StraightLine
from smisym.kernels.tracing import Untraceable, call, trace
from smisym.link.linking import LinkFunction, link_function
from smisym.verify.straight_lines import carry_out

# One that no row of the table of cases has: two outputs that see a row through linear forms.
FORMS = SMI(("b[1]*a[1] + b[2]*a[2]", "tanh(b[2]*a[1] - b[1]*a[2])"), ("a", "b"), tokens=2)
# Charts of shipped rules that are no program, and why; none today.
NUMERICAL: dict[str, str] = {}


def chart_of(name: str) -> tuple[LinkFunction, LevelSet] | None:
    if name in DECLARED:
        return charted(name)
    link = link_function(FORMS, Derivation())
    return link, find_level_set(link, Derivation())


def given(link: LinkFunction, chart: LevelSet, count: int = 4) -> list[np.ndarray]:
    """Random coordinates of points of level sets: outputs of random fields, other free fields."""
    rng = np.random.default_rng(3)
    u = chart.coordinates(link.observe(rng.standard_normal((count, link.fields, link.tokens)))).values
    free = rng.standard_normal((len(chart.free_rows) * link.tokens + len(chart.latents), count))
    return [*free, *u.T]


def flat(sheets: Sheets) -> list[np.ndarray]:
    along = [value for sheet in sheets.directions for vector in sheet for value in vector]
    return [*(value for sheet in sheets.solved for value in sheet), *sheets.log_weight, *along]


@pytest.mark.parametrize("name", [*DECLARED, "linear-forms"])
def test_the_program_is_the_chart(name: str) -> None:
    """Every shipped chart has one, and its compiled form is what it says, carried out with thirty digits."""
    found = chart_of(name)
    if found is None:
        assert name not in NUMERICAL
        return
    link, chart = found
    program = chart.program
    assert (program is None) == (name in NUMERICAL), "add it to NUMERICAL, with the reason, or take it off"
    if program is None:
        return
    listing(program)
    at = given(link, chart)
    free, latents = len(chart.free_rows) * link.tokens, len(chart.latents)
    numeric = flat(chart.solve(at[:free], at[free : free + latents], at[free + latents :]))
    table = np.stack([np.broadcast_to(value, (4,)) for value in numeric])
    for k, point in enumerate(np.array(at).T):
        exact = np.array([float(value) for value in carry_out(program, point)])
        np.testing.assert_allclose(table[:, k], exact, rtol=1e-8, atol=1e-8, err_msg=f"outputs of {program.outputs}")


def listing(program: StraightLine) -> None:
    """What is printed is Python of one operation a line, every name new, read after it is written."""
    (function,) = ast.parse(str(program)).body
    assert isinstance(function, ast.FunctionDef)
    known = {a.arg for a in function.args.args}
    *lines, last = function.body
    assert len(lines) == len(program.lines) and isinstance(last, ast.Return)
    for line in lines:
        assert isinstance(line, ast.Assign)
        read = {n.id for n in ast.walk(line.value) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        called = {n.func.id for n in ast.walk(line.value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        written = {n.id for n in ast.walk(line.targets[0]) if isinstance(n, ast.Name)}
        assert read - called - {"inf", "nan"} <= known
        assert not written & known
        known |= written


def test_every_rule_has_a_case() -> None:
    """A rule that no case meets would have no program tested."""
    names = ("L2-T2", "untied-T2", "sequence-two-noiseless", "extensive-T2", "linear-forms", "product",
             "extensive-two-layers")  # fmt: skip
    found = [chart_of(name) for name in names]
    assert {chart.rule for _, chart in filter(None, found)} == {name for name, _ in RULES}


# --------------------------------------------------------------------------------------------------------- tracing


def test_traced_arithmetic_keeps_every_bit() -> None:
    """What is inlined, shortened, folded and named once is what numpy makes of the function itself."""

    def function(a: Any, b: Any) -> list[Any]:
        first = 0.0 + 1.0 * a - -b
        size = np.where((first > 0.25) & ~(a == b), np.sqrt(np.abs(first)), -1.0 * b)
        several = [size * k for k in (1.0, 0.5, -1.0)]
        return [*several, sum(several), first**2 - b ** (-1), np.log1p(a * a) + a * a, np.float64(2) ** 3]

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 50, 7))
    program = trace(function, ["a", "b"])
    for mine, own in zip(program.compile()(a, b), function(a, b), strict=True):
        np.testing.assert_array_equal(mine, own)
    assert {line.operation for line in program.lines} <= {
        *INFIX, *PREFIX, "absolute", "sqrt", "where", "log1p"
    }  # fmt: skip
    assert program.outputs[-1] == 8.0
    # a * a once, and neither zeros nor ones.
    assert [(line.operation, line.operands) for line in program.lines].count(("multiply", ("a", "a"))) == 1
    assert not any(o in (0.0, 1.0) for line in program.lines if line.operation != "divide" for o in line.operands)


def test_a_program_may_have_no_lines() -> None:
    program = trace(lambda a: [a, 2.0, np.zeros(())], ["a"])
    assert program.lines == () and program.outputs == ("a", 2.0, 0.0)
    first, *constants = program.compile()(np.arange(3.0))
    np.testing.assert_array_equal(first, np.arange(3.0))
    assert [np.shape(c) for c in constants] == [(), ()]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: [a if a > 0 else -a],
        lambda a: [np.stack([a, a]).sum()],
        lambda a: [float(a)],
        lambda a: [a + np.ones(3)],
        lambda a: [np.add.reduce(a)],
        lambda a: [a * 1j],
    ],
)
def test_what_is_no_arithmetic_of_scalars_is_refused(function: Any) -> None:
    with pytest.raises(Untraceable):
        trace(function, ["a"])


def test_a_chart_that_cannot_be_traced_stays_a_function() -> None:
    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        return Sheets([[np.sort(u[0])]], [np.log(u[0])])

    counts = Counts(0, 0, 1, 1, 1)
    with pytest.raises(Untraceable):
        sheets_program(solve, counts)
    program, same = programmed(solve, counts)
    assert program is None
    found = same([], [], [np.array([1.0, 0.0])])  # the logarithm of zero is no warning: there is no point
    np.testing.assert_array_equal(found.solved[0][0], [0.0, 1.0])


def test_a_chart_says_what_it_was_given_too_much_of() -> None:
    _, solve = programmed(lambda free, latent, u: Sheets([[u[0]]], [u[0]]), Counts(0, 0, 1, 1, 1))
    with pytest.raises(ValueError, match="1, 0 and 1 arrays"):
        solve([np.ones(1)], [], [np.ones(1)])


def test_one_weight_where_all_sheets_have_the_same() -> None:
    found = chart_of("heads-4")
    assert found is not None
    program = found[1].program
    assert program is not None
    assert len(program.outputs) == found[1].branches * 12 + 1


def test_memory_is_let_go_of_as_soon_as_nothing_needs_it() -> None:
    """A long chain needs a few arrays, not one for each line."""

    def chain(a: Any) -> list[Any]:
        for _ in range(200):
            a = np.sin(a) * np.cos(a) + np.exp(-a * a)
        return [a]

    run = trace(chain, ["a"]).compile()
    a = np.full(100_000, -1.0)
    tracemalloc.start()
    run(a)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * a.nbytes


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("row_softmax_3", 3),
        ("solve_logdet_3", 12),
        ("solve_columns_3", 15),
        ("inverse_logdet_3", 9),
        ("least_norm_2_3", 12),
    ],
)
def test_kernels_against_thirty_digits(name: str, entries: int) -> None:
    values = np.random.default_rng(5).standard_normal((entries, 8))
    program = trace(lambda *given: call(name, given), [f"a{k}" for k in range(entries)])
    for point in values.T:
        exact = [float(value) for value in carry_out(program, point)]
        np.testing.assert_allclose(program.compile()(*point), exact, rtol=1e-9, atol=1e-9)
