"""Prefetches spare what their own prompt has already, and write nothing that a lower tier has."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import agree
from support.examples import examples
from support.small_traces import trace_of

SECOND = 10**9
EDGES = ("gpu->cpu", "cpu->gpu", "cpu->disk", "disk->cpu")


class OfRequest:
    """Prefetches all blocks of one request, and none of the others."""

    occasions = ("queued",)

    def __init__(self, chosen: int = -1) -> None:
        self.chosen = chosen

    def blocks(self, candidate: Any) -> int:
        """Return the number of leading blocks to prefetch."""
        return candidate.blocks if candidate.request == self.chosen else 0


def machine(capacities, prefetch, seqs=1, **movement) -> ClusterSettings:
    """One machine at 1 ms and 10 µs a token, 1 GB/s an edge, 32,000 B a token."""
    step_time = load_step_time("linear:base=1ms,token=10us,decode=1ms,context=0ns")
    tiers = tuple(map(TierSettings, ("gpu", "cpu", "disk"), capacities))
    own = MachineSettings(
        tiers, step_time, ReplicaSettings(max_num_seqs=seqs), {edge: edge for edge in EDGES}
    )
    return ClusterSettings(
        (own,),
        {edge: ChannelSettings(edge, 10**9, 0) for edge in EDGES},
        CacheSettings(block_size_tokens=16, kv_bytes_per_token=32_000),
        MovementSettings(prefetch=prefetch, **movement),
    )


def ends(run) -> tuple[int, int]:
    """Return the last request's cached tokens, and its TTFT in ns."""
    last = {name: int(column[-1]) for name, column in run.requests.items()}
    return last["cached_prefix_length_used"], last["first_token_ns"] - last["arrival_ns"]


@pytest.mark.parametrize("prefetch", ["none", "queued"])
def test_the_head_of_a_prompt_makes_no_space_for_its_rest(prefetch):
    """The last request finds an idle machine, its head on the CPU and the rest on disk.

    It computes one token: 1.01 ms and what its four blocks of 512 µs wait.
    """
    a, b = [0, 1, 2, 3], list(range(100, 107))
    rows, prompts = [a, b, [300], a, b, a], [65, 113, 17, 65, 113, 65]
    arrivals = [0, SECOND, 2 * SECOND, 2 * SECOND + 1, 3 * SECOND, 4 * SECOND]
    settings, trace = machine((8, 7, 100), prefetch), trace_of(rows, 16, prompts, arrivals)
    run = agree(settings, trace)
    cached, ttft_ns = ends(run)
    assert cached == 64
    assert ttft_ns <= 2_127_563
    if prefetch == "queued":
        assert run.counters["prefetched_blocks"] > 0
        options = RunOptions(record_window_ns=(arrivals[-1], 10 * SECOND))
        details = simulate(settings, trace, options=options).events["detail"]
        moved = {details.words[code] for code in details.codes.tolist()}
        assert moved & set(EDGES) == {"disk->cpu", "cpu->gpu"}


prompt = st.tuples(st.integers(0, 3), st.integers(1, 7), st.integers(0, 2))


@examples(300)
@given(
    rows=st.lists(prompt, min_size=4, max_size=14),
    capacities=st.tuples(st.integers(9, 14), st.integers(2, 12), st.integers(2, 30)),
    fetch=st.sampled_from(["always", "wait", "best-effort"]),
    overflow=st.sampled_from(["wait", "drop"]),
    share=st.sampled_from([0.3, 0.5, 1.0]),
)
def test_the_next_request_of_an_idle_machine_hits_no_less_for_a_prefetch(
    rows, capacities, fetch, overflow, share
):
    ids = [[100 * stem + 10 * (k // 3) * branch + k for k in range(blocks)] for stem, blocks, branch in rows]
    trace = trace_of(
        ids, 16, [16 * len(row) + 1 for row in ids], [at * SECOND for at in range(len(ids))], [1] * len(ids)
    )
    hits = []
    for chosen in (-1, len(ids) - 1):
        settings = machine(
            capacities, f"{__name__}:OfRequest(chosen={chosen})", fetch=fetch, prefetch_share=share
        )
        settings = replace(settings, cache=replace(settings.cache, overflow=overflow))
        hits.append(ends(simulate(settings, trace, options=RunOptions(check="full")))[0])
    assert hits[1] >= hits[0]
