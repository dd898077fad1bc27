"""Classical multi-index models against values from the literature and by other routes (theory: arXiv 2405.15480)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from oracles.binning import binned_rate

import smisym
from smisym import SMI, Architecture, Attention
from smisym.declare import shipped
from smisym.declare.listed import Row, read_rows
from smisym.theory.hermite import first_order

DOCS = Path(__file__).parents[2] / "docs"


def thresholds(declared: Any, samples: int) -> list[Any]:
    solution = smisym.weak_recovery(smisym.compile(declared), samples=samples)
    assert solution.result is smisym.Result.SUCCESS
    return list(solution.value)


def test_a_committee_of_two_specialises() -> None:
    """The sum of the weights is trivial; the difference becomes unstable at 2.051, on the unspecialised fixed point."""
    trivial, special = thresholds(SMI("sign(sign(z1) + sign(z2))", 2), 4096)
    assert (trivial.kind, trivial.alpha) == ("trivial", 0.0)
    np.testing.assert_allclose(trivial.subspace, [[math.sqrt(0.5)] * 2], atol=1e-12)
    assert special.kind == "weak"
    assert abs(special.alpha - 2.051) < 4 * special.error
    assert special.error < 0.02
    # Overlap along the sum there: 0.711.
    along = special.Q.sum() / 2
    assert abs(along - 0.711) < 0.01


@pytest.mark.slow
def test_the_staircase() -> None:
    """z1 first, at 0.5752; then z2 and z3, given a z1 that is known perfectly from alpha = 1 on, at pi^2/4."""
    first, *rest = thresholds(SMI("z1**2 + sign(z1*z2*z3)", 3), 4096)
    assert abs(first.alpha - 0.5752) < 4 * first.error + 2e-4
    assert [t.kind for t in rest] == ["weak"]
    assert abs(rest[0].alpha - math.pi**2 / 4) < 4 * rest[0].error
    assert rest[0].names == ("z2", "z3")


@pytest.mark.slow
def test_a_triple_product() -> None:
    (found,) = thresholds(SMI("z1*z2*z3", 3), 1024)
    assert abs(found.alpha - 2.5652) < 4 * found.error + 1e-4


@pytest.mark.parametrize(
    ("text", "fields", "order"), [("z1", 1, 1), ("z1**2", 1, 2), ("sign(z1*z2*z3)", 3, 3), ("sign(z1*z2*z3*z4)", 4, 4)]
)
def test_first_orders(text: str, fields: int, order: int) -> None:
    model = smisym.compile(SMI(text, fields))
    assert first_order(model, np.eye(fields)) == order


def untied_linear(tokens: int) -> float:
    """1 / (E[m^2] - T + T^2) with y = q k^T: given y, |q|^2 has mean m(s) = s K_1(s)/K_0(s), s = |q| |k|.

    Queries and keys feed each other at the rate E sum y^2 = T^2.
    """
    T = tokens

    def density(s: Any) -> Any:
        # Product of two independent chi variables of T degrees of freedom.
        return s ** (T - 1) * mp.besselk(0, s) / (mp.mpf(2) ** (T - 2) * mp.gamma(mp.mpf(T) / 2) ** 2)

    whole = mp.quad(density, [0, 1, 5, 20, 80])
    assert abs(whole - 1) < 1e-8
    second = mp.quad(lambda s: density(s) * (s * mp.besselk(1, s) / mp.besselk(0, s)) ** 2, [0, 1, 5, 20, 80])
    return float(1 / (second - T + T**2))


@pytest.mark.parametrize("tokens", [2, 3])
def test_untied_linear_by_bessel_functions(tokens: int) -> None:
    """A route that shares neither chart nor integrator."""
    found = thresholds(Architecture(tokens, (Attention(tied=False, activation="linear"),)), 16384)[0]
    assert abs(found.alpha - untied_linear(tokens)) < 4 * found.error
    assert found.error < 0.002


def test_untied_linear_on_one_token_is_the_product() -> None:
    assert untied_linear(1) == pytest.approx(0.59375, abs=2e-5)


# ---------------------------------------------------------------------------------------- the table in the documents


def rows() -> list[dict[str, Any]]:
    return list(json.loads((DOCS / "architectures.json").read_text())["rows"])


def declared_rows() -> dict[str, Row]:
    return {row.name: row for row in read_rows(shipped.ATLAS)}


def test_the_table_is_that_of_the_declarations() -> None:
    declared, table = declared_rows(), rows()
    # Rows that were not computed yet are left out; the others are in the order of the declarations.
    assert [row["name"] for row in table] == [name for name in declared if name in {row["name"] for row in table}]
    text = (DOCS / "architectures.md").read_text()
    for row in table:
        assert row["digest"] == declared[row["name"]].declared.digest
        assert f"| {row['name'].replace('|', chr(92) + '|')} |" in text


def test_both_ways_of_the_table_agree() -> None:
    """Columns of the document: the package's thresholds, and those of tests/second_way.py."""
    table = {row["digest"]: row for row in rows()}
    second = json.loads((DOCS / "second_way.json").read_text())
    compared = 0
    for known in second.values():
        row = table.get(known["digest"])
        if row is None:
            continue
        compared += 1
        bar = np.hypot(row["error"] / row["alpha"], known["error"] / known["rate"])
        assert abs(row["alpha"] * known["rate"] - 1) < 4 * bar + known["slack"] / known["rate"], row["name"]
    assert compared >= 20


def test_no_threshold_of_the_table_is_below_its_floor() -> None:
    """P coupled fields on T tokens: alpha >= 1 / (T (P T + 1)), by Jensen; alpha per slice where heads split them."""
    every = declared_rows()
    for row in rows():
        declared = every[row["name"]].declared
        tokens = declared.tokens
        slices = 2 if getattr(declared, "head_layout", "") == "split" else 1
        if row["kind"] == "weak":
            assert row["alpha"] + 5 * row["error"] + 1e-9 > 1 / (tokens * (row["fields"] * tokens + 1)) / slices


@pytest.mark.parametrize("name", ["untied, rank 1, T = 3", "causal mask, tied, T = 2", "z1 z2"])
def test_rows_of_the_table_come_out_again(name: str) -> None:
    row = next(row for row in rows() if row["name"] == name)
    first = thresholds(declared_rows()[name].declared, 4096)[0]
    assert abs(first.alpha - row["alpha"]) < 5 * np.hypot(first.error, row["error"]) + 1e-6


def test_odd_powers_have_one_real_root() -> None:
    """(z1 z2)^3 shows what z1 z2 does; z1^3 z2 against draws sorted into bins of y."""
    (cube,) = thresholds(SMI("z1**3*z2**3", 2), 512)
    assert abs(cube.alpha - 0.59375) < 4 * cube.error + 1e-5
    model = smisym.compile(SMI("z1**3*z2", 2))
    assert model.level_set is not None
    (found,) = smisym.weak_recovery(model, samples=512, stages=1).value
    oracle = binned_rate(lambda Z, rng: Z[:, 0] ** 3 * Z[:, 1], 2, 1, log_n=18)
    assert abs(found.alpha * oracle.rate - 1) < 4 * oracle.error / oracle.rate + 2 * oracle.width / oracle.rate
    assert found.error < 1e-3 * found.alpha


@pytest.mark.parametrize("text", ["z1**3", "2 - z1**5", "(z1*z2)**3 + 1"])
def test_charts_of_odd_powers(text: str) -> None:
    """The true fields lie on a sheet, whatever their signs."""
    model = smisym.compile(SMI(text, 2 if "z2" in text else 1))
    chart = model.level_set
    assert chart is not None
    assert chart.dimension == 1
    Z = np.random.default_rng(3).standard_normal((200, model.fields, 1))
    u = chart.coordinates(model.observe(Z)).values
    latent = [np.zeros(len(Z))] * len(chart.latents)
    sheets = chart.solve([], latent, list(u.T))
    outputs = [model.link(np.stack(solved, axis=1)[:, :, None])[:, 0] for solved in sheets.solved]
    there = [np.isfinite(np.broadcast_to(w, (len(Z),))) for w in sheets.log_weight]
    assert np.any(there, axis=0).all()
    for own, ok in zip(outputs, there, strict=True):
        np.testing.assert_allclose(own[ok], u[ok, 0], rtol=1e-9, atol=1e-12)
