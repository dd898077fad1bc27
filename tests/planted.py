"""Faults, handed in: models with another chart, channel, symmetry or declaration, and maps that are wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np

import smisym
from smisym import SMI, Architecture, Attention, OverlapMap
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates, Sheets
from smisym.model.channel import Channel
from smisym.posterior.level_set import OnLevelSet
from smisym.prior.gaussian import GaussianRows

DECLARED = {
    "two layers": Architecture(2, (Attention(), Attention())),
    "one layer": Architecture(2, (Attention(),)),
    "untied": Architecture(2, (Attention(tied=False),)),
    "noise": Architecture(2, (Attention(),), noise=0.05),
    "many layers": Architecture(2, (*[Attention(readout=0.1)] * 5, Attention()), limit="ode"),
    "activation": SMI("tanh(z1) + z2", 2),
    "flat": Architecture(2, (Attention(activation="tanh(s)"),)),
}


@cache
def compiled(name: str) -> smisym.Model:
    return smisym.compile(DECLARED[name])


def with_chart(name: str, change: Callable[[LevelSet], LevelSet]) -> smisym.Model:
    """The model with another chart, past every check that ``compile`` makes."""
    model = compiled(name)
    assert model.level_set is not None
    chart = change(model.level_set)
    return dataclasses.replace(model, level_set=chart, channel=Channel(model.link, OnLevelSet(chart, model.tokens)))


def solved(change: Callable[[Sheets, list[np.ndarray]], Sheets]) -> Callable[[LevelSet], LevelSet]:
    """A change of the chart that acts on its sheets and coordinates."""

    def of(chart: LevelSet) -> LevelSet:
        def solve(free: Any, latent: Any, u: Any) -> Sheets:
            return change(chart.solve(free, latent, u), [*free, *latent])

        return dataclasses.replace(chart, solve=solve, program=None)

    return of


def first_alone(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    weights = [*sheets.log_weight] * (len(sheets.solved) // len(sheets.log_weight))
    return dataclasses.replace(sheets, log_weight=[w if k == 0 else w - np.inf for k, w in enumerate(weights)])


def shifted(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    return dataclasses.replace(sheets, solved=[[*s[:-1], s[-1] + 1e-3] for s in sheets.solved])


def heavy(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """The Jacobian to the power of three halves."""
    return dataclasses.replace(sheets, log_weight=[1.5 * w for w in sheets.log_weight])


def in_floats(chart: LevelSet) -> LevelSet:
    """The chart in single precision, with the program that it says to be."""

    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        sheets = chart.solve(free, latent, u)
        rough = [[np.asarray(v, dtype=np.float32).astype(float) for v in row] for row in sheets.solved]
        return dataclasses.replace(sheets, solved=rough)

    solve.program = chart.program  # type: ignore[attr-defined]
    return dataclasses.replace(chart, solve=solve)


def with_noise(noise: float) -> smisym.Model:
    """One layer under noise, with the posteriors of another noise."""
    model, other = compiled("noise"), smisym.compile(dataclasses.replace(DECLARED["noise"], noise=noise))
    off: Any = Off(other.channel, lambda found, omega: found)
    off.sample, off.noise = model.channel.sample, model.noise
    return dataclasses.replace(model, channel=off)


def boxed(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """Nothing beyond 1.8 in the first field."""
    return _weighed(sheets, np.where(np.abs(x[0]) > 1.8, -np.inf, 0.0))


def tailed(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """A tail that is a little too heavy, from 2 on."""
    return _weighed(sheets, 0.1 * np.maximum(np.abs(x[0]) - 2, 0.0))


def halved(sheets: Sheets, x: list[np.ndarray]) -> Sheets:
    """Half of the level set: one sign of the last coordinate."""
    return _weighed(sheets, np.where(x[-1] < 0, -np.inf, 0.0))


def _weighed(sheets: Sheets, more: np.ndarray) -> Sheets:
    return dataclasses.replace(sheets, log_weight=[w + more for w in sheets.log_weight])


def sure(chart: LevelSet) -> LevelSet:
    """The chart that states no rounding of what it reads."""

    def coordinates(observed: smisym.Observation) -> Coordinates:
        found = chart.coordinates(observed)
        return dataclasses.replace(found, relative_error=np.zeros(len(found.values)))

    return dataclasses.replace(chart, coordinates=coordinates)


def of_an_activation(slope: Callable[[Any], Any]) -> Callable[[LevelSet], LevelSet]:
    """The chart of y = tanh(z1) + z2 that solves for z1, with the derivative of tanh as a function of its value."""

    def solve(free: Any, latent: Any, u: Any) -> Sheets:
        v = u[0] - free[0]
        inside = np.abs(v) < 1
        z = np.arctanh(np.where(inside, v, 0.0))
        with np.errstate(all="ignore"):
            return Sheets([[z]], [np.where(inside, -np.log(slope(np.where(inside, v, 0.0))), -np.inf)])

    def coordinates(observation: Any) -> Coordinates:
        return Coordinates(observation.y.reshape(-1, 1), np.zeros(len(observation)))

    return lambda _: LevelSet("my own", (1,), (0,), 1, 1, coordinates, solve, (), density=True)


class Off:
    """A channel whose answers are changed; what it says of itself is that of the right one."""

    def __init__(self, channel: Any, change: Callable[[Any, Any], Any], wider: float = 0.0) -> None:
        self._channel, self._change, self._wider = channel, change, wider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, y: Any, omega: Any, V: Any, **settings: Any) -> Any:
        found = self._channel.moments(y, omega, V + self._wider * np.eye(V.shape[-1]), **settings)
        return self._change(found, omega)


def with_channel(name: str, change: Callable[[Any, Any], Any], wider: float = 0.0) -> smisym.Model:
    model = compiled(name)
    off: Any = Off(model.channel, change, wider)
    return dataclasses.replace(model, channel=off)


def with_symmetry(name: str, signs: list[list[float]], elements: bool = False) -> smisym.Model:
    """The model with other flips; elements: its signed exchanges as well."""
    model, flips = compiled(name), np.array(signs)
    more = {"elements": np.array([np.diag(flip) for flip in signs])} if elements else {}
    return dataclasses.replace(model, symmetry=dataclasses.replace(model.symmetry, signs=flips, **more))


class Transposed:
    """A link whose attention matrices are transposed."""

    def __init__(self, link: Any) -> None:
        self._link = link

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(np.swapaxes(self._link(Z), -1, -2))


def with_transposes(name: str) -> smisym.Model:
    link: Any = Transposed(compiled(name).link)
    return dataclasses.replace(compiled(name), link=link)


class Scaled(OverlapMap):
    """Some arrays of every estimate times a factor."""

    factors: ClassVar[dict[str, float]] = {}

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        arrays = {name: getattr(made, name) for name in self.factors}
        changes: dict[str, Any] = {n: self.factors[n] * a for n, a in arrays.items() if a is not None}
        return dataclasses.replace(made, **changes)


def scaled(**factors: float) -> type[OverlapMap]:
    """Maps of which these arrays are so many times what they are."""
    return type("Planted", (Scaled,), {"factors": factors})


class SeedIgnored(OverlapMap):
    def __init__(self, model: Any, *, seed: int = 0, **settings: Any) -> None:
        super().__init__(model, seed=0, **settings)


class Restless(OverlapMap):
    """Numbers that are never the same."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        noise = 1 + 1e-12 * np.random.default_rng().standard_normal()
        return dataclasses.replace(made, white=noise * made.white)


class Shrinking(OverlapMap):
    """E falls as more is known."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        return dataclasses.replace(made, white=made.white * float(np.exp(-6 * np.trace(Q))))


class Confident(OverlapMap):
    """All points of a seed are off by one factor, which the spread of the scrambles does not show."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        return dataclasses.replace(made, white=made.white * (1.3 if self.seed % 2 else 0.8))


class Overstated(OverlapMap):
    """Standard errors as if scrambles were one."""

    def __call__(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, error = super().__call__(Q)
        return value, np.sqrt(self.scrambles) * error


class Apart(OverlapMap):
    """E is larger where there are eight scrambles, on which learning is looked for, than where thresholds are made."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made, factor = super().at(scramble, Q), 1.3 if self.scrambles == 8 else 1.0
        return dataclasses.replace(made, white=factor * made.white, slope=factor * made.slope, raw=factor * made.raw)


class DeafPrior(GaussianRows):
    """Side information does not reach it."""

    def response(self, V: np.ndarray, told: np.ndarray, side_information: float) -> Any:
        return super().response(V, told, 0.0)


def deaf(name: str) -> smisym.Model:
    """The model with a prior that hears no side information."""
    model = compiled(name)
    prior = object.__new__(DeafPrior)
    prior.__dict__.update(model.prior.__dict__)
    return dataclasses.replace(model, prior=prior)


class Miscounted(smisym.Model):
    """Ranks of derivatives of the link are so many times what they are."""

    times: ClassVar[float] = 1.0

    def jacobian_ranks(self, rng: np.random.Generator) -> Any:
        ranks, times = super().jacobian_ranks(rng), self.times

        class Ranks:
            def __getattr__(self, name: str) -> Any:
                return getattr(ranks, name)

            def __call__(self, span: np.ndarray) -> tuple[float, float]:
                rank, error = ranks(span)
                return times * rank, error

        return Ranks()


def miscounted(name: str, times: float) -> smisym.Model:
    """The model with ranks that are so many times what they are."""
    kind = type("Planted", (Miscounted,), {"times": times})
    made = object.__new__(kind)
    made.__dict__.update(compiled(name).__dict__)
    return made


class Misweighed(OverlapMap):
    """E is a tenth larger where little is learned, as by other weights of the rule that makes it of its derivative."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        made = super().at(scramble, Q)
        return dataclasses.replace(made, white=1.1 * made.white) if np.abs(Q).max() < 0.03 else made


class Stale(OverlapMap):
    """A cache that knows an overlap by its scramble alone."""

    def at(self, scramble: int, Q: np.ndarray) -> Any:
        kept: dict[int, Any] = self.__dict__.setdefault("kept", {})
        if scramble not in kept:
            kept[scramble] = super().at(scramble, Q)
        return kept[scramble]


class StaleFile(OverlapMap):
    """A file that holds what was asked first alone."""

    @classmethod
    def load(cls, path: Any, *arguments: Any, **settings: Any) -> Any:
        with np.load(path) as data:
            arrays = dict(data)
        for name, values in arrays.items():
            if name not in ("header", "Q", "scramble"):
                values[:] = values[:1]
        np.savez(path, **arrays)
        return OverlapMap.load(path, *arguments, **settings)


class Alike(OverlapMap):
    """Scrambles that hold most of their points in common: their spread is a third of what it should be."""

    def evaluate(self, Q: np.ndarray) -> Any:
        made = super().evaluate(Q)
        changes = {n: np.array([getattr(e, n) for e in made]) for n in ("white", "log_partition")}
        pressed = {n: values.mean(axis=0) + (values - values.mean(axis=0)) / 3 for n, values in changes.items()}
        return [
            dataclasses.replace(e, white=pressed["white"][r], log_partition=float(pressed["log_partition"][r]))
            for r, e in enumerate(made)
        ]


class Forgetful(OverlapMap):
    """Files in single precision."""

    @classmethod
    def load(cls, *arguments: Any, **settings: Any) -> Any:
        loaded = OverlapMap.load(*arguments, **settings)

        class Rounded:
            def __getattr__(self, name: str) -> Any:
                return getattr(loaded, name)

            def evaluate(self, Q: np.ndarray) -> Any:
                return [
                    dataclasses.replace(e, white=e.white.astype(np.float32).astype(float)) for e in loaded.evaluate(Q)
                ]

        return Rounded()


# ------------------------------------------------------------------------------------------------------------- GAMP


class Remembering:
    """A channel for one run of GAMP that gives back part of the Onsager term V g of the step before, or keeps V."""

    def __init__(self, channel: Any, given_back: float, kept: bool) -> None:
        self._channel, self._back, self._kept = channel, given_back, kept
        self._g: Any = None
        self._V: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def moments(self, y: Any, omega: Any, V: Any, **settings: Any) -> Any:
        self._V = V if self._V is None or not self._kept else self._V
        given = omega if self._g is None else omega + self._back * (V @ self._g)
        found = self._channel.moments(y, given, self._V, **settings)
        self._g = found.g
        return found


def gamp_with(given_back: float = 0.0, kept: bool = False) -> Callable[..., Any]:
    """GAMP with 1 - given_back times the Onsager term; kept: with the V of the first step in all."""

    def algorithm(model: Any, *data: Any, **settings: Any) -> Any:
        off: Any = Remembering(model.channel, given_back, kept)
        return smisym.gamp(dataclasses.replace(model, channel=off), *data, **settings)

    return algorithm
