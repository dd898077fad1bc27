"""Maps of rough posteriors at all points and fine ones at a few: as good as fine ones at all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import smisym
from smisym import Architecture, Attention, InputError
from smisym.cli import app
from smisym.theory.aim import aimed
from smisym.theory.unshown import finer

THREE = Architecture(2, (Attention(),) * 3)
SAMPLES, SCRAMBLES, ROUGH, FINE = 512, 2, 0.3, 1e-2
# Where noise is told from what is off.
MANY, SEVERAL = 16384, 8
Q = np.diag([0.0, 0.0, 0.95])


@pytest.fixture(scope="module")
def maps() -> tuple[smisym.OverlapMap, smisym.OverlapMap, smisym.OverlapMap]:
    """Of three layers: rough, of two levels, and fine at all points."""
    rough = smisym.overlap_map(smisym.compile(THREE), samples=SAMPLES, scrambles=SCRAMBLES, rtol=ROUGH, seed=4)
    return rough, rough.sibling(SAMPLES, fine=FINE), rough.sibling(SAMPLES, rtol=FINE)


def numbers(omap: smisym.OverlapMap) -> np.ndarray:
    """(R, 4): rates of what is not learned, what is learned of the rest, and E log Zout, by scramble."""
    found = omap.evaluate(Q)
    return np.array([(e.slope[0, 0, 0, 0], e.slope[1, 1, 1, 1], e.white[2, 2], e.log_partition) for e in found])


@pytest.mark.slow
def test_it_is_the_fine_map(maps: tuple[smisym.OverlapMap, ...]) -> None:
    """What is left beside the fine map is noise of few points; what the rough one is off by is more than that."""
    omap = maps[0].sibling(MANY, SEVERAL)
    rough, both, fine = map(
        numbers, (omap, omap.sibling(omap.samples, fine=FINE), omap.sibling(omap.samples, rtol=FINE))
    )
    spread = (both - fine).std(axis=0, ddof=1) / np.sqrt(SEVERAL)
    off = np.abs((both - fine).mean(axis=0))
    assert (off <= 5 * spread).all()  # seven degrees of freedom
    bias = np.abs((rough - fine).mean(axis=0))
    assert (bias[:2] > 3 * off[:2]).all() and (bias[:2] > 5 * spread[:2]).all()


def test_of_few_points_it_is_the_fine_map_to_the_bit(maps: tuple[smisym.OverlapMap, ...]) -> None:
    rough = maps[0].sibling(32 * SCRAMBLES)
    both, fine = rough.sibling(rough.samples, fine=FINE), rough.sibling(rough.samples, rtol=FINE)
    for one, other in zip(both.evaluate(Q), fine.evaluate(Q), strict=True):
        for name in ("raw", "three", "gap", "log_partition"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-14)


def test_its_levels_are_asked_once(maps: tuple[smisym.OverlapMap, ...]) -> None:
    """Whoever looks at what the finer tolerance changes finds both levels made."""
    both = maps[1]
    both.evaluate(Q)
    few = both.levels(FINE)
    with both.used() as used:
        for level in few:
            level.evaluate(Q)
    assert len(used) == 2 * SCRAMBLES
    whole, (before, after) = maps[0].evaluate(Q), (level.evaluate(Q) for level in few)
    for one, a, b, c in zip(both.evaluate(Q), whole, before, after, strict=True):
        np.testing.assert_array_equal(one.raw, a.raw + (c.raw - b.raw))
        np.testing.assert_array_equal(one.gap, a.gap + (c.gap - b.gap))


def test_it_is_kept_and_told(tmp_path: Path, maps: tuple[smisym.OverlapMap, ...]) -> None:
    both = maps[1]
    assert both.settings()["fine"] == FINE and "fine" not in maps[0].settings()
    both.evaluate(Q)
    both.save(tmp_path / "map.npz")
    again = smisym.OverlapMap.load(tmp_path / "map.npz", both.model)
    assert again.settings() == both.settings()
    for one, other in zip(both.evaluate(Q), again.evaluate(Q), strict=True):
        np.testing.assert_array_equal(one.white, other.white)


@pytest.mark.parametrize("fine", [0.0, -1.0, ROUGH, 1.0, "a"])
def test_a_bad_tolerance(fine: object) -> None:
    with pytest.raises(InputError, match="fine"):
        smisym.overlap_map(smisym.compile(THREE), rtol=ROUGH, fine=fine)  # type: ignore[arg-type]


def test_how_fine() -> None:
    """A tenth; of tables no finer than the accuracy takes, and always a third at most."""
    model = smisym.compile(THREE)
    omap = smisym.overlap_map(model, rtol=0.1)
    assert finer(omap, 1e-3) == pytest.approx(0.01)
    assert finer(omap, 4e-2) == pytest.approx(0.02)
    assert finer(omap, 1.0) == pytest.approx(0.1 / 3)
    assert finer(omap.sibling(omap.samples, fine=0.03), 1e-9) == pytest.approx(0.003)


def test_a_command_takes_the_tolerance_that_a_program_does(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text("tokens = 2\n" + "[[layers]]\n" * 2)
    asked = ["thresholds", str(file), "--stages", "1", "--accuracy", "0.02", "--json"]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    two = smisym.compile(Architecture(2, (Attention(),) * 2))
    omap, _ = aimed(two, 0.02, None)
    assert omap.rtol != smisym.overlap_map(two).rtol
    assert found["settings"]["rtol"] == omap.rtol
    given = json.loads(CliRunner().invoke(app, [*asked, "--rtol", "0.03"]).stdout)
    assert given["settings"]["rtol"] == 0.03
