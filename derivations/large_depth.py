"""Regenerates large_depth.md: infinitely many layers that each do little, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(
    tokens=2, layers=(*[smisym.Attention(readout=0.1)] * 5, smisym.Attention()), limit="ode"
)


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "large_depth.md")


if __name__ == "__main__":
    print(main())
