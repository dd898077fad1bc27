"""Options and arguments that several commands have, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

# Names of files are text: a Path would make the folder one is in of an empty name.
File = Annotated[str, typer.Argument(metavar="FILE", help="The network, a TOML file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Seed = Annotated[int, typer.Option(help="Seed of every random number.", min=0)]
State = Annotated[str | None, typer.Option(metavar="DIR", help="Keep finished parts here; the same command resumes.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        help="Seconds of the processor for all of it: by default 3, and none with --no-checks; inf: what it takes.",
        min=0.0,
    ),
]
# Defaults are those of smisym/integrate/accuracy.py, which takes a second to import; a test compares.
Samples = Annotated[
    int | None,
    typer.Option(
        help="Integration points of one evaluation of the overlap map, over all scrambles. "
        "By default 8192, for thresholds 65536; fewer where posteriors are dear."
    ),
]
Scrambles = Annotated[
    int | None,
    typer.Option(
        help="Independent scramblings, which give the error bars; by default 8. 2 where all outputs tell the same."
    ),
]
Accuracy = Annotated[
    float | None,
    typer.Option(
        help="Instead of --samples: the largest error, in the unit of what is printed; samples follow from it."
    ),
]
MostSamples = Annotated[
    int | None, typer.Option(help="With --accuracy: the most samples of one evaluation; by default 4194304.", min=1)
]
Workers = Annotated[
    int | None,
    typer.Option(help="Evaluations at a time; one for each core by default.", min=1),
]
Iterations = Annotated[int, typer.Option(help="Largest number of GAMP iterations.", min=1)]
Damping = Annotated[float, typer.Option(help="Share of the old state that GAMP keeps at each iteration, in [0, 1).")]
Rtol = Annotated[
    float | None,
    typer.Option(
        help="Tolerance of the inner integrals, sample by sample; by default 1e-3 to 3e-2, by their dimension."
    ),
]
Runs = Annotated[int, typer.Option(help="GAMP runs at each alpha, on independent data.", min=0)]
Dim = Annotated[int, typer.Option(help="Dimension D of GAMP's data.", min=2)]
Picture = Annotated[
    str | None, typer.Option("--output", "-o", metavar="OUT", help="Draw it; ends in .svg, .pdf or .png.")
]
