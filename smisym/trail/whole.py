"""The whole trail of a model: what ``compile`` recorded, then everything that the solvers make of it."""

from __future__ import annotations

import contextlib
import math
import re
import time
from typing import Any

from smisym.base.derivation import Derivation, Origin
from smisym.base.edge import check_number, check_seed
from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture
from smisym.declare.io import package_version, toml_of, versions
from smisym.declare.smi import SMI
from smisym.finite.message_passing import gamp
from smisym.kernels.numba_code import as_kept
from smisym.model.compiled import Model, compile
from smisym.theory.maps import OverlapMap
from smisym.trail.balance import ENTROPY
from smisym.trail.claims import DOCUMENT, SECONDS, Part, purse_of, tried
from smisym.trail.deepening import DEPTH
from smisym.trail.evolving import EVOLUTION
from smisym.trail.letters import LETTERS
from smisym.trail.nishimori import IDENTITIES
from smisym.trail.passing import GAMP, RELAXED
from smisym.trail.predicting import PREDICTION
from smisym.trail.priors import PRIOR
from smisym.trail.recovering import COUNTED, LATER
from smisym.trail.starting import STABILITY
from smisym.trail.trying import CHANNEL, DECLARED
from smisym.verify.properties import Subject

# The steps in their order.
PARTS: tuple[Part, ...] = (
    DECLARED,
    CHANNEL,
    DEPTH,
    PRIOR,
    IDENTITIES,
    RELAXED,
    GAMP,
    EVOLUTION,
    ENTROPY,
    STABILITY,
    LATER,
    COUNTED,
    PREDICTION,
)
TITLE = "From the declaration to its thresholds"
_PLAIN = re.compile(r"[A-Za-z0-9][\w.\- ]{0,60}", re.ASCII)
_UNASKED = "checks were not asked for"


# Many parameters: settings, all by keyword.
def derive(
    network: Architecture | SMI | Model,
    *,
    checks: bool = True,
    seed: int = 0,
    seconds: float | None = None,
    begun: float | None = None,
    name: str = "",
    maps: Any = OverlapMap,
    algorithm: Any = gamp,
) -> Derivation:
    """The derivation of a network to the last formula that solvers use, in its own symbols: what ``compile`` recorded,
    then message passing, state evolution, free entropy, Nishimori identities, thresholds, prediction errors and, where
    one is declared, the limit of many layers.

    network: a declaration, or a compiled model, whose ``derivation`` is the first part.  checks: whether each step is
    tried on the model, in seconds; a step says what was not tried, and why.  seed: of all that is drawn for that.
    seconds: of the processor that all of it may take, trials and numbers that solvers find; what they leave no time for
    says so.  None: 3, and none without checks.  Loops that are not compiled yet are not waited for: arrays do their
    work.  math.inf: as long as it takes, compilers included.  begun: what ``time.process_time()`` said where they begin
    to count, which is here by default: before the model was compiled, where that is to be within them.
    name: of the network, for the title; one that is not of letters, digits, ".", "-", "_" and blanks is left out.
    maps, algorithm: what makes overlap maps and what runs GAMP, as of :func:`smisym.verify.check`.

    Raises :class:`~smisym.base.errors.DerivationError` where a step does not hold of this model: a derivation that is
    returned has no failed check.  A right model fails with a chance of at most 1e-4.  Raises InputError for another
    network and a bad seed.
    """
    given: object = network
    if not isinstance(given, Architecture | SMI | Model):
        fix = "write smisym.derive(smisym.load('network.toml'))"
        raise InputError("what is derived", given, "an Architecture, an SMI or a Model", fix)
    # What is asked for by no word is not short of time.
    why = "" if checks or seconds is not None else f"it is not solved for, since {_UNASKED}"
    begun, usual = time.process_time() if begun is None else begun, SECONDS if checks else 0.0
    seconds = usual if seconds is None else seconds
    if seconds != math.inf:
        seconds = check_number("seconds", seconds, "a number of seconds >= 0, or math.inf", "leave it out", least=0.0)
    model = network if isinstance(network, Model) else compile(network)
    subject = Subject(model, seed=check_seed(seed), maps=maps, algorithm=algorithm)
    purse_of(subject, seconds, begun, why)
    options = ("" if checks else " --no-checks") + ("" if seconds == usual else f" --seconds {seconds:g}")
    stem = name if _PLAIN.fullmatch(name) else ""
    title = f"{stem}: {TITLE[0].lower()}{TITLE[1:]}" if stem else TITLE
    trail = Derivation(title, origin_of(model, seed, DOCUMENT if checks else None, options, stem or "network"))
    first, *others = model.derivation
    for step in (first, LETTERS.written(subject), *others):
        trail.add(step)
    with contextlib.ExitStack() as stack:
        refused = [] if seconds == math.inf else stack.enter_context(as_kept())
        subject.once("refused", lambda: refused)
        for part in PARTS:
            if part.applies(subject):
                trail.add(tried(part, subject, "" if checks else _UNASKED))
    return trail


def origin_of(model: Model, seed: int, level: float | None, options: str, stem: str = "network") -> Origin:
    """What makes a derivation again."""
    declared = model.architecture
    text = "# a bare program, which has no file" if declared is None else toml_of(declared).rstrip()
    file = f"'{stem}.toml'" if " " in stem else f"{stem}.toml"
    command = f"smisym derive {file} --seed {seed}{options} -o derivation.html"
    return Origin(text, command, seed, level, tuple({"smisym": package_version(), **versions()}.items()))
