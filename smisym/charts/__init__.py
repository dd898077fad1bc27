"""LinkFunction into LevelSet: an ordered registry of rules, one family a file.

A rule matches the structure of the program, never the name of an architecture, and returns a chart or
a refusal with its reason.  The first chart wins; all refusals are shown when there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smisym.base import patience
from smisym.base.derivation import Derivation, Step
from smisym.base.errors import InputError, NoChartError, SmisymError
from smisym.base.symbols import as_declared
from smisym.charts.attention import attention_matrices
from smisym.charts.base import Arrays, Coordinates, LevelSet, Refusal, Rule, Sheets
from smisym.charts.checking import QUICK, THOROUGH, check_chart
from smisym.charts.linear_forms import expressions_in_linear_forms
from smisym.charts.measurements import linear_measurements
from smisym.charts.mixed_scores import mixed_measurements
from smisym.charts.mixing import mixing_product
from smisym.charts.rank_one import tied_rank_one
from smisym.charts.solving import solved_expressions
from smisym.link.linking import LinkFunction

__all__ = [
    "RULES",
    "Arrays",
    "Coordinates",
    "LevelSet",
    "Refusal",
    "Rule",
    "Sheets",
    "find_level_set",
    "register_chart",
]

Rules = Sequence[tuple[str, Rule]]

RULES: list[tuple[str, Rule]] = [
    ("tied rank-one attention matrix", tied_rank_one),
    ("attention matrices, head by head", attention_matrices),
    ("product of mixing matrices on two tokens", mixing_product),
    ("linear measurements of the fields", linear_measurements),
    ("expressions in linear forms of some fields", expressions_in_linear_forms),
    ("expressions solved on every orthant", solved_expressions),
    ("linear measurements of mixed fields", mixed_measurements),
]

# Of the processor, for one rule: the longest that was seen to find a chart took a fifth of that.
_SECONDS = 60.0
_OURS = frozenset(name for name, _ in RULES)


def register_chart(name: str, rule: Rule) -> None:
    """Add a rule of your own; it is asked before the others, the latest first.

    rule
        LinkFunction -> :class:`LevelSet`, or a :class:`Refusal` with its reason in one sentence.  Match the structure
        of ``link.program``, never a name.  ``compile`` holds its chart against the link (it gives the output back, its
        measure obeys the co-area formula, thousands of random fields lie on some sheet, posteriors conserve
        probability) and refuses a wrong one with an InputError.

    Raises InputError for a name that is taken or no text, and for a rule that cannot be called.
    """
    if not isinstance(name, str) or not name:
        raise InputError("name of the rule", name, "a text that is not empty", 'write register_chart("my rule", rule)')
    given: object = rule
    if not callable(given):
        fix = "pass the function itself, without calling it"
        raise InputError("rule", given, "a function of the link that returns a LevelSet or a Refusal", fix)
    if name in [taken for taken, _ in RULES]:
        raise InputError("name of the rule", name, "a name that no rule has", "choose another name")
    RULES.insert(0, (name, rule))


def unregister_chart(name: str) -> None:
    """Take back a rule that :func:`register_chart` added, as to register it anew; InputError where there is none."""
    own = [entry for entry in RULES if entry[0] == name and name not in _OURS]
    if not own:
        known = [taken for taken, _ in RULES if taken not in _OURS]
        raise InputError("name of the rule", name, f"a rule of your own: {known or 'there is none'}", "check the name")
    RULES.remove(own[0])


def find_level_set(link: LinkFunction, derivation: Derivation, rules: Rules | None = None) -> LevelSet:
    """The first chart that a rule finds; what was refused, found and checked goes to ``derivation``.

    rules: names and rules, asked in their order; None for those of :data:`RULES`.
    Raises NoChartError with every refusal when no rule finds one (``compile`` catches it, and integrates without a
    chart), InputError where the chart of a registered rule fails its check against the link.  Where one of ours does,
    that is a refusal, and says that it is a defect.
    """
    refusals: list[tuple[str, str]] = []
    for name, rule in list(RULES) if rules is None else rules:
        found = _asked(name, rule, link) if name not in _OURS else _in_time(rule, link)
        if isinstance(found, LevelSet):
            checks = _checked(name, link, found)
            if isinstance(checks, Refusal):
                refusals.append((name, checks.reason))
                continue
            record_refusals(refusals, derivation)
            for step in found.steps:
                derivation.add(step)
            if checks:
                derivation.add(Step("chart", "The chart against the link", CHECKED, checks=checks))
            return replace(found, registered=name not in _OURS)
        if not isinstance(found, Refusal):
            raise InputError(
                f"what rule {name!r} returned",
                found,
                "a LevelSet, or a Refusal",
                'where the rule does not apply, return Refusal("why, in one sentence")',
            )
        refusals.append((name, as_declared(found.reason, link.program.inputs)))
    raise NoChartError(refusals)


def _asked(name: str, rule: Rule, link: LinkFunction) -> LevelSet | Refusal:
    """What a rule of one's own returns; InputError with its name where it raises: all rules are asked of each model."""
    try:
        return rule(link)
    except SmisymError:
        raise
    except Exception as error:
        raise InputError(
            f"what rule {name!r} returned",
            f"{type(error).__name__}: {error}",
            "a LevelSet, or a Refusal",
            'where the rule does not apply, return Refusal("why, in one sentence")',
        ) from error


def _in_time(rule: Rule, link: LinkFunction) -> LevelSet | Refusal:
    """What one of our rules finds, some of which ask sympy, that may not come back."""
    found = patience.stopped_after(_SECONDS, lambda: rule(link))
    return Refusal(f"not done after {_SECONDS:g} seconds of the processor") if found is None else found


def _checked(name: str, link: LinkFunction, found: LevelSet) -> tuple[tuple[str, str], ...] | Refusal:
    """What was verified of a chart: InputError where that of a rule of one's own is wrong, a refusal of ours.

    Ours are held against the link more thoroughly in the tests, so that here a fraction of a second is enough.
    """
    if name not in _OURS:
        return check_chart(name, link, found, THOROUGH)
    try:
        return check_chart(name, link, found, QUICK)
    except InputError as error:
        return Refusal(
            f"the chart that it found failed its check against this link: {error.given}; this is a defect of smisym, "
            "please report it with the declaration"
        )


CHECKED = (
    "Whoever found it, a chart must give the output back, and its measure, the weight $w$ times that of its free "
    "coordinates $x$, must be that of the surface $f(Z) = y$ in the space of the fields, whose output is told by "
    "coordinates $u$ of $y$; and no sheet may be missing, so that every field lies on one. All of it is checked "
    "whenever the model is compiled, at fields where rounding leaves enough digits."
)
REMEDY = (
    "A rule of one's own is added with smisym.register_chart: it supplies the free fields, the others solved for as "
    "functions of these and of y, and the log of the Jacobian."
)


def record_refusals(refusals: list[tuple[str, str]], derivation: Derivation) -> None:
    """Which rules did not apply, and why."""
    if refusals:
        text = "; ".join(f"{name}: {reason}" for name, reason in refusals)
        derivation.add(Step("chart", "Rules that did not apply", f"{text}. {REMEDY}"))
