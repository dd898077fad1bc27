"""Regenerates two_layers.md: the derivation of two tied layers on two tokens, from the steps that produced its code."""

from __future__ import annotations

from pathlib import Path

import smisym
from smisym.report import write_derivation

ARCHITECTURE = smisym.Architecture(tokens=2, layers=(smisym.Attention(), smisym.Attention()))


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return write_derivation(smisym.compile(ARCHITECTURE).derivation, folder / "two_layers.md")


if __name__ == "__main__":
    print(main())
