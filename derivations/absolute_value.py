"""Regenerates absolute_value.md: the size of one field, real phase retrieval, to the last formula."""

from __future__ import annotations

import math
from pathlib import Path

import smisym

ARCHITECTURE = smisym.SMI("abs(z1)", fields=1)


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return smisym.write_derivation(smisym.derive(ARCHITECTURE, seconds=math.inf), folder / "absolute_value.md")


if __name__ == "__main__":
    print(main())
