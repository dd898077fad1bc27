"""Same seed, same bits; another seed, others; what is saved is what is loaded."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from smisym.theory.estimate import Estimate
from smisym.verify.averages import overlaps_of
from smisym.verify.properties import Property, Subject, Tried, left_out, lines

_SAMPLES, _SCRAMBLES = 256, 2


def differing(a: Estimate, b: Estimate) -> list[str]:
    """Names of what is not the same, bit by bit, in two estimates."""
    names = [f.name for f in dataclasses.fields(Estimate)]
    return [n for n in names if np.asarray(getattr(a, n)).tobytes() != np.asarray(getattr(b, n)).tobytes()]


_BODY = """from smisym.verify.repeating import differing

def made(seed, workers):
    size = dict(samples={samples}, scrambles={scrambles}, rtol={rtol!r})
    return smisym.overlap_map(model, seed=seed, workers=workers, **size)

a, b = (made(*how).at(0, Q) for how in {how!r})
print(differing(a, b))  # {what}"""


def _same_bits(subject: Subject, level: float) -> Tried:
    Q = overlaps_of(subject, "bits")
    seed = subject.number("bits")

    def made(seed: int, workers: int) -> list[Estimate]:
        # A map of its own each time: nothing is remembered.
        omap = subject.overlap_map(_SAMPLES, scrambles=_SCRAMBLES, seed=seed, workers=workers)
        return omap.evaluate(Q)

    pairs = [
        (((seed, 1), (seed, 1)), True, "nothing: the same seed gives the same bits"),
        (((seed, 1), (seed, 2)), True, "nothing: the number of workers changes no bit"),
        (((seed, 1), (seed + 1, 1)), False, "something: another seed gives other points"),
    ]
    for how, same, what in pairs:
        a, b = (made(*one) for one in how)
        names = [differing(x, y) for x, y in zip(a, b, strict=True)]
        if any(bool(found) == same for found in names):
            told = [name for found in names for name in found]
            said = f"{', '.join(dict.fromkeys(told))} differ" if same else "another seed gives the same numbers"
            omap = subject.overlap_map(_SAMPLES, scrambles=_SCRAMBLES, seed=seed)
            size = {"samples": omap.samples, "scrambles": omap.scrambles, "rtol": omap.rtol}
            return Tried(len(pairs), "pairs", np.inf, None, False, said, _shown(subject, Q, size, how, what))
    return Tried(len(pairs), "pairs of maps")


def _shown(subject: Subject, Q: np.ndarray, size: dict[str, float], how: object, what: str) -> str:
    return lines(subject, _BODY.format(**size, how=how, what=what), Q=Q)


def _what_is_kept(subject: Subject, level: float) -> Tried:
    if subject.model.architecture is None:
        return left_out("a bare program has no file")
    omap = subject.overlap_map(_SAMPLES, "kept", scrambles=_SCRAMBLES)
    overlaps = [overlaps_of(subject, "kept", k) for k in range(2)]
    before = [e for Q in overlaps for e in omap.evaluate(Q)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.npz"
        omap.save(path)
        loaded = subject.maps.load(path, subject.model)
    # What is asked again is remembered, not made.
    heard: list[object] = []
    loaded.on_evaluation = heard.append
    after = [e for Q in overlaps for e in loaded.evaluate(Q)]
    names = list(dict.fromkeys(n for a, b in zip(before, after, strict=True) for n in differing(a, b)))
    settings = omap.settings() == loaded.settings()
    if not names and settings and not heard:
        return Tried(len(before), "estimates")
    said = f"{', '.join(names)} differ" if names else "the settings differ" if not settings else "made anew"
    body = (
        f"omap = smisym.overlap_map(model, **{omap.settings()!r})\n"
        "before = omap.at(0, Q)\nomap.save('map.npz')\n"
        "from smisym.verify.repeating import differing\n\n"
        "print(differing(before, smisym.OverlapMap.load('map.npz', model).at(0, Q)))  # nothing"
    )
    return Tried(len(before), "estimates", np.inf, None, False, said, lines(subject, body, Q=overlaps[0]))


PROPERTIES = (
    Property(
        "bits",
        "The same seed gives the same bits, with one worker or two, and another seed gives others.",
        "README, how far to trust a number",
        "seconds",
        False,
        _same_bits,
    ),
    Property(
        "kept",
        "A map that was saved and loaded has the same estimates to the bit, and makes none anew.",
        "README, how far to trust a number",
        "seconds",
        False,
        _what_is_kept,
    ),
)
