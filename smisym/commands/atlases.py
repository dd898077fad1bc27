"""Many architectures at once."""

from __future__ import annotations

from typing import Annotated

import typer

from smisym.commands.application import command
from smisym.commands.transitions import Scheduler
from smisym.run.options import Json, Scrambles, Seed, State, Workers

# As in smisym/run/atlases.py, which takes long to import.
SECONDS = 60.0


# Many parameters: options of a command.
@command
def atlas(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="Declarations, or a file with families of them; by default those that come with smisym.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="OUT.md", help="Write the page, and its numbers beside it; .json: these alone."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Rows with this in their name, or with * or ? like this, alone; several times."
        ),
    ] = None,
    seconds_a_row: Annotated[float, typer.Option(help="Seconds of the processor for each row.", min=1e-3)] = SECONDS,
    again: Annotated[bool, typer.Option("--again", help="Also rows that OUT has already.")] = False,
    beside: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="First thresholds found in another way, for a column.")
    ] = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
    scrambles: Scrambles = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Thresholds, order of transitions, perfect recovery and hard phases of many architectures, one row each."""
    from smisym.run import atlas_files

    settings = {"seed": seed, **({} if scrambles is None else {"scrambles": scrambles})}
    atlas_files.make(
        folder, output, only or (), seconds_a_row, settings, again=again, beside=beside, as_json=as_json, state=state,
        workers=workers, scheduler=scheduler,
    )  # fmt: skip
