"""What is said on stderr before the first number: that loops are compiled, which happens once for each network."""

from __future__ import annotations

import typer

from smisym.kernels.numba_code import telling
from smisym.model.compiled import Model
from smisym.run.cost import Cost, estimate
from smisym.run.progress import duration
from smisym.theory.maps import OverlapMap

# Lines of generated loops that are compiled in a second of an idle core, and seconds from which on it is said: two
# layers have 463 and 16 s, three 1700 and 63 s.
_LINES_A_SECOND, _LONG = 27.0, 10.0


def cost_of(model: Model | OverlapMap, samples: int | None = None, scrambles: int | None = None) -> Cost:
    """:func:`smisym.run.cost.estimate`, for which loops are compiled where they were not before."""
    with telling(_compiling):
        return estimate(model, samples, scrambles)


def _compiling(lines: int) -> None:
    seconds = lines / _LINES_A_SECOND
    if seconds > _LONG:
        typer.echo(f"smisym: compiling the loops of this network, once: about {duration(seconds)}", err=True)
