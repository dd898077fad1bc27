"""Thresholds and curves: the network in infinite dimension."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smisym.commands.application import command
from smisym.run.options import (
    Accuracy,
    File,
    Json,
    MostSamples,
    Picture,
    Rtol,
    Samples,
    Scrambles,
    Seed,
    State,
    Workers,
)
from smisym.run.output_names import check_picture
from smisym.run.task import EVALUATIONS, POINT_EVALUATIONS, STAGE_EVALUATIONS, Asked, announce, begin


# Many parameters: options of a command.
@command
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
@command
def curve(
    file: File,
    alpha: Annotated[str, typer.Option(metavar="START:STOP:COUNT", help="Values of N / D; or a comma list.")],
    output: Picture = None,
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

    path = check_picture(output)
    alphas = records.alpha_grid(alpha)
    settings = {"alphas": alphas, "start": start, **({} if rtol is None else {"rtol": rtol})}
    asked = Asked(SAMPLES, samples, scrambles, accuracy, most_samples)
    task = begin("curve", file, seed, state, as_json, settings, asked)
    omap = task.overlap_map(workers)
    announce(omap, "a curve takes", POINT_EVALUATIONS, asked.aim, len(alphas))
    with progress_bar("curve", len(alphas)) as step, watching(omap, step):
        points = records.curve(omap, alphas, start=start, store=task.store, progress=step, **asked.aim)
    record: dict[str, Any] = {"points": points}
    if path is not None:
        from smisym.report.plots import curve_figure, save

        save(curve_figure(points, labels=task.model.labels, unit=task.model.prior.unit), path)
        record["output"] = str(path)
    task.finish(record, [point["result"] for point in points], terminal.print_curve)
