"""Lists of declarations: folders, families, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError
from smisym.declare import shipped
from smisym.declare.listed import read_rows


def rows_of(tmp_path: Path, text: str) -> dict[str, object]:
    (tmp_path / "list.toml").write_text(text)
    return {row.name: row.declared for row in read_rows(tmp_path)}


def test_a_folder_of_files_has_a_row_a_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    smisym.save(Architecture(2, (Attention(),)), tmp_path / "one.toml")
    smisym.save(SMI("abs(z1)", 1), tmp_path / "sub" / "size.toml")
    (tmp_path / "notes.md").write_text("prose")
    assert [row.name for row in read_rows(tmp_path)] == ["one", "sub/size"]
    assert read_rows(tmp_path / "one.toml")[0].declared == Architecture(2, (Attention(),))


def test_a_family_is_all_combinations(tmp_path: Path) -> None:
    found = rows_of(
        tmp_path,
        """
        [[families]]
        name = "rank {rank}, T = {tokens}, skip {layers.1.skip}"
        vary = { rank = [1, 2], tokens = [2, 3], "layers.1.skip" = [0.5] }
        layers = [{ activation = "linear" }, {}]
        """,
    )
    assert len(found) == 4
    made = (Attention(rank=2, skip=0.5, activation="linear"), Attention(rank=2))
    assert found["rank 2, T = 3, skip 0.5"] == Architecture(3, made)


def test_depth_repeats_the_first_layer_before_the_last(tmp_path: Path) -> None:
    found = rows_of(
        tmp_path,
        """
        [[families]]
        name = "{depth} layers"
        vary = { depth = [1, 3] }
        tokens = 2
        layers = [{ readout = 0.5 }, { rank = 2 }]
        """,
    )
    assert found["1 layers"] == Architecture(2, (Attention(rank=2),))
    assert found["3 layers"] == Architecture(2, (Attention(readout=0.5), Attention(readout=0.5), Attention(rank=2)))


def test_what_is_declared_twice_is_one_row_by_its_first_name(tmp_path: Path) -> None:
    found = rows_of(
        tmp_path,
        """
        [[rows]]
        name = "mine"
        tokens = 3
        layers = [{}]
        [[families]]
        name = "T = {tokens}"
        vary = { tokens = [2, 3] }
        layers = [{}]
        """,
    )
    assert list(found) == ["mine", "T = 2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rows = 3", "double brackets"),
        ("[[rows]]\ntokens = 2\nlayers = [{}]", "name of a row"),
        ('[[rows]]\nname = "a"\ntokens = 2\nlayers = [{}]\nsamples = 0', "samples"),
        ('[[rows]]\nname = "a"\ntokens = 2\nlayers = [{}]\nclosed_form = "pi"', "fraction"),
        ('[[rows]]\nname = "a"\ntokens = 1\nlayers = [{}]', "tokens in row 'a'"),
        ('[[rows]]\nname = "a"\ntokens = 2\nlayers = [{ rnk = 2 }]', '"rank" if that was meant'),
        ('tokens = 2\n[[rows]]\nname = "a"\ntokens = 2\nlayers = [{}]', "beside one another"),
        ('[[families]]\nname = "a"\nvary = { tokens = [2] }\nlayers = [{}]', "{tokens}"),
        ('[[families]]\nname = "{tokens}"\nvary = { tokens = 2 }\nlayers = [{}]', "list of values"),
        (f'[[families]]\nname = "{{tokens}}"\nvary = {{ tokens = {[2] * 101}, rank = {[1] * 100} }}', "at most 10000"),
        ('[[families]]\nname = "{depth}"\nvary = { depth = [0] }\ntokens = 2\nlayers = [{}]', "integers >= 1"),
        (
            '[[families]]\nname = "{layers.2.rank}"\nvary = { "layers.2.rank" = [1] }\ntokens = 2\nlayers = [{}]',
            "one of its 1 layers",
        ),
        (
            '[[rows]]\nname = "a"\ntokens = 2\nlayers = [{}]\n[[rows]]\nname = "a"\ntokens = 3\nlayers = [{}]',
            "change one of the names",
        ),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match="(?s).*" + words.replace("{", r"\{").replace("}", r"\}")):
        rows_of(tmp_path, text)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file ends in \.toml"):
        read_rows(tmp_path)


def test_the_shipped_list_is_as_large_and_as_wide_as_it_should_be() -> None:
    rows = read_rows(shipped.ATLAS)
    nets = [row.declared for row in rows if isinstance(row.declared, Architecture)]
    assert len(rows) >= 120
    assert {net.tokens for net in nets} >= {2, 3, 4, 5, 6, 8}
    assert {len(net.layers) for net in nets} >= {1, 2, 3, 4, 5, 6}
    assert {layer.rank for net in nets for layer in net.layers} >= {1, 2, 3, 4}
    assert {layer.heads for net in nets for layer in net.layers} >= {1, 2, 3, 4}
    assert {net.output for net in nets} == {"attention", "sequence"}
    assert {net.limit for net in nets} == {None, "first_order", "ode"}
    assert {layer.mask is None for net in nets for layer in net.layers} == {True, False}
    assert {layer.activation for net in nets for layer in net.layers} >= {"softmax", "linear", "hardmax", "tanh(s)"}
    assert any(isinstance(row.declared, SMI) for row in rows)
