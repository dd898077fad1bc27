"""Programs that tests open documents with: absent, a visible skip; a failure where ``SMISYM_NEEDS`` asks for them."""

from __future__ import annotations

import os
import shutil

import pytest

# What is asked for -> the program that does it.
PROGRAMS = {"chromium": "chromium", "latex": "pdflatex"}


def program(name: str) -> str:
    """The path of a program; skips the test, or fails it, where it is not installed."""
    found = shutil.which(PROGRAMS[name])
    if found is not None:
        return found
    if name in os.environ.get("SMISYM_NEEDS", "").split():
        pytest.fail(f"{PROGRAMS[name]} is asked for by SMISYM_NEEDS, and is not installed")
    pytest.skip(f"{PROGRAMS[name]} is not installed: .ci/run installs it")
