"""Everything about one network at once."""

from __future__ import annotations

from typing import Annotated

import typer

from smisym.commands.application import command
from smisym.run.options import (
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
    Seed,
    State,
    Workers,
)
from smisym.run.task import DEMO_RTOL, DEMO_SAMPLES, Asked, begin

DEMO = "smisym-demo"


# Many parameters: options of a command.
@command
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


@command
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
