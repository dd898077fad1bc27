"""docs/results.md names every key of saved results, and no other; it and the guide run as they stand."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import fake_solutions
import matplotlib
import pytest

import smisym

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "results.md").read_text()
# What is named in prose: of what the command line prints, and the lists that tables are about.
PRINTED = {"nishimori"}
PROSE = {"points", "thresholds", "labels", "value", "solutions", "trajectories", "branches"}
PROSE |= {"records", "boundaries", "changes", "unseen"}


def keys(value: Any) -> set[str]:
    """Keys of a document and of its results, but not of settings, checks and records of steps."""
    found = set(value)
    for key in ("points", "thresholds", "trajectories", "branches"):
        found |= {name for one in value.get(key, ()) for name in one}
    for one in value.get("solutions", {}).values():
        found |= keys(one)
    return found


def test_every_key_is_on_the_page(tmp_path: Path) -> None:
    written: set[str] = set()
    declared = smisym.SMI(("z1*z2",), 2)
    for make in fake_solutions.ALL.values():
        smisym.save_result(tmp_path / "x.json", make(), architecture=declared)
        document = json.loads((tmp_path / "x.json").read_text())
        written |= keys(document)
        assert f'**`"{document["kind"]}"`**' in TEXT
    told = set(re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.MULTILINE))
    assert told | PROSE == written
    assert all(f"`{name}`" in TEXT for name in PROSE | PRINTED)


@pytest.mark.parametrize("page", ["results.md", "guide/notebook.md"])
def test_the_example_prints_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    text = (DOCS / page).read_text()
    ((code, said),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    out, names = io.StringIO(), dict[str, Any]()
    with redirect_stdout(out):
        exec(compile(code, page, "exec"), names)
    assert out.getvalue() == said
    if "table" in names:
        assert {"alpha", "row", "row_", "overlap", "overlap_error", "deterministic_error", "result"} <= set(
            names["table"]
        )
        from matplotlib import pyplot

        pyplot.close("all")
