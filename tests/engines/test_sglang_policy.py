"""SGLang's order of waiting requests: a small model of it at every threshold, and touches worked by hand.

The thresholds are those of ``schedule_policy.py``: 32 tokens, 128 requests, 32 passes.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster
from support.examples import examples
from support.schedule_book import plain_table
from support.small_traces import trace_of


def cluster_of(tokens, page, **settings):
    base = cluster((tokens // page,))
    replica = ReplicaSettings(**({"max_num_batched_tokens": 2048} | settings), scheduler="sglang")
    cache = CacheSettings(block_size_tokens=page, semantics="sglang", lookup_ns=0)
    tiers = (TierSettings("gpu", tokens // page),)
    machine = replace(base.machines[0], replica=replica, tiers=tiers, step_time=plain_table())
    return replace(base, cache=cache, machines=(machine,))


def order(ended, waiting, page=1, policy="lpm"):
    """Return the queue in the order of a pass: prompts of pages that have ended, and that wait."""
    rows = [*ended, *waiting]
    trace = trace_of(rows, page)
    settings = cluster_of(1 << 16, page, max_num_seqs=1 << 8, schedule_policy=policy)
    replica = Simulation(settings, trace, RunOptions()).replicas[0]
    requests = [(r, n, 1, 0) for r, n in enumerate(trace.input_tokens.tolist())]
    first = len(ended)
    _, admitted, left, _, _ = _core.sglang_pass(replica.core, requests[:first], [], requests[first:], 0.7)
    return [request - first for request, *_ in admitted] + [request - first for request in left]


def shared(a, b):
    """Return how many leading pages two prompts have in common."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def expected(ended, waiting, page):
    """Longest cached prefix first; of prompts with little of it that share much, all but the first are last."""
    # the last token of a prompt is never found
    cached = [page * max([shared(p, e) for e in ended], default=0) for p in waiting]
    cached = [
        min(tokens, (len(p) * page - 1) // page * page) for p, tokens in zip(waiting, cached, strict=True)
    ]
    first, last = [], []
    for at, prompt in enumerate(waiting):
        alike = [p for p in first if cached[p] <= 32 and page * shared(waiting[p], prompt) >= 32]
        (last if cached[at] <= 32 and alike else first).append(at)
    return sorted(first, key=lambda at: -cached[at]) + last


#: Tokens that two prompts share, or a prompt has of a cached one: about 32.
LENGTHS = {1: [1, 15, 31, 32, 33, 64], 16: [1, 2, 3, 4], 32: [1, 2, 3]}


@st.composite
def prompts(draw, page):
    """Prompts that each go with an earlier one for some pages, and then alone."""
    lengths, made = st.sampled_from(LENGTHS[page]), []
    for name in range(draw(st.integers(2, 9))):
        base = draw(st.sampled_from(made))[: draw(lengths)] if made else []
        made.append([*base, *((name, k) for k in range(draw(lengths)))])
    return made


@examples(200)
@given(data=st.data(), page=st.sampled_from(sorted(LENGTHS)), ended=st.integers(0, 3))
def test_the_longest_prefix_is_first_and_prompts_that_share_much_come_apart(data, page, ended):
    made = data.draw(prompts(page))
    ended = min(ended, len(made) - 1)
    assert order(made[:ended], made[ended:], page) == expected(made[:ended], made[ended:], page)


@pytest.mark.parametrize(
    ("cached", "common", "found"),
    [
        # with 32 cached tokens two prompts that share 32 are compared; with 33 they are not
        (31, 33, [0, 2, 1]),
        (32, 33, [0, 2, 1]),
        (33, 34, [0, 1, 2]),
        # 31 common tokens are too few
        (0, 31, [0, 1, 2]),
        (0, 32, [0, 2, 1]),
    ],
)
def test_thirty_two_tokens_are_the_border(cached, common, found):
    one = [("s", k) for k in range(common)]
    waiting = [[*one, "a"], [*one, "b"], ["c"]]
    ended = [one[:cached]] if cached else []
    assert order(ended, waiting) == found


def test_prompts_that_are_put_last_keep_their_order():
    """Of two pairs the second has more cached; the second of each pair is last, the pairs as they came."""
    few, many = ([(name, k) for k in range(40)] for name in "fm")
    waiting = [[*few, "a"], [*many, "b"], [*few, "c"], [*many, "d"]]
    assert order([few[:15], many[:31]], waiting) == [1, 0, 2, 3]


@pytest.mark.parametrize(("most", "is_sorted"), [(128, True), (129, False)])
def test_a_longer_queue_than_128_keeps_its_order(most, is_sorted):
    waiting = [[("w", k), 0] for k in range(most - 1)] + [["e", 0]]
    assert (order([["e"]], waiting)[0] == most - 1) == is_sorted


@pytest.mark.parametrize(
    ("passes", "is_touched"), [(31, False), (32, True), (33, False), (63, False), (64, True)]
)
def test_waiting_prefixes_are_touched_every_32_passes(passes, is_touched):
    """Two cached prompts of 64 tokens; the queue has the longer one's prefix behind a prompt that takes 64 tokens.

    One of the two must go: the first, unless the pass has touched it. Each request before makes one pass.
    """
    assert kept(passes, ["old"]) == [64 if is_touched else 0]


def test_of_waiting_prefixes_the_very_first_is_touched_last():
    """Both are touched, the one that waits longer after the other, whichever was used last before."""
    assert kept(32, ["old", "new"]) == [64, 0]
    assert kept(32, ["new", "old"]) == [64, 0]


def kept(passes, waiting):
    """Return the cached tokens of requests that wait while another takes all but one of two cached prompts."""
    small = [[("small", k)] for k in range(passes - 2)]
    cached = [[(name, k) for k in range(64)] for name in ("old", "new")]
    large = [("large", k) for k in range(64 + len(small))]
    rows = [*small, *cached, large, *([*cached[("old", "new").index(name)], "end"] for name in waiting)]
    before, lengths = len(small) + 2, [len(row) for row in rows]
    arrivals = [k * 10**9 for k in range(before)] + [before * 10**9] * (1 + len(waiting))
    trace = trace_of(rows, 1, lengths, arrivals, [1] * len(rows))
    # the small prompts and one of the two must go, and a second prompt never waits for capacity
    settings = cluster_of(len(small) + 128 + 8, 1, max_num_seqs=1)
    run = simulate(settings, trace, options=RunOptions(check="full"))
    found = run.requests["cached_prefix_length_used"][run.requests["request"].argsort()]
    return found[before + 1 :].tolist()
