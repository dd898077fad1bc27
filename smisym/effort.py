"""How many samples, and which tolerance, a model's posteriors allow where nobody says."""

from __future__ import annotations

from smisym.model import Model

# Samples where none are asked for: of one evaluation of the map, and (see smisym.stability) of one threshold.
SAMPLES = 8192
THRESHOLD_SAMPLES = 65536
SCRAMBLES = 8
# The same are divided by this in more than two free dimensions, where posteriors cost 10 to 300 times as much.
_DEARER = {3: 4, 4: 8}
# The same where posteriors of few dimensions are sampled.
_SAMPLED = 8
_SCOUT_POINTS = 1024
# Tolerance of the inner integrals by free dimensions: for two layers on two tokens, 1e-2 leaves 1e-4 in E.
_RTOL = {0: 1e-3, 1: 1e-3, 2: 1e-2}
_RTOL_ELSE = 3e-2


def affordable(model: Model, samples: int) -> int:
    """``samples``, or as many as cost about the same patience where posteriors cost more."""
    return samples // _dearer(model)


def _dearer(model: Model) -> int:
    """How many times fewer samples are affordable: with more than two free dimensions, or where they are sampled."""
    free = _free(model)
    by_dimension = _DEARER.get(free, 1 if free < 3 else max(_DEARER.values()))
    return by_dimension if _smooth(model) or not free else max(by_dimension, _SAMPLED)


def scout_points(model: Model) -> int:
    """Points of one scramble of a map that only finds the way."""
    return _SCOUT_POINTS // min(_dearer(model), 4)


def default_rtol(model: Model) -> float:
    """Sampled posteriors are given the tolerance of many dimensions whatever theirs."""
    return _RTOL.get(_free(model), _RTOL_ELSE) if _smooth(model) else _RTOL_ELSE


def _smooth(model: Model) -> bool:
    return model.channel.measure.smooth


def _free(model: Model) -> int:
    return model.channel.free_dimensions
