"""The oracle of networks against itself, a recursion on the fields, and the numbers of the theory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, qmc

from oracles.description import Layer, Network
from oracles.fields import forward
from oracles.tokens import deep_mixing, draw, exact_fields, final_tokens, on_tokens

LONG = np.longdouble
SILENT = Layer(activation="linear", readout=0.0)  # as last layer it shows the mixing of those before it
SEEDS = range(12)


# ------------------------------------------------------------------------------- another route: recursion on fields


def attention_of(layer: Layer, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Attention from U^q and U^k, (T, r), entry by entry."""
    size = len(q)
    seen = [[True] * size for _ in range(size)] if layer.mask is None else layer.mask
    A = np.zeros((size, size), LONG)
    for i in range(size):
        if layer.mask == "causal":
            columns = list(range(i + 1))
        else:
            columns = [j for j in range(size) if seen[i][j]]
        row = [LONG(layer.beta) * LONG(layer.scale) * sum(q[i] * k[j]) for j in columns]
        if layer.position is not None:
            row = [s + LONG(layer.position[i][j]) for s, j in zip(row, columns, strict=True)]
        if layer.activation == "softmax":
            row = [1 / sum(np.exp(other - s) for other in row) for s in row]
        elif layer.activation == "hardmax":
            row = [LONG(s == max(row)) for s in row]
        elif layer.activation != "linear":
            row = [layer.activation(s) for s in row]
        A[i, columns] = row
    return A


def link(network: Network, Z: np.ndarray) -> np.ndarray:
    """The output from the fields Z (P, T) alone (no limit of infinite depth)."""
    rows = iter(np.asarray(Z, LONG))
    eye = np.eye(network.tokens, dtype=LONG)
    split = network.head_layout == "split"
    B = [eye] * (network.layers[0].heads if split else 1)
    for number, layer in enumerate(network.layers, start=1):
        last = number == len(network.layers)
        entering = [eye] * len(B) if network.limit == "first_order" and not last else B
        readouts = (layer.readout,) * layer.heads if isinstance(layer.readout, float) else layer.readout
        attentions = []
        for a in range(layer.heads):
            own = entering[a] if split else entering[0]
            q = own @ np.stack([next(rows) for _ in range(layer.rank)]).T
            k = q if layer.tied else own @ np.stack([next(rows) for _ in range(layer.rank)]).T
            attentions.append(attention_of(layer, q, k))
        weighted = [LONG(o) * A for o, A in zip(readouts, attentions, strict=True)]
        if last and network.output == "attention":
            y = np.stack(attentions)
            return sum(weighted) if network.combine == "sum" else y if layer.heads > 1 else y[0]
        moves = weighted if split else [sum(weighted)]
        B = [LONG(layer.skip) * b + move @ start for b, move, start in zip(B, moves, entering, strict=True)]
    assert next(rows, None) is None
    return np.stack(B) if len(B) > 1 else B[0]


def some_layer(rng: np.random.Generator, tokens: int, heads: int, limited: bool) -> Layer:
    masks = (None, "causal", (np.eye(tokens) + (rng.random((tokens, tokens)) < 0.6) > 0).tolist())
    activations = ("softmax", "softmax", "linear", "hardmax", np.tanh)
    each = tuple(rng.normal(size=heads).round(2).tolist())
    return Layer(
        rank=int(rng.integers(1, 4)),
        skip=1.0 if limited else round(rng.uniform(0, 1.5), 2),
        activation=activations[rng.integers(5)],
        beta=round(rng.uniform(0.2, 1.5), 2),
        tied=bool(rng.integers(2)),
        heads=heads,
        readout=each if rng.integers(2) else each[0],
        scale=round(rng.uniform(0.2, 1.2), 2),
        mask=masks[rng.integers(3)],
        position=rng.normal(size=(tokens, tokens)).tolist() if rng.integers(2) else None,
    )


def some_network(seed: int, output: str, head_layout: str, combine: str = "stack", limit: str | None = None) -> Network:
    rng = np.random.default_rng(seed)
    tokens, depth, common = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    heads = [common if head_layout == "split" else int(rng.integers(1, 4)) for _ in range(depth)]
    limited = [limit is not None and number < depth for number in range(1, depth + 1)]
    layers = tuple(some_layer(rng, tokens, h, early) for h, early in zip(heads, limited, strict=True))
    return Network(tokens, layers, output, head_layout, combine, limit)


KINDS = [
    (output, head_layout, combine, limit)
    for output, combine in (("attention", "stack"), ("attention", "sum"), ("sequence", "stack"))
    for head_layout in ("shared", "split")
    for limit in (None, "first_order")
]


def dimension(network: Network, times: int = 5) -> int:
    return times * network.layers[-1].heads


@pytest.mark.parametrize(("output", "head_layout", "combine", "limit"), KINDS)
def test_the_network_on_tokens_is_a_recursion_on_fields(output, head_layout, combine, limit) -> None:
    for seed in SEEDS:
        network = some_network(seed, output, head_layout, combine, limit)
        X, W, Z = draw(network, dimension(network), np.random.default_rng(seed))
        exact = exact_fields(network, X, W)
        assert Z.shape == (network.fields, network.tokens) and Z.dtype == float
        np.testing.assert_array_equal(Z, exact.astype(float))
        expected, found = link(network, exact), on_tokens(network, X, W, LONG)
        assert found.shape == expected.shape and found.dtype == LONG
        assert np.linalg.norm((found - expected).ravel()) <= 1e-15 * np.linalg.norm(expected.ravel())
        assert on_tokens(network, X, W).dtype == float


def test_the_kinds_differ() -> None:
    """A test of equality is worth little if what is declared plays no part."""
    network = some_network(5, "sequence", "shared")
    base = replace(
        network.layers[0], rank=2, activation="softmax", heads=2, readout=(0.5, 0.8), mask=None, position=None
    )
    variants = [
        base,
        replace(base, skip=base.skip + 0.1),
        replace(base, activation="linear"),
        replace(base, activation="hardmax"),
        replace(base, activation=np.tanh),
        replace(base, beta=2 * base.beta),
        replace(base, scale=3 * base.scale),
        replace(base, readout=(0.8, 0.5)),
        replace(base, readout=0.5),
        replace(base, mask="causal"),
        replace(base, position=np.eye(network.tokens).tolist()),
    ]
    last = Layer()
    outputs = []
    for layer in variants:
        changed = Network(network.tokens, (layer, last))
        X, W, _ = draw(changed, 8, np.random.default_rng(0))
        outputs.append(on_tokens(changed, X, W))
    for i, one in enumerate(outputs):
        for two in outputs[:i]:
            assert abs(one - two).max() > 1e-4


# -------------------------------------------------------------------------------------------------- known identities


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_tied_rank_one_layers_are_the_older_oracle(tokens: int) -> None:
    layers = (Layer(skip=0.5, beta=0.7), Layer(activation="linear"), Layer(beta=1.3))
    X, W, _ = draw(Network(tokens, layers), 20, np.random.default_rng(tokens))
    for depth in (1, 2, 3):
        few = Network(tokens, layers[:depth])
        expected = forward(exact_fields(few, X, W[:depth])[:, :, None], few)[0][:, :, 0]
        found = on_tokens(few, X, W[:depth], LONG)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("limit", [None, "first_order"])
@pytest.mark.parametrize("head_layout", ["shared", "split"])
def test_the_mixing_takes_the_first_tokens_to_the_last(head_layout: str, limit: str | None) -> None:
    for seed in SEEDS:
        network = some_network(seed, "sequence", head_layout, limit=limit)
        X, W, _ = draw(network, dimension(network, 30), np.random.default_rng(seed))
        B = on_tokens(network, X, W, LONG)
        reached = final_tokens(network, X, W, LONG)
        slices = np.split(X, network.slices, axis=1)
        parts = np.split(reached, network.slices, axis=1)
        for mixing, start, end in zip(B if B.ndim == 3 else [B], slices, parts, strict=True):
            scale = abs(end).max()
            np.testing.assert_allclose(mixing @ start, end, rtol=0, atol=1e-15 * scale)
            solved = np.linalg.lstsq(start.T, end.T.astype(float), rcond=None)[0].T
            np.testing.assert_allclose(solved, mixing.astype(float), rtol=0, atol=1e-12 * scale)


def test_sequence_of_one_layer_is_skip_plus_attention() -> None:
    layer = Layer(rank=2, heads=3, readout=(0.3, -1.0, 2.0), skip=0.4)
    for head_layout in ("shared", "split"):
        summed = Network(4, (layer,), "attention", head_layout, "sum")
        stacked, sequence = replace(summed, combine="stack"), replace(summed, output="sequence")
        X, W, _ = draw(summed, 12, np.random.default_rng(1))
        A, B = on_tokens(stacked, X, W), on_tokens(sequence, X, W)
        weighted = np.array(layer.readout)[:, None, None] * A
        np.testing.assert_allclose(on_tokens(summed, X, W), weighted.sum(axis=0), rtol=1e-14, atol=1e-15)
        expected = weighted if head_layout == "split" else weighted.sum(axis=0)
        np.testing.assert_allclose(B, 0.4 * np.eye(4) + expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["softmax", "hardmax", "linear", np.tanh])
def test_masks(activation, tied: bool) -> None:
    last = Layer(rank=2, activation=activation, tied=tied, mask="causal", heads=2)
    causal = Network(4, (Layer(tied=tied, mask="causal"), last))
    X, W, _ = draw(causal, 10, np.random.default_rng(2))
    A, B = on_tokens(causal, X, W), on_tokens(replace(causal, output="sequence"), X, W)
    assert A.shape == (2, 4, 4) and B.shape == (4, 4)
    assert not np.triu(A, 1).any() and not np.triu(B, 1).any()
    if activation == "softmax":
        np.testing.assert_allclose(A.sum(axis=2), 1, rtol=1e-14)
        np.testing.assert_array_equal(A[:, 0], [[1, 0, 0, 0]] * 2)
        assert (A[:, *np.tril_indices(4)] > 0).all()
    if activation == "hardmax":
        assert set(A.ravel()) == {0.0, 1.0}
        np.testing.assert_array_equal(A.sum(axis=2), 1)
    if activation in ("linear", np.tanh):  # no row is normalised: masking is deleting
        whole = on_tokens(Network(4, (causal.layers[0], replace(last, mask=None))), X, W)
        np.testing.assert_array_equal(A, np.tril(whole))

    explicit = tuple(replace(layer, mask=np.tri(4, dtype=bool).tolist()) for layer in causal.layers)
    np.testing.assert_array_equal(on_tokens(replace(causal, layers=explicit), X, W), A)
    none, full = (tuple(replace(layer, mask=m) for layer in causal.layers) for m in (None, [[True] * 4] * 4))
    np.testing.assert_array_equal(on_tokens(replace(causal, layers=full), X, W), on_tokens(Network(4, none), X, W))


def test_hardmax_is_the_cold_limit_of_softmax() -> None:
    for tied in (True, False):
        hot = Layer(activation="softmax", beta=3e3, tied=tied)
        cold = replace(hot, activation="hardmax", beta=1.0)
        for output in ("attention", "sequence"):
            X, W, _ = draw(Network(3, (hot, hot), output), 7, np.random.default_rng(8))
            soft, hard = (on_tokens(Network(3, (layer, layer), output), X, W) for layer in (hot, cold))
            np.testing.assert_allclose(soft, hard, rtol=0, atol=1e-6)


def test_one_slice_is_the_whole_token() -> None:
    for seed in SEEDS:
        for output, combine, limit in (("attention", "sum", None), ("sequence", "stack", "first_order")):
            network = some_network(seed, output, "shared", combine, limit)
            layers = tuple(replace(layer, heads=1, readout=0.7) for layer in network.layers)
            shared = replace(network, layers=layers)
            X, W, Z = draw(shared, 6, np.random.default_rng(seed))
            split = replace(shared, head_layout="split")
            np.testing.assert_array_equal(on_tokens(split, X, W), on_tokens(shared, X, W))
            np.testing.assert_array_equal(exact_fields(split, X, W).astype(float), Z)


def test_slices_do_not_see_one_another() -> None:
    layers = (Layer(heads=2, readout=(0.5, 2.0)), Layer(heads=2, readout=(1.5, -1.0), tied=False))
    network = Network(3, layers, "sequence", "split")
    X, W, Z = draw(network, 12, np.random.default_rng(3))
    rows = [[0, 2, 3], [1, 4, 5]]  # tied: one row a head; untied: query and key of a head, then of the next
    for a, own in enumerate(rows):
        alone = tuple(replace(layer, heads=1, readout=layer.readout[a]) for layer in layers)
        part = Network(3, alone, "sequence")
        slice_ = X[:, 6 * a : 6 * a + 6]
        np.testing.assert_array_equal(on_tokens(part, slice_, W[own]), on_tokens(network, X, W)[a])
        np.testing.assert_allclose(W[own] @ slice_.T / math.sqrt(6), Z[own], rtol=1e-12)
        # h^a = sqrt(H/D) w^a X^(a)T
        np.testing.assert_allclose(math.sqrt(2 / 12) * W[own] @ slice_.T, Z[own], rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"output": "both"},
        {"limit": "deep"},
        {"head_layout": "split", "layers": (Layer(heads=2), Layer(heads=3))},
        {"limit": "first_order", "layers": (Layer(skip=0.5), Layer())},
        {"limit": "ode", "layers": (Layer(), Layer(beta=2.0), Layer())},
    ],
)
def test_what_is_not_defined_is_refused(change: dict) -> None:
    with pytest.raises(ValueError):
        replace(Network(2, (Layer(),)), **change)


def test_data_of_the_wrong_shape_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError):
        draw(Network(2, (Layer(heads=2),), head_layout="split"), 5, rng)
    with pytest.raises(ValueError):
        on_tokens(Network(2, (Layer(),)), rng.normal(size=(2, 4)), rng.normal(size=(2, 4)))
    for wrong in (Layer(mask="row"), Layer(mask=[[True]]), Layer(mask=[[True, True], [False, False]])):
        with pytest.raises(ValueError):
            on_tokens(Network(2, (wrong,)), rng.normal(size=(2, 4)), rng.normal(size=(1, 4)))
    with pytest.raises(ValueError):
        on_tokens(Network(2, (Layer(heads=2, readout=(1.0,)),)), rng.normal(size=(2, 4)), rng.normal(size=(2, 4)))


# ------------------------------------------------------------------------------------------------------ large depth


def even_weights(count: int, rows: int, seed: int) -> np.ndarray:
    """(count * rows, 2): Gaussian weights on two coordinates, evenly spread along the depth of the network."""
    points = qmc.Sobol(2 * rows, seed=seed).random(count)
    return norm.ppf(points).reshape(count * rows, 2)


# X X^T / D = I exactly: then the fields of rows of W are the rows themselves.
ORTHOGONAL = math.sqrt(2) * np.eye(2)


def depth_mixing(layer: Layer, length: float, depth: int, limit: str | None, seed: int = 0) -> np.ndarray:
    """B of the network run on two orthogonal tokens, ``depth`` layers of readout ``length / depth``."""
    layers = (*[replace(layer, readout=length / depth)] * depth, SILENT)
    W = np.vstack([even_weights(depth, layer.rows, seed), np.zeros((1, 2))])
    return on_tokens(Network(2, layers, "sequence", limit=limit), ORTHOGONAL, W)


def flow(layer: Layer, readouts: tuple[float, ...]) -> np.ndarray:
    """B of the infinitely deep network, shown by a last layer that adds nothing."""
    layers = (*[replace(layer, readout=o) for o in readouts], SILENT)
    return on_tokens(Network(2, layers, "sequence", limit="ode"), ORTHOGONAL, np.ones((1, 2)))


def test_the_numbers_of_the_theory() -> None:
    first, exact = np.array([[1.3232, 0.1768], [0.1768, 1.3232]]), np.array([[1.4039, 0.2448], [0.2448, 1.4039]])
    np.testing.assert_allclose(flow(Layer(), (0.5,)), exact, rtol=0, atol=5e-5)
    np.testing.assert_allclose(depth_mixing(Layer(), 0.5, 2048, "first_order"), first, rtol=0, atol=3e-4)
    np.testing.assert_allclose(depth_mixing(Layer(), 0.5, 2048, None), exact, rtol=0, atol=1e-3)
    # The mean attention of two orthogonal tokens to one another is sqrt(2)/4: the derivative of the flow at its start.
    slope = (flow(Layer(), (1e-4,)) - np.eye(2)) / 1e-4
    assert abs(slope[0, 1] - math.sqrt(2) / 4) < 1e-4


def test_the_flow_adds_readouts_of_all_layers_and_heads() -> None:
    expected = flow(Layer(), (0.5,))
    np.testing.assert_allclose(flow(Layer(), (0.2, 0.3)), expected, rtol=0, atol=1e-8)
    heads = replace(Layer(), heads=2)
    np.testing.assert_allclose(flow(heads, ((0.1, 0.2), (0.15, 0.05))), expected, rtol=0, atol=1e-8)
    layers = (replace(heads, readout=(0.5, 0.2)), replace(heads, readout=(1.0, 3.0)))
    network = Network(2, layers, "attention", "split", limit="ode")
    X, W, Z = draw(network, 10, np.random.default_rng(4))
    assert network.fields == len(W) == 2 and W.shape[1] == 5
    found = on_tokens(network, X, W)
    for a, length in enumerate((0.5, 0.2)):
        u = flow(Layer(), (length,)) @ Z[a]
        np.testing.assert_allclose(found[a], attention_of(Layer(), u[:, None], u[:, None]).astype(float), rtol=1e-8)


def test_a_flow_that_is_known_in_closed_form() -> None:
    # Linear, tied: b' = length beta b^3.
    linear = Layer(activation="linear", beta=0.7)
    b = 1 / math.sqrt(1 - 2 * 0.6 * 0.7)
    np.testing.assert_allclose(deep_mixing(linear, 0.6, 2), b * np.eye(2), rtol=0, atol=1e-8)
    # Two tokens, untied: attention is 1/2 on average, whatever B: B = exp(length 11^T / 2).
    grown = np.eye(2) + (math.exp(0.8) - 1) / 2
    np.testing.assert_allclose(deep_mixing(Layer(tied=False), 0.8, 2), grown, rtol=0, atol=1e-6)
    # Rows of softmax sum to one; the first of causal tokens stands alone.
    for layer in (Layer(), Layer(mask="causal", position=[[0.0, 1.0], [0.3, -0.2]])):
        np.testing.assert_allclose(deep_mixing(layer, 0.6, 2).sum(axis=1), math.exp(0.6), rtol=1e-9)
    # A causal token does not see the ones to come.
    two, three = (deep_mixing(Layer(mask="causal"), 0.6, tokens) for tokens in (2, 3))
    np.testing.assert_allclose(three[:2, :2], two, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "layer",
    [
        Layer(beta=1.5, scale=0.8),
        Layer(mask="causal", position=((0.0, 0.0), (0.7, -0.3))),
        Layer(activation=np.tanh),
        Layer(rank=2),
        Layer(tied=False, position=((0.5, 0.0), (0.0, -1.0))),
    ],
    ids=["softmax", "causal", "tanh", "rank 2", "untied"],
)
def test_deep_networks_approach_the_flow(layer: Layer) -> None:
    limit = deep_mixing(layer, 0.5, 2)
    errors = [np.mean([abs(depth_mixing(layer, 0.5, n, None, s) - limit).max() for s in range(3)]) for n in (64, 1024)]
    assert errors[1] < 1e-3 and errors[1] < errors[0] / 4


def test_the_last_layer_acts_as_usual_after_either_limit() -> None:
    last = Layer(rank=2, tied=False, heads=2, readout=(0.5, 2.0), skip=0.3, mask="causal")
    early = Layer(readout=0.25)
    for limit in ("first_order", "ode"):
        network = Network(2, (early, early, last), "sequence", limit=limit)
        X, W, Z = draw(network, 9, np.random.default_rng(6))
        entering = flow(Layer(), (0.25, 0.25))
        if limit == "first_order":
            parts = [attention_of(early, z[:, None], z[:, None]).astype(float) for z in Z[:2]]
            entering = np.eye(2) + 0.25 * sum(parts)
        rows = (entering @ Z[-8:].T).T.reshape(2, 2, 2, 2)  # head, query or key, rank, token
        A = [attention_of(last, queries.T, keys.T).astype(float) for queries, keys in rows]
        expected = (0.3 * np.eye(2) + 0.5 * A[0] + 2.0 * A[1]) @ entering
        np.testing.assert_allclose(on_tokens(network, X, W), expected, rtol=1e-8)
        np.testing.assert_allclose(on_tokens(replace(network, output="attention"), X, W), A, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_the_first_order_is_wrong_by_one_over_c_squared(activation: str, tied: bool) -> None:
    early = Layer(activation=activation, tied=tied, rank=2)
    X, W, _ = draw(Network(3, (early,) * 4 + (SILENT,)), 7, np.random.default_rng(7))
    errors = []
    for c in (500.0, 1000.0, 2000.0):
        layers = (*[replace(early, readout=1 / c)] * 4, SILENT)
        network = Network(3, layers, "sequence")
        exact, first = (on_tokens(replace(network, limit=limit), X, W, LONG) for limit in (None, "first_order"))
        errors.append(float(np.linalg.norm((exact - first).astype(float))))
    orders = [math.log2(errors[i] / errors[i + 1]) for i in (0, 1)]
    assert max(abs(order - 2) for order in orders) < 0.1
    assert errors[-1] * 2000**2 > 1e-2
