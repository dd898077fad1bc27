"""What a written module says of itself."""

from __future__ import annotations

import textwrap

from smisym.base.counting import counted
from smisym.declare.architecture import Architecture
from smisym.declare.io import package_version
from smisym.declare.smi import SMI
from smisym.model.compiled import Model

_PAPER = (
    "E. Troiani, H. Cui, Y. Dandi, F. Krzakala and L. Zdeborova, Fundamental limits of learning in sequence "
    "multi-index models and deep attention networks, ICML 2025 (arXiv 2502.00901)"
)


def docstring(model: Model, dim: int, sampled: bool, rtol: float) -> str:
    """The module's docstring: architecture, formulas, conventions, how far to trust it, what to cite."""
    softmax = model.link.output_is_softmax and not model.noise
    rows = "; ".join(f"row {k}: {label}" for k, label in enumerate(model.labels))
    given = "an output" + (
        ", or with log_ratios=True the logs of its entries over the diagonal ones" if softmax else ""
    )
    pieces = [
        "Denoiser of one network: posterior moments of the fields given an output and a Gaussian cavity.",
        "",
        *_filled(f"Written by smisym {package_version()}; needs numpy alone.  `python THIS_FILE` tests it."),
        "",
        *_declared(model),
        "",
        "Formulas (.T is the transpose, tokens are rows):",
        "",
        *[line for text in str(model.link.program).splitlines() for line in _filled(text, "    ")],
        *([f"    observed: y + sqrt({model.noise!r}) N(0, 1), entry by entry"] if model.noise else []),
        "",
        *_filled(
            f"Fields Z = W X^T / sqrt(D), D large, of shape (P, T) = ({model.fields}, {model.tokens}): one row an "
            f"index ({rows}), one column a token.  Before the output is seen, columns are independent, N(omega_t, V).  "
            f"For S samples: y (S, {', '.join(map(str, model.link.output_shape))}), {given}; omega (S, P, T); V (P, P) "
            "or (S, P, P), positive definite."
        ),
        "",
        "    g_out(y, omega, V)    V^{-1} (E[Z | y] - omega), (S, P, T), the gradient of log p(y | omega, V) in omega",
        "    dg_out(y, omega, V)   its derivative, (S, P, T, P, T)",
        "    moments(y, omega, V)  both, and mean, covariance, log p, and the error of the mean",
        "",
        *_filled(_where(model)),
        *_filled(_trust(dim, sampled, rtol)),
        "",
        *_filled(f"Cite: smisym, and {_PAPER}."),
    ]
    text = "\n".join(pieces).replace("\\", "\\\\")
    return f'"""{text}\n"""'


def _declared(model: Model) -> list[str]:
    """The declaration as a line of Python."""
    declared = model.architecture
    if isinstance(declared, Architecture | SMI):
        return _filled(f"Declared as {_in_line(declared)}.")
    return _filled("Compiled from a program.")


def _in_line(declared: Architecture | SMI) -> str:
    """As Python in one line."""
    text = " ".join(repr(declared).split()).replace("( ", "(").replace(", )", ",)")
    return text.removesuffix(",)") + ")" if text.endswith(",)") else text


def _where(model: Model) -> str:
    """Where the posterior lives."""
    if model.noise:
        return "The output has noise: the posterior lives on all fields."
    assert model.level_set is not None
    return (
        f"The output is noiseless: the posterior lives on the level set f(Z) = y, in the chart "
        f"{model.level_set.rule!r} with its weight |det|, {counted(model.level_set.branches, 'sheet')}."
    )


def _trust(dim: int, sampled: bool, rtol: float) -> str:
    """How far to trust what is integrated."""
    if not dim:
        return "Nothing is left to integrate: moments are exact sums over the sheets, to rounding."
    common = (
        "Nothing is added to V, no logarithm is clipped, and sums carry their largest exponent apart.  A maximum that "
        "no start led to is missed, and the error cannot know of it; the self-test may."
    )
    if sampled:
        return (
            f"{dim} dimensions are sampled: quasi-random points about the maxima, with weights, until one standard "
            f"error over 8 random shifts is below rtol (default {rtol:g}).  Errors of three times that are rare, not "
            f"impossible; where `error` is above rtol the evaluations ran out.  {common}"
        )
    return (
        f"{counted(dim, 'dimension')} {'is' if dim == 1 else 'are'} integrated by the trapezoid rule on a lattice "
        "that grows from the maxima.  Steps "
        f"shrink until moments stand still to rtol (default {rtol:g}); what the last refinement changed is the error "
        f"that is returned, and where it is above rtol the evaluations ran out.  {common}"
    )


def _filled(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
