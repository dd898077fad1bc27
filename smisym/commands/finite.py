"""The network in the dimension that it has: GAMP, and how layers are learned step by step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from smisym.commands.application import command
from smisym.run.options import Damping, File, Iterations, Json, Picture, Samples, Seed, State, Workers
from smisym.run.output_names import check_npz, check_picture
from smisym.run.task import announce_gamp, begin, each_step, options_of, source_of


# Many parameters: options of a command.
@command
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
    plot: Annotated[
        str | None,
        typer.Option(metavar="OUT", help="Draw the overlaps of every step; ends in .svg, .pdf or .png."),
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
    from smisym.base.edge import check_damping
    from smisym.report import wording
    from smisym.run import gamp_runs, terminal
    from smisym.run.progress import progress_bar

    if output is not None:
        check_npz(output)
    path = check_picture(plot, "--plot")
    check_damping(damping)
    run, source, count, dim = source_of(alpha, dim, data)
    settings = {"iterations": iterations, "damping": damping, **source}
    settings["tol"] = gamp_runs.gamp_tolerance(max(dim, 1)) if tol is None else tol
    task = begin("gamp", file, seed, state, as_json, settings)
    fewer = "fewer --iterations take less" if data else "fewer --iterations, a smaller --dim or --alpha take less"
    announce_gamp(task.model, count(task.model), dim if data is None else None, iterations, fewer)
    how = {"iterations": iterations, "damping": damping, "tol": settings["tol"]}
    with progress_bar("gamp", iterations) as step:
        # The start comes as step 0, which is none.
        each = functools.partial(each_step, step)
        record = run(task.model, seed=seed, estimate=True, store=task.store, progress=each, **how)
    shown = {name: value for name, value in record.items() if name not in ("W_hat", "C_hat", "Q", "W")}
    shown |= _written(record, task.header, task.model.labels, output, path)
    if output is None:
        again = f"the same command with -o OUT.npz {'writes' if state else 'would have written'} it"
        typer.echo(f"smisym: the estimate W_hat is not among what is printed; {again}", err=True)
    explain = functools.partial(wording.of_reason, options=options_of("gamp"))
    task.finish(shown, [record["result"]], functools.partial(terminal.print_gamp, explain=explain))


def _written(
    record: dict[str, Any], header: dict[str, Any], labels: Sequence[str], estimate: str | None, picture: Path | None
) -> dict[str, str]:
    """Write a run's estimate and its picture, where it has a name; the names as the document has them."""
    names = {}
    if estimate is not None:
        from smisym.declare.io import write_npz
        from smisym.run.gamp_runs import estimate_arrays

        write_npz(estimate, estimate_arrays(record), {**header, "result": record["result"]})
        names["output"] = estimate
    if picture is not None:
        from smisym.report.gamp_plots import gamp_figure
        from smisym.report.plots import save

        save(gamp_figure([record], labels=labels), picture)
        names["plot"] = str(picture)
    return names


# Many parameters: options of a command.
@command
def dynamics(
    file: File,
    alpha: Annotated[float, typer.Option(help="Samples per dimension of the data to draw.")],
    dim: Annotated[int, typer.Option(help="Dimension D of the data to draw.")],
    seeds: Annotated[int, typer.Option(help="Independent truths, data and starts.", min=1)] = 4,
    steps: Annotated[int, typer.Option(help="Iterations of state evolution and of GAMP.", min=1)] = 40,
    epochs: Annotated[int, typer.Option(help="Passes of SGD and Adam through the data.", min=1)] = 200,
    optimizer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="sgd, adam or none; several times. By default both; they need JAX."),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]RATE", help="Of each optimizer, or of the one; SGD's in units of D."),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples of a step; by default a quarter of D.")] = None,
    decay: Annotated[float, typer.Option(help="Decay of the weights of SGD and Adam.")] = 0.0,
    known: Annotated[float, typer.Option(help="Squared cosine of the start with the truth; 0: random.")] = 0.0,
    damping: Damping = 0.0,
    output: Picture = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    workers: Workers = None,
) -> None:
    """How layers are learned: state evolution, GAMP, SGD and Adam on the same data, as cosines with the truth."""
    from smisym.base.edge import MOST_DIM, check_alpha, check_count, check_damping
    from smisym.run import dynamics_runs, terminal
    from smisym.run.saving import dynamics_record

    path = check_picture(output)
    names, rates = dynamics_runs.asked_for(optimizer, rate)
    settings = {
        "alpha": alpha, "dim": dim, "seeds": seeds, "steps": steps, "epochs": epochs, "optimizers": names,
        "rate": rates, "batch": batch, "decay": decay, "known": known, "damping": damping,
        "samples": samples,
    }  # fmt: skip
    check_count("dim", dim, 2, "give the dimension D", MOST_DIM)
    check_alpha(alpha)
    check_damping(damping)
    task = begin("dynamics", file, seed, state, as_json, settings)
    # What is refused is told before how long it would take.
    dynamics_runs.prepared(task.model, dim, names, rates, batch, epochs, decay)
    fewer = "fewer --seeds or --steps, a smaller --dim or --alpha take less"
    announce_gamp(task.model, task.model.prior.samples(alpha, dim), dim, steps * seeds, fewer)
    solution = dynamics_runs.dynamics(
        task.model, seed=seed, workers=workers, store=task.store, progress=True, **settings
    )
    record = {**dynamics_record(solution.value), "result": solution.result}
    if path is not None:
        from smisym.report.course_plots import dynamics_figure
        from smisym.report.plots import save

        save(dynamics_figure(solution), path)
        record["output"] = output
    task.finish(record, [solution.result.value], lambda document: terminal.print_dynamics(solution.value, document))
