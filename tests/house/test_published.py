"""The page of published numbers: its tables are those of published.json, and points of each part stand: one by default,
three as slow tests."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pages import script_of

import smisym

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return script_of(DOCS / "published.py")


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return json.loads((DOCS / "published.json").read_text())  # type: ignore[no-any-return]


def test_the_page_has_these_numbers(script: ModuleType, known: dict[str, Any]) -> None:
    text = (DOCS / "published.md").read_text()
    assert script.page(text, known) == text, "run python docs/published.py"
    for name in ("published_curve.png", "published_skip.png", "published_three.png", "published_dynamics.png"):
        assert name in text
        assert (DOCS / "figures" / name).exists()


def test_every_part_is_a_success_and_says_how_it_was_made(script: ModuleType, known: dict[str, Any]) -> None:
    assert set(known) == set(script.PARTS)
    for name, part in known.items():
        assert part["command"].endswith(f"compute {name}")
        assert part["version"] == smisym.__version__
    assert {row["result"] for row in known["curve"]["rows"]} == {"success"}
    for name in ("skip", "three", "arrival", "depth", "layers"):
        assert {row["result"] for row in script.every_row(known, name)} == {"success"}, name
    assert max(max(row["error"]) for row in known["three"]["rows"]) <= script.THREE_WITHIN
    assert max(max(row["error"]) for row in known["curve"]["rows"]) <= script.ACCURACY


@pytest.mark.parametrize("alphas", [[0.5], pytest.param([0.3, 0.5, 0.6], marks=pytest.mark.slow)], ids=str)
def test_points_of_the_curve_stand(script: ModuleType, known: dict[str, Any], alphas: list[float]) -> None:
    by_alpha = {row["alpha"]: row for row in known["curve"]["rows"]}
    for again in script.curve(alphas, samples=1024, seed=1):
        row = by_alpha[again["alpha"]]
        for layer in range(2):
            error = np.hypot(row["error"][layer], again["error"][layer])
            assert abs(row["Q"][layer] - again["Q"][layer]) <= 5 * error + 1e-9


def test_first_thresholds_against_the_skip_stand(script: ModuleType, known: dict[str, Any]) -> None:
    by_skip = {row["skip"]: row["thresholds"][0] for row in known["skip"]["rows"]}
    for again in script.skip([0.1, 1.0, 4.0], stages=1):
        first, other = by_skip[again["skip"]], again["thresholds"][0]
        assert first["rows"] == other["rows"] == ["layer 2"]
        assert abs(first["alpha"] - other["alpha"]) <= 5 * np.hypot(first["error"], other["error"])
        assert first["alpha"] > 1 / 6


# In the order of the slow ones: below the last layer's threshold, above it, and where both layers are learned.
@pytest.mark.parametrize("alphas", [[1.4], pytest.param([0.3, 0.5, 1.4], marks=pytest.mark.slow)], ids=str)
def test_gamp_stands(script: ModuleType, known: dict[str, Any], alphas: list[float]) -> None:
    by_alpha = {row["alpha"]: np.array(row["overlaps"]) for row in known["gamp"]["rows"]}
    for again in script.gamp(alphas, dim=60, seeds=2, kept=None):
        runs, others = by_alpha[again["alpha"]], np.array(again["overlaps"])
        # Data sets of a smaller dimension scatter more, by the root of that.
        scatter = np.maximum(runs.std(axis=0, ddof=1), 0.02) * np.sqrt(script.DIM / 60)
        assert (np.abs(runs.mean(axis=0) - others.mean(axis=0)) <= 5 * scatter).all()


@pytest.mark.parametrize("alphas", [[1.2], pytest.param([0.8, 1.2, 1.6], marks=pytest.mark.slow)], ids=str)
def test_what_the_regulariser_does_stands(script: ModuleType, known: dict[str, Any], alphas: list[float]) -> None:
    ends = {row["alpha"]: np.array(row["Q"]) for row in known["regularised"]["rows"]}
    for again in script.regularised(alphas, points=256, seeds=2):
        own, others = ends[again["alpha"]], np.array(again["Q"])
        assert (np.abs(own.mean(axis=0) - others.mean(axis=0)) <= 5 * own.std(axis=0, ddof=1) * 6).all()
    # It is what keeps the first layer from being perfect above alpha = 1.
    curve = {row["alpha"]: row["Q"] for row in known["curve"]["rows"]}
    assert curve[1.2][0] == pytest.approx(1, abs=1e-6)
    assert ends[1.2][:, 0].mean() < 0.95


@pytest.mark.slow
def test_points_of_three_layers_stand(script: ModuleType, known: dict[str, Any]) -> None:
    by_alpha = {row["alpha"]: row for row in known["three"]["rows"]}
    for again in script.three([0.25, 0.5, 0.75], samples=512, seed=1):
        row = by_alpha[again["alpha"]]
        assert (np.abs(np.subtract(row["Q"], again["Q"])) <= 5 * np.hypot(row["error"], again["error"]) + 1e-9).all()
        # Layers below the last learn nothing yet.
        assert row["Q"][:2] == [0, 0]


def test_overlaps_of_three_layers_grow_until_all_is_known(script: ModuleType, known: dict[str, Any]) -> None:
    stable, arrives = known["arrival"]["rows"]
    # Two tokens: two numbers a sample, three rows to find.
    assert stable["alpha"] == 3 / 2 and abs(arrives["alpha"] - 3 / 2) <= 4 * arrives["error"]
    rows = known["three"]["rows"]
    assert rows[-1]["alpha"] < arrives["alpha"]
    for one, after in itertools.pairwise(rows):
        assert (np.subtract(after["Q"], one["Q"]) >= -4 * np.hypot(one["error"], after["error"])).all()
    # The last layer, then the first, then the second: each begins where its threshold is, within its errors.
    (met,) = (row["thresholds"] for row in script.every_row(known, "layers") if row["layers"] == 3)
    for one in met:
        layer = int(one["rows"][0].split()[1]) - 1
        for row in rows:
            if row["alpha"] < one["alpha"] - 4 * one["error"]:
                assert row["Q"][layer] <= 4 * row["error"][layer]
            elif row["alpha"] > 1.1 * one["alpha"]:
                assert row["Q"][layer] > 4 * row["error"][layer]


def test_thresholds_of_every_layer_stand(script: ModuleType, known: dict[str, Any]) -> None:
    by = {row["layers"]: row["thresholds"] for row in script.every_row(known, "layers")}
    # Every layer of every depth, the last one first.
    assert {count: sorted(name for one in met for name in one["rows"]) for count, met in by.items()} == {
        count: [f"layer {n + 1}" for n in range(count)] for count in script.LAYERS + script.LAYERS_DEEP
    }
    assert all(met[0]["rows"] == [f"layer {count}"] for count, met in by.items())
    for count, met in by.items():
        asked = script.LAYERS_ACCURACY if count in script.LAYERS else script.LAYERS_DEEP_ACCURACY
        assert max(one["error"] for one in met) <= asked
    (again,) = script.layers([2], accuracy=0.02)
    for one, other in zip(again["thresholds"], by[2], strict=True):
        assert one["rows"] == other["rows"]
        assert abs(one["alpha"] - other["alpha"]) <= 5 * np.hypot(one["error"], other["error"])
    for row in script.every_row(known, "depth"):
        if row["kind"] == "skip 1" and row["layers"] in by:
            first = by[row["layers"]][0]
            assert abs(first["alpha"] - row["alpha"]) <= 5 * np.hypot(first["error"], row["error"]) + 1e-12


def test_first_thresholds_against_depth_stand(script: ModuleType, known: dict[str, Any]) -> None:
    rows = script.every_row(known, "depth")
    by = {(row["layers"], row["kind"]): row for row in rows}
    for again in script.depth([1, 2], accuracy=0.02):
        row = by[again["layers"], again["kind"]]
        assert again["rows"] == row["rows"]
        assert abs(again["alpha"] - row["alpha"]) <= 5 * np.hypot(again["error"], row["error"]) + 1e-12
    assert by[1, "skip 1"]["alpha"] == pytest.approx(1 / 6, abs=1e-9)
    # Of mixings that fluctuate less and less, the last layer knows more and more: 1/6 and no less.
    limit = [row["alpha"] - 1 / 6 for row in rows if row["kind"] != "skip 1" and row["layers"] > 2]
    assert limit == sorted(limit, reverse=True)
    assert limit[-1] > 0
    # Of infinitely many such layers the last one needs 1/6: c of c + a / L + b / L^2, as the page has it.
    deep = [row for row in rows if row["kind"] != "skip 1" and row["layers"] > 3]
    L, alpha, error = np.array([(row["layers"], row["alpha"], row["error"]) for row in deep]).T
    powers = np.stack([np.ones_like(L), 1 / L, 1 / L**2], axis=1) / error[:, None]
    covariance = np.linalg.inv(powers.T @ powers)
    c = covariance[0] @ powers.T @ (alpha / error)
    assert abs(c - 1 / 6) < 3 * np.sqrt(covariance[0, 0])
    assert [c - 1 / 6, np.sqrt(covariance[0, 0])] == pytest.approx([1.5e-4, 7e-5], abs=1e-5)


def test_layers_are_learned_in_the_same_order_step_by_step(script: ModuleType, known: dict[str, Any]) -> None:
    again = script.dynamics([1.2], seeds=1, steps=6, optimizers=())
    by = {(row["alpha"], row["method"]): np.array(row["cosine"]) for row in known["dynamics"]["rows"]}
    assert {method for _, method in by} == {"state evolution", "gamp", "sgd", "adam"}
    # One data set of four: where the last layer is known, and the first one has hardly begun.
    for row in again:
        assert np.abs(by[1.2, row["method"]][6] - np.array(row["cosine"])[6]).max() < 0.1, row["method"]
    second = [int(np.argmax(cosine[:, 1] > 0.5)) for cosine in by.values() if (cosine[:, 1] > 0.5).any()]
    first = [
        int(np.argmax(c[:, 0] > 0.5)) if (c[:, 0] > 0.5).any() else len(c) for c in by.values() if (c[:, 1] > 0.5).any()
    ]
    assert all(early <= late for early, late in zip(second, first, strict=True))
