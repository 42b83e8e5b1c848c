"""Sessions and shared prefixes drawn at random: settings of both views, and traces that use them."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.workload.trace import Trace
from support.traces import random_trace

MS = 1_000_000
EVER = (0, 1 << 62)

session_views = st.sampled_from(
    [
        SessionViewSettings(),
        SessionViewSettings(1),
        SessionViewSettings(3),
        SessionViewSettings(None, 700 * MS),
    ]
)


@st.composite
def prefix_views(draw, limits: tuple[int | None, ...] = (None, None, 64, 640, 4000)) -> PrefixViewSettings:
    """Draw when a prefix may be shared; ``limits`` are size limits of the store, in tokens."""
    found = PrefixViewSettings(
        draw(st.sampled_from([None, None, 16, 33, 150, 500])),
        draw(st.sampled_from([1, 2, 2, 3])),
        draw(st.sampled_from(limits)),
    )
    return PrefixViewSettings(min_seen=2) if found == PrefixViewSettings() else found


@st.composite
def traces(draw, requests: int = 40) -> Trace:
    """Draw sessions over shared prefixes: in an open or a closed loop, with clients that abort now and
    then."""
    seed = draw(st.integers(0, 10**6))
    trace = random_trace(seed, requests=requests, sessions=draw(st.sampled_from([4, 8])))
    draws = np.random.default_rng(seed)
    columns: dict[str, Any] = {"arrival_ns": trace.arrival_ns // draw(st.sampled_from([1, 1, 5]))}
    if draw(st.booleans()):
        columns["think_ns"] = np.where(trace.turn > 0, draws.integers(0, 5, requests) * 50 * MS, -1)
    if draw(st.booleans()):
        after = draws.integers(0, 60, requests) * draws.choice([MS, 10 * MS], requests)
        columns["abort_after_ns"] = np.where(draws.random(requests) < 0.3, after, -1).astype(np.int64)
    return replace(trace, **columns)
