"""What may be declared, what is refused with a remedy, and declarations that must mean the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention, InputError, LevelSet, Refusal, Sheets
from smisym.charts import RULES, unregister_chart
from smisym.charts.base import Coordinates
from smisym.theory.stability import counting

A = Attention


def draws(model: Any, count: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Z, omega, V) at a generic overlap of about one half."""
    rng = np.random.default_rng(seed)
    shape = (count, model.fields, model.tokens)
    omega = np.sqrt(0.5) * rng.standard_normal(shape)
    return omega + np.sqrt(0.5) * rng.standard_normal(shape), omega, 0.5 * np.eye(model.fields)


def means(declared: Any) -> np.ndarray:
    model = smisym.compile(declared)
    Z, omega, V = draws(model)
    return np.asarray(model.channel.g_out(model.observe(Z), omega, V))


# ------------------------------------------------------------------------------------------------ the same channel

SAME = {
    "softmax and linear scores of a tied layer": (
        Architecture(3, (A(),)), Architecture(3, (A(activation="linear", beta=0.7),))
    ),
    "one head, split or not": (Architecture(2, (A(), A())), Architecture(2, (A(), A()), head_layout="split")),
    "sequence output of one layer": (Architecture(3, (A(skip=0.3),)), Architecture(3, (A(skip=0.3),),
    output="sequence")), "a mask that hides nothing": (
        Architecture(2, (A(tied=False),)), Architecture(2, (A(tied=False, mask=((True, True), (True, True))),))
    ),
    "positions move scores, not what they show": (
        Architecture(2, (A(),)), Architecture(2, (A(position=((0.0, 0.5), (-0.25, 1.0))),))
    ),
    "a monotone activation of one's own": (
        Architecture(2, (A(rank=2, activation="linear"),)),
        Architecture(2, (A(rank=2, activation="sinh(s)", beta=0.2),)),
    ),
    "one head that is read out": (
        Architecture(2, (A(tied=False),)), Architecture(2, (A(tied=False, readout=2.0),), combine="sum")
    ),
    "rank one and its scale": (
        Architecture(2, (A(tied=False, beta=0.5),)), Architecture(2, (A(tied=False, scale=0.25, beta=2.0),))
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME.keys())
def test_the_same_channel(pair: tuple[Architecture, Architecture]) -> None:
    first, second = (means(declared) for declared in pair)
    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6 * np.abs(first).max())


def test_stacked_heads_are_independent() -> None:
    """Heads that share the tokens but no layer before them have the posterior of each alone."""
    both = means(Architecture(2, (A(heads=2),)))
    alone = smisym.compile(Architecture(2, (A(),)))
    model = smisym.compile(Architecture(2, (A(heads=2),)))
    Z, omega, _ = draws(model)
    for head in range(2):
        one = alone.channel.g_out(alone.observe(Z[:, head : head + 1]), omega[:, head : head + 1], 0.5 * np.eye(1))
        np.testing.assert_allclose(both[:, head], one[:, 0], rtol=1e-9)


def test_the_committee_approaches_the_network_at_second_order() -> None:
    """At fixed depth the first order in the readout 1/c misses the mixing by O(1/c^2)."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((20, 4, 2))
    misses = []
    for c in (10.0, 20.0, 40.0):
        inner = (A(readout=1 / c),) * 3
        # A last layer that is linear and does nothing to speak of shows the mixing before it.
        exact, first = (
            smisym.compile(Architecture(2, (*inner, A(activation="linear")), noise=1.0, limit=limit)).link(Z)
            for limit in (None, "first_order")
        )
        misses.append(np.abs(exact - first).max())
    orders = np.log2(np.array(misses[:-1]) / misses[1:])
    assert (np.abs(orders - 2) < 0.2).all()


def test_many_layers_approach_the_ode() -> None:
    """At fixed sum of the readouts the exact network tends to the limit, the fluctuations as 1/sqrt(L)."""
    rng = np.random.default_rng(1)
    away = []
    for depth in (4, 15):
        layers = (*[A(readout=0.5 / depth)] * depth, A())
        exact = smisym.compile(dataclasses.replace(Architecture(2, layers), noise=1.0))
        limit = smisym.compile(Architecture(2, layers, limit="ode"))
        Z = rng.standard_normal((400, depth + 1, 2))
        away.append(np.sqrt(np.mean((exact.link(Z) - limit.link(Z[:, -1:])) ** 2)))
    assert away[1] < 0.7 * away[0]


# ------------------------------------------------------------------------------------------------------ charts found

SOLVED = {
    "z1**2 + z1*z2": 1,
    "z1*z2 + z3": 2,
    "abs(z1) - z2": 1,
    "max(z1, 0) + z2": 1,
    "sign(z1)*abs(z2)": 1,
}


@pytest.mark.parametrize("text", SOLVED)
def test_plain_expressions_get_a_chart(text: str) -> None:
    fields = 3 if "z3" in text else 2
    model = smisym.compile(SMI(text, fields))
    assert model.level_set is not None
    assert model.level_set.rule == "expressions solved on every orthant"
    steps = [step.title for step in model.derivation.stage("chart")]
    assert "Rules that did not apply" in steps
    Z, omega, V = draws(model, 400)
    moments = model.channel.moments(model.observe(Z), omega, V, cov=True, rtol=1e-2)
    for phi in (np.ones(400), omega[:, 0, 0], moments.mean[:, 1, 0]):
        values = phi[:, None, None] * (Z - moments.mean)
        error = values.std(axis=0) / np.sqrt(400)
        assert (np.abs(values.mean(axis=0)) < 5 * error + 1e-2).all()


def test_a_discrete_link_without_a_chart_is_sampled_and_says_why() -> None:
    model = smisym.compile(SMI("sign(z1 + z2**2)", 2))
    assert model.level_set is None
    text = model.derivation.stage("chart")[0].text
    assert "cuts the fields along a surface" in text
    assert "cut to a cell" in model.derivation.stage("channel")[0].text


def test_a_continuous_link_without_a_chart_is_solved_numerically_and_says_what_to_supply() -> None:
    model = smisym.compile(SMI("z1**5 + z1*z2**3 + z2**7", 2))
    assert model.level_set is None
    text = model.derivation.stage("chart")[0].text
    assert "sympy solved none of" in text
    assert "smisym.register_chart: it supplies the free fields" in text
    assert "solved for numerically" in model.derivation.stage("channel")[0].text
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((10, 2, 1))
    moments = model.channel.moments(model.observe(Z), np.zeros_like(Z), np.eye(2), rtol=3e-2)
    assert moments.result is smisym.Result.SUCCESS
    # With noise it needs no chart either.
    assert smisym.compile(SMI("z1**5 + z1*z2**3 + z2**7", 2, noise=0.1)).level_set is None


def test_a_rule_of_ones_own(request: pytest.FixtureRequest) -> None:
    """y = z^3 + z, whose real root the solver does not give."""
    before = list(RULES)
    declared = SMI("z1**3 + z1", 1)

    def cubic(link: Any) -> LevelSet | Refusal:
        if str(link.program.assigns[0].value[0]) != "z1[0, 0]**3 + z1[0, 0]":
            return Refusal("not z^3 + z")

        def solve(free: Any, latent: Any, u: Any) -> Sheets:
            half = u[0] / 2
            root = np.sqrt(half**2 + 1 / 27)
            z = np.cbrt(half + root) + np.cbrt(half - root)
            return Sheets([[z]], [-np.log(3 * z**2 + 1)])

        return LevelSet(
            rule="cubic", free_rows=(), solved_rows=(0,), branches=1, dimension=1, density=True, steps=(), solve=solve,
            coordinates=lambda observed: Coordinates(observed.y, np.zeros(len(observed))),
        )  # fmt: skip

    smisym.register_chart("cubic", cubic)
    request.addfinalizer(lambda: unregister_chart("cubic") if len(RULES) > len(before) else None)
    with pytest.raises(InputError, match="name of the rule"):
        smisym.register_chart("cubic", cubic)
    model = smisym.compile(declared)
    Z, omega, V = draws(model, 50)
    np.testing.assert_allclose(model.channel.moments(model.observe(Z), omega, V).mean, Z, atol=1e-9)
    # A density in y: it integrates to one.
    u = np.linspace(-60, 60, 24001)[:, None]
    there = np.exp(model.channel.moments_at(u, np.full((len(u), 1, 1), 0.3), np.array([[0.7]])).log_partition)
    assert there.sum() * (u[1, 0] - u[0, 0]) == pytest.approx(1, abs=1e-4)
    unregister_chart("cubic")
    assert before == RULES
    for name in ("cubic", RULES[0][0]):  # no more, and never ours
        with pytest.raises(InputError, match="name of the rule"):
            unregister_chart(name)


@pytest.mark.parametrize(
    ("declared", "lowest", "highest"), [(SMI("z1*z2", 2), -30.0, 30.0), (SMI("abs(z1)", 1), 0.0, 12.0)]
)
def test_the_log_partition_is_a_density(declared: SMI, lowest: float, highest: float) -> None:
    model = smisym.compile(declared)
    count = 1200
    # Nodes crowd where a product has a logarithm, at zero; each stands for its share of the outputs.
    edges = np.linspace(-1 if lowest else 0, 1, count + 1)
    u = highest * np.sign(edges) * np.abs(edges) ** 4 if lowest else highest * edges
    u, share = ((u[1:] + u[:-1]) / 2)[:, None], np.diff(u)
    omega = np.full((count, model.fields, 1), 0.4)
    V = 0.6 * np.eye(model.fields) + 0.1
    density = np.exp(model.channel.moments_at(u, omega, V, rtol=1e-4).log_partition)
    assert (density * share).sum() == pytest.approx(1, abs=3e-3)


def test_noise_makes_a_density_of_the_output() -> None:
    """One tied layer on two tokens under noise: the density of the four outputs, by importance sampling over them."""
    model = smisym.compile(Architecture(2, (A(),), noise=0.05))
    rng = np.random.default_rng(0)
    count = 1600
    y = rng.uniform(-1.5, 2.5, (count, 2, 2))
    omega, V = np.full((count, 1, 2), 0.5), np.array([[0.4]])
    density = 4.0**4 * np.exp(model.channel.moments(y, omega, V, rtol=1e-3).log_partition)
    assert abs(density.mean() - 1) < 4.5 * density.std() / np.sqrt(count)


# -------------------------------------------------------------------------------------------------- bad declarations

BAD: dict[str, Any] = {
    "rank 0": lambda: A(rank=0),
    "a readout of 0": lambda: A(heads=2, readout=(1.0, 0.0)),
    "too few readouts": lambda: A(heads=3, readout=(1.0, 2.0)),
    "a mask that leaves a row empty": lambda: Architecture(2, (A(mask=((True, True), (False, False))),)),
    "a mask of the wrong size": lambda: Architecture(3, (A(mask=((True, True), (True, True))),)),
    "a mask of numbers": lambda: A(mask=((1, 0), (1, 1))),
    "a position that is no table": lambda: A(position=(0.0, 1.0)),
    "a position of another size": lambda: Architecture(3, (A(position=((0.0, 1.0), (1.0, 0.0))),)),
    "an unknown activation": lambda: A(activation="softmx"),
    "an activation with unknown names": lambda: A(activation="tanh(q)"),
    "an activation with an unknown call": lambda: A(activation="__import__('os')"),
    "a scale that is negative": lambda: A(scale="-rank"),
    "a scale with unknown names": lambda: A(scale="1/sqrt(D)"),
    "split heads that differ": lambda: Architecture(2, (A(heads=2), A(heads=3)), head_layout="split"),
    "a layout that does not exist": lambda: Architecture(2, (A(),), head_layout="joint"),
    "a limit of one layer": lambda: Architecture(2, (A(),), limit="ode"),
    "a limit with other skips": lambda: Architecture(2, (A(skip=2.0), A()), limit="first_order"),
    "a limit of unequal layers": lambda: Architecture(2, (A(readout=0.1), A(readout=0.2), A()), limit="ode"),
    "a complex-valued link": lambda: SMI("sqrt(z1)", 1),
    "an expression with an unknown name": lambda: SMI("z1 + q", 1),
    "an expression with an attribute": lambda: SMI("z1.real", 1),
    "a token beyond the last": lambda: SMI("z1[3]", 1, tokens=2),
}


DIAGONAL, COLUMN = ((True, False), (False, True)), ((True, False), (True, False))
CONSTANT: dict[str, Any] = {
    "diagonal": Architecture(2, (A(mask=DIAGONAL),)),
    "one column": Architecture(2, (A(mask=COLUMN),)),
    "untied": Architecture(2, (A(), A(mask=DIAGONAL, tied=False))),
    "hardmax": Architecture(2, (A(mask=DIAGONAL, activation="hardmax"),)),
    "noise": Architecture(2, (A(mask=DIAGONAL),), noise=0.1),
    "hardmax and noise": Architecture(2, (A(mask=COLUMN, activation="hardmax"),), noise=0.1),
    "heads": Architecture(2, (A(mask=DIAGONAL, heads=2),)),
    "sequence": Architecture(2, (A(mask=DIAGONAL),), output="sequence"),
    "equal tokens": Architecture(2, (A(mask=COLUMN, skip=0), A())),
}


@pytest.mark.parametrize("declared", CONSTANT.values(), ids=CONSTANT.keys())
def test_constant_outputs_are_refused(declared: Architecture) -> None:
    with pytest.raises(InputError, match=r"^what the network shows: .*nothing of the weights.*To fix: let some token"):
        smisym.compile(declared)


SEEN: dict[str, Any] = {
    "tied": Architecture(2, (A(mask=DIAGONAL), A())),
    "one column": Architecture(2, (A(mask=COLUMN), A())),
    "untied": Architecture(2, (A(mask=DIAGONAL, tied=False), A())),
    "hardmax": Architecture(2, (A(mask=DIAGONAL, activation="hardmax"), A())),
    "hardmax, untied, noise": Architecture(2, (A(mask=DIAGONAL, activation="hardmax", tied=False), A()), noise=0.1),
    "noise": Architecture(2, (A(mask=COLUMN), A()), noise=0.1),
    "sequence": Architecture(2, (A(mask=DIAGONAL), A()), output="sequence", noise=0.1),
    "sequence, last": Architecture(2, (A(), A(mask=DIAGONAL)), output="sequence", noise=0.1),
}


@pytest.mark.parametrize("declared", SEEN.values(), ids=SEEN.keys())
def test_layers_of_constant_attention_beside_others_work(declared: Architecture) -> None:
    """What nobody sees keeps its prior mean; a diagonal layer multiplies the tokens by a number."""
    model = smisym.compile(declared)
    Z, omega, V = draws(model, 4)
    moments = model.channel.moments(model.observe(Z), omega, V, rtol=0.1)
    hidden = model.row_layers.index(2 if declared.output == "sequence" and declared.layers[1].mask else 1)
    assert np.isfinite(moments.mean).all()
    np.testing.assert_allclose(moments.mean[:, hidden], omega[:, hidden], atol=0.15)


def test_a_diagonal_layer_multiplies_the_tokens() -> None:
    Z = np.random.default_rng(0).standard_normal((5, 2, 2))
    deep = smisym.compile(Architecture(2, (A(mask=DIAGONAL), A())))
    alone = smisym.compile(Architecture(2, (A(beta=4.0),)))
    np.testing.assert_allclose(deep.link(Z), alone.link(Z[:, 1:]), rtol=1e-12)


@pytest.mark.parametrize(("name", "rule"), [(3, lambda link: Refusal("no")), ("", lambda link: None), ("mine", "x")])
def test_rules_that_are_none_are_refused_at_once(name: Any, rule: Any) -> None:
    before = list(RULES)
    with pytest.raises(InputError, match=r"^(name of the )?rule: "):
        smisym.register_chart(name, rule)
    assert before == RULES


def test_a_rule_must_return_a_chart_or_a_refusal(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: unregister_chart("silent"))
    smisym.register_chart("silent", lambda link: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="what rule 'silent' returned: given None; allowed: a LevelSet, or a Refusal"):
        smisym.compile(Architecture(2, (A(),)))


@pytest.mark.parametrize("declared", [None, {}, A(), "file.toml", Architecture])
def test_only_declarations_are_compiled(declared: Any) -> None:
    with pytest.raises(InputError, match=r"^architecture: .*smisym.compile\("):
        smisym.compile(declared)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_declarations_say_how_to_fix_them(bad: Any) -> None:
    with pytest.raises(InputError, match="To fix"):
        bad()


def test_heads_that_do_not_divide_the_embedding() -> None:
    model = smisym.compile(Architecture(2, (A(heads=2),), head_layout="split"))
    with pytest.raises(InputError, match="multiple of 2"):
        smisym.generate(model, 5, 1.0, np.random.default_rng(0))


def test_counting_on_a_face() -> None:
    """y = (z11 z12, z21, z22): P/K = 2/3, but a row that two tokens show once only binds: 1 (theory, section 7)."""
    model = smisym.compile(SMI(("a[1]*a[2]", "b[1]", "b[2]"), ("a", "b"), tokens=2))
    span, alpha, error = counting(model)
    np.testing.assert_array_equal(span, [[1.0, 0.0]])
    assert alpha == pytest.approx(1.0)
    assert error == 0.0


@pytest.mark.parametrize("text", ["z1 + z2", "(z1 + z2)**2", "sign(z1 + z2)"])
def test_what_the_output_never_sees_is_never_learned(text: str) -> None:
    """z1 - z2 enters nowhere: hard at any Hermite order, and no number of samples recovers it."""
    model = smisym.compile(SMI(text, 2))
    unseen = np.array([1.0, -1.0]) / np.sqrt(2)
    stable, arrival = smisym.perfect_recovery(model, samples=512).value
    assert stable.alpha == arrival.alpha == np.inf
    if not text.startswith("sign"):
        np.testing.assert_allclose(abs(stable.subspace @ unseen), [1.0], rtol=1e-9)
    solution = smisym.weak_recovery(model, samples=1024)
    (hard,) = [t for t in solution.value if t.kind == "hard"]
    np.testing.assert_allclose(abs(hard.subspace @ unseen), [1.0], rtol=1e-9)
    assert hard.order is None
    assert solution.result is smisym.Result.SUCCESS


def test_noise_leaves_nothing_perfect() -> None:
    """At no number of samples: the free entropy at Q = I is minus infinity, where without noise it would be plus."""
    noisy = smisym.compile(Architecture(2, (A(),), noise=0.1))
    for threshold in smisym.perfect_recovery(noisy, samples=64).value:
        assert threshold.alpha == np.inf
    noiseless = smisym.compile(Architecture(2, (A(),)))
    assert smisym.free_entropy(noisy, np.eye(1), 50.0, samples=64).value == -np.inf
    assert smisym.free_entropy(noiseless, np.eye(1), 50.0, samples=64).value == np.inf


def test_counting_on_pieces() -> None:
    """relu(z): the rank is one on a half of the fields, so that two samples a dimension are needed."""
    _, alpha, error = counting(smisym.compile(SMI("relu(z1)", 1)))
    assert abs(alpha - 2) < 4 * error
    assert 0 < error < 0.1


def test_a_model_is_printed_in_one_line() -> None:
    """What is learned and how its posteriors are integrated; those of sign(z1 z2) are in closed form."""
    assert repr(smisym.compile(SMI(("sign(z1*z2)",), ("z1", "z2")))) == (
        "<Model: 2 fields on 1 token; chart: expressions solved on every orthant; 0 free dimensions>"
    )
    assert repr(smisym.compile(Architecture(2, (A(rank=2),), noise=0.5))) == (
        "<Model: 2 fields on 2 tokens, noise 0.5; no chart; 4 free dimensions>"
    )


def test_parts_of_a_model_are_printed_in_one_line() -> None:
    """No arrays, programs or functions: what a person asks of them."""
    model = smisym.compile(SMI(("z1**2 - 3*z2",), ("z1", "z2")))
    assert repr(model.link) == "<LinkFunction: 2 fields on 1 token to 1 by 1>"
    assert repr(model.symmetry) == "<Symmetry: 2 elements; 2 blocks of 2 rows>"
    sheets = "expressions solved on every orthant; 1 sheet, over 1 latent coordinate; 1 number of the output"
    assert repr(model.level_set) == f"<LevelSet: {sheets}>"
    where = "the posterior lives on the level set: 1 free dimension and 1 sheet"
    assert repr(model.channel) == f"<Channel: {where}, integrated by an adaptive lattice>"
