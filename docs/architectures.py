"""Makes architectures.md and architectures.json beside it: every family, its chart and its first threshold.

Run it to bring them up to date: python docs/architectures.py [--all | NAME ...].  Rows that are sampled, until they are
known to half a per cent, take most of the time; rows of unchanged declarations keep their numbers unless they are
named.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

import smisym
from smisym import SMI, Architecture, Attention

HERE = Path(__file__).parent
A = Attention


def single(tokens: int, **layer: Any) -> Architecture:
    return Architecture(tokens, (A(**layer),))


TWO, LINEAR, SUMMED = A(heads=2), A(heads=2, activation="linear"), A(heads=2, readout=(1.0, 0.5))
RING = ((True, True, False), (False, True, True), (True, False, True))
ROWS: list[tuple[str, Architecture | SMI]] = [
    ("tied, rank 1, T = 2", single(2)),
    ("tied, rank 1, T = 3", single(3)),
    ("tied, rank 2, T = 2", single(2, rank=2)),
    ("tied, rank 2, T = 3", single(3, rank=2)),
    ("tied, rank 3, T = 2", single(2, rank=3)),
    ("tied, rank 2, T = 2, linear", single(2, rank=2, activation="linear")),
    ("untied, rank 1, T = 2", single(2, tied=False)),
    ("untied, rank 1, T = 3", single(3, tied=False)),
    ("untied, rank 1, T = 4", single(4, tied=False)),
    ("untied, rank 1, T = 2, linear", single(2, tied=False, activation="linear")),
    ("untied, rank 1, T = 3, linear", single(3, tied=False, activation="linear")),
    ("untied, rank 2, T = 2", single(2, rank=2, tied=False)),
    ("untied, rank 2, T = 3", single(3, rank=2, tied=False)),
    ("hardmax, tied, T = 2", single(2, activation="hardmax")),
    ("activation s/(1 + |s|), tied, T = 3", single(3, activation="s/(1 + abs(s))")),
    ("two heads, shared, stacked, T = 2", single(2, heads=2)),
    ("two heads, split, stacked, T = 2", Architecture(2, (A(heads=2),), head_layout="split")),
    ("two untied heads, shared, T = 2", single(2, heads=2, tied=False)),
    ("sequence output, tied, T = 3", Architecture(3, (A(),), output="sequence")),
    ("sequence output, two layers, T = 2", Architecture(2, (A(), A()), output="sequence")),
    ("sequence output, two layers, T = 3", Architecture(3, (A(), A()), output="sequence")),
    ("sequence output, two layers, T = 4", Architecture(4, (A(), A()), output="sequence")),
    ("sequence output, two layers, untied then tied, T = 2", Architecture(2, (A(tied=False), A()), output="sequence")),
    ("two heads summed with weights 1, 1/2, T = 3", Architecture(3, (SUMMED,), combine="sum")),
    ("two heads summed, noise 0.05, T = 2", Architecture(2, (SUMMED,), combine="sum", noise=0.05)),
    ("causal mask, tied, T = 2", single(2, mask="causal")),
    ("causal mask, tied, T = 3", single(3, mask="causal")),
    ("positional scores, tied, T = 2", single(2, position=((0.0, 0.4), (-0.3, 0.2)))),
    ("noise 0.05, tied, T = 2", Architecture(2, (A(),), noise=0.05)),
    ("noise 0.01, tied, T = 2", Architecture(2, (A(),), noise=0.01)),
    ("noise 0.0001, tied, T = 2", Architecture(2, (A(),), noise=0.0001)),
    ("two layers, T = 2", Architecture(2, (A(), A()))),
    ("two layers, T = 3", Architecture(3, (A(), A()))),
    ("three layers, T = 2", Architecture(2, (A(), A(), A()))),
    ("three layers, T = 3", Architecture(3, (A(), A(), A()))),
    ("four layers, T = 2", Architecture(2, (A(),) * 4)),
    ("two layers, the first with a ring mask, T = 3", Architecture(3, (A(mask=RING), A()))),
    ("two heads with readouts 1/2, 1, then two heads, T = 2", Architecture(2, (A(heads=2, readout=(0.5, 1.0)), TWO))),
    ("two split heads, linear, two layers, T = 2", Architecture(2, (LINEAR, LINEAR), head_layout="split")),
    ("two split heads, three layers, T = 2", Architecture(2, (A(heads=2),) * 3, head_layout="split")),
    ("tied rank 2 on rank 1, two layers, T = 2", Architecture(2, (A(), A(rank=2)))),
    ("untied, two layers, T = 2", Architecture(2, (A(tied=False), A(tied=False)))),
    ("two layers, the first with a causal mask, T = 2", Architecture(2, (A(mask="causal"), A()))),
    ("tied on untied, two layers, T = 2", Architecture(2, (A(tied=False), A()))),
    ("untied on tied, two layers, T = 2", Architecture(2, (A(), A(tied=False)))),
    (
        "committee of 8 layers and a last one, through its sum, T = 2",
        Architecture(2, (*[A(readout=0.125)] * 8, A()), limit="first_order", statistic="gaussian"),
    ),
    ("many layers (ode limit), T = 2", Architecture(2, (*[A(readout=0.1)] * 5, A()), limit="ode")),
    ("|z|", SMI("abs(z1)", 1)),
    ("z1 z2", SMI("z1*z2", 2)),
    ("sign(z1 z2)", SMI("sign(z1*z2)", 2)),
    ("sign(sign z1 + sign z2)", SMI("sign(sign(z1) + sign(z2))", 2)),
    ("sign(z1 z2 z3)", SMI("sign(z1*z2*z3)", 3)),
]
# Samples of the first try.  Where outputs share their rows it tells what grows: the threshold is then integrated.
SAMPLES, FEW = {0: 65536, 1: 65536, 2: 8192, 3: 256}, 1024
# Where single posteriors cost more: points found numerically, sampled posteriors.
DEARER = {"OnPoints": 64, "OnSlices": 1024, "sampled": 4096}
# Where rare outputs make so much of it that the spread of few points says too little: three times, of 512 a scramble.
RARE = {"sequence output, two layers, untied then tied, T = 2": 16384}
# Relative error from which on a row is measured again, with as many times more samples as that takes, and how many.
WITHIN, MOST = 0.005, 65536


def exact_first(name: str, model: smisym.Model) -> sp.Expr | None:
    """The first threshold where its moments are elementary, or where solutions were all seen to be one up to signs."""
    if name == "sequence output, two layers, T = 4":
        return sp.Rational(1, 20)
    found = smisym.closed_form(model)
    return None if found is None else found.alpha


RULE = {
    "OnPoints": "points found numerically",
    "OnSlices": "general numeric channel",
    "AroundLevelSet": "around the level set, weak noise",
    "AroundImage": "around the level set, weak noise",
}


def measure(name: str, declared: Architecture | SMI) -> dict[str, Any]:
    """One row of the table."""
    model = smisym.compile(declared)
    started = time.perf_counter()
    free = model.channel.free_dimensions
    posterior = model.channel.posterior
    kind = type(getattr(posterior, "thin", posterior)).__name__
    sampled = not posterior.smooth and not isinstance(declared, SMI)
    samples = DEARER.get("sampled" if sampled else kind, SAMPLES.get(free, FEW))
    if model.channel.shared is not None:
        samples = FEW
    samples = RARE.get(name, samples)
    solution = smisym.weak_recovery(model, samples=samples, stages=1)
    while (first := solution.value[0]).error > WITHIN * first.alpha and samples < MOST and np.isfinite(first.alpha):
        missing = (first.error / (WITHIN * first.alpha)) ** 2
        samples = min(2 * samples << max(0, math.ceil(math.log2(missing)) - 1), MOST)
        solution = smisym.weak_recovery(model, samples=samples, stages=1)
    every = "all fields, noise" if declared.noise else "all fields, cells"
    rule = RULE.get(kind) or (model.level_set.rule if model.level_set else every)
    exact = exact_first(name, model)
    row = {
        "name": name,
        "digest": declared.digest,
        "fields": model.fields,
        "chart": rule,
        "free": free,
        "branches": model.level_set.branches if model.level_set else 1,
        "kind": first.kind,
        "alpha": None if first.kind == "hard" else first.alpha,
        "error": first.error,
        "order": first.order,
        "closed_form": None if exact is None else str(sp.radsimp(exact)),
        "closed_value": None if exact is None else float(exact),
        "later": [[t.kind, t.alpha if t.kind != "hard" else None, t.error] for t in solution.value[1:]],
        "samples": samples,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if exact is not None and first.kind == "weak":
        assert abs(first.alpha - float(exact)) < 5 * first.error + 1e-6, (name, first.alpha, exact)
    print(
        f"{name:50} {row['kind']:8} {row['alpha']} +- {row['error']:.1e}  {row['closed_form']}  {row['seconds']} s",
        flush=True,
    )
    return row


HEADER = """# Architectures, their charts and first thresholds

Many networks and models, with the first threshold of each: the smallest alpha at which state evolution leaves Q = 0.
What the columns say:

* **P**: rows of Z.
* **chart**: which rule found coordinates on the level set, or what is done without.
* **free**: dimensions of the posterior's integral once its closed-form directions are done.
* **first threshold**: with one standard error, or the change under refinement where no random numbers are used.
* **closed form**: exact. Its moments were taken symbolically, and the number beside it confirms it.
* **second way**: the same number without any chart or integrator, in one of four ways. *Walks*: random walks that
  start at the truth, which is a sample of its own posterior. *Bins*: draws of fields and outputs sorted into bins,
  where outputs have at most two coordinates, extrapolated to narrow bins (in brackets: half of what that changed).
  *All solutions*, found from many starts, where they are finitely many. *Nested quadrature* over the fields of the
  first layers and the scores of the last one.

Made by `docs/architectures.py` (smisym {version}); the numbers are in `architectures.json`, the second ways in
`second_way.json`, made by `tests/second_way.py`.

| architecture | P | chart | free | branches | first threshold | closed form | second way |
|---|---|---|---|---|---|---|---|
"""


def second_ways() -> dict[str, str]:
    """What the second way gives, by digest."""
    path = HERE / "second_way.json"
    found = {}
    for known in json.loads(path.read_text()).values() if path.exists() else ():
        alpha, error = 1 / known["rate"], known["error"] / known["rate"] ** 2
        way = known["way"] + (f", {100 * known['slack'] / known['rate']:.1g} %" if known["slack"] else "")
        found[known["digest"]] = f"{alpha:.4g} ± {error:.1g} ({way})"
    return found


def write(rows: list[dict[str, Any]]) -> None:
    lines, second = [], second_ways()
    for row in rows:
        if row["kind"] == "trivial":
            value = "0 (trivial direction)"
        elif row["kind"] == "hard":
            value = f"infinite (hard, order {row['order']})"
        else:
            value = f"{row['alpha']:.6g} ± {row['error']:.1g}"
        name = row["name"].replace("|", "\\|")
        exact = row["closed_form"] or ""
        lines.append(
            f"| {name} | {row['fields']} | {row['chart']} | {row['free']} | {row['branches']} | {value} | {exact} | "
            f"{second.get(row['digest'], '')} |"
        )
    (HERE / "architectures.md").write_text(HEADER.format(version=smisym_version()) + "\n".join(lines) + "\n" + NOTES)
    (HERE / "architectures.json").write_text(json.dumps(rows, indent=1) + "\n")


NOTES = """
Two formulas that hold for any T and r, noiseless, one layer:

* tied, rank r: 1/alpha = T(T+1)/r - 2 max(r-T+1, 0)/r^2 with softmax (the chi-square part of the common row
  is not seen), and T(T+1)/r with linear scores;
* untied, rank one, softmax: alpha = 1/((T-1)(T + sqrt(T^2+1))), sqrt(5) - 2 for T = 2; queries and keys
  grow together, which takes it below the floor 1/(T(T+1)) of a single index from T = 3 on.

The closed form of two layers with sequence output, T = 4, rests on solutions being one class up to signs, which was
seen at 200 outputs (second way) and is not proved.  Those of hardmax and of signs are integrals over cones; that of
the causal mask on three tokens follows from its scores, which sympy solves for the fields up to one sign.

The error of 0 of sequence output, T = 4, says only that at every output of the sample (64) the fields were known up
to signs, so that their squares are those of all outputs.  For sequence output, untied then tied, both ways differ by
2.7 of their errors (0.3 %), and by four of them where eight scrambles had 512 points each in place of 2048: rare
outputs make most of the rate, and an error told by so few points is too small by two or three.

The row of the committee is that of the Gaussian closure of its sum, 2e-4 below the exact value (benchmarks/README.md).
"""


def smisym_version() -> str:
    from smisym.declare.io import package_version

    return package_version()


def main(names: list[str]) -> None:
    """Measure the rows that are named, new, or declared otherwise than before; the table is written after each."""
    unknown = set(names) - {name for name, _ in ROWS} - {"--all"}
    if unknown:
        sys.exit(f"no row is called {sorted(unknown)}; rows: {[name for name, _ in ROWS]}")
    path = HERE / "architectures.json"
    known = {row["digest"]: row for row in json.loads(path.read_text())} if path.exists() else {}

    def keep() -> None:
        write([{**known[d.digest], "name": n} for n, d in ROWS if d.digest in known])

    for name, declared in ROWS:
        if declared.digest not in known or name in names or "--all" in names:
            known[declared.digest] = measure(name, declared)
            keep()
    keep()  # the second way may be new where no row is


if __name__ == "__main__":
    main(sys.argv[1:])
