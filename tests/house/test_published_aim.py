"""The page of attention of extensive rank: its tables are those of published_aim.json, points of each part stand."""

from __future__ import annotations

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
    return script_of(DOCS / "published_aim.py")


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return json.loads((DOCS / "published_aim.json").read_text())  # type: ignore[no-any-return]


def test_the_page_has_these_numbers(script: ModuleType, known: dict[str, Any]) -> None:
    text = (DOCS / "published-aim.md").read_text()
    assert script.page(text, known) == text, "run python docs/published_aim.py"
    for name in ("small_width.png", "extensive_amp.png", "extensive_two_layers.png", "extensive_plane.png"):
        assert name in text
        assert (DOCS / "figures" / name).exists()


def test_every_part_is_there_and_says_how_it_was_made(script: ModuleType, known: dict[str, Any]) -> None:
    assert set(known) == set(script.PARTS)
    for name, part in known.items():
        assert part["command"].endswith(f"compute {name}")
        assert part["version"] == smisym.__version__
        # Exactly where everything begins to be known what is left shrinks without end.
        ended = {row["result"] for row in part["rows"] if "result" in row and not np.max(row["mmse"]) < 1e-5}
        assert ended <= {"success"}, name


def test_points_of_the_softmax_stand(script: ModuleType, known: dict[str, Any]) -> None:
    by = {(row["rho"], row["alpha"]): row["mmse"] for row in known["softmax"]["rows"]}
    for again in script.softmax(every=26):
        assert again["mmse"] == pytest.approx(by[again["rho"], again["alpha"]], abs=1e-6)


def test_both_ends_of_small_width_stand(script: ModuleType, known: dict[str, Any]) -> None:
    """Two points of every curve; ratios go to the limit from below, ranks cross it from above."""
    alphas = [0.3, 0.4]
    by = {
        (row.get("ratio"), row.get("rank")): dict(zip(row["alphas"], row["mmse"], strict=True))
        for row in known["small_width"]["rows"]
    }
    for again in script.small_width(alphas, ranks=(1,)):
        row = by[again.get("ratio"), again.get("rank")]
        # Of finite ranks the curve is sampled.
        within = 5e-3 if "rank" in again else 1e-7
        np.testing.assert_allclose(again["mmse"], [row[alpha] for alpha in alphas], atol=within)
    for alpha in alphas:
        ratios = [by[ratio, None][alpha] for ratio in script.RATIOS]
        assert ratios == sorted(ratios)
        assert by[0.0, None][alpha] == pytest.approx(4 * alpha * (2 - 4 * alpha), abs=1e-6)
        # What a ratio leaves falls faster than its root.
        gaps = {ratio: ratios[-1] - mmse for ratio, mmse in zip(script.RATIOS, ratios, strict=True)}
        assert gaps[0.002] < np.sqrt(0.1) * gaps[0.02] < np.sqrt(0.2 * 0.1) * gaps[0.1]


@pytest.mark.parametrize("part", ["hardmax", "small_hardmax"])
def test_points_of_hardmax_stand(script: ModuleType, known: dict[str, Any], part: str) -> None:
    own = (0.0,) if part == "small_hardmax" else (0.5,)
    by = {(row["rho"], row["alpha"]): row for row in known[part]["rows"]}
    for again in script.hardmax((1.0,) if part == "small_hardmax" else (0.1416, 1.1058), own, samples=2048):
        row = by[again["rho"], again["alpha"]]
        assert abs(row["mmse"] - again["mmse"]) <= 5 * np.hypot(row["error"], again["error"])


def test_runs_on_data_follow_state_evolution(script: ModuleType, known: dict[str, Any]) -> None:
    """Means of eight data sets are within three standard errors of the limit plus a fitted C / d, and a run is what
    it was."""
    rows = known["amp"]["rows"]
    for key in {(row["activation"], row["tokens"], row["alpha"]) for row in rows}:
        own = [row for row in rows if (row["activation"], row["tokens"], row["alpha"]) == key]
        assert max(row["dim"] for row in own) >= 100
        assert all(len(row["errors"]) == 8 and "diverged" not in row["results"] for row in own), key
        C, _, gap = script.fitted(own, own[0]["limit"])
        assert gap <= 3 and abs(C) < 10, key
    (case,) = [case for case in script.RUNS if case[:2] == ("softmax", 4) and case[2] == 0.03]
    again = script.amp((case,), dims=(50,), seeds=2)[0]
    (row,) = [row for row in rows if (row["activation"], row["tokens"], row["alpha"], row["dim"]) == (*case[:3], 50)]
    np.testing.assert_allclose(again["errors"], row["errors"][:2], atol=1e-3)


def test_two_layers_stand(script: ModuleType, known: dict[str, Any]) -> None:
    by = {row["alpha"]: row for row in known["two_layers"]["rows"]}
    (again,) = script.two_layers((0.15,), samples=128, seed=1)
    row = by[0.15]
    assert (np.abs(np.subtract(row["mmse"], again["mmse"])) <= 5 * np.hypot(row["error"], again["error"])).all()
    assert all(row["growth"] is None or row["growth"] < 1 for row in by.values())


def test_the_plane_of_two_layers_stands(script: ModuleType, known: dict[str, Any]) -> None:
    """A point of it again; errors fall along every line, and counting says where all is known."""
    rows = known["plane"]["rows"]
    for key in {(row["rho"], row["skip"]) for row in rows}:
        own = [row for row in rows if (row["rho"], row["skip"]) == key]
        assert len(own) == len(script.PLANE_PARTS)
        assert (np.diff([row["mmse"] for row in own], axis=0) < 0).all()
        counted = (2 * key[0] - key[0] ** 2 if key[0] < 1 else 1.0) / 2
        assert own[0]["known"] == pytest.approx(counted)
        assert abs(own[0]["reached"][0] - counted) <= 3 * own[0]["reached"][1]
    row = next(row for row in rows if row["rho"] == 0.35 and row["alpha"] > 0.1)
    model = smisym.compile(script.network(layers=2, rank_ratio=row["rho"], skip=row["skip"]))
    omap = smisym.overlap_map(model, samples=128, scrambles=4, rtol=0.1, seed=1)
    again = smisym.state_evolution(omap, row["alpha"]).value
    gap = np.abs(1 - np.diag(again.Q) - row["mmse"])
    assert (gap <= 5 * np.hypot(row["error"], np.diag(again.Q_error))).all()


def test_runs_on_two_layers_follow_state_evolution(script: ModuleType, known: dict[str, Any]) -> None:
    """Means of eight data sets, layer by layer, as with one layer; and the first steps of a run lead down."""
    rows, limits = known["deep_amp"]["rows"], {row["alpha"]: row for row in known["two_layers"]["rows"]}
    assert [row["dim"] for row in rows] == list(script.DIMS) and max(script.DIMS) >= 100
    assert all(len(row["errors"]) == 8 and "diverged" not in row["results"] for row in rows)
    for layer, limit in enumerate(limits[script.DEEP_RUNS]["mmse"]):
        C, _, gap = script.fitted(rows, limit, layer)
        assert gap <= 3 and 0 < C < 10
        assert script.mean_of(rows[1], layer)[0] < script.mean_of(rows[0], layer)[0]
    model = smisym.compile(script.network(layers=2, rank_ratio=0.5))
    few = script.runs_of(model, script.DEEP_RUNS, 30, 1, 12, script.DEEP_DAMPING, rtol=script.DEEP_RTOL)
    assert all(last < 0.95 for last in few["errors"][0])


def test_bilinear_regression_stands(script: ModuleType, known: dict[str, Any]) -> None:
    for row, again in zip(known["regression"]["rows"], script.regression(), strict=True):
        assert again["mmse"] == pytest.approx(row["mmse"], abs=1e-9)
        assert again["mmse"] == pytest.approx(again["published"], abs=1e-3)
