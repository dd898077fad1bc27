"""What a report says, what passes, and that it is the same for the same seed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES
from hypothesis.strategies import integers
from oracles import tokens as oracle
from oracles.declared import described

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.base import patience
from smisym.base.extras import needed
from smisym.verify import PROPERTIES, assert_holds, check
from smisym.verify.chance import SUITE, from_means, groups, in_two_stages, means_vanish
from smisym.verify.evolutions import first_threshold
from smisym.verify.properties import Subject
from smisym.verify.searching import search
from smisym.verify.suite import LEVEL
from smisym.verify.tokens import draw_tokens, fields_of, run_on_tokens, seen_by_link

ONE_LAYER = Architecture(2, (Attention(),))


@pytest.mark.parametrize("declared", [ONE_LAYER, SMI("abs(z1)", 1)], ids=["one layer", "expression"])
def test_what_is_right_passes(declared: Any) -> None:
    assert_holds(declared)


def test_noise_and_what_has_no_tokens() -> None:
    """What does not apply is left out, with the reason; nothing of it fails."""
    report = check(Architecture(2, (Attention(),), noise=0.5), only=["mapping", "level-set", "truth", "bits"])
    assert [row.verdict for row in report.rows] == ["holds", "left out", "holds", "holds"]
    assert "noise" in report.rows[1].tried.said
    deep = Architecture(2, (Attention(readout=0.1),) * 3, limit="ode")
    assert "infinitely many" in check(deep, only="mapping").rows[0].tried.said


def test_the_same_seed_is_the_same_report() -> None:
    asked = ["mapping", "sheets", "score", "truth", "nishimori"]
    first, again, other = (check(ONE_LAYER, only=asked, seed=seed).record() for seed in (3, 3, 4))
    for found in (first, again, other):
        for row in found["properties"]:
            row.pop("seconds")
    assert first == again
    assert first != other
    assert json.loads(json.dumps(first, allow_nan=False)) == first


def test_a_property_that_takes_too_long_is_left_out_and_says_how_to_wait() -> None:
    report = check(ONE_LAYER, only=["score", "truth"], seconds=0.0)
    assert [row.verdict for row in report.rows] == ["left out"] * 2 and not report.ok
    assert all("not done after 0 seconds" in row.tried.said for row in report.rows)
    for wrong in (-1.0, math.nan, "some"):
        with pytest.raises(InputError, match="seconds"):
            check(ONE_LAYER, only="truth", seconds=wrong)  # type: ignore[arg-type]
    assert check(ONE_LAYER, only="truth", seconds=math.inf).ok


def test_what_fails_is_told_though_time_ends_while_it_shrinks() -> None:
    spent: list[float] = []

    def misfit(case: int) -> float:
        if case > 3 and not spent:
            spent.append(time.process_time())
            return 2.0
        while spent and time.process_time() < spent[0] + 0.3:
            pass
        return 2.0 * (case > 3)

    found = patience.within(0.2, lambda: search(integers(), misfit, 100, seed=0))
    assert found is not None and found.holds is False and found.failing > 3
    # Nothing that fails: nothing is told.
    assert patience.within(0.0, lambda: search(integers(), lambda case: 0.0, 100, seed=0)) is None


def test_what_was_tried_counts_where_time_ends_before_all_of_it() -> None:
    def slow(case: int) -> float:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return 0.5

    found = patience.within(0.85, lambda: search(integers(), slow, 100, seed=0))
    assert found is not None and found.holds and 4 <= found.number < 20 and found.worst == 0.5
    assert (
        patience.within(0.15, lambda: search(integers(), slow, 100, seed=0)) is None
    )  # two or three cases are too few


def test_a_search_that_was_cut_short_says_so() -> None:
    every = check(ONE_LAYER, only="gradient").rows[0].tried  # and whatever is made once
    assert not every.cut
    cut = 0
    # From a time in which nothing is done to one in which all is, whatever the machine: some lie between.
    for seconds in np.geomspace(0.002, 20.0, 60):
        report = check(ONE_LAYER, only="gradient", seconds=float(seconds))
        tried = report.rows[0].tried
        if tried.holds is None:
            continue
        assert 4 <= tried.number <= every.number
        if tried.number < every.number:
            cut += 1
            assert f"as many as {seconds:g} seconds" in tried.cut
            assert tried.cut in report.summary()
        else:
            break
    assert cut


class Burning(smisym.OverlapMap):
    """A map that takes so much of the processor a point, whatever the machine."""

    seconds = 4e-4

    def evaluate(self, Q: np.ndarray) -> Any:
        end = time.process_time() + self.seconds * self.samples
        while time.process_time() < end:
            patience.check()
        return super().evaluate(Q)


class Wrong(smisym.OverlapMap):
    def evaluate(self, Q: np.ndarray) -> Any:
        return [dataclasses.replace(one, gap=one.gap + 0.5) for one in super().evaluate(Q)]


class WrongAndBurning(Wrong, Burning):
    pass


def test_a_test_of_chance_without_time_is_made_of_fewer_samples_and_says_so() -> None:
    """Of 2048 samples at three overlaps there is time for 256, or for none; where there is for all, nothing is said."""
    model = smisym.compile(ONE_LAYER)
    whole = check(model, only="nishimori").rows[0].tried

    def tried(seconds: float) -> Any:
        return check(model, only="nishimori", seconds=seconds, maps=Burning).rows[0].tried

    fewer, none = tried(2.4), tried(0.2)
    assert whole.holds and whole.number == 3 * 2048 and not whole.cut
    assert fewer.holds and fewer.number == whole.number // 8 and "an eighth of the sample" in fewer.cut
    assert none.holds is None and "not done after 0.2 seconds" in none.said


def test_no_smaller_sample_stands_in_for_a_suspicious_one() -> None:
    """The first sample of what fails asks for a second one: where there is no time for that, it is what is said."""
    model = smisym.compile(ONE_LAYER)
    assert check(model, only="nishimori", maps=Wrong).rows[0].tried.holds is False
    found = check(model, only="nishimori", seconds=6.0, maps=WrongAndBurning).rows[0].tried
    assert found.holds is None and "a chance of" in found.said and "not done after 6 seconds" in found.said


def test_the_chance_of_a_false_alarm_is_stated() -> None:
    several = sum(one.statistical for one in PROPERTIES)
    assert several >= 8 and math.isclose(LEVEL * several, SUITE) and SUITE <= 1e-3
    report = check(ONE_LAYER, only=["mapping", "truth"])
    assert math.isclose(report.false_alarm, LEVEL)
    assert report.rows[0].tried.p is None and report.rows[1].tried.p is not None


def test_nothing_tried_is_no_success() -> None:
    """What is left out by itself has no chance of a false alarm, and asked for alone it does not hold."""
    report = check(ONE_LAYER, only="many-layers")
    assert not report.ok and not report.failures and report.false_alarm == 0
    with pytest.raises(AssertionError, match=r"(?s)many-layers is left out: .*Nothing was tried"):
        smisym.verify.assert_holds(ONE_LAYER, only="many-layers")


def test_what_is_asked_for_is_checked() -> None:
    with pytest.raises(InputError, match="names of properties: mapping"):
        check(ONE_LAYER, only="nothing of the sort")
    with pytest.raises(InputError, match='write "mapping" if that was meant'):
        check(ONE_LAYER, only="mappng")
    assert [row.name for row in check(ONE_LAYER, only="Bits,, mapping ").rows] == ["mapping", "bits"]
    with pytest.raises(InputError, match="at least one name"):
        check(ONE_LAYER, only=[])
    with pytest.raises(InputError, match="an Architecture, an SMI or a Model"):
        check("two_layers.toml")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"smisym\[verify\]"):
        needed("a_package_that_is_not_there", "verify")
    needed("hypothesis", "verify")


def test_names_are_single_words_and_told_apart() -> None:
    names = [one.name for one in PROPERTIES]
    assert len(set(names)) == len(names) == 34
    assert all(one.sentence.endswith(".") and one.source for one in PROPERTIES)
    assert smisym.verify.check is check


def test_an_assertion_has_the_program_that_shows_it() -> None:
    class Wrong(smisym.OverlapMap):
        def __init__(self, model: Any, *, seed: int = 0, **settings: Any) -> None:
            super().__init__(model, seed=0, **settings)

    with pytest.raises(AssertionError, match="another seed gives the same numbers") as caught:
        assert_holds(ONE_LAYER, only="bits", maps=Wrong)
    assert "model = smisym.compile(Architecture(" in str(caught.value)


# ----------------------------------------------------------------------------------------------------- its own parts


# Of layers that do infinitesimally little there is no finite network.
ON_TOKENS = {name: case.architecture for name, case in CASES.items()}
ON_TOKENS |= {name: f.declared for name, f in FAMILIES.items() if isinstance(f.declared, Architecture)}
ON_TOKENS = {name: declared for name, declared in ON_TOKENS.items() if declared.limit != "ode"}


@pytest.mark.parametrize("name", ON_TOKENS)
def test_the_network_on_tokens_is_the_oracle(name: str) -> None:
    """Two programs that share nothing, on the same tokens and weights."""
    declared = ON_TOKENS[name]
    X, W = draw_tokens(declared, 11, seed=3)
    network = described(declared)
    np.testing.assert_allclose(fields_of(declared, X, W), oracle.exact_fields(network, X, W).astype(float), rtol=1e-12)
    expected = oracle.on_tokens(network, X, W, np.longdouble).astype(float)
    # Of a sequence the oracle tells the mixing.
    expected = seen_by_link(declared, expected, X)
    found = run_on_tokens(declared, X, W).astype(float)
    assert np.abs(found - expected).max() <= 1e-9 * (1 + np.abs(expected).max())


def test_a_search_ends_at_the_smallest_failure_and_repeats() -> None:
    from hypothesis import strategies as st

    found = search(st.integers(0, 10_000), lambda k: 2.0 if k >= 137 else 0.5, 200, seed=1)
    assert found.failing == 137 and found.holds is False
    assert search(st.integers(0, 10_000), lambda k: k / 1e4, 50, seed=1) == search(
        st.integers(0, 10_000), lambda k: k / 1e4, 50, seed=1
    )
    assert search(st.integers(0, 9), lambda k: None, 20, seed=1).holds is None
    assert search(st.integers(0, 9), lambda k: math.nan, 20, seed=1).holds is False


def test_tests_alarm_as_often_as_they_say() -> None:
    """Of 4000 tests of means that vanish, at a level of one in twenty; and one that does not is seen."""
    rng = np.random.default_rng(0)
    p = np.array([means_vanish(rng.standard_normal((16, 3))).p for _ in range(4000)])
    assert abs((p < 0.05).mean() - 0.05) < 0.015
    assert means_vanish(rng.standard_normal((16, 3)) + np.array([0, 0, 3.0])).p < 1e-5
    assert means_vanish(np.full((16, 2), np.nan)).p == 0.0
    heavy = rng.standard_normal((4000, 32 * 64, 1)) ** 5
    p = np.array([means_vanish(groups(values)).p for values in heavy[:1000]])
    assert (p < 0.01).mean() < 0.02
    assert from_means(np.array([-1.0]), np.array([0.1]), 20, sides=1).p < 1e-6
    assert from_means(np.array([1.0]), np.array([0.1]), 20, sides=1).p == 1.0


def test_a_suspicion_is_no_verdict() -> None:
    """The second sample alone counts, and is asked for only where the first one is suspicious."""
    asked: list[tuple[int, int]] = []

    def test(stage: int, times: int) -> Any:
        asked.append((stage, times))
        shift = 3.0 if stage == 0 else 0.0
        return means_vanish(np.random.default_rng(stage).standard_normal((32, 1)) + shift)

    assert in_two_stages(test).stage == 2 and in_two_stages(test).p > LEVEL
    assert asked[:2] == [(0, 1), (1, 4)]


# ------------------------------------------------------------------------------------------------------------ its page

PAGE = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()


def test_the_page_says_what_each_property_is() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (case|chance) \|", PAGE, re.MULTILINE)
    assert rows == [(one.name, "chance" if one.statistical else "case") for one in PROPERTIES]


def test_the_walk_through_prints_what_it_says() -> None:
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE[PAGE.index("## One fault") :], re.DOTALL)
    names: dict[str, Any] = {}
    printed: list[str] = []
    for language, text in blocks:
        if language == "text":
            assert printed.pop() == text
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, "verification.md", "exec"), names)
        printed.append(out.getvalue())
    # And what is said of the counterexample.
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(names["report"].failures[0].tried.counterexample, {"model": names["wrong"]})
    values = [float(line.strip("[]")) for line in shown.getvalue().split()]
    assert abs(values[0]) < 1e-12 and abs(values[1] - 0.002) < 1e-4


def test_fields_that_vanish_have_no_sign_to_compare() -> None:
    """Seed 0 draws some: of what is known but for one sign, nothing is left to compare there."""
    declared = Architecture(3, (Attention(activation="s/(1 + abs(s))"),))
    assert check(declared, only="closed-forms", seed=0).ok


class Slow(smisym.OverlapMap):
    """One for whose samples there is no time where they are many."""

    def at(self, *arguments: Any, **settings: Any) -> Any:
        if self.samples > 2048:
            raise TimeoutError
        return super().at(*arguments, **settings)

    def evaluate(self, *arguments: Any, **settings: Any) -> Any:
        if self.samples > 2048:
            raise TimeoutError
        return super().evaluate(*arguments, **settings)


def test_a_share_of_all_samples_has_maps_of_its_own_and_what_was_made_of_all() -> None:
    model = smisym.compile(Architecture(3, (Attention(rank=2),)))
    subject = Subject(model, maps=Slow)
    with pytest.raises(TimeoutError):
        first_threshold(subject)
    share = dataclasses.replace(subject, effort=1 / 8)
    found = first_threshold(share)
    assert isinstance(found, smisym.Threshold) and abs(found.alpha - 1 / 6) < 5 * found.error
    assert subject.once("anything", lambda: 1) == share.once("anything", lambda: 2) == 1
