"""Whether all holds, and what it runs on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smisym.commands.application import command
from smisym.run.options import File, Json, Seed, State, Workers
from smisym.run.task import INTERRUPTED, NOT_CONVERGED, fail, finish_check


# Many parameters: options of a command.
@command
def check(
    file: File,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This property alone; several times, or a comma list; '?' lists them."),
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Eight times as many cases and samples.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="An eighth of the cases and samples, which sees less.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(help="Of the processor, for each property: 300, thorough 2400; inf: what it takes.", min=0.0),
    ] = None,
    as_json: Json = False,
    seed: Seed = 0,
    state: State = None,
) -> None:
    """Everything that must hold of the network, tried on random cases; what fails is shown as lines of Python."""
    from smisym.run import unasked
    from smisym.run.progress import progress_bar
    from smisym.run.terminal import print_check, print_properties, saying_checked
    from smisym.verify import suite

    names = suite.names_of(only)
    if names == ["?"]:
        print_properties(suite.PROPERTIES)
        return
    chosen = suite.chosen_of(names)
    tried: list[Any] = []
    effort = suite.effort_of(thorough, quick)
    head = suite.headed(file, None, effort, seed, seconds)

    def told(record: Any) -> None:
        tried.append(record)
        step(record)

    store = state if state is not None else unasked.keep(head)
    try:
        with progress_bar("check", len(chosen)) as step:
            document = suite.check_file(file, chosen, effort, seed, seconds, saying_checked(told), store)
    except KeyboardInterrupt:
        if not tried:
            raise
        part = suite.until_interrupted(file, chosen, effort, seed, seconds, tried)
        if as_json:
            from smisym.declare.io import to_json

            typer.echo(to_json(part))
        else:
            print_check(part)
        how_far = f"{len(tried)} of {len(chosen)} properties were tried"
        fail(f"smisym: interrupted; {how_far}; {unasked.told(state)}", INTERRUPTED)
    unasked.forget()
    finish_check(document, as_json)


@command
def certify(
    file: Annotated[
        str, typer.Argument(metavar="RESULT.json", help="What a command printed with --json.", show_default=False)
    ],
    seed: Annotated[
        int | None, typer.Option(help="Of the numbers that the file does not share; by default its own plus 1.", min=0)
    ] = None,
    as_json: Json = False,
    workers: Workers = None,
    state: State = None,
) -> None:
    """Whether a result file stands: computed again from what it records, and with random numbers of its own."""
    from smisym.base.counting import counted
    from smisym.run import certifying, terminal
    from smisym.run.progress import progress_bar

    with progress_bar("certify", None) as step:
        found = certifying.certify(file, workers=workers, seed=seed, told=step, store=state)
    if as_json:
        from smisym.declare.io import to_json

        typer.echo(to_json(found))
    else:
        terminal.print_certificate(found)
    if not found["stands"]:
        failed = sum(not row["stands"] for row in found["rows"])
        fail(
            f"smisym: {failed} of {counted(len(found['rows']), 'number')} {'does' if failed == 1 else 'do'} not stand",
            NOT_CONVERGED,
        )


@command
def info(as_json: Json = False) -> None:
    """What this installation runs on: versions, which backend, and why."""
    from smisym.run import info

    info.print_info(as_json)
