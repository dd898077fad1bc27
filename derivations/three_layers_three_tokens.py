"""Regenerates three_layers_three_tokens.md: three layers on three tokens, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=3, layers=(smisym.Attention(),) * 3)


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    trail = smisym.derive(ARCHITECTURE, seconds=math.inf)
    return smisym.write_derivation(trail, folder / "three_layers_three_tokens.md")


if __name__ == "__main__":
    print(main())
