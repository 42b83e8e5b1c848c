"""The core's machines and the clock: events of one instant keep their order, whoever decides a hand-over."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.workload.trace import OPEN_LOOP
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.pools import channel, pools, requests

#: Requests of (half milliseconds, fifties of prompt tokens, output tokens).
ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 4)), min_size=2, max_size=10
).map(sorted)


@examples(40)
@given(
    rows=ROWS,
    roles=st.sampled_from(["pd", "pd", "ppd", "pdd", "pbd"]),
    router=st.sampled_from(["random", "overlap-cost"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    sessions=st.sampled_from([2, 99, 99]),
)
@example([(0, 1, 20), (20, 6, 4), (20, 3, 4), (28, 1, 4)], "pd", "random", "at-end", 99)
def test_events_of_one_instant_keep_their_order(rows, roles, router, transfer, sessions):
    """Chunks of prompts and blocks on the wire end when requests come; turns come as the turn before them ends."""
    wire = NetworkSettings(default=channel(latency_ns=0))
    handover = HandoverSettings(transfer=transfer, router=router, network=wire)
    settings = pools(roles, handover, tiers=(60,), max_num_batched_tokens=100)
    trace = requests(*((at / 2, 50 * tokens, output) for at, tokens, output in rows))
    count = np.arange(len(rows), dtype=np.int32)
    think_ns = np.where(count < sessions, OPEN_LOOP, 0)
    trace = replace(trace, session=count % sessions, turn=count // sessions, think_ns=think_ns)
    assert_same_by_the_clock(settings, trace)
