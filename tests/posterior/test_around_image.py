"""Weak noise around any chart, in coordinates of the image found numerically: measure, moments, limits, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from noisy_channels import MODELS as CLOSED
from noisy_channels import apart, chart_of, drawn, everywhere, noisy
from noisy_channels import around as around_closed

import smisym
from smisym import SMI, Architecture, Attention
from smisym.charts.covering import read_coordinates
from smisym.model.channel import Channel
from smisym.posterior.all_fields import OnAllFields
from smisym.posterior.around_image import MISSABLE, AroundImage, log_measure, refusal
from smisym.posterior.composite import WhereNoiseIsWeak
from smisym.posterior.image import Anchors, Image

A = Attention
MODELS = {
    "untied, T = 3": Architecture(3, (A(tied=False),)),
    "untied linear": Architecture(2, (A(tied=False, activation="linear"),)),
    "untied, rank 2": Architecture(2, (A(tied=False, rank=2),)),
    "rank 2, T = 3": Architecture(3, (A(rank=2),)),
    "rank 3": Architecture(2, (A(rank=3),)),
    "sequence of two": Architecture(2, (A(), A()), output="sequence"),
    "untied on tied": Architecture(2, (A(), A(tied=False, rank=2))),
    "causal": Architecture(2, (A(mask="causal"),)),
}


def around(
    declared: Architecture | SMI,
    noise: float,
    *,
    smooth: bool = False,
    missable: float = MISSABLE,
    image: type[Image] = Image,
) -> Channel:
    """Around the level set in coordinates of the image, whatever closed ones there are; however strong the noise."""
    link, level_set = chart_of(declared)
    thin = AroundImage(replace(level_set, unfolding=None), link, noise, image(link), missable)
    thin.smooth = smooth
    thin.noise_is_weak = lambda V: np.ones(len(V), dtype=bool)  # type: ignore[method-assign]
    return Channel(link, WhereNoiseIsWeak(thin, OnAllFields(link, noise)), noise)


def around_image_of(channel: Channel) -> AroundImage:
    assert isinstance(channel.posterior, WhereNoiseIsWeak)
    assert isinstance(channel.posterior.thin, AroundImage)
    return channel.posterior.thin


# ------------------------------------------------------------------------------------------------------- the measure


@pytest.mark.parametrize("name", [name for name in MODELS if name != "sequence of two"])
def test_the_measure_is_that_of_the_fields(name: str) -> None:
    """w c = |det dZ/d(free, latent, directions, v)|: the whole determinant by differences, elsewhere than c is read."""
    channel, rng = around(MODELS[name], 1e-3), np.random.default_rng(3)
    measure, link = around_image_of(channel), channel.link
    chart, image = measure.level_set, measure.image
    anchors = image.anchored(rng.standard_normal((1, image.entries)))
    owner = np.zeros(1, dtype=int)
    others, free = measure.dim - image.rank, len(chart.free_rows) * link.tokens
    point = np.concatenate([rng.uniform(-0.25, 0.25, others), 0.1 * rng.standard_normal(image.rank)])

    def at(x: np.ndarray) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
        Z, found = image.lift(anchors, owner, x[None, others:])
        assert found.all()
        u = read_coordinates(chart, link.observe(Z.reshape(1, link.fields, -1)))[0].values
        given = [np.array([value]) for value in x[:others]]
        sheets = chart.solve(given[:free], given[free:], list(u.T))
        best = int(np.argmax([w[0] for w in sheets.log_weight])) if len(sheets.log_weight) > 1 else 0
        full = np.concatenate([*given[:free], *[np.broadcast_to(e, (1,)) for e in sheets.solved[best]]])
        return full, sheets, Z, u

    _, sheets, Z, u = at(point)
    columns = []
    for i in range(measure.dim):
        step = 1e-4 * np.eye(measure.dim)[i]
        near, far = (at(point + k * step)[0] - at(point - k * step)[0] for k in (1, 2))
        columns.append((8 * near - far) / 12e-4)
    for vector in sheets.directions[0] if chart.directions else []:
        columns.append(np.concatenate([np.zeros(free), *[np.broadcast_to(e, (1,)) for e in vector]]))
    whole = np.linalg.slogdet(np.array(columns))[1]
    found = log_measure(chart, image, anchors.frame, Z, u)[0] + max(float(np.ravel(w)[0]) for w in sheets.log_weight)
    assert abs(found - whole) < 1e-6


# ------------------------------------------------------------------------------------------- against other integrals


@pytest.mark.parametrize("name", CLOSED)
def test_moments_are_those_in_closed_coordinates(name: str) -> None:
    """At noise 1e-4, where a chart has closed coordinates of all outputs: an integral of another kind."""
    here, there = around(CLOSED[name], 1e-4), around_closed(CLOSED[name], 1e-4)
    y, omega, V, _ = drawn(here, 0.4, 4, seed=2)
    a, b = here.moments(y, omega, V, rtol=1e-2), there.moments(y, omega, V, rtol=1e-2)
    known = np.isfinite(a.error)
    assert known.sum() >= 3
    error = 4 * (a.error + b.error)[known] + 1e-3
    assert (apart(a, b, V)[known] < error).all()
    assert (np.abs(a.log_partition - b.log_partition)[known] < 2 * error).all()


@pytest.mark.parametrize("noise", [1e-5])
@pytest.mark.parametrize("declared", [MODELS["causal"], SMI("z1*z2", 2)], ids=["causal", "product"])
def test_two_fields_on_two_lattices(declared: Architecture | SMI, noise: float) -> None:
    """Both integrals converge fast: six digits of the mean, the covariance and the density."""
    here = around(declared, noise, smooth=True)
    there = Channel(here.link, OnAllFields(here.link, noise), noise)
    y, omega, V, _ = drawn(here, 0.4, 3, seed=1)
    a, b = (channel.moments(y, omega, V, cov=True, rtol=1e-4) for channel in (here, there))
    both = ~a.statistical & ~b.statistical
    assert both.sum() >= 2
    np.testing.assert_allclose(a.mean[both], b.mean[both], atol=1e-6)
    np.testing.assert_allclose(np.asarray(a.cov)[both], np.asarray(b.cov)[both], atol=1e-6)
    np.testing.assert_allclose(a.log_partition[both], b.log_partition[both], atol=1e-6)


@pytest.mark.parametrize("name", ["untied linear", "untied, rank 2", "rank 3", "sequence of two", "untied, T = 3"])
def test_moments_against_plain_draws_of_the_fields(name: str) -> None:
    """Density of y and posterior mean, with error bars, at noise 1e-2."""
    channel = around(MODELS[name], 1e-2)
    y, omega, V, _ = drawn(channel, 0.3, 1, seed=5)
    found = channel.moments(y, omega, V, rtol=2e-2)
    rng, n, blocks = np.random.default_rng(6), 2**15, 24
    totals = []
    for _ in range(blocks):
        Z = omega[0] + np.sqrt(0.7) * rng.standard_normal((n, channel.fields, channel.tokens))
        w = np.exp(-0.5 * ((channel.link(Z) - y.y[0]) ** 2).reshape(n, -1).sum(axis=1) / 1e-2)
        totals.append([w.mean(), *(w @ (Z - omega[0]).reshape(n, -1) / n)])
    table = np.array(totals)
    mean, error = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(blocks)
    density = np.exp(found.log_partition[0] + 0.5 * y.y[0].size * np.log(2 * np.pi * 1e-2))
    own = 4 * found.error[0] * density
    assert abs(density - mean[0]) < 5 * error[0] + own
    assert (np.abs(density * (found.mean - omega)[0].ravel() - mean[1:]) < 5 * error[1:] + own).all()


# --------------------------------------------------------------------------------------------------- what must hold


@pytest.mark.parametrize("name", ["untied, T = 3", "untied linear", "untied, rank 2", "rank 2, T = 3", "rank 3"])
def test_the_posterior_tends_to_the_noiseless_one(name: str) -> None:
    """At y = f(Z), noise 1e-9: the moments of the noiseless channel.

    The gap falls in proportion to the noise; at 1e-7 it is still 0.04 for the fourth sample of rank 2, T = 3.
    """
    exact, channel = smisym.compile(MODELS[name]).channel, around(MODELS[name], 1e-9)
    _, omega, V, Z = drawn(channel, 0.4, 4, seed=4)
    observed = exact.link.observe(Z)
    a = channel.moments(observed.y, omega, V, cov=True, rtol=1e-2)
    b = exact.moments(observed, omega, V, cov=True, rtol=1e-2)
    known = np.isfinite(a.error)
    assert known.sum() >= 3
    error = 4 * (a.error + b.error) + 1e-3
    assert (apart(a, b, V) < error)[known].all()
    gap = np.abs(np.asarray(a.cov) - np.asarray(b.cov)).reshape(4, -1).max(axis=1)
    assert (gap < 3 * error)[known].all()


@pytest.mark.parametrize(
    ("name", "count"), [("untied, T = 3", 60), ("untied linear", 60), ("sequence of two", 20), ("rank 3", 20)]
)
def test_the_truth_is_one_more_draw(name: str, count: int) -> None:
    """E[phi (Z - m)] = 0 and E[phi (Z Z^T - C - m m^T)] = 0 for functions phi of what is known, at noise 1e-4."""
    channel, rng = around(MODELS[name], 1e-4), np.random.default_rng(8)
    P, T = channel.fields, channel.tokens
    G = rng.standard_normal((P, P))
    Q = 0.3 * np.eye(P) + 0.2 * G @ G.T / np.linalg.eigvalsh(G @ G.T)[-1]
    root = np.linalg.cholesky(np.eye(P) - Q)
    omega = np.linalg.cholesky(Q) @ rng.standard_normal((count, P, T))
    Z = omega + root @ rng.standard_normal((count, P, T))
    y = channel.sample(Z, rng)
    found = channel.moments(y, omega, np.eye(P) - Q, cov=True, rtol=0.03)
    fine = np.isfinite(found.error)
    assert fine.mean() > 0.9
    white = np.linalg.inv(root)
    z, m = ((white @ (a - omega)).reshape(count, -1) for a in (Z, found.mean))
    C = np.einsum("ap,sptqu,bq->satbu", white, np.asarray(found.cov), white).reshape(count, P * T, P * T)
    second = z[:, :, None] * z[:, None, :] - C - m[:, :, None] * m[:, None, :]
    inner = 3 * float(np.median(found.error))
    for phi in (np.ones(count), *m.T, *np.tanh(y.y.reshape(count, -1)).T):
        for values in (phi[:, None] * (z - m), phi[:, None, None] * second):
            mean, error = values[fine].mean(axis=0), values[fine].std(axis=0, ddof=1) / np.sqrt(fine.sum())
            assert (np.abs(mean) < (5 + 30 / np.sqrt(count)) * error + inner * np.abs(phi).mean()).all()


def test_the_density_of_the_output_has_mass_one() -> None:
    """Importance sampling over outputs, from draws at twice the noise: E_q[p / q] = 1."""
    n, rng = 48, np.random.default_rng(4)
    narrow, wide = (around(MODELS["untied linear"], noise) for noise in (1e-3, 2e-3))
    omega, V = np.zeros((n, 2, 2)), np.eye(2)
    y = wide.sample(rng.standard_normal((n, 2, 2)), rng)
    p, q = (channel.log_partition(y, omega, V, rtol=3e-2) for channel in (narrow, wide))
    ratio = np.exp(p - q)
    assert ratio.std() / np.sqrt(n) < 0.1
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(n)


# -------------------------------------------------------------------------------------------------------- the choice


class NoSecond(Image):
    """Of the second of the samples that it is first asked for, no point is found again from its coordinates."""

    lost: np.ndarray | None = None

    def lift(self, anchors: Anchors, owner: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.lost = anchors.Z[1] if self.lost is None else self.lost
        Z, found = super().lift(anchors, owner, v)
        return Z, found & ~(anchors.Z[owner] == self.lost).all(axis=1)


@pytest.mark.parametrize("doubtful", [True, False])
def test_what_the_coordinates_do_not_reach(doubtful: bool) -> None:
    """Samples reached in part: the better of both integrals, with the gap as error; not at all: over all fields."""
    name = "untied linear"
    channel = around(MODELS[name], 1e-3)
    y, omega, V, _ = drawn(channel, 0.4, 3)
    reference = everywhere(MODELS["untied linear"], 1e-3).moments(y, omega, V, rtol=1e-2)
    whole = channel.moments(y, omega, V, rtol=1e-2)
    # More is missed than may be, of all; or all that there is, of the second.
    other = around(MODELS[name], 1e-3, missable=-1.0) if doubtful else around(MODELS[name], 1e-3, image=NoSecond)
    found = other.moments(y, omega, V, rtol=1e-2)
    if doubtful:
        assert (whole.error < reference.error).all()
        np.testing.assert_array_equal(found.mean, whole.mean)
        np.testing.assert_allclose(found.error, np.maximum(whole.error, apart(whole, reference, V)), rtol=1e-6)
        assert found.result is smisym.Result.INTEGRATION
    else:
        alone = everywhere(MODELS["untied linear"], 1e-3).moments(y[1:2], omega[1:2], V, rtol=1e-2)
        np.testing.assert_array_equal(found.mean[1], alone.mean[0])
        assert (apart(found, whole, V)[[0, 2]] < 4 * (found.error + whole.error)[[0, 2]]).all()


def test_samples_are_integrated_each_in_its_way() -> None:
    """Some V leave little open: those samples go to all fields, the others around the level set, in their order."""
    model = smisym.compile(noisy(MODELS["untied linear"], 1e-3))
    y, omega, _, _ = drawn(model.channel, 0.5, 4)
    V = np.array([0.5, 1e-4, 0.4, 1e-5])[:, None, None] * np.eye(2)
    found = model.channel.moments(y, omega, V, rtol=1e-2)
    for s in range(4):
        alone = model.channel.moments(y[s : s + 1], omega[s : s + 1], V[s], rtol=1e-2)
        assert apart(found.take(np.array([s])), alone, V[s])[0] < 4 * (found.error[s] + alone.error[0])


def test_refusals_have_their_reasons() -> None:
    chart = chart_of(MODELS["sequence of two"])[1]
    image = Image(chart_of(MODELS["sequence of two"])[0])
    assert refusal(chart, image, 1e-3) == ""
    assert "share points" in refusal(replace(chart, complete=False, shared=True), image, 1e-3)
    assert "do not pay" in refusal(chart, image, 0.3)
    assert "not 2" in refusal(replace(chart, dimension=3), image, 1e-3)
