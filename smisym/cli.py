"""The command line: thin.  It reads options, calls smisym, and prints one JSON document or a table.

stdout holds the result only; progress and messages go to stderr.  Exit codes: 0 done, 2 bad input or an output that
cannot be written, 3 a result that is no success or what fails (it is printed), 130 interrupted (Ctrl-C, SIGTERM).

What takes long to import is imported inside the commands, so that ``smisym --help`` answers at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from smisym.run import interrupting
from smisym.run.options import (
    TRIALS,
    Accuracy,
    Damping,
    Dim,
    File,
    Iterations,
    Json,
    MostSamples,
    Rtol,
    Runs,
    Samples,
    Scrambles,
    Seconds,
    Seed,
    State,
    Workers,
)
from smisym.run.task import (
    BAD_INPUT,
    COMMANDS,
    DEMO_RTOL,
    DEMO_SAMPLES,
    EVALUATIONS,
    INTERRUPTED,
    POINT_EVALUATIONS,
    STAGE_EVALUATIONS,
    Asked,
    announce,
    announce_gamp,
    begin,
    check_npz,
    each_step,
    fail,
    finish_check,
    options_of,
    out_of_memory,
    output_lost,
    source_of,
)

app = typer.Typer(
    name="smisym",
    help="Exact learning theory of attention networks: thresholds, learning curves, GAMP, derivations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DEMO = "smisym-demo"


def main() -> None:
    """Entry point of the ``smisym`` command."""
    interrupting.listen()
    try:
        try:
            app()
        finally:
            from smisym.base import processes

            processes.end_all()
            sys.stdout.flush()  # here a full disk can still be told, not while Python shuts down
            interrupting.ending()
    except KeyboardInterrupt:  # before a command began, or after it ended
        interrupting.caught()
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        output_lost(error)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose bad input and interrupts end in a message and an exit code, without a traceback."""

    COMMANDS[command.__name__] = command

    @functools.wraps(command)
    def guarded(**options: Any) -> None:
        from smisym.base.errors import InputError, SmisymError
        from smisym.report import wording
        from smisym.run import unasked

        try:
            command(**options)
        except InputError as error:
            unasked.forget()
            fail(f"smisym: {wording.of_input_error(error, options_of(command.__name__))}", BAD_INPUT)
        except MemoryError:
            fail(f"smisym: {out_of_memory(options_of(command.__name__))}", BAD_INPUT)
        except SmisymError as error:
            fail(f"smisym: {error}", BAD_INPUT)
        except KeyboardInterrupt:
            interrupting.caught()
            fail(f"smisym: interrupted; {unasked.told(options.get('state'))}", INTERRUPTED)

    return guarded


def _version(asked: bool) -> None:
    if asked:
        from smisym.declare.io import package_version

        typer.echo(f"smisym {package_version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


# Many parameters: options of a command.
@app.command()
@_guarded
def thresholds(
    file: File,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    accuracy: Accuracy = None,
    most_samples: MostSamples = None,
    scrambles: Scrambles = None,
    rtol: Rtol = None,
    workers: Workers = None,
    stages: Annotated[
        int | None, typer.Option(help="Only so many of the first ones, for a fraction of the price.", min=1)
    ] = None,
    quadrature: Annotated[
        bool | None,
        typer.Option("--quadrature/--no-quadrature", help="Integrate the first one over the output, or sample it."),
    ] = None,
) -> None:
    """The thresholds of the network, in the order in which they are met.

    --accuracy is asked of each; without it perfect recovery is told to half a per cent.
    """
    from smisym.integrate.accuracy import THRESHOLD_SAMPLES
    from smisym.run import records, terminal
    from smisym.run.progress import progress_bar, watching

    given = {"stages": stages, "quadrature": quadrature, "rtol": rtol}
    settings = {name: value for name, value in given.items() if value is not None}
    asked = Asked(THRESHOLD_SAMPLES, samples, scrambles, accuracy, most_samples)
    task = begin("thresholds", file, seed, state, as_json, settings, asked)
    omap = task.overlap_map(workers)
    announce(omap, "thresholds take", EVALUATIONS if stages is None else STAGE_EVALUATIONS, asked.aim)
    with progress_bar("thresholds", 2 if stages is None else 1) as step, watching(omap, step):
        told = step if stages is not None else terminal.saying_found(step)
        record = records.thresholds(
            omap, stages=stages, quadrature=quadrature, store=task.store, progress=told, **asked.aim
        )
    task.finish(record, [record["result"]], terminal.print_thresholds)


# Many parameters: options of a command.
@app.command()
@_guarded
def curve(
    file: File,
    alpha: Annotated[str, typer.Option(metavar="START:STOP:COUNT", help="Values of N / D; or a comma list.")],
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    accuracy: Accuracy = None,
    most_samples: MostSamples = None,
    scrambles: Scrambles = None,
    rtol: Rtol = None,
    start: Annotated[str, typer.Option(help="symmetry-broken, uninformed or informed.")] = "symmetry-broken",
    workers: Workers = None,
) -> None:
    """Overlaps, of which --accuracy is asked, prediction errors and free entropy against alpha = N / D."""
    from smisym.integrate.accuracy import SAMPLES
    from smisym.run import records, terminal
    from smisym.run.progress import progress_bar, watching

    alphas = records.alpha_grid(alpha)
    settings = {"alphas": alphas, "start": start, **({} if rtol is None else {"rtol": rtol})}
    asked = Asked(SAMPLES, samples, scrambles, accuracy, most_samples)
    task = begin("curve", file, seed, state, as_json, settings, asked)
    omap = task.overlap_map(workers)
    announce(omap, "a curve takes", POINT_EVALUATIONS, asked.aim, len(alphas))
    with progress_bar("curve", len(alphas)) as step, watching(omap, step):
        points = records.curve(omap, alphas, start=start, store=task.store, progress=step, **asked.aim)
    task.finish({"points": points}, [point["result"] for point in points], terminal.print_curve)


# Many parameters: options of a command.
@app.command()
@_guarded
def gamp(
    file: File,
    alpha: Annotated[float | None, typer.Option(help="Samples per dimension of the data to draw.")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension D of the data to draw.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.npz",
            help="Your own data: X (N, T, D), standardised, and y (N, ...), one output of the link a sample; "
            "W (P, D) where the truth is known.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT.npz", help="Keep the estimate: W_hat, C_hat, Q and the history."),
    ] = None,
    iterations: Iterations = 100,
    damping: Damping = 0.0,
    tol: Annotated[
        float | None,
        typer.Option(help="Relative change of a step to stop at; by default 0.01 / sqrt(D), at most 0.001."),
    ] = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
) -> None:
    """GAMP on data drawn from the network (--alpha and --dim), or on your own (--data)."""
    from smisym.declare.io import write_npz
    from smisym.report import wording
    from smisym.run import gamp_runs, terminal
    from smisym.run.progress import progress_bar

    if output is not None:
        check_npz(output)
    run, source, count, dim = source_of(alpha, dim, data)
    settings = {"iterations": iterations, "damping": damping, **source}
    settings["tol"] = gamp_runs.gamp_tolerance(max(dim, 1)) if tol is None else tol
    task = begin("gamp", file, seed, state, as_json, settings)
    if iterations > 0:
        announce_gamp(task.model, count(task.model), dim if data is None else None, iterations)
    how = {"iterations": iterations, "damping": damping, "tol": settings["tol"]}
    with progress_bar("gamp", iterations) as step:
        # The start comes as step 0, which is none.
        each = functools.partial(each_step, step)
        record = run(task.model, seed=seed, estimate=True, store=task.store, progress=each, **how)
    shown = {name: value for name, value in record.items() if name not in ("W_hat", "C_hat", "Q", "W")}
    if output is None:
        again = f"the same command with -o OUT.npz {'writes' if state else 'would have written'} it"
        typer.echo(f"smisym: the estimate W_hat is not among what is printed; {again}", err=True)
    else:
        write_npz(output, gamp_runs.estimate_arrays(record), {**task.header, "result": record["result"]})
        shown["output"] = output
    explain = functools.partial(wording.of_reason, options=options_of("gamp"))
    task.finish(shown, [record["result"]], functools.partial(terminal.print_gamp, explain=explain))


# Many parameters: options of a command.
@app.command()
@_guarded
def derive(
    file: File,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Ends in .html, .md or .tex; of code, .py.")
    ] = None,
    code: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="Not a document: python (one module), latex or numba.")
    ] = None,
    checks: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Try each step on the model, in seconds; or say not run.")
    ] = True,
    seconds: Seconds = TRIALS,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
) -> None:
    """The derivation as a document, to the last formula; or code: the denoiser as a module, formulas, compiled loops.

    Each step of a document is tried on the network; where one does not hold nothing is written.
    """
    from smisym.report import write_derivation
    from smisym.run import info, terminal
    from smisym.trail.whole import derive as derived

    if code is not None:
        begun = functools.partial(begin, "derive", file, seed, state, False, {"code": code})
        return info.print_code(lambda: begun().model, code, output, seed)
    path = info.document_of(output)
    settings = ({} if checks else {"checks": False}) | ({} if seconds == TRIALS else {"seconds": seconds})
    task = begin("derive", file, seed, state, as_json, settings)
    write_derivation(derived(task.model, checks=checks, seed=seed, seconds=seconds), path)
    task.finish({"folder": str(path.parent), "files": [path.name]}, [], terminal.print_files)


@app.command()
@_guarded
def cite(file: File) -> None:
    """Print BibTeX of what an analysis of the network rests on."""
    from smisym.declare.io import load
    from smisym.report import bibliography
    from smisym.trail.whole import derive as derived

    typer.echo(bibliography(derived(load(file), checks=False)), nl=False)


@app.command()
@_guarded
def check(
    file: File,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This property alone; several times, or a comma list; ? lists them."),
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Eight times as many cases and samples.")] = False,
    as_json: Json = False,
    seed: Seed = 0,
) -> None:
    """Everything that must hold of the network, tried on random cases; what fails is shown as lines of Python."""
    from smisym.run.progress import progress_bar
    from smisym.run.terminal import saying_checked
    from smisym.verify import suite

    chosen = suite.chosen_of(suite.names_of(only))
    with progress_bar("check", len(chosen)) as step:
        document = suite.check_file(file, chosen, thorough, seed, saying_checked(step))
    finish_check(document, as_json)


@app.command()
@_guarded
def info(as_json: Json = False) -> None:
    """What this installation runs on: versions, which backend, and why."""
    from smisym.run import info

    info.print_info(as_json)


# Many parameters: options of a command.
@app.command()
@_guarded
def analyze(
    file: File,
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.")],
    alpha: Annotated[
        str | None, typer.Option(metavar="START:STOP:COUNT", help="Values of N / D; by default past every threshold.")
    ] = None,
    dim: Dim = 500,
    runs: Runs = 3,
    iterations: Iterations = 100,
    damping: Damping = 0.0,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    accuracy: Accuracy = None,
    most_samples: MostSamples = None,
    scrambles: Scrambles = None,
    rtol: Rtol = None,
    workers: Workers = None,
) -> None:
    """Everything at once: derivation, thresholds, curve, GAMP, a figure and one self-contained report.html."""
    from smisym.integrate.accuracy import SAMPLES
    from smisym.run import analysis, records

    plan = analysis.Plan(None if alpha is None else records.alpha_grid(alpha), dim, runs, iterations, damping)
    settings = {**plan.settings(), **({} if rtol is None else {"rtol": rtol})}
    asked = Asked(SAMPLES, samples, scrambles, accuracy, most_samples)
    task = begin("analyze", file, seed, state, as_json, settings, asked)
    task.analyze(output, plan, workers, None, **asked.aim)


@app.command()
@_guarded
def demo(
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.")] = DEMO,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    workers: Workers = None,
) -> None:
    """The shipped example, two layers on two tokens: everything at once, drawn over published data."""
    from smisym.declare import shipped
    from smisym.run import analysis, records

    plan = analysis.Plan(records.alpha_grid("0:1.56:27"), dim=200, runs=1, iterations=80, damping=0.3)
    settings = {**plan.settings(), "rtol": DEMO_RTOL}
    task = begin("demo", str(shipped.TWO_LAYERS), seed, state, as_json, settings, Asked(DEMO_SAMPLES))
    task.analyze(output, plan, workers, shipped.published_two_layers())
