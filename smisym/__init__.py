"""smisym: what attention networks can learn, derived symbolically and solved numerically.

Declare an :class:`Architecture`, :func:`compile` it into a :class:`Model`, and hand the model to the solvers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from smisym.base.errors import InputError, NoChartError, NotConverged, OutOfTime, SmisymError
from smisym.base.solution import Result, Solution
from smisym.base.threshold import Threshold
from smisym.charts import LevelSet, Refusal, Sheets, register_chart
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.io import load, package_version, save
from smisym.declare.smi import SMI
from smisym.finite.message_passing import Gamp, gamp
from smisym.finite.samples import Data, generate
from smisym.link.linking import Observation
from smisym.link.program import Program
from smisym.model.compiled import Model, compile
from smisym.run.cost import estimate
from smisym.run.progress import progress_bar
from smisym.run.sweeping import sweep
from smisym.theory.collecting import FixedPoint
from smisym.theory.curves import curve
from smisym.theory.entropy import free_entropy
from smisym.theory.evolution import state_evolution
from smisym.theory.maps import OverlapMap, overlap_map
from smisym.theory.prediction import prediction_errors
from smisym.theory.stability import perfect_recovery, weak_recovery

if TYPE_CHECKING:
    from smisym.export import export_code
    from smisym.report import write_derivation
    from smisym.report.gamp_plots import gamp_figure
    from smisym.report.plots import curve_figure
    from smisym.report.plots import save as save_figure
    from smisym.run.analysis import analyze

__version__ = package_version()

# Figures, documents and verification take long to import, or need an extra: name to module and name there, or to the
# module itself.
_LATER = {
    "analyze": ("smisym.run.analysis", "analyze"),
    "curve_figure": ("smisym.report.plots", "curve_figure"),
    "export_code": ("smisym.export", "export_code"),
    "gamp_figure": ("smisym.report.gamp_plots", "gamp_figure"),
    "save_figure": ("smisym.report.plots", "save"),
    "verify": ("smisym.verify", ""),
    "write_derivation": ("smisym.report", "write_derivation"),
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
    "export_code",
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
    found = importlib.import_module(module)
    return getattr(found, there) if there else found


def __dir__() -> list[str]:
    """What is public, and no modules."""
    return sorted(__all__)
