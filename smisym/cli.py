"""The command line: thin.  It reads options, calls smisym, and prints one JSON document or a table.

stdout holds the result only; progress and messages go to stderr.  Exit codes: 0 done, 2 bad input,
3 a result that did not converge (printed all the same), 130 interrupted.

What takes long to import is imported inside the commands, so that ``smisym --help`` answers at once.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from smisym.analysis import Plan
    from smisym.io import Store
    from smisym.model import Model
    from smisym.overlap_map import OverlapMap

Document = dict[str, Any]

BAD_INPUT, NOT_CONVERGED, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    name="smisym",
    help="Exact learning theory of attention networks: thresholds, learning curves, GAMP, derivations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The network, a TOML file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Seed = Annotated[int, typer.Option(help="Seed of every random number.", min=0)]
State = Annotated[Path | None, typer.Option(metavar="DIR", help="Keep finished parts here; the same command resumes.")]
Samples = Annotated[
    int | None, typer.Option(help="Integration points of one evaluation of the overlap map, over all scrambles.")
]
Scrambles = Annotated[int | None, typer.Option(help="Independent scramblings, which give the error bars.")]
Workers = Annotated[int | None, typer.Option(help="Threads; one for each core by default.", min=1)]
Iterations = Annotated[int, typer.Option(help="Largest number of GAMP iterations.", min=1)]
Runs = Annotated[int, typer.Option(help="GAMP runs at each alpha, on independent data.", min=0)]
Dim = Annotated[int, typer.Option(help="Dimension D of GAMP's data.", min=2)]
DEMO = Path("smisym-demo")
# As many as fit two minutes on two cores.
DEMO_SAMPLES = 32768
# Of the inner integrals; it leaves less than 1e-4 in the overlap map of two layers.
DEMO_RTOL = 3e-2


def main() -> None:
    """Entry point of the ``smisym`` command."""
    try:
        app()
    except KeyboardInterrupt:  # before a command began, or after it ended
        raise SystemExit(INTERRUPTED) from None


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose bad input and interrupts end in a message and an exit code, without a traceback."""

    @functools.wraps(command)
    def guarded(**options: Any) -> None:
        from smisym.errors import InputError

        try:
            command(**options)
        except InputError as error:
            _fail(f"smisym: {error}", BAD_INPUT)
        except KeyboardInterrupt:
            hint = (
                f"what was finished is in {options['state']}; the same command resumes from there"
                if options.get("state")
                else "nothing was kept; with --state DIR an interrupted command can resume"
            )
            _fail(f"smisym: interrupted; {hint}", INTERRUPTED)

    return guarded


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


@dataclass(frozen=True)
class _Task:
    """One command on one network: what every result of it says, and where its parts are kept."""

    model: Model
    header: dict[str, Any]
    store: Store | None
    as_json: bool

    def overlap_map(self, workers: int | None) -> OverlapMap:
        from smisym.overlap_map import overlap_map

        settings = self.header["settings"]
        accuracy = {name: settings[name] for name in ("samples", "scrambles", "rtol") if name in settings}
        return overlap_map(self.model, seed=self.header["seed"], workers=workers, store=self.store, **accuracy)

    def analyze(self, folder: Path, plan: Plan, workers: int | None, published: dict[str, Any] | None) -> None:
        from smisym import analysis, terminal

        omap = self.overlap_map(workers)
        done = analysis.analyze(
            omap, folder, plan, self.header, store=self.store, bar=terminal.progress, published=published
        )
        self.finish(
            {key: done[key] for key in ("folder", "files", "thresholds")}, done["results"], terminal.print_files
        )

    def finish(self, document: Document, results: Sequence[str], show: Callable[[Document], object]) -> None:
        """Print the document, as JSON or as ``show`` shows it; exit code 3 unless all results are a success."""
        from smisym.io import to_json
        from smisym.solution import Result, worst

        result = worst([Result(code) for code in results])
        if self.as_json:
            typer.echo(to_json(self.header | document | {"result": result}))
        else:
            show(document)
        if not result.ok:
            bad = sum(code != Result.SUCCESS.value for code in results)
            _fail(f"smisym: {bad} of {len(results)} results are no success: {result.message}", NOT_CONVERGED)


def _begin(
    command: str,
    file: Path,
    seed: int,
    state: Path | None,
    as_json: bool,
    settings: dict[str, Any],
    accuracy: tuple[int, int | None, int | None] | None = None,
) -> _Task:
    """``accuracy``: samples that one evaluation is worth, then --samples and --scrambles as given."""
    from smisym.io import Store, header, load
    from smisym.model import compile
    from smisym.overlap_map import SCRAMBLES, affordable

    architecture = load(file)
    model = compile(architecture)
    if accuracy is not None:
        worth, samples, scrambles = accuracy
        settings = settings | {
            "samples": affordable(model, worth) if samples is None else samples,
            "scrambles": SCRAMBLES if scrambles is None else scrambles,
        }
    head = {"command": command, **header(architecture, seed, settings)}
    return _Task(model, head, None if state is None else Store(state, head), as_json)


@app.command()
@_guarded
def thresholds(
    file: File,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    scrambles: Scrambles = None,
    workers: Workers = None,
) -> None:
    """The thresholds of the network, in the order in which they are met."""
    from smisym import sweep, terminal
    from smisym.overlap_map import THRESHOLD_SAMPLES

    task = _begin("thresholds", file, seed, state, as_json, {}, (THRESHOLD_SAMPLES, samples, scrambles))
    with terminal.progress("thresholds", 2) as step:
        record = sweep.thresholds(task.overlap_map(workers), store=task.store, progress=step)
    task.finish(record, [record["result"]], terminal.print_thresholds)


@app.command()
@_guarded
def curve(
    file: File,
    alpha: Annotated[str, typer.Option(metavar="START:STOP:COUNT", help="Values of N / D; or a comma list.")],
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    scrambles: Scrambles = None,
    start: Annotated[str, typer.Option(help="symmetry-broken, uninformed or informed.")] = "symmetry-broken",
    workers: Workers = None,
) -> None:
    """Overlaps, prediction errors and free entropy against alpha = N / D."""
    from smisym import sweep, terminal
    from smisym.overlap_map import SAMPLES

    alphas = sweep.alpha_grid(alpha)
    settings = {"alphas": alphas, "start": start}
    task = _begin("curve", file, seed, state, as_json, settings, (SAMPLES, samples, scrambles))
    with terminal.progress("curve", len(alphas)) as step:
        points = sweep.curve(task.overlap_map(workers), alphas, start=start, store=task.store, progress=step)
    task.finish({"points": points}, [point["result"] for point in points], terminal.print_curve)


@app.command()
@_guarded
def gamp(
    file: File,
    alpha: Annotated[float | None, typer.Option(help="Samples per dimension of the data to draw.")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension D of the data to draw.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", help="Your own data: X (N, T, D) and y (N, ...), one output of the link a sample."
        ),
    ] = None,
    iterations: Iterations = 100,
    damping: Annotated[float, typer.Option(help="Share of the old state kept at each iteration, in [0, 1).")] = 0.0,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
) -> None:
    """GAMP on data drawn from the network (--alpha and --dim), or on your own (--data)."""
    from smisym import sweep, terminal
    from smisym.errors import InputError
    from smisym.io import read_data

    settings: dict[str, Any] = {"iterations": iterations, "damping": damping}
    run: Callable[..., dict[str, Any]]
    if data is None and alpha is not None and dim is not None:
        run = functools.partial(sweep.gamp_run, alpha=alpha, dim=dim)
        settings |= {"alpha": alpha, "dim": dim}
    elif data is not None and alpha is None and dim is None:
        X, y = read_data(data)
        run = functools.partial(sweep.gamp_on_data, X=X, y=y)
        settings["data"] = {"file": str(data), "sha256": hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()}
    else:
        given = {"--alpha": alpha, "--dim": dim, "--data": None if data is None else str(data)}
        allowed = "either --alpha and --dim, or --data alone"
        raise InputError("source of the data", given, allowed, "add what is missing, or leave out the other")
    task = _begin("gamp", file, seed, state, as_json, settings)
    with terminal.progress("gamp", iterations) as step:
        record = run(task.model, seed=seed, iterations=iterations, damping=damping, store=task.store, progress=step)
    task.finish(record, [record["result"]], terminal.print_gamp)


@app.command()
@_guarded
def derive(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Ends in .html, .md or .tex.")],
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
) -> None:
    """Write the derivation as a document; it takes seconds, so there is nothing to keep for resuming."""
    from smisym import terminal
    from smisym.render import write_derivation

    task = _begin("derive", file, seed, state, as_json, {})
    write_derivation(task.model.derivation, output)
    task.finish({"folder": str(output.parent), "files": [output.name]}, [], terminal.print_files)


@app.command()
@_guarded
def analyze(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.")],
    alpha: Annotated[
        str | None, typer.Option(metavar="START:STOP:COUNT", help="Values of N / D; by default past every threshold.")
    ] = None,
    dim: Dim = 500,
    runs: Runs = 3,
    iterations: Iterations = 100,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    scrambles: Scrambles = None,
    workers: Workers = None,
) -> None:
    """Everything at once: derivation, thresholds, curve, GAMP, a figure and one self-contained report.html."""
    from smisym import analysis, sweep
    from smisym.overlap_map import SAMPLES

    plan = analysis.Plan(None if alpha is None else sweep.alpha_grid(alpha), dim, runs, iterations)
    task = _begin("analyze", file, seed, state, as_json, plan.settings(), (SAMPLES, samples, scrambles))
    task.analyze(output, plan, workers, None)


@app.command()
@_guarded
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.")] = DEMO,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    workers: Workers = None,
) -> None:
    """The shipped example, two layers on two tokens: everything at once, drawn over published data."""
    from smisym import analysis, shipped, sweep

    plan = analysis.Plan(sweep.alpha_grid("0:1.6:49"), dim=250, runs=2, iterations=40)
    settings = {**plan.settings(), "rtol": DEMO_RTOL}
    task = _begin("demo", shipped.TWO_LAYERS, seed, state, as_json, settings, (DEMO_SAMPLES, None, None))
    task.analyze(output, plan, workers, shipped.published_two_layers())
