"""Regenerates causal_mask.md: one layer with a causal mask, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=2, layers=(smisym.Attention(mask="causal"),))


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "causal_mask.md")


if __name__ == "__main__":
    print(main())
