"""hypothesis, which draws cases and shrinks counterexamples: an optional extra, ``pip install 'smisym[verify]'``."""

from __future__ import annotations

import importlib
import importlib.util

from smisym.base.errors import InputError, Words


def needed(package: str = "hypothesis") -> None:
    """InputError that names the extra where the package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InputError(
            "property-based verification",
            Words(f"an installation without {package}"),
            f"one with {package}, which draws cases and shrinks counterexamples",
            "pip install 'smisym[verify]'",
        )
