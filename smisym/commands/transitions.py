"""Transitions in alpha of one network, and over declared parameters."""

from __future__ import annotations

import math
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
from smisym.run.output_names import check_picture, check_table
from smisym.run.task import BRANCH_EVALUATIONS, EVALUATIONS, STAGE_EVALUATIONS, Asked, announce, begin, declared_in

Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Send the values to a running Dask cluster, such as tcp://host:8786."),
]


# Many parameters: options of a command.
@command
def phases(
    file: File,
    most: Annotated[
        float | None, typer.Option(help="Largest alpha; by default three times the last threshold.")
    ] = None,
    output: Picture = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    scrambles: Scrambles = None,
    rtol: Rtol = None,
    workers: Workers = None,
) -> None:
    """Where branches of fixed points fold, and where the optimum changes from one to another."""
    from smisym.integrate.accuracy import SAMPLES
    from smisym.report import phase_pages
    from smisym.run import records, terminal
    from smisym.run.progress import progress_bar, watching

    path = check_picture(output)
    _check_most(most)
    given = {"most": most, "rtol": rtol}
    settings = {name: value for name, value in given.items() if value is not None}
    asked = Asked(SAMPLES, samples, scrambles)
    task = begin("phases", file, seed, state, as_json, settings, asked)
    omap = task.overlap_map(workers)
    announce(omap, "branches take", BRANCH_EVALUATIONS, asked.aim)
    with progress_bar("phases", 1) as step, watching(omap, step):
        record = records.phases(omap, most=most, store=task.store, progress=step)
    if path is not None:
        phase_pages.save_picture(records.branches_of(record, task.model.labels).picture(record["thresholds"]), path)
        record = {**record, "output": str(path)}
    task.finish(record, [record["result"]], terminal.print_phases)


# Many parameters: options of a command.
@command
def phase_diagram(
    file: File,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=START:STOP:COUNT",
            help="A parameter of the file and its values, also NAME=START:STOP:COUNT:log or a comma list; "
            "layers.2.NAME for one layer alone. Twice for two parameters.",
        ),
    ],
    output: Picture = None,
    table: Annotated[str | None, typer.Option("--csv", metavar="OUT.csv", help="Write every transition.")] = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    samples: Samples = None,
    accuracy: Accuracy = None,
    most_samples: MostSamples = None,
    scrambles: Scrambles = None,
    rtol: Rtol = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    stages: Annotated[int | None, typer.Option(help="Only so many of the first thresholds.", min=1)] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Follow branches, for folds and changes of the optimum.")
    ] = True,
    most: Annotated[
        float | None, typer.Option(help="Largest alpha of branches; by default three times the last threshold.")
    ] = None,
    refine: Annotated[
        int, typer.Option(help="How often the gap in which a boundary begins or ends is halved.", min=0)
    ] = 3,
) -> None:
    """All transitions in alpha over the values of one or two parameters, as boundaries."""
    from smisym.declare.varying import read_varied
    from smisym.integrate.accuracy import THRESHOLD_SAMPLES
    from smisym.report import phase_pages
    from smisym.run import diagram, terminal
    from smisym.run.clusters import on_cluster
    from smisym.run.progress import progress_bar

    path, sheet = check_picture(output), check_table(table)
    read = [read_varied(text) for text in vary]
    values = declared_in(read)
    _check_most(most)
    given = {"rtol": rtol, "stages": stages, "accuracy": accuracy, "most_samples": most_samples, "most": most}
    own = {name: value for name, value in given.items() if value is not None}
    how = {"vary": values, "follow": follow, "refine": refine}
    task = begin(
        "phase-diagram", file, seed, state, as_json, {**how, **own}, Asked(THRESHOLD_SAMPLES, samples, scrambles)
    )
    settings = {"samples": samples, "scrambles": scrambles, "seed": seed, **own}
    count = _announced(task.declared, values, refine)
    _announce_time(task, count, follow, stages, workers, given)
    with progress_bar("phase diagram", count) as step, on_cluster(scheduler) as executor:
        found = diagram.phase_diagram(
            task.declared, values, follow=follow, refine=refine, store=state if state is not None else task.store,
            executor=executor, workers=workers, progress=step, **{k: v for k, v in settings.items() if v is not None},
        )  # fmt: skip
    document = {**found.document(), **phase_pages.written(found, path, sheet)}
    task.finish(document, [record["result"] for record in found], terminal.print_diagram)


def _check_most(most: float | None) -> None:
    """Before anything is compiled."""
    from smisym.base.edge import check_most

    if most is not None:
        check_most(most)


def _announced(declared: Any, values: dict[str, tuple[float, ...]], refine: int) -> int:
    """On stderr at once, how many values there are to solve; names that are none are refused before."""
    from smisym.base.counting import counted
    from smisym.declare.varying import varied

    for name, of_one in values.items():
        varied(declared, name, of_one[0])
    count = math.prod(map(len, values.values()))
    between = ", then some between, where a boundary begins or ends" if refine and len(values) == 1 < count else ""
    typer.echo(f"smisym: {counted(count, 'value')} of {', '.join(values)} to solve{between}", err=True)
    return count


# Many parameters: options that decide how long it takes.
def _announce_time(
    task: Any, count: int, follow: bool, stages: int | None, workers: int | None, given: dict[str, Any]
) -> None:
    """On stderr, about how long all values will take, so many at a time as there are workers."""
    few, many = EVALUATIONS if stages is None else STAGE_EVALUATIONS
    if follow:
        few, many = few + BRANCH_EVALUATIONS[0], many + BRANCH_EVALUATIONS[1]
    turns = math.ceil(count / task.overlap_map(workers).workers)
    what = "thresholds and branches take" if follow else "thresholds take"
    announce(task.overlap_map(1), what, (few, many), given, turns)
