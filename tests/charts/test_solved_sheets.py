"""What documents say of sheets that were found by solving, put in numbers: their formulas are those of the channel."""

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym import SMI
from smisym.base.counting import counted
from smisym.base.derivation import Formula

RNG = np.random.default_rng(0)


def formulas_of(expression: str) -> tuple[smisym.Model, tuple[Formula, ...]]:
    model = smisym.compile(SMI((expression,), ("z1", "z2")))
    (step,) = (step for step in model.derivation if step.title == "Solving for the fields")
    return model, step.formulas


def gaussian(Z: np.ndarray, omega: np.ndarray, V: np.ndarray) -> np.ndarray:
    """At Z (2, n)."""
    gap = Z - omega[:, None]
    return np.exp(-0.5 * (gap * np.linalg.solve(V, gap)).sum(0)) / (2 * np.pi * np.sqrt(np.linalg.det(V)))


def summed(shown: list[tuple[sp.Symbol, sp.Expr, sp.Expr]], y: float, omega: np.ndarray, V: np.ndarray) -> np.ndarray:
    """The sum over sheets of the integral over the field that is left, as the documents write it: 1, Z, by trapezoids;
    a sheet: the field solved for, its formula, its weight."""
    names = sp.symbols("z_{1} z_{2}", real=True)
    x = np.linspace(-9, 9, 200001)
    total = np.zeros(3)
    for field, solved, weight in shown:
        (free,) = set(names) - {field}
        numeric = sp.lambdify([free, sp.Symbol("y1", real=True)], [solved, weight])
        with np.errstate(all="ignore"):
            value, w = (np.broadcast_to(v, x.shape) for v in numeric(x, y))
        Z = np.stack([value, x] if field == names[0] else [x, value])
        there = np.isfinite(value) & np.isfinite(w)
        density = np.where(there, w * gaussian(np.where(there, Z, 0.0), omega, V), 0.0)
        total += (x[1] - x[0]) * np.array([density.sum(), *(density * np.where(there, Z, 0.0)).sum(axis=1)])
    return total


@pytest.mark.parametrize("y", [-0.4, 1.3])
def test_the_sum_over_sheets_is_the_partition_function(y: float) -> None:
    """Solved for one field, on a sheet without folds: w is 1/3."""
    model, (solved, weight) = formulas_of("z1**2 - 3*z2")
    assert weight.left == "w" and weight.right == sp.Rational(1, 3)
    compare(model, [(solved.left, solved.right, weight.right)], y)


@pytest.mark.parametrize("y", [0.3, 2.1])
def test_sheets_that_share_points_share_their_weight(y: float) -> None:
    """Where the curve turns, sheets of either field hold its points, in the shares that the last formula states."""
    model, found = formulas_of("z1**2 + z1*z2 + z2**2")
    (z1, z2), last = sp.symbols("z_{1} z_{2}", real=True), found[-1]
    assert last.right == r"\frac{1}{|J|} \cdot \frac{J^4}{\sum_k J_k^4}"
    slopes = [2 * z1 + z2, z1 + 2 * z2]
    shown = []
    for solved, jacobian in zip(found[:-1:2], found[1:-1:2], strict=True):
        assert jacobian.left == f"J_{{({solved.left})}}"
        J = jacobian.right
        every = sp.Add(*(slope.subs(solved.left, solved.right) ** 4 for slope in slopes))
        shown.append((solved.left, solved.right, J**4 / (sp.Abs(J) * every)))
    assert len(shown) == 4
    compare(model, shown, y)


def compare(model: smisym.Model, shown: list[tuple[sp.Symbol, sp.Expr, sp.Expr]], y: float) -> None:
    omega, root = RNG.standard_normal(2), RNG.standard_normal((2, 3))
    V = root @ root.T / 3 + 0.1 * np.eye(2)
    total, *means = summed(shown, y, omega, V)
    found = model.channel.moments(np.array([[y]]), omega[None, :, None], V, rtol=1e-8)
    assert np.exp(found.log_partition[0]) == pytest.approx(total, rel=1e-6)
    assert found.mean[0, :, 0] == pytest.approx(np.array(means) / total, rel=1e-6, abs=1e-6)


def test_the_step_on_the_denoiser_writes_that_sum() -> None:
    """Four sheets, one coordinate; one sheet needs no sum; no coordinate, no integral."""
    shown = {}
    for expression in ("abs(z1)*z2", "z1**2 - 3*z2"):
        step = formulas_of(expression)[0].derivation.stage("channel")[0]
        shown[expression] = step.formulas[0].right
    assert shown["abs(z1)*z2"] == r"\sum_{s=1}^{4} \int dx\, w_s(x, u)\, \mathcal{N}(Z_s(x, u); \omega, V)"
    assert shown["z1**2 - 3*z2"] == r"\int dx\, w(x, u)\, \mathcal{N}(Z(x, u); \omega, V)"
    one = smisym.compile(SMI(("abs(z1)",), ("z1",))).derivation.stage("channel")[0].formulas[0].right
    assert one == r"\sum_{s=1}^{2} w_s(u)\, \mathcal{N}(Z_s(u); \omega, V)"


def test_numbers_of_things() -> None:
    said = [counted(0, "sheet"), counted(1, "sheet"), counted(2, "branch", "branches")]
    assert said == ["0 sheets", "1 sheet", "2 branches"]


@pytest.mark.parametrize("y", [(1.0, 0.7), (-1.0, 1.6)])
def test_sheets_on_which_an_output_is_constant_say_its_value(y: tuple[float, float]) -> None:
    """Of all sheets as they are written, those of this value give the partition function; all of them do not."""
    model = smisym.compile(SMI(("sign(z1)", "abs(z2)"), 2))
    (step,) = (step for step in model.derivation if step.title == "Solving for the fields")
    omega, V = np.array([0.4, -0.2]), np.array([[0.8, 0.3], [0.3, 0.6]])
    x, z2 = np.linspace(1e-5, 9, 100001), sp.Symbol("z_{2}", real=True)
    total, every = np.zeros(2), [step.formulas[k : k + 3] for k in range(0, 12, 3)]
    for number, (constant, solved, weight) in enumerate(every, start=1):
        assert (constant.left, solved.left, weight.left) == ("y_{1}", z2, "w")
        assert constant.note.startswith(f"sheet {number}, ")
        side = 1 if "$z_{1} > 0$" in constant.note else -1
        value = float(solved.right.subs(sp.Symbol("y2", real=True), y[1]))
        part = (x[1] - x[0]) * float(weight.right) * gaussian(np.stack([side * x, 0 * x + value]), omega, V).sum()
        total += np.array([part, part if float(constant.right) == y[0] else 0.0])
    found = np.exp(model.channel.moments(np.array([y]), omega[None, :, None], V, rtol=1e-8).log_partition[0])
    assert total[1] == pytest.approx(found, rel=1e-4)
    assert total[0] > 1.01 * found


def test_odd_roots_are_written_with_their_powers() -> None:
    model = smisym.compile(SMI(("relu(z1) + z2**3",), 2))
    (step,) = (step for step in model.derivation if step.title == "Solving for the fields")
    assert r"\left(\sqrt[3]{y_{1}}\right)^{2}" in sp.latex(step.formulas[-1].right)


def test_finitely_many_fields_are_summed_over_with_their_weights() -> None:
    """Fields that are found numerically: their density is no probability."""
    model = smisym.compile(SMI(("abs(abs(z1) - 1)",), 1))
    right = model.derivation.stage("channel")[0].formulas[0].right
    assert right.startswith(r"\sum_{Z:\, f(Z) = y} \frac{1}{\sqrt{\det J^{\top} J}}")
    fields, V = np.array([1.4, 0.6, -0.6, -1.4]), 0.7
    y, ratios = np.full((2, 1), 0.4), []
    omega = np.array([0.3, -0.8])
    found = model.channel.moments(y, omega[:, None, None], np.array([[V]]))
    for k in range(2):
        density = np.exp(-0.5 * (fields - omega[k]) ** 2 / V)
        ratios.append(np.exp(found.log_partition[k]) / density.sum())
        assert found.mean[k, 0, 0] == pytest.approx(density @ fields / density.sum(), rel=1e-6)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)  # a factor of y alone is left out


@pytest.mark.parametrize(("tied", "rank"), [(True, 2), (False, 1)])
def test_heads_name_what_moves_all_tokens_alike(tied: bool, rank: int) -> None:
    """Shifts of all rows are part of the formula, not of the text alone."""
    model = smisym.compile(smisym.Architecture(2, (smisym.Attention(rank=rank, tied=tied),)))
    (step,) = (step for step in model.derivation if step.title == "What the attention matrix leaves unknown")
    (solved,) = (f for f in step.formulas if f.left in ("U", "(Uq, Uk)"))
    assert r"1 c^{\top}" in solved.right and "$c$" in solved.note


def test_heads_lead_from_the_output_to_the_fields() -> None:
    """Scores of what is seen, and fields of what was mixed: with numbers, at random fields."""
    model = smisym.compile(
        smisym.Architecture(2, (smisym.Attention(), smisym.Attention(activation="s/sqrt(1 + s**2)", beta=0.5)))
    )
    (step,) = (step for step in model.derivation if step.title == "What the attention matrix leaves unknown")
    scores, solved, fields, weight = step.formulas
    assert (scores.left, scores.right) == (r"\sigma(0.5\, U U^{\top})", "y")
    assert (solved.left, solved.right) == ("U", r"\pm U_0")
    assert (fields.left, fields.right) == (r"h_{2}^{\top}", r"(B_{1})^{-1} U")
    assert weight.right == r"\lvert\det(B_{1})\rvert^{-1}"
    h1, h2 = np.random.default_rng(2).standard_normal((2, 2))
    gap = np.exp(np.outer(h1, h1) - np.diag(np.outer(h1, h1))[:, None])
    U = (np.eye(2) + gap / gap.sum(axis=1, keepdims=True)) @ h2
    s = 0.5 * np.outer(U, U)
    assert model.link(np.stack([h1, h2])[None])[0] == pytest.approx(s / np.sqrt(1 + s**2), rel=1e-12)
