"""Packages of optional extras, asked for where they are needed: ``pip install 'smisym[tables]'``."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from smisym.base.errors import InputError, Words

# Extra -> what needs it, and what its packages do.
EXTRAS = {
    "verify": ("property-based verification", "which draws cases and shrinks counterexamples"),
    "dask": ("scheduler", "which sends tasks to a cluster"),
    "tables": ("result as a table", "which holds tables"),
}


def needed(package: str, extra: str) -> Any:
    """The package; InputError that names the extra where it is not installed."""
    if importlib.util.find_spec(package) is None:
        name, does = EXTRAS[extra]
        given = Words(f"an installation without {package}")
        raise InputError(name, given, f"one with {package}, {does}", f"pip install 'smisym[{extra}]'")
    return importlib.import_module(package)
