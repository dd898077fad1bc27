"""Declarations for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from smisym.declare.architecture import Architecture, Attention
from smisym.declare.checking import LEAST_NOISE

attentions = st.builds(
    Attention,
    rank=st.integers(1, 2),
    skip=st.floats(0, 1e6),
    activation=st.sampled_from(["softmax", "linear"]),
    beta=st.floats(0, 1e100, exclude_min=True),
    tied=st.booleans(),
    heads=st.integers(1, 2),
)
architectures = st.builds(
    Architecture,
    tokens=st.integers(2, 4),
    layers=st.lists(attentions, min_size=1, max_size=4),
    output=st.sampled_from(["attention", "sequence"]),
    noise=st.just(0) | st.floats(LEAST_NOISE, 1e300),
)
