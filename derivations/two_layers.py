"""Regenerates two_layers.md: the derivation of two tied layers on two tokens, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=2, layers=(smisym.Attention(), smisym.Attention()))


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "two_layers.md")


if __name__ == "__main__":
    print(main())
