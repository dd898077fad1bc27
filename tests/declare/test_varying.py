"""One value of a declaration changed, by its name in a file."""

from __future__ import annotations

import numpy as np
import pytest

from smisym import SMI, Architecture, Attention, InputError
from smisym.declare.varying import halfway, is_whole, names_of, read_varied, spacing, varied

TWO = Architecture(2, (Attention(), Attention(rank=2)))


def test_grids_have_both_ends_and_as_many_values_as_are_asked_for() -> None:
    one = read_varied("skip=0:4:17")
    assert (one.name, one.scale, len(one.values)) == ("skip", "linear", 17)
    assert one.values == tuple(np.linspace(0, 4, 17))
    log = read_varied("beta=0.01:100:5:log")
    assert log.scale == "log"
    assert log.values == (0.01, 0.1, 1.0, 10.0, 100.0)
    assert read_varied("noise=2,1,1").values == (1.0, 2.0)


@pytest.mark.parametrize(
    "text",
    ["", "skip", "skip=", "=1", "skip=a", "skip=0:1", "skip=0:1:0", "skip=0:1:2:3", "skip=0:1:3:log", "skip=nan",
     "skip=0:inf:3", "skip=0:1:1000000", "skip=0:1:2.5"],
)  # fmt: skip
def test_what_names_no_values_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="To fix"):
        read_varied(text)


def test_a_name_changes_all_layers_or_the_one_that_it_names() -> None:
    assert varied(TWO, "skip", 2.0).layers == (Attention(skip=2.0), Attention(rank=2, skip=2.0))  # type: ignore[union-attr]
    assert varied(TWO, "layers.2.skip", 2.0).layers == (Attention(), Attention(rank=2, skip=2.0))  # type: ignore[union-attr]
    one = Architecture(2, (Attention(),))
    assert varied(one, "layers.1.beta", 2.0) == varied(one, "beta", 2.0) != one
    assert varied(TWO, "noise", 0.1).noise == 0.1
    assert varied(SMI("z1 * z2", 2), "noise", 0.1) == SMI("z1 * z2", 2, noise=0.1)


def test_every_name_can_be_varied_and_changes_what_it_says() -> None:
    for name in names_of(TWO):
        value = {"tokens": 3.0, "rank": 3.0, "heads": 2.0}.get(name.rpartition(".")[2], 0.5)
        if name.endswith("rank_ratio"):
            with pytest.raises(InputError):
                varied(TWO, name, value)  # of two layers it may not be
            continue
        changed = varied(TWO, name, value)
        assert changed != TWO
        assert (type(getattr(changed, name, None)) is int) == (name == "tokens")


def test_other_names_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="write skip"):
        varied(TWO, "skp", 1.0)
    with pytest.raises(InputError, match=r"layers\.3\.skip"):
        varied(TWO, "layers.3.skip", 1.0)
    # Fields have no layers: nothing is said of them.
    with pytest.raises(InputError, match=r"aspect. To fix: choose one of these.$"):
        varied(SMI("z1", 1), "skip", 1.0)
    with pytest.raises(InputError, match="rank"):
        varied(TWO, "rank", 1.5)
    with pytest.raises(InputError, match="declaration"):
        varied("two", "rank", 1.5)  # type: ignore[arg-type]


def test_halves_lie_between_and_whole_numbers_stay_whole() -> None:
    assert halfway(0.0, 1.0, "linear", False) == 0.5
    assert halfway(0.01, 1.0, "log", False) == pytest.approx(0.1)
    assert halfway(2.0, 5.0, "linear", True) in (3.0, 4.0)
    assert halfway(2.0, 3.0, "linear", True) is None
    assert is_whole(TWO, "layers.1.rank")
    assert not is_whole(TWO, "layers.1.skip")


def test_spacing_is_told_from_values() -> None:
    for values, scale in (((0, 1, 2), "linear"), ((0.1, 1, 10), "log"), ((1, 2), "linear"), ((-1, 1, 10), "linear")):
        assert spacing(values) == scale
