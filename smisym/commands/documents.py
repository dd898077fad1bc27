"""What is read: derivations, code, citations."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated

import typer

from smisym.commands.application import command
from smisym.run.options import File, Json, Seconds, Seed, State
from smisym.run.task import begin


# Many parameters: options of a command.
@command
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
    seconds: Seconds = None,
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
        task_of = functools.partial(begin, "derive", file, seed, state, False, {"code": code})
        return info.print_code(lambda: task_of().model, code, output, seed)
    path = info.document_of(output)
    settings = ({} if checks else {"checks": False}) | ({} if seconds is None else {"seconds": seconds})
    begun = time.process_time()
    task = begin("derive", file, seed, state, as_json, settings)
    stem = Path(file).stem
    write_derivation(derived(task.model, checks=checks, seed=seed, seconds=seconds, begun=begun, name=stem), path)
    task.finish({"folder": str(path.parent), "files": [path.name]}, [], terminal.print_files)


@command
def cite(file: File) -> None:
    """Print BibTeX of what an analysis of the network rests on."""
    from smisym.declare.io import load
    from smisym.report import bibliography
    from smisym.trail.whole import derive as derived

    typer.echo(bibliography(derived(load(file), checks=False)), nl=False)
