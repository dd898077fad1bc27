"""smisym: what attention networks can learn, derived symbolically and solved numerically.

Declare an :class:`Architecture`, :func:`compile` it into a :class:`Model`, and hand the model to the solvers.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from smisym.base.errors import DerivationError, InputError, NoChartError, NotConverged, OutOfTime, SmisymError
from smisym.base.presenting import offer
from smisym.base.solution import Result, Solution
from smisym.base.threshold import Threshold, Thresholds
from smisym.charts import LevelSet, Refusal, Sheets, register_chart
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.io import load, package_version, save
from smisym.declare.smi import SMI
from smisym.finite.estimated import Gamp
from smisym.finite.message_passing import gamp
from smisym.finite.samples import Data, generate
from smisym.link.linking import Observation
from smisym.link.program import Program
from smisym.model.compiled import Model, compile
from smisym.prior import OwnSpectrum, RectangularRank
from smisym.run.cost import estimate
from smisym.run.diagram import PhaseDiagram, phase_diagram
from smisym.run.progress import progress_bar
from smisym.run.sweeping import sweep
from smisym.theory.along import Curve
from smisym.theory.branched import Branches, BranchLine, Phases
from smisym.theory.closed_forms import ClosedForm, closed_form
from smisym.theory.collecting import FixedPoint
from smisym.theory.curves import curve
from smisym.theory.entropy import free_entropy
from smisym.theory.evolution import state_evolution
from smisym.theory.maps import OverlapMap, overlap_map
from smisym.theory.prediction import prediction_errors
from smisym.theory.stability import perfect_recovery, weak_recovery
from smisym.theory.transitions import branches, phases

if TYPE_CHECKING:
    from smisym.export import export_code
    from smisym.report import write_derivation
    from smisym.report.course_plots import dynamics_figure
    from smisym.report.gamp_plots import gamp_figure
    from smisym.report.plots import curve_figure
    from smisym.report.plots import save as save_figure
    from smisym.run.analysis import analyze
    from smisym.run.atlases import Atlas, atlas
    from smisym.run.dynamics_runs import dynamics
    from smisym.run.saving import load_result, save_result
    from smisym.trail.whole import derive
    from smisym.training.trajectories import Dynamics

__version__ = package_version()


def _found(module: str, name: str) -> Any:
    """What a module has by that name, or the module itself."""
    there = importlib.import_module(module)
    return getattr(there, name) if name else there


# Figures, documents and verification take long to import, or need an extra: name to module and name there, or to the
# module itself.
_LATER = {
    "Atlas": ("smisym.run.atlases", "Atlas"),
    "analyze": ("smisym.run.analysis", "analyze"),
    "atlas": ("smisym.run.atlases", "atlas"),
    "derive": ("smisym.trail.whole", "derive"),
    "curve_figure": ("smisym.report.plots", "curve_figure"),
    "load_result": ("smisym.run.saving", "load_result"),
    "dynamics": ("smisym.run.dynamics_runs", "dynamics"),
    "dynamics_figure": ("smisym.report.course_plots", "dynamics_figure"),
    "Dynamics": ("smisym.training.trajectories", "Dynamics"),
    "export_code": ("smisym.export", "export_code"),
    "gamp_figure": ("smisym.report.gamp_plots", "gamp_figure"),
    "save_figure": ("smisym.report.plots", "save"),
    "save_result": ("smisym.run.saving", "save_result"),
    "verify": ("smisym.verify", ""),
    "write_derivation": ("smisym.report", "write_derivation"),
}

__all__ = [
    "SMI",
    "Architecture",
    "Atlas",
    "Attention",
    "BranchLine",
    "Branches",
    "ClosedForm",
    "Curve",
    "Data",
    "DerivationError",
    "Dynamics",
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
    "OwnSpectrum",
    "PhaseDiagram",
    "Phases",
    "Program",
    "RectangularRank",
    "Refusal",
    "Result",
    "Sheets",
    "SmisymError",
    "Solution",
    "Threshold",
    "Thresholds",
    "__version__",
    "analyze",
    "atlas",
    "branches",
    "closed_form",
    "compile",
    "curve",
    "curve_figure",
    "derive",
    "dynamics",
    "dynamics_figure",
    "estimate",
    "export_code",
    "free_entropy",
    "gamp",
    "gamp_figure",
    "generate",
    "load",
    "load_result",
    "overlap_map",
    "perfect_recovery",
    "phase_diagram",
    "phases",
    "prediction_errors",
    "progress_bar",
    "register_chart",
    "save",
    "save_figure",
    "save_result",
    "state_evolution",
    "sweep",
    "weak_recovery",
    "write_derivation",
]


# Who draws: base, which objects that show themselves are made of, may not know it.
_MAKERS = {
    "card": ("smisym.report.cards", "card_html"),
    "trail": ("smisym.report.cards", "trail_html"),
    "plot": ("smisym.report.drawing", "draw"),
    "dataframe": ("smisym.report.frames", "dataframe"),
    "dataset": ("smisym.report.frames", "dataset"),
}
for _form, (_module, _name) in _MAKERS.items():
    offer(_form, functools.partial(_found, _module, _name))


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'smisym' has no attribute {name!r}")
    return _found(*_LATER[name])


def __dir__() -> list[str]:
    """What is public, and no modules."""
    return sorted(__all__)
