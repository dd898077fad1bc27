"""A curve is a sequence of Solutions that does not change."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Sequence

import fake_solutions
import numpy as np
import pytest

import smisym
from smisym.base.errors import InputError


def test_a_curve_is_a_sequence() -> None:
    curve = fake_solutions.curve()
    assert isinstance(curve, Sequence) and len(curve) == 5 and list(curve) == [curve[n] for n in range(5)]
    assert curve[-1] is curve[4] and curve[2] in curve and curve.index(curve[2]) == 2
    first, *rest = curve
    assert first is curve[0] and rest == list(curve[1:])
    assert [s.value.alpha for s in reversed(curve)] == curve.alphas[::-1].tolist()
    with pytest.raises(IndexError):
        curve[5]
    with pytest.raises(TypeError):
        curve[0] = curve[1]  # type: ignore[index]


def test_parts_of_a_curve_are_curves() -> None:
    curve = fake_solutions.curve()
    part = curve[1:4:2]
    assert isinstance(part, smisym.Curve) and part.alphas == pytest.approx([0.2, 0.6]) and part[1] is curve[3]
    with_more = smisym.Curve(curve, [{"bayes_error": float(n)} for n in range(5)])
    assert [record["bayes_error"] for record in with_more[3:].beside] == [3.0, 4.0]
    with pytest.raises(InputError, match="beside"):
        smisym.Curve(curve, [{}])
    for bad in ([3.0], [fake_solutions.number()], [curve[0].value]):
        with pytest.raises(InputError, match="FixedPoint"):
            smisym.Curve(bad)  # type: ignore[arg-type]


def test_it_compares_and_adds_as_the_list_that_it_was() -> None:
    curve = fake_solutions.curve()
    assert curve == list(curve) and curve == smisym.Curve(curve) and list(curve) == curve and curve == tuple(curve)
    assert curve != list(curve)[1:] and curve != 3 and smisym.Curve() == []
    assert operator.add(curve, []) == list(curve) and operator.add(list(curve[:1]), curve[1:]) == list(curve)
    assert not smisym.Curve() and curve


def test_it_is_copied_and_sent_to_other_processes() -> None:
    curve = fake_solutions.curve()
    for other in (pickle.loads(pickle.dumps(curve)), copy.deepcopy(curve)):
        assert fake_solutions.same(other, curve)
    found = fake_solutions.thresholds().value
    assert fake_solutions.same(pickle.loads(pickle.dumps(found)), found)


def test_it_says_what_it_is_in_a_line_and_in_several() -> None:
    curve = fake_solutions.curve()
    assert repr(curve) == "<Curve: 5 points, alpha from 0 to 0.8; 4 of 5 a success>"
    assert repr(curve[:1]) == "<Curve: 1 point, alpha 0; success>" and repr(smisym.Curve()) == "<Curve: no points>"
    lines = curve.summary().splitlines()
    assert len(lines) == 6 and "layer 2" in lines[0] and "0.80000 +- 1.6e-02" in lines[3]
    assert lines[4].endswith("statistical_error_large")


def test_thresholds_are_a_tuple() -> None:
    found = fake_solutions.thresholds().value
    weak, hard = found
    assert isinstance(found, tuple) and found == (weak, hard) and found[0] is weak and len(found) == 2
    assert found.labels == fake_solutions.NAMES and np.isinf(hard.alpha)
