"""Regenerates untied.md: one layer with queries and keys of their own, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=3, layers=(smisym.Attention(tied=False),))


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "untied.md")


if __name__ == "__main__":
    print(main())
