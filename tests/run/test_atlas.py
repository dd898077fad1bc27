"""Atlases: one row each whatever becomes of the others, the same bits on any executor, resumed or not."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.declare.listed import Row
from smisym.run.atlases import Atlas, completed, is_whole
from smisym.run.ordering import hard_phases, orders
from smisym.run.rows import Job, solved

ONE, SIZE = Architecture(2, (Attention(),)), SMI("abs(z1)", 1)
LISTED = {"one layer": ONE, "size": SIZE}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Atlas, Path]:
    """An atlas of two rows, and the folder that keeps it."""
    folder = tmp_path_factory.mktemp("kept")
    return smisym.atlas(LISTED, store=folder, workers=1), folder


def test_one_layer_grows_smoothly_from_a_sixth_on_and_all_of_it_is_known_from_a_half_on(both: Any) -> None:
    row = both[0][0]
    assert row["alpha"] == pytest.approx(1 / 6, rel=1e-5)
    assert (row["closed_form"], row["transition"], row["later"], row["hard_phases"]) == ("1/6", "second order", [], [])
    assert row["perfect_stable"] == 0.5
    assert row["perfect_amp"] == pytest.approx(0.5, rel=1e-3)
    assert is_whole(row)


def test_a_size_has_a_hard_phase_from_one_to_where_its_branch_folds(both: Any) -> None:
    row = both[0][1]
    assert row["alpha"] == pytest.approx(0.5, rel=1e-5)
    ((low, high),) = row["hard_phases"]
    assert low == 1.0
    assert abs(high - 1.1293) < 5 * row["perfect_amp_error"] + 5e-3
    assert {one["kind"] for one in row["folds"]} == {"spinodal", "information"}


def test_the_executor_changes_no_bit_and_what_is_kept_is_not_made_again(both: Any, tmp_path: Path) -> None:
    alone, folder = both
    with ThreadPoolExecutor(2) as threads:
        assert smisym.atlas(LISTED, executor=threads, store=tmp_path) == alone
    # With next to no time nothing could be made: these rows are those that are kept.
    assert smisym.atlas(LISTED, store=folder, workers=1, seconds=1e-3) == alone
    assert smisym.atlas(LISTED, store=tmp_path, workers=1, seconds=1e-3) == alone
    assert smisym.atlas(LISTED, known=alone, workers=1, seconds=1e-3) == alone


def test_a_row_that_was_killed_in_the_middle_goes_on_to_the_same_bits(both: Any, tmp_path: Path) -> None:
    job = Job(60.0, {}, str(tmp_path))
    row = solved(Row("size", SIZE), job)
    # As after a kill: the last parts are not there, nor some evaluations.
    kept = sorted(tmp_path.rglob("entry_*"))
    for path in kept[:: len(kept) // 5]:
        path.unlink()
    again = solved(Row("size", SIZE), job)
    assert Atlas([again]) == Atlas([row]) == Atlas([both[0][1]])


def test_without_time_a_row_says_so_and_more_time_makes_it() -> None:
    early = smisym.atlas({"size": SIZE}, seconds=1e-3, workers=1)
    assert not is_whole(early[0])
    assert {part["result"] for part in early[0]["parts"].values()} <= {"success", "out_of_time", "not_looked_for"}
    assert early[0]["alpha"] is None
    assert early.failed == ()


class Falling(SMI):
    """A declaration that cannot be compiled, once it was made."""

    falls = False

    def parsed(self) -> Any:
        if Falling.falls:
            raise RuntimeError("it falls")
        return super().parsed()


def test_a_row_that_fails_is_a_row_that_says_so() -> None:
    falling = Falling("abs(z1) + 1", 1)
    Falling.falls = True
    found = smisym.atlas({"falling": falling, "size": SIZE}, seconds=1.0, workers=1)
    assert [row["name"] for row in found] == ["falling", "size"]
    assert found.failed == ("falling",)
    assert found[0]["parts"]["model"] | {"seconds": 0} == {
        "result": "failed", "said": "RuntimeError: it falls", "seconds": 0,
    }  # fmt: skip
    assert found[0]["parts"]["folds"] == {"result": "not_looked_for"}
    assert found[1]["perfect_stable"] == 1.0


def test_only_leaves_rows_out_and_keeps_those_that_were_known(both: Any) -> None:
    alone = both[0]
    assert smisym.atlas(LISTED, only=["siz?"], known=alone[1:], workers=1) == Atlas(alone[1:])
    assert [row["name"] for row in smisym.atlas(LISTED, only=["siz"], known=alone, workers=1)] == list(LISTED)
    for nothing in ("nothing", "iz?", "one*r?"):
        with pytest.raises(InputError, match="only"):
            smisym.atlas(LISTED, only=[nothing])


def test_a_part_that_was_known_stays_where_there_is_no_time_for_it(both: Any) -> None:
    whole = both[0][1]
    early = solved(Row("size", SIZE), Job(1e-3, {}))
    filled = completed(early, whole)
    assert (filled["alpha"], filled["hard_phases"]) == (whole["alpha"], whole["hard_phases"])
    assert filled["parts"]["finer"] == early["parts"]["finer"]
    assert completed(whole, early) == whole


def test_it_shows_itself(both: Any) -> None:
    found = both[0]
    assert "Atlas: 2 rows, 2 of them whole" in repr(found)
    assert "second order" in found._repr_html_()
    frame = found.to_dataframe()
    assert list(frame["architecture"]) == list(LISTED)
    np.testing.assert_allclose(frame["alpha"], [1 / 6, 1 / 2], rtol=1e-5)
    json.dumps(list(found), allow_nan=False)


def branch(alphas: list[float], turns: list[int]) -> dict[str, Any]:
    return {"begins": "weak", "alphas": alphas, "turns": turns}


def test_the_order_of_a_transition_is_told_from_where_its_branch_goes() -> None:
    met = [{"kind": kind, "alpha": alpha} for kind, alpha in (("weak", 1.0), ("weak", 2.0), ("hard", None))]
    smooth, back = branch([1.02, 1.1, 1.3, 1.5], []), branch([1.99, 1.9, 1.8, 2.5], [0, 2])
    assert orders(met, [smooth, back]) == ["second order", "first order", ""]
    assert orders(met, [smooth]) == ["second order", "not looked for", ""]
    # Of what is learned at any alpha there is a branch as well, where it was found.
    learned = {"kind": "trivial", "alpha": 0.0}
    assert orders([learned, learned, *met], [smooth, smooth, back]) == ["", "", "second order", "first order", ""]
    assert orders([learned, *met], [smooth, back]) == ["", "second order", "first order", ""]
    assert orders(met, None) == ["not looked for", "not looked for", ""]
    later = branch([1.02, 1.2, 1.4, 1.1, 1.5], [2, 3])
    assert orders(met[:1], [later]) == ["second order"]


def test_hard_phases_are_where_two_states_are_stable() -> None:
    counted = {"alpha": 1.0, "error": 0.0}
    fine, late, never = ({"alpha": alpha, "error": 0.01} for alpha in (1.005, 1.2, None))
    assert hard_phases(counted, fine, [], []) == []
    assert hard_phases(counted, late, [], []) == [[1.0, 1.2]]
    assert hard_phases(counted, never, [], []) == [[1.0, None]]
    folds = [
        {"kind": "spinodal", "alpha": 1.41},
        {"kind": "spinodal", "alpha": 1.09},
        {"kind": "information", "alpha": 1.3},
    ]
    later = branch([1.02, 1.2, 1.4, 1.1, 1.5], [2, 3])
    assert hard_phases({"alpha": None}, None, folds, [later]) == [[1.3, 1.41]]
    # The same phase told twice is one.
    assert hard_phases(counted, {"alpha": 1.4, "error": 0.01}, folds, [later]) == [[1.0, 1.4]]


@pytest.mark.parametrize(
    ("declarations", "more", "words"),
    [
        ({}, {}, "declarations"),
        (3, {}, "declarations"),
        ({"one": 3}, {}, "declarations"),
        (LISTED, {"seconds": 0}, "seconds"),
        (LISTED, {"seconds": math.inf}, "seconds"),
        (LISTED, {"samples": 64}, "samples"),
        (LISTED, {"scrambles": 3}, "scrambles"),
        (LISTED, {"seed": -1}, "seed"),
        (LISTED, {"executor": 3}, "executor"),
        ("/nowhere", {}, "nowhere"),
    ],
)
def test_bad_input_is_refused(declarations: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        smisym.atlas(declarations, **more)
