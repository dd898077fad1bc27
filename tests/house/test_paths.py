"""Files that the documents name are there: moved modules leave no stale names behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CHANGELOG.md", "benchmarks/README.md"]
# Of docs/ what is written; folders that the build makes are not (.gitignore).
MADE = {"_build", "api", "gallery", "derivations"}
DOCUMENTS += sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs").rglob("*.md")
    if not MADE & set(path.relative_to(ROOT / "docs").parts)
)
# Names in code style that end as those of our files do, with a folder or without, and targets of links.
NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.py)`|`((?:[\w.-]+/)+[\w-]+\.\w+)`|\]\((?!https?:)([^)#\s]+)[^)]*\)")
# What a reader is told to make.
OWN = {".git/hooks/pre-commit", "report/report.html"}


def named(document: str) -> set[str]:
    text = (ROOT / document).read_text()
    if document == "CHANGELOG.md":  # what is released stays as it was written
        text = text.partition("## [Unreleased]")[2].partition("\n## [")[0]
    return {next(name for name in found if name) for found in NAMED.findall(text)} - OWN


def is_made(path: Path) -> bool:
    """Whether the build of the site makes it, so that a fresh clone has it not."""
    parts = Path(os.path.relpath(path, ROOT / "docs")).parts
    return bool(MADE & set(parts[:1]))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_are_there(document: str) -> None:
    places = (ROOT, (ROOT / document).parent)
    lost = sorted(
        name
        for name in named(document)
        if not any((place / name).exists() for place in places) and not is_made(places[1] / name)
    )
    assert not lost, f"{document} names {lost}. To fix: give the path from the root, smisym/ROOM/NAME.py."


def test_names_are_found() -> None:
    assert len(named("README.md")) > 5 and len(named("CHANGELOG.md")) > 20
