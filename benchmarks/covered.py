"""Coverage: which lines and branches of smisym/ the tests run.

    python benchmarks/covered.py [OUT.json] [-- arguments of pytest]

Needs slipcover (``pip install slipcover``), which counts by probes in the bytecode: the suite takes a third longer than
without.  What the workers of pytest run is counted, and what the commands do that tests start as processes of their
own, unless these are killed.  `LEFT_OUT` is what no probe sees: what numba compiles from its
bytecode, and modules whose texts become parts of generated ones (compiled loops, exported modules) and run there; the
tests of tests/kernels and tests/export hold these against numpy, thirty digits and the channel.  The share is that of
coverage.py: lines and branches run, over all lines and branches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import slipcover

ROOT = Path(__file__).parents[1]
LEFT_OUT = (
    "smisym/kernels/scalars.py", "smisym/kernels/stencils.py", "smisym/kernels/chained/*", "smisym/kernels/meshed/*",
    "smisym/export/parts/*",
)  # fmt: skip
# Runs before anything else in every process of Python that finds it; pytest itself counts nothing.
COUNTING = """
import os
depth = int(os.environ["COVERED_DEPTH"])
os.environ["COVERED_DEPTH"] = str(depth + 1)
if depth >= 1:
    import atexit, json
    import slipcover
    where = {"omit": os.environ["COVERED_OMIT"].split(",")}
    counts = slipcover.Slipcover(branch=True, immediate=True, source=[os.environ["COVERED_SOURCE"]], **where)
    matcher = slipcover.FileMatcher(sources=[os.environ["COVERED_SOURCE"]], **where)
    slipcover.ImportManager(counts, matcher).__enter__()
    def save():
        name = os.path.join(os.environ["COVERED_OUT"], str(os.getpid()))
        with open(name, "w") as file:
            json.dump(counts.get_coverage(), file)
        os.replace(name, name + ".json")  # of one that is killed meanwhile nothing counts
    atexit.register(save)
"""
# Its own plugin comes too late for modules that are imported before, and a warning is an error.
PLUGIN = ("-W", "ignore:Module already imported so cannot be rewritten")
TABLE = 30


def counted(arguments: list[str]) -> tuple[dict[str, Any], int]:
    """Counts of all workers together, and the exit code of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(COUNTING)
        made = Path(folder) / "made"
        made.mkdir()
        path = os.pathsep.join(filter(None, (folder, str(ROOT), os.environ.get("PYTHONPATH"))))
        how = {"COVERED_DEPTH": "0", "COVERED_OUT": str(made), "COVERED_SOURCE": str(ROOT / "smisym")}
        how |= {"PYTHONPATH": path, "COVERED_OMIT": ",".join(LEFT_OUT)}
        command = [sys.executable, "-m", "pytest", *PLUGIN, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | how, check=False)
        parts = [_read(file) for file in made.glob("*.json")]
    if not parts:
        raise SystemExit("no worker of pytest left its counts: leave out -n 0")
    whole = parts[0]
    for part in parts[1:]:
        whole = slipcover.merge_coverage(whole, part)
    return whole, done.returncode


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    for one in found["files"].values():
        for key in ("executed_branches", "missing_branches"):
            one[key] = [tuple(branch) for branch in one[key]]
    return found


def summary(whole: dict[str, Any]) -> dict[str, Any]:
    """Totals, and of every file what no test runs, the worst first."""
    rows = []
    total = dict.fromkeys(("executed_lines", "missing_lines", "executed_branches", "missing_branches"), 0)
    for name, one in whole["files"].items():
        for key in total:
            total[key] += len(one[key])
        rows.append({"file": name, "lines": one["missing_lines"], "branches": one["missing_branches"]})
    rows.sort(key=lambda row: -len(row["lines"]) - len(row["branches"]))
    run, missing = (sum(total[f"{how}_{what}"] for what in ("lines", "branches")) for how in ("executed", "missing"))
    return {"share": run / (run + missing), **total, "left_out": LEFT_OUT, "missing": rows}


def main(arguments: list[str]) -> int:
    own, of_pytest = _split(arguments)
    whole, code = counted([*of_pytest, "-q"])
    found = summary(whole)
    for row in found["missing"][:TABLE]:
        print(f"{len(row['lines']):5d} lines {len(row['branches']):5d} branches  {row['file']}")
    lines, branches = (
        found[f"executed_{what}"] / (found[f"executed_{what}"] + found[f"missing_{what}"])
        for what in ("lines", "branches")
    )
    print(f"lines {lines:.1%}, branches {branches:.1%}, both {found['share']:.2%}; pytest ended with {code}")
    if own:
        Path(own[0]).write_text(json.dumps(found, indent=1) + "\n")
    return code


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and behind it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
