"""smisym: what attention networks can learn, derived symbolically and solved numerically.

Declare an :class:`Architecture`, :func:`compile` it into a :class:`Model`, and hand the model to the solvers.
"""

from smisym.architecture import Architecture, Attention
from smisym.charts import LevelSet, Refusal, Sheets, register_chart
from smisym.curve import curve
from smisym.errors import InputError, NoChartError, NotConverged, SmisymError
from smisym.free_entropy import free_entropy
from smisym.gamp import gamp
from smisym.io import load, save
from smisym.link import Observation
from smisym.model import Model, compile
from smisym.overlap_map import OverlapMap, overlap_map
from smisym.prediction import prediction_errors
from smisym.program import Program
from smisym.samples import generate
from smisym.smi import SMI
from smisym.solution import Result, Solution
from smisym.stability import Threshold, perfect_recovery, weak_recovery
from smisym.state_evolution import FixedPoint, state_evolution

__all__ = [
    "SMI",
    "Architecture",
    "Attention",
    "FixedPoint",
    "InputError",
    "LevelSet",
    "Model",
    "NoChartError",
    "NotConverged",
    "Observation",
    "OverlapMap",
    "Program",
    "Refusal",
    "Result",
    "Sheets",
    "SmisymError",
    "Solution",
    "Threshold",
    "compile",
    "curve",
    "free_entropy",
    "gamp",
    "generate",
    "load",
    "overlap_map",
    "perfect_recovery",
    "prediction_errors",
    "register_chart",
    "save",
    "state_evolution",
    "weak_recovery",
]
