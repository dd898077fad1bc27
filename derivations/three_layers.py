"""Regenerates three_layers.md: three layers on two tokens, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=2, layers=(smisym.Attention(),) * 3)


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "three_layers.md")


if __name__ == "__main__":
    print(main())
