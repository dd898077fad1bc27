"""``smisym atlas``: pages, their numbers, what is made again and what is not, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import smisym
from smisym import SMI, Architecture, Attention
from smisym.cli import app
from smisym.report import atlas_pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "networks"
    place.mkdir()
    smisym.save(Architecture(2, (Attention(),)), place / "one.toml")
    smisym.save(SMI("abs(z1)", 1), place / "size.toml")
    (place / "notes.md").write_text("Two of them.")
    return place


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, ["atlas", *(str(argument) for argument in arguments)])
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


# So little that no branches are followed, and enough for a first threshold.
QUICK = ("--workers", "1", "--seconds-a-row", "0.4")


def test_a_page_and_its_numbers(folder: Path, tmp_path: Path) -> None:
    page, state = tmp_path / "atlas.md", tmp_path / "state"
    run(folder, "-o", page, "--state", state, "--workers", "1", "--only", "size")
    document: dict[str, Any] = json.loads(page.with_suffix(".json").read_text())
    assert (document["command"], document["declared"], len(document["rows"])) == ("atlas", 2, 1)
    text = page.read_text()
    assert "1 of 2 declared rows: the others were not computed yet" in text
    assert text.endswith("Two of them.\n")
    cells = {name: tell(document["rows"][0]) for name, tell in atlas_pages.COLUMNS.items()}
    assert (cells["closed form"], cells["transition"], cells["stable"]) == ("1/2", "second order", "1")
    assert cells["hard phase"].startswith("1 to 1.1")
    assert "| " + " | ".join(cells.values()) + " |" in text
    # The same again is there already; the other row is added; what another way gives has a column.
    (tmp_path / "other.json").write_text(
        json.dumps({"a": {"digest": document["rows"][0]["digest"], "rate": 2.0, "error": 0.1, "way": "w", "slack": 0}})
    )
    again = run(folder, "-o", page, *QUICK, "--json", "--beside", tmp_path / "other.json")
    more = json.loads(again.stdout)
    assert [row["name"] for row in more["rows"]] == ["one", "size"]
    assert more["rows"][1] == document["rows"][0]
    assert more["output"] == [str(page), str(page.with_suffix(".json"))]
    assert "0.5 ± 0.03 (w)" in page.read_text()


def test_made_again_are_those_that_were_asked_for_and_the_others_stay(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "atlas.md"
    run(folder, "-o", page, *QUICK)
    before = json.loads(page.with_suffix(".json").read_text())["rows"]
    run(folder, "-o", page, *QUICK, "--only", "one", "--again")
    after = json.loads(page.with_suffix(".json").read_text())["rows"]
    assert [row["name"] for row in after] == ["one", "size"]
    assert after[1] == before[1] and after[0] != before[0]


def test_for_people_a_line_a_row(folder: Path) -> None:
    shown = run(folder, *QUICK, "--only", "one").stdout
    assert "architecture" in shown.splitlines()[0]
    assert "one" in shown
    assert "1 of 2 declared rows" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "x.txt"], ".md, .json"),
        (["--only", "nothing"], "only"),
        (["--beside", "nowhere.json"], "nowhere.json"),
        (["--seconds-a-row", "0"], "seconds"),
        (["--scrambles", "1"], "scrambles"),
    ],
)
def test_bad_options(folder: Path, options: list[str], words: str) -> None:
    assert words in run(folder, *QUICK, *options, code=2).stderr


def test_a_file_of_another_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")
    assert "did not write" in run(folder, *QUICK, "-o", tmp_path / "a.md", code=2).stderr
    assert (tmp_path / "a.json").read_text() == "[1, 2]"


def test_rows_of_other_declarations_and_settings_are_kept_in_a_copy(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "atlas.md"
    run(folder, "-o", page, *QUICK)
    first = page.with_suffix(".json").read_text()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "one.toml").write_text((folder / "one.toml").read_text())
    assert "atlas.earlier.json" in run(alone, "-o", page, *QUICK).stderr
    assert (tmp_path / "atlas.earlier.json").read_text() == first
    second = page.with_suffix(".json").read_text()
    assert [row["name"] for row in json.loads(second)["rows"]] == ["one"]
    assert "of other settings" in run(alone, "-o", page, *QUICK, "--seed", "1").stderr
    assert (tmp_path / "atlas.earlier-1.json").read_text() == second
    # The same again loses nothing.
    run(alone, "-o", page, *QUICK, "--seed", "1")
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_a_folder_that_is_none_is_refused() -> None:
    assert "nowhere" in run("/nowhere", code=2).stderr
