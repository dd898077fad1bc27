"""What can be declared of layers whose rank grows with the dimension of the tokens."""

from __future__ import annotations

from collections.abc import Sequence

from smisym.base.errors import InputError


def check_extensive(ratio: float | None, rank: int, heads: int, tied: bool, mask: object) -> None:
    """InputError for what a layer of extensive rank cannot have."""
    if ratio is None:
        return
    for name, given, allowed, fix in (
        ("rank", rank, "no rank beside rank_ratio", "leave out one of the two"),
        ("heads", heads, "one head where the rank is extensive", "leave heads out, or declare a finite rank"),
    ):
        if given != 1:
            raise InputError(f"{name} with rank_ratio", given, allowed, fix)
    others = isinstance(mask, tuple) and not any(row[k] for k, row in enumerate(mask))
    if not tied and not ratio:
        allowed, fix = (
            "tied = true at rank_ratio = 0, the limit of small width",
            "give a rank ratio > 0, or leave tied out",
        )
        raise InputError("tied with rank_ratio", tied, allowed, fix)
    if not tied and not others:
        raise InputError(
            "tied with rank_ratio",
            tied,
            "tied = true where tokens attend to themselves: their scores with themselves see the symmetric part of S "
            "alone, so that more is told of it than of the antisymmetric one, and the error of denoising is not known",
            "hide the diagonal by a mask, leave tied out, or declare a finite rank",
        )


def check_together(ratios: Sequence[float | None], tied: bool, others: tuple[object, str]) -> None:
    """InputError for layers that are not declared together: matrices of extensive rank count samples by d^2, or r d in
    the limit of small width, vectors by d.

    tied: all of them.  others: the limit and the statistic that are declared.
    """
    if len(ratios) < 2 or all(ratio is None for ratio in ratios):
        return
    told, fix = f"{len(ratios)} layers, with rank_ratio = {ratios}", "declare all ranks finite, or all rank_ratio > 0"
    if any(ratio is None for ratio in ratios):
        allowed = "rank_ratio in all layers or in none: samples are counted by D^2 where the rank is extensive"
        raise InputError("layers", told, allowed, fix)
    if not all(ratios):
        raise InputError("layers", told, "one layer where rank_ratio is 0, the limit of small width", fix)
    if not tied:
        raise InputError("layers", told, "tied layers where several are of extensive rank", "leave tied out")
    if others != (None, "exact"):
        raise InputError(
            "limit, statistic", others,
            "neither where several layers are of extensive rank", "leave them out",
        )  # fmt: skip
