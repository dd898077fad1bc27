"""smisym: what attention networks can learn, derived symbolically and solved numerically.

Declare an :class:`Architecture`, :func:`compile` it into a :class:`Model`, and hand the model to the solvers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from smisym.architecture import Architecture, Attention
from smisym.charts import LevelSet, Refusal, Sheets, register_chart
from smisym.cost import estimate
from smisym.curve import curve
from smisym.errors import InputError, NoChartError, NotConverged, OutOfTime, SmisymError
from smisym.free_entropy import free_entropy
from smisym.gamp import Gamp, gamp
from smisym.io import load, package_version, save
from smisym.link import Observation
from smisym.model import Model, compile
from smisym.overlap_map import OverlapMap, overlap_map
from smisym.prediction import prediction_errors
from smisym.program import Program
from smisym.progress import progress_bar
from smisym.samples import Data, generate
from smisym.smi import SMI
from smisym.solution import Result, Solution
from smisym.stability import Threshold, perfect_recovery, weak_recovery
from smisym.state_evolution import FixedPoint, state_evolution
from smisym.sweeping import sweep

if TYPE_CHECKING:
    from smisym.analysis import analyze
    from smisym.plots import curve_figure, gamp_figure
    from smisym.plots import save as save_figure
    from smisym.render import write_derivation

__version__ = package_version()

# Figures and documents take long to import, and most uses need none: name to module and name there.
_LATER = {
    "analyze": ("smisym.analysis", "analyze"),
    "curve_figure": ("smisym.plots", "curve_figure"),
    "gamp_figure": ("smisym.plots", "gamp_figure"),
    "save_figure": ("smisym.plots", "save"),
    "write_derivation": ("smisym.render", "write_derivation"),
}

__all__ = [
    "SMI",
    "Architecture",
    "Attention",
    "Data",
    "FixedPoint",
    "Gamp",
    "InputError",
    "LevelSet",
    "Model",
    "NoChartError",
    "NotConverged",
    "Observation",
    "OutOfTime",
    "OverlapMap",
    "Program",
    "Refusal",
    "Result",
    "Sheets",
    "SmisymError",
    "Solution",
    "Threshold",
    "__version__",
    "analyze",
    "compile",
    "curve",
    "curve_figure",
    "estimate",
    "free_entropy",
    "gamp",
    "gamp_figure",
    "generate",
    "load",
    "overlap_map",
    "perfect_recovery",
    "prediction_errors",
    "progress_bar",
    "register_chart",
    "save",
    "save_figure",
    "state_evolution",
    "sweep",
    "weak_recovery",
    "write_derivation",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'smisym' has no attribute {name!r}")
    module, there = _LATER[name]
    return getattr(importlib.import_module(module), there)


def __dir__() -> list[str]:
    """What is public, and no modules."""
    return sorted(__all__)
