"""``cache.touch``: whether a block is as recent as its last release or as the last admission that uses it."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.cache.settings import Touch
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace
from support.agreement import agree
from support.clusters import BLOCK, cluster


def touched_at(touch: Touch, cluster_settings: ClusterSettings, **cache) -> ClusterSettings:
    return replace(cluster_settings, cache=replace(cluster_settings.cache, touch=touch, **cache))


def requests(*rows: tuple[int, list[int], int]) -> Trace:
    """Return requests of (arrival in ms, ids of whole blocks, output tokens), one token more in each prompt."""
    n = len(rows)
    ids = [name for k, (_, blocks, _) in enumerate(rows) for name in (*blocks, 1000 + k)]
    dense = {name: k for k, name in enumerate(dict.fromkeys(ids))}
    return Trace(
        arrival_ns=np.array([ms * 1_000_000 for ms, _, _ in rows], np.int64),
        input_tokens=np.array([len(blocks) * BLOCK + 1 for _, blocks, _ in rows], np.int64),
        output_tokens=np.array([output for _, _, output in rows], np.int64),
        id_offsets=np.cumsum([0, *(len(blocks) + 1 for _, blocks, _ in rows)]).astype(np.int64),
        block_ids=np.array([dense[name] for name in ids], np.uint32),
        block_size=BLOCK,
        session=np.full(n, NO_SESSION, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, OPEN_LOOP, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
    )


A, BB, C = [1, 2], [3, 4], [11, 12, 13, 14, 15, 16]


@pytest.mark.parametrize(
    ("touch", "returns", "hit_tokens"),
    [("release", A, 32), ("release", BB, 0), ("admission", A, 0), ("admission", BB, 32)],
)
def test_of_two_requests_the_later_admitted_finishes_first(touch, returns, hit_tokens):
    # A comes at 0 and answers 60 tokens: 6 blocks at its end. B comes 1 ms later, answers one token and is
    # long gone then. Both have left two blocks. C needs 7 of 9 blocks where 5 are free: two must go. The
    # oldest are B's by release and A's by admission; whose request returns finds its blocks, or does not.
    trace = requests((0, A, 60), (1, BB, 1), (10_000, C, 1), (20_000, returns, 1))
    run = agree(touched_at(touch, cluster((9,)), cache_output=False), trace)
    ends = run.requests["finish_ns"]
    assert ends[1] < ends[0] < trace.arrival_ns[2]
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 0, 0, hit_tokens]


@pytest.mark.parametrize(("touch", "returns", "hit_tokens"), [("release", A, 32), ("admission", A, 0)])
def test_an_admission_renews_what_it_finds_and_its_end_does_not(touch, returns, hit_tokens):
    # Now A's blocks are there before: request 1 finds them and answers long; B's come and go meanwhile.
    trace = requests((0, A, 1), (5_000, A, 40), (5_001, BB, 1), (15_000, C, 1), (20_000, returns, 1))
    run = agree(touched_at(touch, cluster((9,)), cache_output=False), trace)
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 32, 0, 0, hit_tokens]
