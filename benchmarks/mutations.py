"""Power: faults drawn at random from the modules that compute, and which property of ``smisym check`` catches each.

    python benchmarks/mutations.py trace           which lines each property of each example runs, and its seconds
    python benchmarks/mutations.py run [mutants]   tries so many, resumes: one line of JSON each in FOLDER
    python benchmarks/mutations.py again           tries what survived by the properties that were too dear at first
    python benchmarks/mutations.py table           docs/mutations.csv, and a summary on the screen

FOLDER is ``$SMISYM_MUTANTS``, or smisym-mutants among temporary files.  The package is never touched: each mutant is
one changed file in a copy of it.  A mutant is tried by the properties that run its line, the cheapest first, until one
fails, an error is raised, or processor time is up; without compiled loops, which tests/kernels holds against numpy.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import csv
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"SMISYM_BACKEND": "numpy", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# Everything that a mutant needs and that is not ours is loaded once: children are forked.
import hypothesis.strategies  # noqa: F401
import scipy.optimize
import scipy.special
import scipy.stats  # noqa: F401
import sympy  # noqa: F401

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("SMISYM_MUTANTS") or Path(tempfile.gettempdir()) / "smisym-mutants")
TABLE = ROOT / "docs" / "mutations.csv"
ROOMS = ("charts", "link", "model", "posterior", "prior", "integrate", "kernels", "theory", "finite")
QUICK = (
    "mapping", "symmetry", "no-symmetry-missed", "level-set", "sheets", "measure", "probability", "score", "gradient",
    "curvature", "truth", "overlap-map", "nishimori", "monotone", "slope", "bits", "kept",
)  # fmt: skip
# Examples by the names of their files, and what each is put through; None: everything.  The first is no file.
EXAMPLES: dict[str, tuple[str, ...] | None] = {
    "one layer": None,
    "two_layers": QUICK,
    "untied": (*QUICK[:9], "truth", "overlap-map", "nishimori", "bits"),
    "noisy": (*QUICK[:9], "truth", "overlap-map", "nishimori", "bits"),
    "sequence": (*QUICK[:7], "score", "truth", "bits"),
    # Heads that may be exchanged.
    "two_heads": (*QUICK[:3], "sheets", "truth", "overlap-map"),
}
# Processor seconds of one mutant: times what it takes with nothing changed, and at least.  Properties are chosen that
# take so many seconds in all: few at first, and more for what survives these.
SLOWER, LEAST, MOST, MORE = 2.0, 5.0, 5.0, 40.0


def declared(smisym: Any, name: str) -> Any:
    if name == "one layer":
        return smisym.Architecture(2, (smisym.Attention(),))
    return smisym.load(Path(smisym.__file__).parent / "declare" / "shipped" / f"{name}.toml")


# --------------------------------------------------------------------------------------------------------- the lines


class Tracer:
    """Lines of the rooms that are run, by what is being done; of what is called often the first calls alone."""

    def __init__(self, calls: int = 300) -> None:
        self.doing = ""
        self.lines: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
        self._calls: dict[tuple[str, Any], int] = collections.Counter()
        self._most = calls
        self._rooms = tuple(f"smisym/{room}/" for room in ROOMS)

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        code = frame.f_code
        where = code.co_filename.rfind("smisym/")
        if where < 0 or not code.co_filename.startswith(self._rooms, where):
            return None
        key = (self.doing, code)
        self._calls[key] += 1
        if self._calls[key] > self._most:
            return None
        name, seen = code.co_filename[where:], self.lines[self.doing]

        def local(frame: Any, event: str, argument: Any) -> Any:
            if event == "line":
                seen.add((name, frame.f_lineno))
            return local

        return local


def trace() -> None:
    """Seconds and lines of every property, into trace.json."""
    sys.path.insert(0, str(ROOT))
    import smisym
    import smisym.verify
    from smisym.base import processes
    from smisym.verify.suite import chosen_of

    found: dict[str, Any] = {}
    for name, properties in EXAMPLES.items():
        tracer = Tracer()
        for doing in (None, *(one.name for one in chosen_of(properties))):
            begun = time.process_time()
            with processes.begun_after(float("inf")):
                if doing is None:
                    tracer.doing = "compile"
                    sys.settrace(tracer)
                    threading.settrace(tracer)
                    model = smisym.compile(declared(smisym, name))
                    # What is compiled again is the same.
                    verdict = "compiled"
                else:
                    tracer.doing = doing
                    sys.settrace(tracer)
                    threading.settrace(tracer)
                    verdict = smisym.verify.check(model, only=doing).rows[0].verdict
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            seconds = time.process_time() - begun
            lines = collections.defaultdict(list)
            for file, line in sorted(tracer.lines[tracer.doing]):
                lines[file].append(line)
            found[f"{name}/{tracer.doing}"] = {"seconds": round(seconds, 2), "verdict": verdict, "lines": lines}
            print(f"{name:12s} {tracer.doing:20s} {seconds:7.2f} s  {verdict}", flush=True)
            (FOLDER / "trace.json").write_text(json.dumps(found))


# ------------------------------------------------------------------------------------------------------- the mutants

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
PAIRS = [
    ("min", "max"), ("minimum", "maximum"), ("sin", "cos"), ("sum", "mean"), ("any", "all"), ("argmin", "argmax"),
    ("exp", "expm1"), ("log", "log1p"), ("floor", "ceil"), ("cosh", "sinh"), ("zeros", "ones"), ("argsort", "sort"),
    ("sqrt", "square"), ("amin", "amax"),
]  # fmt: skip
NAMES = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
Change = Callable[[], None]


def texts(node: ast.AST) -> bool:
    """Whether an operand is a text or a list: what is added up there is no number."""
    return isinstance(node, ast.List | ast.Tuple | ast.JoinedStr | ast.Set | ast.Dict) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def changes(node: ast.AST, numeric: bool) -> Iterator[tuple[str, Change]]:
    """Names of what can be done to one node, and what does it; numeric: in a function that returns numbers."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPS and not texts(node.left) and not texts(node.right):
            yield "operator", lambda: setattr(node, "op", SWAPS[type(op)]())
        case ast.AugAssign(op=op) if type(op) in SWAPS:
            yield "operator", lambda: setattr(node, "op", SWAPS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in SWAPS and not any(map(texts, node.comparators)):
            yield "comparison", lambda: setattr(node, "ops", [SWAPS[type(op)]()])
        case ast.Constant(value=value) if type(value) is int:
            yield "constant", lambda: setattr(node, "value", value + 1)
            if value:
                yield "sign", lambda: setattr(node, "value", -value)
        case ast.Constant(value=float(value)) if value:
            yield "constant", lambda: setattr(node, "value", 1.1 * value)
            yield "sign", lambda: setattr(node, "value", -value)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", lambda: setattr(node, "op", ast.UAdd())
        case ast.Call(args=[a, b, *rest]) if not any(isinstance(x, ast.Starred) for x in (a, b)):
            if ast.dump(a) != ast.dump(b) and not texts(a) and not texts(b):
                yield "order", lambda: setattr(node, "args", [b, a, *rest])
        case ast.Return(value=ast.AST() as value) if numeric and not isinstance(value, ast.Tuple):
            zero = ast.BinOp(ast.Constant(0), ast.Mult(), value)
            yield "zero", lambda: setattr(node, "value", zero)
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in NAMES:
            yield "function", lambda: setattr(called, "attr", NAMES[called.attr])
        if isinstance(called, ast.Name) and called.id in ("min", "max", "any", "all"):
            yield "function", lambda: setattr(called, "id", NAMES[called.id])
    for name, part in ast.iter_fields(node):
        if isinstance(part, ast.Attribute) and part.attr == "T":
            yield "transpose", lambda name=name, part=part: setattr(node, name, part.value)  # type: ignore[misc]


def computed(tree: ast.AST, numeric: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Nodes that compute: no annotation, no text, nothing of an error that is raised."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(tree, ast.Raise):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
                continue
            inside = numeric
            if isinstance(node, ast.FunctionDef):
                inside = node.returns is not None and ast.unparse(node.returns) in ("np.ndarray", "float", "Array")
            yield node, inside
            yield from computed(node, inside)


def sites(source: str) -> Iterator[tuple[int, int, str]]:
    """(number of the node, line, change) of everything that can be done to a module."""
    for number, (node, numeric) in enumerate(computed(ast.parse(source))):
        for name, _ in changes(node, numeric):
            yield number, getattr(node, "lineno", 0), name


def mutated(source: str, number: int, change: str) -> tuple[str, str]:
    """(the module with one change, what was changed into what)."""
    tree = ast.parse(source)
    node, numeric = list(computed(tree))[number]
    before = ast.unparse(copy.deepcopy(node))
    dict(changes(node, numeric))[change]()
    ast.fix_missing_locations(tree)
    return ast.unparse(tree), f"{shortened(before)}  ->  {shortened(ast.unparse(node))}"


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 90 else text[:87] + "..."


def lines_of(traced: dict[str, Any]) -> dict[tuple[str, int], list[str]]:
    """What runs a line, the cheapest first; what is run on the way to every property is run by "compile"."""
    runs: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for name in sorted(traced, key=lambda name: traced[name]["seconds"]):
        for file, lines in traced[name]["lines"].items():
            for line in lines:
                runs[file, line].append(name)
    return runs


def drawn(traced: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """All mutants of lines that are run, in an order drawn by the seed, each kind of change in turn."""
    runs, kinds = lines_of(traced), collections.defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / "smisym" / room).rglob("*.py")):
            file, source = path.relative_to(ROOT).as_posix(), path.read_text()
            for number, line, change in sites(source):
                if (file, line) in runs:
                    kinds[change].append({"file": file, "line": line, "node": number, "change": change})
    order = random.Random(seed)
    for change in sorted(kinds):
        order.shuffle(kinds[change])
    turns = itertools.zip_longest(*(kinds[change] for change in sorted(kinds)))
    return [mutant for turn in turns for mutant in turn if mutant is not None]


# ---------------------------------------------------------------------------------------------------------- the runs


def tried(folder: str, program: list[tuple[str, list[str]]], seconds: float, out: str) -> None:
    """In a process of its own: properties of every example in turn until one fails; what came of it, into a file."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.path.insert(0, folder)
    told: dict[str, Any] = {"caught": "", "rows": {}}

    def write(**more: Any) -> None:
        Path(out).write_text(json.dumps(told | more))

    where = "import"
    try:
        import smisym
        import smisym.verify
        from smisym.base import processes

        assert smisym.__file__.startswith(folder)
        with processes.begun_after(float("inf")):
            for example, properties in program:
                where = f"{example}, compile"
                model = smisym.compile(declared(smisym, example))
                for name in properties:
                    where = f"{example}, {name}"
                    write(doing=where)
                    (row,) = smisym.verify.check(model, only=name).rows
                    told["rows"][where] = row.verdict
                    if row.verdict == "fails":
                        told["caught"] = where
                        return write()
    except BaseException as error:
        told["caught"] = f"{where}: {type(error).__name__}"
        return write(error=str(error)[:200])
    write()


def program_of(
    runs: list[str], traced: dict[str, Any], most: float, tried: Container[str] = ()
) -> list[tuple[str, list[str]]]:
    """Properties by example, the cheapest example first; what compiling runs is seen by all of an example."""
    wanted: dict[str, list[str]] = {}
    for name in runs:
        example, doing = name.split("/")
        wanted.setdefault(example, [])
        if doing != "compile":
            wanted[example].append(doing)
    for example, names in wanted.items():
        if f"{example}/compile" in runs:
            every = [
                n.split("/")[1] for n in sorted(traced, key=lambda n: traced[n]["seconds"]) if n.startswith(example)
            ]
            wanted[example] = names + [n for n in every if n not in (*names, "compile")]
    # As much as fits: what is dear only where nothing cheaper runs the line.
    spent, program = 0.0, []
    for example in sorted(wanted, key=list(EXAMPLES).index):
        kept = []
        for name in wanted[example]:
            cost = traced[f"{example}/{name}"]["seconds"]
            there = traced[f"{example}/{name}"]["verdict"] == "holds" and f"{example}, {name}" not in tried
            if not there or (spent + cost > most and spent):
                continue
            kept.append(name)
            spent += cost
        if kept:
            program.append((example, kept))
    return program


def attempt(
    mutant: dict[str, Any], traced: dict[str, Any], runs: list[str], place: Path, most: float
) -> dict[str, Any]:
    """One mutant, written into the copy, tried, and taken back; a record of one that survived is gone on with."""
    path = place / mutant["file"]
    source = path.read_text()
    text, said = mutated(source, mutant["node"], mutant["change"])
    before_rows = mutant.get("rows", {})
    program = program_of(runs, traced, most, before_rows)
    if not program:
        return {"caught": "", "rows": {}, "seconds": 0.0, **mutant, "said": said, "whole": True}
    cost = sum(traced[f"{e}/{n}"]["seconds"] for e, names in program for n in names)
    limit, out = LEAST + SLOWER * cost, place / "out.json"
    os.environ["SMISYM_CACHE"] = str(place / "cache")
    shutil.rmtree(place / "cache", ignore_errors=True)
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out.unlink(missing_ok=True)
    path.write_text(text)
    try:
        child = multiprocessing.get_context("fork").Process(target=tried, args=(str(place), program, limit, str(out)))
        child.start()
        # Processor time is limited; a child that waits for ever is ended by a count that pauses do not move.
        for _ in range(int(20 * limit)):
            child.join(1.0)
            if not child.is_alive():
                break
        else:
            child.kill()
            child.join()
    finally:
        path.write_text(source)
    found = json.loads(out.read_text()) if out.exists() else {"caught": "", "rows": {}}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if child.exitcode != 0 and not found["caught"]:
        found["caught"] = f"{found.get('doing', 'compile')}: time-out or crash"
    found["rows"] = before_rows | found["rows"]
    seconds += mutant.get("seconds", 0.0)
    return {**mutant, "said": said, **found, "exit": child.exitcode, "seconds": round(seconds, 1)}


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of the package, in a folder that goes away."""
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "smisym", Path(folder) / "smisym")
        yield Path(folder)


def tell(record: dict[str, Any]) -> None:
    where = f"{record['file']}:{record['line']} {record['change']}: {record['said']}"
    print(f"{where} | {record['caught'] or 'SURVIVES'} | {record['seconds']} s", flush=True)


def run(count: int, seed: int) -> None:
    """As many mutants as are not tried yet."""
    traced = json.loads((FOLDER / "trace.json").read_text())
    runs, results = lines_of(traced), FOLDER / f"results-{seed}.jsonl"
    done = results.read_text().splitlines() if results.exists() else []
    with copied() as place:
        for mutant in drawn(traced, seed)[len(done) : count]:
            record = attempt(mutant, traced, runs[mutant["file"], mutant["line"]], place, MOST)
            with results.open("a") as file:
                file.write(json.dumps(record) + "\n")
            tell(record)


def again(seed: int) -> None:
    """What survived, by all that runs its line and is not too dear."""
    traced = json.loads((FOLDER / "trace.json").read_text())
    runs, results = lines_of(traced), FOLDER / f"results-{seed}.jsonl"
    records = [json.loads(line) for line in results.read_text().splitlines()]
    with copied() as place:
        for number, record in enumerate(records):
            if record["caught"] or record.get("whole"):
                continue
            found = attempt(record, traced, runs[record["file"], record["line"]], place, MORE)
            records[number] = {**found, "whole": True}
            results.write_text("".join(json.dumps(one) + "\n" for one in records))
            tell(records[number])


COLUMNS = ("where", "kind", "change", "caught by", "seconds", "why it changes nothing, or what catches it now")


def table(seed: int) -> None:
    """docs/mutations.csv of all that were tried; what was written in its last column stays."""
    kept: dict[tuple[str, ...], str] = {}
    if TABLE.exists():
        with TABLE.open() as file:
            kept = {tuple(row[name] for name in COLUMNS[:3]): row[COLUMNS[-1]] for row in csv.DictReader(file)}
    records = [json.loads(line) for line in (FOLDER / f"results-{seed}.jsonl").read_text().splitlines()]
    by: collections.Counter[str] = collections.Counter()
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for record in records:
            where = f"{record['file'].removeprefix('smisym/')}:{record['line']}"
            said = mutated((ROOT / record["file"]).read_text(), record["node"], record["change"])[1]
            fault = where, record["change"], said
            by[record["caught"].split(", ")[-1] or "nothing"] += 1
            writer.writerow([*fault, record["caught"], record["seconds"], kept.get(fault, "")])
    for name, count in by.most_common():
        print(f"{count:4d}  {name}")


def main(what: str, count: str = "200", seed: str = "0") -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if what == "trace":
        trace()
    elif what == "run":
        run(int(count), int(seed))
    elif what == "again":
        again(int(seed))
    elif what == "table":
        table(int(seed))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
