"""Advice in the words of the command line: results and bad input name Python's arguments, a command its options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from smisym.base.errors import InputError
from smisym.base.solution import Result

# Arguments of Python functions that have another name as an option, or that stand behind one.
_ALIASES = {
    "optimizers": "optimizer", "max_steps": "iterations", "D": "dim", "alphas": "alpha", "store": "state",
    "strength": "damping", "seconds": "seconds_a_row",
    "folder to keep results in": "state",
}  # fmt: skip

# What helps, by code: pairs of the options that must be there to change and the words; the first that fits is said.
_ADVICE: dict[Result, tuple[tuple[tuple[str, ...], str], ...]] = {
    Result.MAX_STEPS: (
        (("iterations", "damping", "tol"), "raise --iterations, add --damping 0.5, or loosen --tol"),
        (("iterations", "damping"), "raise --iterations, or add --damping 0.5"),
        (("samples",), "raise --samples: a smoother map is solved in fewer steps"),
        (("most_samples",), "raise --most-samples: a smoother map is solved in fewer steps"),
    ),
    Result.DIVERGED: (
        (("damping",), "add --damping 0.5, or take more data"),
        (("samples",), "raise --samples"),
        (("accuracy",), "ask for a smaller error by --accuracy, which takes more samples"),
    ),
    Result.INTEGRATION: (
        (("samples",), "the error that is printed counts it: read it, or raise --samples, which averages over more"),
        (("accuracy",), "the error that is printed counts it: read it, or ask for a smaller one by --accuracy"),
    ),
    Result.ILL_CONDITIONED: (
        (
            ("data",),
            "write y to the .npz in float64, not rounded; nearly equal scores, and attention that is small beside a "
            "skip, lose their digits all the same",
        ),
    ),
    Result.EXCLUDED: ((("damping",), "add --damping 0.5, or check that y follows the model"),),
    Result.NOISY: ((("samples",), "raise --samples"), (("most_samples",), "raise --most-samples")),
    Result.MISSED: ((("most_samples",), "raise --most-samples, or ask for less by --accuracy"),),
    Result.RESIDUAL: ((("samples",), "raise --samples"), (("most_samples",), "raise --most-samples")),
    # Errors of integrals are what can be lowered; more samples only show them more clearly.
    Result.NISHIMORI: ((("rtol",), "lower --rtol; if it stays, do not trust the numbers"),),
    Result.INCONSISTENT: (
        (("samples",), "raise --samples, and begin with an empty folder for --state"),
        (("most_samples",), "raise --most-samples, and begin with an empty folder for --state"),
    ),
    Result.PARTIAL: ((("stages",), "ask for these alone with --stages, and read later ones off smisym curve"),),
}  # fmt: skip
_WHAT_HAPPENED = {
    Result.MAX_STEPS: "stopped at the largest number of steps before converging",
    Result.DIVERGED: "the iteration left the domain or became non-finite",
    Result.INTEGRATION: "an inner integral missed its tolerance",
    Result.ILL_CONDITIONED: (
        "y determines the fields to few digits only (nearly equal scores, or attention that is small beside a skip)"
    ),
    Result.EXCLUDED: "outputs lie twenty standard deviations or more from where their cavities have them",
    Result.NOISY: "a statistical error is larger than asked for (transitions: 5 %), or noise biases the value as much",
    Result.MISSED: "the error that was reached, and is printed, is larger than the accuracy asked for",
    Result.RESIDUAL: "put back into the equation that it solves, the value does not solve it to within its error",
    Result.NISHIMORI: "estimators that agree under the posterior of this model disagree beyond chance",
    Result.INCONSISTENT: "two ways to the same number disagree beyond their errors",
    Result.PARTIAL: (
        "what is learned later was not looked for: overlaps are coupled, and no symmetry tells what is learned first "
        "from what is not; or, of phases, a branch was lost"
    ),
}


def of_result(result: Result, options: Mapping[str, str], accuracy: bool = False) -> str:
    """What happened and which options of this command help; ``options``: parameter names to options, --samples.

    accuracy: whether one was asked for, beside which --samples is refused.
    """
    usable = set(options) - ({"samples"} if accuracy else {"accuracy", "most_samples"})
    happened = _WHAT_HAPPENED.get(result)
    if happened is None:
        return result.message
    advice = next((words for needed, words in _ADVICE[result] if set(needed) <= usable), None)
    return happened if advice is None else f"{happened}: {advice}"


def of_input_error(error: InputError, options: Mapping[str, str]) -> str:
    """The message of the error, with the options of this command in place of Python's arguments."""
    known = {name: options[alias] for name, alias in _ALIASES.items() if alias in options} | dict(options)
    whats = re.split(r", | and ", error.what)
    named = [what for what in whats if what in known]
    texts = [error.what, error.allowed, error.fix]
    for name in named:
        texts = [re.sub(rf"(?<![-\w']){re.escape(name)}(?![\w'])", known[name], text) for text in texts]
    texts = [_assignments(text, known) for text in texts]
    return str(InputError(texts[0], error.given, texts[1], texts[2]))


def _assignments(text: str, known: Mapping[str, str]) -> str:
    """samples=8192 as --samples 8192."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1].lstrip("-").replace("-", "_"), match[2]
        wording = known.get(name)
        if wording is None:
            return match[0]
        if value in ("True", "False"):
            return wording if value == "True" else f"--no-{wording[2:]}"
        return f"{wording} {value}"

    text = re.sub(r"(?<![\w.])((?:--[A-Za-z][\w-]*)|[A-Za-z_]\w*)\s?=\s?([\w+-]+(?:\.\d+)?)", option, text)
    return re.sub(r"(--\w+ [\w.+-]+), (?=--)", r"\1 ", text)


def of_reason(text: str, options: Mapping[str, str]) -> str:
    """Why a run of GAMP stopped, as :class:`smisym.Gamp` says it, with the options of this command."""
    text = text.replace("damping of", "damping")
    return re.sub(r"\b(damping|tol)\b", lambda match: options.get(match[1], match[1]), text)
