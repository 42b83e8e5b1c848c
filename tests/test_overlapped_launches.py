"""Launches that overlap the step before: closed forms, a plain recursion, and the core against the reference."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.errors import StoreError
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.engine_scheduler.replica import EngineReplica
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import BLOCK, cluster
from support.recorded import recorded
from support.traces import random_trace
from test_vllm_schedule import replicas

MS = 1_000_000
BACKENDS = (RunOptions(), RunOptions(backend="python"), RunOptions(step_every_iteration=True))


def table(
    decode_ns: int, chunk_ns: int, launches_ns: tuple[int, int, int], captured: int = 64
) -> StepTimeTable:
    """Kernels of a decode step and of one with a chunk, whatever is in them; launches past graphs, in pieces, of one."""
    eager, pieces, graph = launches_ns
    return StepTimeTable(
        np.full(4097, chunk_ns),
        np.full(257, decode_ns),
        launch_ns=eager,
        captured_tokens=captured,
        pieces_launch_ns=pieces,
        graph_launch_ns=graph,
    )


def one_machine(step_time: StepTimeTable, **replica):
    chosen = ReplicaSettings(512, 8, scheduler="vllm", async_scheduling="length", **replica)
    settings = cluster((4000,))
    own = replace(settings.machines[0], replica=chosen, step_time=step_time)
    cache = CacheSettings(block_size_tokens=BLOCK, semantics="vllm")
    return replace(settings, machines=(own,), cache=cache)


def requests(*rows: tuple[int, int, int]):
    """Return a trace of unique prompts: (arrival ns, prompt, answer)."""
    trace = random_trace(1, requests=len(rows))
    arrivals, prompts, answers = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    blocks = [-(-int(prompt) // trace.block_size) for prompt in prompts]
    offsets = np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64)
    return replace(
        trace,
        arrival_ns=arrivals,
        input_tokens=prompts,
        output_tokens=answers,
        id_offsets=offsets,
        block_ids=np.arange(offsets[-1], dtype=np.uint32),
        session=np.full(len(rows), -1, np.int32),
        turn=np.zeros(len(rows), np.int32),
        priority=np.zeros(len(rows), np.int64),
    )


def moments(settings, trace, options):
    found = simulate(settings, trace, options=options).requests
    return found["first_token_ns"].tolist(), found["finish_ns"].tolist()


@pytest.mark.parametrize("options", BACKENDS)
def test_a_constant_launch_above_the_kernels_is_the_period(options):
    """The first launch and the one behind it, then one launch a token."""
    settings = one_machine(table(4 * MS, 4 * MS, (7 * MS, 7 * MS, 7 * MS)))
    first, finish = moments(settings, requests((0, 32, 50)), options)
    assert first == [2 * 7 * MS]
    assert finish == [50 * 7 * MS], (
        "no step is launched behind the last, whose tokens are seen when it is done"
    )


@pytest.mark.parametrize("options", BACKENDS)
def test_kernels_above_a_constant_launch_are_the_period(options):
    settings = one_machine(table(10 * MS, 13 * MS, (7 * MS, 7 * MS, 3 * MS)))
    first, finish = moments(settings, requests((0, 32, 50)), options)
    assert first == [13 * MS], "launched in 7 ms, and the decode step behind it at 10"
    assert finish == [(13 + 49 * 10) * MS]


@pytest.mark.parametrize("options", BACKENDS)
@pytest.mark.parametrize(("eager", "chunk"), [(30, 12), (30, 25), (18, 12), (5, 12)])
def test_a_decode_step_and_a_chunk_overlap(options, eager, chunk):
    """Decode steps of 8 ms and one chunk past the graphs among them: by hand, over the three steps it touches."""
    settings = one_machine(table(8 * MS, chunk * MS, (eager * MS, 3 * MS, 2 * MS)))
    trace = requests((0, 32, 40), (100 * MS, 480, 3))
    first, finish = moments(settings, trace, options)
    # The first request's chunk is seen at 3 + … = max(chunk, 3 + 2); decode steps end every 8 ms from there.
    start = max(chunk, 5)
    boundary = start + 8 * -(-(100 - start) // 8)
    # decided at that boundary, launched while the step decided before is computed
    before, launched = boundary + 8, boundary + eager
    seen_before = max(before, launched)
    computed = max(before + chunk, launched)
    behind = seen_before + 2
    seen = max(computed, behind)
    assert first[1] == seen * MS
    rest = max(computed + 8, seen_before + 2)
    tokens = (
        boundary - start
    ) // 8 + 1  # by the boundary; then two with the steps around the chunk, the rest by eights
    second = max(rest, seen + 2)
    assert finish[0] == (second + 8 * (40 - tokens - 3)) * MS
    assert finish[1] == (second + 8) * MS


@dataclass
class Engine:
    """vLLM's loop over one worker in its process, step by step: what is launched, computed and seen when."""

    kernels: list[int]
    launches: list[int]

    def seen(self) -> list[int]:
        """Return when each step's tokens are seen, all steps being there from the start."""
        host = gpu = 0
        computed, seen = [], []
        for kernels, launch in zip(self.kernels, self.launches, strict=True):
            if len(computed) - len(seen) == 2:  # the queue is full: look at the oldest
                host = max(host, computed[len(seen)])
                seen.append(host)
            host += launch
            gpu = max(gpu + kernels, host) if computed else max(kernels, host)
            computed.append(gpu)
        while len(seen) < len(computed):
            host = max(host, computed[len(seen)])
            seen.append(host)
        return seen


@examples(40)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
    st.integers(1, 5),
    st.integers(1, 30),
)
def test_a_prompts_chunks_and_its_decodes_are_the_loops_own_sums(decode, chunk, launches, chunks, answer):
    """Chunks of 512 and then decode steps, by a second loop that is written as the engine's."""
    eager, _, graph = launches
    settings = one_machine(table(decode, chunk, launches))
    trace = requests((0, 512 * chunks, answer))
    engine = Engine([chunk] * chunks + [decode] * (answer - 1), [eager] * chunks + [graph] * (answer - 1))
    seen = engine.seen()
    for options in BACKENDS:
        first, finish = moments(settings, trace, options)
        assert (first, finish) == ([seen[chunks - 1]], [seen[-1]])


launch_ns = st.sampled_from([0, 1, 700_000, 5 * MS, 11 * MS, 40 * MS])
ahead = replicas.filter(lambda one: one.async_scheduling != "none")


@examples(60)
@given(
    replica=ahead,
    enabled=st.sampled_from([True, True, False]),
    blocks=st.sampled_from([70, 110, 400]),
    launches=st.tuples(launch_ns, launch_ns, launch_ns, st.sampled_from([0, 5, 64, 150])),
    more=st.tuples(*[st.sampled_from([0, 0, 300, 900_000])] * 3),
    seed=st.integers(1, 9),
)
def test_the_core_and_the_reference_tell_one_story(replica, enabled, blocks, launches, more, seed):
    settings = cluster((blocks,), 1)
    own = settings.machines[0]
    names = ("launch_ns", "pieces_launch_ns", "graph_launch_ns", "captured_tokens")
    names += ("launch_sequence_ns", "tail_ns", "tail_sequence_ns")
    step_time = replace(own.step_time, **dict(zip(names, (*launches, *more), strict=True)))
    cache = CacheSettings(block_size_tokens=BLOCK, semantics="vllm", enabled=enabled)
    settings = replace(settings, cache=cache, machines=(replace(own, replica=replica, step_time=step_time),))
    trace = random_trace(seed, requests=50, sessions=7)
    try:
        simulation, native = recorded(settings, trace, schedule=True)
    except StoreError as refused:  # prompts of one arrival preempt each other for ever
        with pytest.raises(StoreError, match=f"^{re.escape(str(refused))}$"):
            recorded(settings, trace, step_every_iteration=True, schedule=True)
        return
    assert isinstance(simulation.replicas[0], NativeReplica)
    stepped, plain = recorded(settings, trace, step_every_iteration=True, schedule=True)
    assert isinstance(stepped.replicas[0], EngineReplica)
    assert native == plain
    assert simulation.replicas[0].schedule() == stepped.replicas[0].schedule()
