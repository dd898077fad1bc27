"""Documents say what was declared where they begin, whose they are, and what was not asked for."""

from __future__ import annotations

import pytest

import smisym

NETWORK = smisym.Architecture(
    tokens=2,
    layers=(smisym.Attention(rank=2, heads=2, readout=(1, 2), skip=0.5, mask="causal"), smisym.Attention(tied=False)),
    noise=1e-3,
)


def text_of(network: smisym.Architecture | smisym.SMI) -> str:
    (step,) = (step for step in smisym.compile(network).derivation if step.title == "What was declared")
    return step.text


def test_layers_and_noise_are_said_as_declared() -> None:
    text = text_of(NETWORK)
    assert "Layer 1: rank 2, 2 heads, keys and queries tied, activation softmax, skip $0.5$, readouts $1$, $2$" in text
    assert "causal mask. Layer 2: rank 1, keys and queries untied, activation softmax, skip $1$." in text
    assert text.endswith("Gaussian noise of variance $0.001$.")


def test_layers_that_are_equal_are_said_once_and_many_are_cut() -> None:
    three = smisym.Architecture(tokens=2, layers=(smisym.Attention(),) * 3)
    assert "Layers 1 to 3, each: rank 1, keys" in text_of(three) and "There is no noise." in text_of(three)
    assert "noise of variance $0.01$" in text_of(smisym.SMI(fields=["z1"], expressions=["z1"], noise=0.01))


@pytest.mark.parametrize(
    ("name", "begins"),
    [("my_net", "my_net: from the"), ("", "From the"), ("$x$", "From the"), ("a b.2", "a b.2: from the")],
)
def test_titles_have_the_name_of_the_network(name: str, begins: str) -> None:
    model = smisym.compile(smisym.SMI(fields=["z1"], expressions=["z1"], noise=0.1))
    trail = smisym.derive(model, checks=False, name=name)
    assert trail.title.startswith(begins)
    assert f"derive {name}.toml" in trail.origin.command if name == "my_net" else "derive" in trail.origin.command


def test_what_was_not_asked_for_was_not_short_of_time() -> None:
    model = smisym.compile(smisym.SMI(fields=["z1"], expressions=["abs(z1)"]))
    (text,) = (step.text for step in smisym.derive(model, checks=False) if "first threshold" in step.title)
    assert "it is not solved for, since checks were not asked for" in text and "suffice" not in text
