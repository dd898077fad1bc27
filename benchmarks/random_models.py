"""Models by expressions, drawn at random: curve, state evolution and thresholds must tell one story, or refuse in time.

    python benchmarks/random_models.py [models] [seconds]       prints a table

Every model runs in a process of its own with a limit on its time.  "apart" is the largest difference between curve and
state evolution on one map in units of what both may leave, where both are called a success; "onset" says whether the
curve is zero just below every weak threshold and above zero just past it.
"""

from __future__ import annotations

import collections
import multiprocessing
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import smisym
from smisym.base.processes import cores

ALPHAS = (0.4, 1.3, 2.8)
SAMPLES = 256


def expression(rng: np.random.Generator) -> tuple[str, int]:
    """A sum of one to three terms in two or three fields: products, squares, signs, fields."""
    count = int(rng.integers(2, 4))
    names = [f"z{i + 1}" for i in range(count)]

    def field() -> str:
        return str(rng.choice(names))

    kinds = [
        lambda: f"{field()}*{field()}",
        lambda: f"{field()}**2",
        lambda: f"sign({field()}*{field()})",
        lambda: f"sign({field()})",
        lambda: field(),
        lambda: f"({field()} + {field()})*{field()}",
        lambda: f"abs({field()})",
    ]
    while True:
        terms = [kinds[int(rng.integers(len(kinds)))]() for _ in range(int(rng.integers(1, 4)))]
        text = terms[0] + "".join(f" {rng.choice(['+', '-'])} {term}" for term in terms[1:])
        if all(name in text for name in names):
            return text, count


def story(text: str, fields: int, limit: float, out: Any) -> None:
    """What one model says, or why it refuses."""
    try:
        model = smisym.compile(smisym.SMI(text, fields))
        omap = smisym.overlap_map(model, samples=SAMPLES, workers=1, time_limit=limit)
        found = smisym.weak_recovery(omap, quadrature=False)
        weak = [t for t in found.value if t.kind == "weak"]
        along = smisym.curve(omap, ALPHAS)
        alone = [smisym.state_evolution(omap, alpha) for alpha in ALPHAS]
        apart = 0.0
        for a, b in zip(along, alone, strict=True):
            if not (a.result.ok and b.result.ok):
                continue  # says itself that it is not to be trusted
            room = 4 * (a.deterministic_error + b.deterministic_error)
            room = room + 1.5 * np.maximum(a.statistical_error, b.statistical_error) + 1e-9
            apart = max(apart, float((np.abs(a.value.Q - b.value.Q) / room).max()))
        codes = sorted({s.result.value for s in (found, *along, *alone)})
        # What comes after the first one is no success where the code says so.
        onsets = all(begins(omap, t) for t in (weak if found.result.ok else weak[:1]))
        out.put({"weak": [round(t.alpha, 3) for t in weak], "apart": apart, "onset": onsets, "codes": codes})
    except smisym.SmisymError as error:
        out.put({"refused": f"{type(error).__name__}: {str(error)[:60]}"})


def begins(omap: smisym.OverlapMap, threshold: smisym.Threshold) -> bool:
    """Whether the direction is idle below its threshold and learned above."""
    room = max(0.3, 6 * threshold.error / threshold.alpha)
    v = threshold.subspace[0]
    below, above = smisym.curve(omap, [threshold.alpha / (1 + room), threshold.alpha * (1 + room)])
    return bool(v @ below.value.Q @ v <= 3 * v @ below.value.Q_error @ v + 1e-3 and v @ above.value.Q @ v > 1e-3)


def told(text: str, fields: int, limit: float) -> tuple[str, float, Any]:
    """How one model ended, in a process of its own, after how many seconds, and what it said."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=story, args=(text, fields, 0.8 * limit, out), daemon=True)
    began = time.perf_counter()
    process.start()
    try:
        said = out.get(timeout=limit)
    except queue.Empty:
        said = None
    process.terminate()
    process.join()
    took = time.perf_counter() - began
    if said is None:
        return "out of time", took, said
    if "refused" in said:
        return "refused", took, said
    return "agree" if said["apart"] <= 1 and said["onset"] else "apart", took, said


def main(models: int = 30, limit: float = 60.0) -> None:
    rng = np.random.default_rng(11)
    drawn = [expression(rng) for _ in range(models)]
    tally: collections.Counter[str] = collections.Counter()
    with ThreadPoolExecutor(cores()) as threads:
        for (text, _), (kind, took, said) in zip(drawn, threads.map(lambda one: told(*one, limit), drawn), strict=True):
            tally[kind] += 1
            print(f"{text:44s} {kind:12s} {took:5.1f} s  {said}", flush=True)
    print(dict(tally))


if __name__ == "__main__":
    main(*[kind(value) for kind, value in zip((int, float), sys.argv[1:3], strict=False)])
