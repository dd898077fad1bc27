"""The documents in derivations/ are what their scripts write today, but for the versions that they ran on."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "derivations"
# Written in a second or two; the others with `pytest -m ""`.
QUICK = {"absolute_value", "large_depth", "multi_head", "sequence_output"}


def unversioned(text: str) -> str:
    return re.sub(r"^- Versions: .*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, marks=[] if path.stem in QUICK else [pytest.mark.slow], id=path.stem)
        for path in sorted(FOLDER.glob("*.py"))
    ],
)
def test_documents_are_up_to_date(script: Path, tmp_path: Path) -> None:
    """Regenerate with ``python derivations/NAME.py``."""
    written = runpy.run_path(str(script))["main"](tmp_path)
    assert unversioned(written.read_text()) == unversioned(script.with_suffix(".md").read_text())


def test_every_document_has_its_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {path.stem for path in FOLDER.glob("*.py")}
