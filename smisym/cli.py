"""The command line: thin.  It reads options, calls smisym, and prints one JSON document or a table.

stdout holds the result only; progress and messages go to stderr.  Exit codes: 0 done, 2 bad input or an output that
cannot be written, 3 a result that is no success or what fails (it is printed), 130 interrupted (Ctrl-C, SIGTERM).

What takes long to import is imported inside the commands, so that ``smisym --help`` answers at once.
"""

from __future__ import annotations

import sys

# Importing a group of commands registers it; their order is that of ``smisym --help``.
# isort: off
from smisym.commands.application import app
from smisym.commands import theory as theory
from smisym.commands import transitions as transitions
from smisym.commands import atlases as atlases
from smisym.commands import finite as finite
from smisym.commands import documents as documents
from smisym.commands import checks as checks
from smisym.commands import everything as everything

# isort: on
from smisym.run import interrupting
from smisym.run.task import INTERRUPTED, output_lost


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
    except Exception as error:
        if interrupting.came():
            interrupting.caught()
            raise SystemExit(INTERRUPTED) from None
        if isinstance(error, OSError):
            output_lost(error)
        raise
