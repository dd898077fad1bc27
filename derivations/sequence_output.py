"""Regenerates sequence_output.md: one layer of which the tokens are seen, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.Architecture(tokens=3, layers=(smisym.Attention(),), output="sequence")


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "sequence_output.md")


if __name__ == "__main__":
    print(main())
