"""The documents in derivations/ are what their scripts write today."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "derivations"


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_documents_are_up_to_date(script: Path, tmp_path: Path) -> None:
    """Regenerate with ``python derivations/NAME.py``."""
    written = runpy.run_path(str(script))["main"](tmp_path)
    assert written.read_text() == script.with_suffix(".md").read_text()
