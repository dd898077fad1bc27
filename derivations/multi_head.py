"""Regenerates multi_head.md: two heads that split the embedding, on two tokens, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=2, layers=(smisym.Attention(heads=2),), head_layout="split")


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "multi_head.md")


if __name__ == "__main__":
    print(main())
