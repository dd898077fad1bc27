"""Thresholds at neighbouring values that go on into one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smisym.run.boundaries import changes, drawn, tracks

Record = dict[str, Any]


def threshold(kind: str, alpha: float | None, q: float = 0.0, names: tuple[str, ...] = ("z1",)) -> Record:
    return {"kind": kind, "names": list(names), "alpha": alpha, "error": 0.01, "Q": [[q]]}


def record(*found: Record) -> Record:
    return {"thresholds": list(found), "result": "success"}


def test_kinds_and_rows_tell_boundaries_apart_also_where_they_cross() -> None:
    one = [record(threshold("weak", 1 + x), threshold("weak", 2 - x, names=("z2",))) for x in (0.0, 0.4, 0.8, 1.2)]
    found = tracks(one)
    assert [(t.kind, t.names) for t in found] == [("weak", ("z1",)), ("weak", ("z2",))]
    assert [t["alpha"] for t in found[0].found] == [1.0, 1.4, 1.8, 2.2]
    assert changes(found, [0, 1, 2, 3], [True] * 4) == ()


def test_two_folds_go_on_each_by_itself_and_end_together() -> None:
    lower, upper = [1.00, 1.05, 1.09], [1.20, 1.18, 1.15]
    rows = [
        record(threshold("spinodal", a, 0.9), threshold("spinodal", b, 0.6)) for a, b in zip(lower, upper, strict=True)
    ]
    rows[1]["thresholds"].reverse()
    found = tracks([*rows, record(), record()])
    assert [[t["alpha"] for t in track.found] for track in found] == [lower, upper]
    values = [0.0, 0.1, 0.2, 0.3, 0.4]
    told = changes(found, values, [True] * 5)
    assert [(c.what, c.between) for c in told] == [("ends", (0.2, 0.3))] * 2
    # Beside a value that failed nothing is said.
    assert changes(found, values, [True, True, True, False, True]) == ()


def test_a_fold_far_off_is_another() -> None:
    found = tracks([record(threshold("spinodal", 1.0, 0.9)), record(threshold("spinodal", 5.0, 0.9))])
    assert len(found) == 2
    assert {c.what for c in changes(found, [0.0, 1.0], [True, True])} == {"begins", "ends"}


def test_infinite_thresholds_are_on_no_boundary() -> None:
    found = tracks([record(threshold("hard", None)), record(threshold("hard", None))])
    assert found == []


def test_a_boundary_as_a_figure_takes_it() -> None:
    (track,) = tracks([record(threshold("weak", 1.0)), record(threshold("weak", 1.5))])
    line = drawn(track, [0.0, 2.0], [True, False], ", b = 3")
    assert line.label == "weak, z1, b = 3"
    np.testing.assert_array_equal(line.values, [0.0, 2.0])
    np.testing.assert_array_equal(line.ok, [True, False])
    assert line.alphas == pytest.approx([1.0, 1.5])


def test_a_direction_is_named_where_it_is_the_same_all_along() -> None:
    """The sum and the difference of two fields, one after the other; and one that turns, which has no one name."""
    both, up, down, half = ("z1", "z2"), [[1.0, 1.0]], [[1.0, -1.0]], [[1.0, 0.5]]

    def one(alpha: float, subspace: list[list[float]]) -> Record:
        return threshold("weak", alpha, names=both) | {"subspace": subspace}

    found = tracks([record(one(1.0 + x, up), one(2.0 + x, down)) for x in (0.0, 0.1, 0.2)])
    assert [track.label for track in found] == ["weak, z1 + z2", "weak, z1 - z2"]
    (turning,) = tracks([record(one(1.0, up)), record(one(1.1, half))])
    (whole,) = tracks([record(one(1.0, up)), record(one(1.1, [[1.0, 0.0], [0.0, 1.0]]))])
    assert turning.label == whole.label == "weak, z1, z2"
