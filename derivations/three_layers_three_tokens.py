"""Regenerates three_layers_three_tokens.md, three layers on three tokens, from the steps that produced its code."""

from __future__ import annotations

from pathlib import Path

import smisym
from smisym.report import write_derivation

ARCHITECTURE = smisym.Architecture(tokens=3, layers=(smisym.Attention(),) * 3)


def main(folder: Path = Path(__file__).parent) -> Path:
    """Write the document into ``folder``."""
    return write_derivation(smisym.compile(ARCHITECTURE).derivation, folder / "three_layers_three_tokens.md")


if __name__ == "__main__":
    print(main())
