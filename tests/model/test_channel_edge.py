"""What a channel and a link refuse of the arrays that they are given: always an InputError with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError

MODEL = smisym.compile(Architecture(2, (Attention(),)))
Z = np.random.default_rng(0).standard_normal((3, 1, 2))
SEEN, NOTHING, ALL = MODEL.observe(Z), np.zeros((3, 1, 2)), np.eye(1)


def moments(y: Any = SEEN, omega: Any = NOTHING, V: Any = ALL, **how: Any) -> Any:
    return MODEL.channel.moments(y, omega, V, **how)


def at(u: Any, **how: Any) -> Any:
    return MODEL.channel.moments_at(u, NOTHING, ALL, **how)


COORDINATES = np.zeros((3, 2))
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "fields of another shape": (lambda: MODEL.observe(Z[:, 0]), r"shape of the fields Z: .*\(S, 1, 2\).*stack samples"),
    "no sample": (lambda: MODEL.observe(Z[:0]), "shape of the fields Z: .*at least one sample"),
    "fields that are not finite": (lambda: MODEL.observe(Z * np.nan), "fields Z: .*remove the bad samples"),
    "omega as text": (lambda: moments(omega="zero"), "fields Z: .*real numbers"),
    "fewer omega than y": (lambda: moments(omega=NOTHING[:2]), r"lengths of y and omega: given \(3, 2\)"),
    "y of another shape": (lambda: moments(SEEN.y[:, 0]), r"shape of y: given \(3, 2\); allowed: \(S, 2, 2\)"),
    "no y": (lambda: moments(SEEN.y[:0], NOTHING[:0]), "shape of y: .*at least one sample"),
    "y that is not finite": (lambda: moments(SEEN.y * np.inf), "y: .*NaN or infinity.*remove the bad samples"),
    "y that is no attention": (
        lambda: moments(1.5 * SEEN.y),
        r"y of sample 0: given 'rows that sum to \[1\.5.*normalise",
    ),
    "y that has underflowed": (
        lambda: moments(np.stack([SEEN.y[0], np.eye(2), SEEN.y[2]])),
        r"y of sample 1: given 'smallest entry 0'; allowed: positive entries.*model\.observe\(Z\)",
    ),
    "V of another shape": (
        lambda: moments(V=np.eye(2)),
        r"shape of V: given \(2, 2\); allowed: \(1, 1\) or \(3, 1, 1\)",
    ),
    "V that is not finite": (lambda: moments(V=[[np.nan]]), "V: .*a finite symmetric matrix"),
    "V as text": (lambda: moments(V="one"), "V: given 'one'; allowed: real numbers"),
    "V that is negative": (lambda: moments(V=-ALL), "V: .*smallest eigenvalue -1.*positive definite"),
    "rtol of zero": (lambda: moments(rtol=0.0), "rtol: given 0.0; allowed: a positive number"),
    "rtol that is no number": (lambda: moments(rtol="little"), "rtol: given 'little'; allowed: a positive number"),
    "rtol without end": (lambda: at(COORDINATES, rtol=np.inf), "rtol: given inf"),
    "coordinates of fewer samples": (lambda: at(COORDINATES[:2]), r"coordinates u: given \(2, 2\).*\(3, 2\)"),
    "more coordinates than outputs have": (lambda: at(np.zeros((3, 7))), r"coordinates u: given \(3, 7\).*\(3, 2\)"),
    "coordinates that are not finite": (lambda: at(COORDINATES * np.nan), "coordinates u: .*finite"),
    "coordinates as text": (lambda: at("u"), "coordinates u: given 'u'; allowed: real numbers"),
    "complex coordinates": (lambda: at(1j + COORDINATES), "coordinates u: given 'an array of complex128'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_arrays_that_are_none_are_refused_with_what_to_do(name: str) -> None:
    make, words = BAD[name]
    with pytest.raises(InputError, match=words):
        make()


def test_a_v_that_is_not_symmetric_is_refused_and_one_that_is_up_to_rounding_is_not() -> None:
    model = smisym.compile(SMI("z1 + z2", 2))
    fields = np.zeros((1, 2, 1))
    upper = np.array([[0.0, 1.0], [0.0, 0.0]])
    y, V = model.observe(fields), np.array([[1.0, 0.5], [0.5, 1.0]])
    with pytest.raises(InputError, match=r"(?s)V: .*symmetrise V"):
        model.channel.moments(y, fields, V + 1e-6 * upper)
    moments = [model.channel.moments(y, fields, W).mean for W in (V, V + 1e-14 * upper)]
    np.testing.assert_allclose(*moments, atol=1e-12)
