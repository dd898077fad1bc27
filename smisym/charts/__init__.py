"""LinkFunction into LevelSet: an ordered registry of rules, one family a file.

A rule matches the structure of the program, never the name of an architecture, and returns a chart or
a refusal with its reason.  The first chart wins; all refusals are shown when there is none.
"""

from __future__ import annotations

from smisym.charts.base import Coordinates, LevelSet, Refusal, Rule
from smisym.charts.rank_one import tied_rank_one
from smisym.derivation import Derivation, Step
from smisym.errors import NoChartError
from smisym.link import LinkFunction

__all__ = ["RULES", "Coordinates", "LevelSet", "Refusal", "Rule", "find_level_set"]

RULES: list[tuple[str, Rule]] = [("tied rank-one attention matrix", tied_rank_one)]


def find_level_set(link: LinkFunction, derivation: Derivation) -> LevelSet:
    """The first chart that a rule finds; NoChartError with every refusal when none does."""
    refusals: list[tuple[str, str]] = []
    for name, rule in RULES:
        found = rule(link)
        if isinstance(found, LevelSet):
            if refusals:
                text = "; ".join(f"{rule_name}: {reason}" for rule_name, reason in refusals)
                derivation.add(Step("chart", "Rules that did not apply", text))
            for step in found.steps:
                derivation.add(step)
            return found
        refusals.append((name, found.reason))
    raise NoChartError(refusals)
