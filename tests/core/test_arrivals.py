"""Arrivals and rejections: sessions drawn at random, against the ends of the run's own rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.tenants.settings import TenancySettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import OPEN_LOOP
from support.clusters import BLOCK, cluster, varied
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.pools import MS, pools, requests
from support.small_traces import trace_of

FINISHED, REJECTED = STATUSES.index("finished"), STATUSES.index("rejected")
FITS_BLOCKS = 12
#: Requests of (session, arrival, think time or None, blocks), times in tens of milliseconds.
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 6), st.none() | st.integers(0, 3), st.integers(1, FITS_BLOCKS + 1)
    ),
    min_size=1,
    max_size=9,
)


def sessions(rows):
    """Return the trace of rows; prompts share nothing, and answers are of three tokens."""
    turns, turn = {}, []
    for session, *_ in rows:
        turns[session] = turns.get(session, -1) + 1
        turn.append(turns[session])
    return replace(
        trace_of(
            [[f"{n}.{k}" for k in range(row[3])] for n, row in enumerate(rows)],
            BLOCK,
            arrival_ns=[row[1] * 10 * MS for row in rows],
            output_tokens=[3] * len(rows),
        ),
        session=np.array([row[0] for row in rows], np.int32),
        turn=np.array(turn, np.int32),
        think_ns=np.array([OPEN_LOOP if row[2] is None else row[2] * 10 * MS for row in rows]),
    )


@examples(60)
@given(ROWS, st.integers(1, 3), st.booleans())
@example([(0, 3, None, 99), (0, 9, 2, 1), (1, 3, None, 1)], 1, False)
@example([(1, 2, None, 1), (0, 2, None, 1), (2, 2, None, 1)], 2, False)
def test_a_turn_that_thinks_comes_after_the_turn_before_it_has_left(rows, machines, prefetches):
    trace = sessions(rows)
    settings = cluster((FITS_BLOCKS + 1, 200), machines)
    if prefetches:
        settings = replace(
            settings, movement=replace(settings.movement, prefetch="session", prefetch_lead_ns=5 * MS)
        )
    found = assert_same_by_the_clock(settings, trace).requests
    before, arrivals = {}, found["arrival_ns"].tolist()
    for request, (session, at, think, blocks) in enumerate(rows):
        expected = 10 * MS * at
        if think is not None:
            expected = 10 * MS * think + before.get(session, 0)
        assert arrivals[request] == expected
        rejected = blocks > FITS_BLOCKS
        assert found["status"][request] == (REJECTED if rejected else FINISHED)
        before[session] = expected if rejected else found["finish_ns"][request]


def test_an_instant_run_goes_through_its_requests_in_file_order():
    rows = [(0, 6, None, 5), (1, 2, None, 13), (0, 2, 3, 5), (3, 9, None, 9)]
    settings = varied(cluster((FITS_BLOCKS + 1,)), ReplicaSettings(512, 8, instant=True))
    found = simulate(settings, sessions(rows)).requests
    assert found["status"].tolist() == [FINISHED, REJECTED, FINISHED, FINISHED]
    left_ns = [0, *np.maximum(found["finish_ns"], found["arrival_ns"]).tolist()]
    assert found["arrival_ns"].tolist() == [
        max(left_ns[n], at * 10 * MS) for n, at in enumerate((6, 2, 3, 9))
    ]


@examples(60)
@given(
    roles=st.sampled_from(["b", "pd", "pdd"]),
    blocks=st.lists(st.integers(2, 8), min_size=3, max_size=3),
    context=st.none() | st.integers(30, 140),
    prompt=st.integers(1, 140),
    answer=st.integers(1, 60),
)
@example("b", [7, 0, 0], None, 7 * 16, 1)
@example("b", [7, 0, 0], None, 7 * 16, 2)
@example("pd", [3, 7, 0], None, 3 * 16, 4 * 16 + 1)
@example("pd", [3, 7, 0], None, 3 * 16, 4 * 16 + 2)
@example("b", [8, 0, 0], 40, 40, 2)
def test_a_request_fits_where_its_prompt_does_and_all_of_it_where_it_is_decoded(
    roles, blocks, context, prompt, answer
):
    """The last token of an answer takes no space, and a prompt leaves a token of the context for the answer."""
    settings = pools(roles, max_model_len=context)
    settings = replace(
        settings,
        machines=tuple(
            replace(machine, tiers=(TierSettings("gpu", own),))
            for machine, own in zip(settings.machines, blocks, strict=False)
        ),
    )
    answer = min(answer, answer if context is None else max(context - prompt, 1))
    holds = [16 * own for own in blocks[: len(roles)]]
    all_of_it = prompt + answer - 1
    fits = prompt <= holds[0] and (context is None or prompt < context)
    fits &= all_of_it <= max(holds[1:] if roles != "b" and answer > 1 else holds[:1])
    found = assert_same_by_the_clock(settings, requests((0, prompt, answer))).requests
    assert (found["status"][0] == FINISHED) == fits


@pytest.mark.parametrize(
    "parts",
    [
        {"membership": MembershipPlan(events=(MembershipEvent(MS, "drain", 1),))},
        {"tenants": TenancySettings({}, 1)},
    ],
)
def test_clients_that_leave_are_refused_where_requests_are_held_or_sent_again(parts):
    trace = replace(requests((0, 16, 2), (1, 16, 2)), abort_after_ns=np.array([MS, -1]))
    trace = replace(trace, tenant=np.zeros(2, np.int32), tenant_names=("one",))
    with pytest.raises(UsageError, match="requests are given up"):
        simulate(replace(cluster((40,), 2), **parts), trace)
