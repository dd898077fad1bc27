"""The shipped examples, and published data to hold it against; ``published/README.md`` names source and defects."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from smisym.declare.architecture import Architecture
from smisym.declare.io import load
from smisym.declare.smi import SMI

HERE = Path(__file__).parent
TWO_LAYERS = HERE / "two_layers.toml"
# Families of declarations, of which the atlas is made.
ATLAS = HERE / "atlas"

_SOURCE = (
    "Fundamental limits of learning in sequence multi-index models and deep attention networks (arXiv 2502.00901), "
    "data of the code repository SPOC-group/SequenceIndexModels"
)
_NOTES = [
    "The published curve carries a regulariser of 1e-3 in its covariances, which keeps it from perfect recovery above "
    "alpha = 1, and it was stopped before it converged just above a threshold.",
    "It is shown as published; nothing here is fitted to it.",
]


def architectures() -> dict[str, Architecture | SMI]:
    """Every shipped declaration, by the name of its file."""
    return {path.stem: load(path) for path in sorted(HERE.glob("*.toml"))}


def published_two_layers() -> dict[str, Any]:
    """Published state evolution and AMP of the example, as :func:`smisym.report.plots.curve_figure` takes them."""
    curve, errors, amp = (_read(name) for name in ("BO_2w.csv", "gen_error_BO_2w.csv", "AMP_2w.csv"))
    return {
        "label": "published",
        "source": _SOURCE,
        "notes": _NOTES,
        "curve": [
            {"alpha": row["alpha"], "Q": [row["Q11"], row["Q22"]], "plug_in_error": error["gen_error"]}
            for row, error in zip(curve, errors, strict=True)
        ],
        "amp": [
            {
                "alpha": row["alpha"],
                "Q": [row["Q11_mean"], row["Q22_mean"]],
                "Q_error": [row["Q11_std"], row["Q22_std"]],
            }
            for row in amp
        ],
    }


def _read(name: str) -> list[dict[str, float]]:
    with open(HERE / "published" / name, newline="", encoding="utf-8") as stream:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(stream)]
