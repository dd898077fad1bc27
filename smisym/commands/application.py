"""The application that every command registers with, and what becomes of its errors and interrupts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from smisym.run import interrupting
from smisym.run.task import BAD_INPUT, COMMANDS, INTERRUPTED, fail, options_of, out_of_memory

app = typer.Typer(
    name="smisym",
    help="Exact learning theory of attention networks: thresholds, learning curves, GAMP, derivations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of ``smisym`` by the name of the function.

    Bad input and interrupts end in a message and an exit code, without a traceback.
    """
    COMMANDS[function.__name__] = function

    @app.command()
    @functools.wraps(function)
    def guarded(**options: Any) -> None:
        from smisym.base.errors import InputError, SmisymError
        from smisym.report import wording
        from smisym.run import unasked

        try:
            function(**options)
        except typer.Exit:
            raise
        except (KeyboardInterrupt, Exception) as error:
            # First: what an interrupt leaves half done may fail in any way.
            if isinstance(error, KeyboardInterrupt) or interrupting.came():
                interrupting.caught()
                fail(f"smisym: interrupted; {unasked.told(options.get('state'))}", INTERRUPTED)
            if isinstance(error, InputError):
                unasked.forget()
                fail(f"smisym: {wording.of_input_error(error, options_of(function.__name__))}", BAD_INPUT)
            if isinstance(error, MemoryError):
                fail(f"smisym: {out_of_memory(options_of(function.__name__))}", BAD_INPUT)
            if isinstance(error, SmisymError):
                fail(f"smisym: {error}", BAD_INPUT)
            raise

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
