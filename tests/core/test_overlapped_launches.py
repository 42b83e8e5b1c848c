"""Launches that overlap the step before: closed forms and a plain recursion, of one request and of many."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.traces import random_trace

MS = 1_000_000


def table(
    decode_ns: int, chunk_ns: int, launches_ns: tuple[int, int, int], captured: int = 64
) -> StepTimeTable:
    """Kernels of a decode step and of one with a chunk, whatever is in them; launches past graphs and in pieces."""
    eager, pieces, graph = launches_ns
    return StepTimeTable(
        np.full(4097, chunk_ns),
        np.full(257, decode_ns),
        launch_ns=eager,
        captured_tokens=captured,
        pieces_launch_ns=pieces,
        graph_launch_ns=graph,
    )


def one_machine(step_time: StepTimeTable, blocks: int = 4000, **replica):
    chosen = ReplicaSettings(512, 8, scheduler="vllm", async_scheduling="length", **replica)
    settings = cluster((blocks,))
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


def moments(settings, trace):
    found = simulate(settings, trace).requests
    return found["first_token_ns"].tolist(), found["finish_ns"].tolist()


@pytest.mark.parametrize(("eager", "chunk"), [(30, 12), (30, 25), (18, 12), (5, 12)])
def test_a_decode_step_and_a_chunk_overlap(eager, chunk):
    """Decode steps of 8 ms and one chunk past the graphs among them: by hand, over the three steps it touches."""
    settings = one_machine(table(8 * MS, chunk * MS, (eager * MS, 3 * MS, 2 * MS)))
    trace = requests((0, 32, 40), (100 * MS, 480, 3))
    first, finish = moments(settings, trace)
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
    #: The kernels that are launched last, where the GPU has waited for the launch.
    tails: list[int] = field(default_factory=list)

    def seen(self) -> list[int]:
        """Return when each step's tokens are seen, all steps being there from the start."""
        host = gpu = 0
        computed, seen = [], []
        for kernels, launch, tail in zip(self.kernels, self.launches, self.tails, strict=True):
            if len(computed) - len(seen) == 2:  # the queue is full: look at the oldest
                host = max(host, computed[len(seen)])
                seen.append(host)
            host += launch
            gpu = max(gpu + kernels, host + tail) if computed else max(kernels, host + tail)
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
    steps = chunks + answer - 1
    engine = Engine(
        [chunk] * chunks + [decode] * (answer - 1), [eager] * chunks + [graph] * (answer - 1), [0] * steps
    )
    seen = engine.seen()
    assert moments(settings, trace) == ([seen[chunks - 1]], [seen[-1]])


@examples(60)
@given(
    rows=st.lists(st.tuples(st.integers(1, 700), st.integers(1, 40)), min_size=1, max_size=12),
    kernels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    launches=st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
    more=st.tuples(*[st.sampled_from([0, 0, 3, 20])] * 3),
    captured=st.sampled_from([1, 5, 64, 600]),
    blocks=st.sampled_from([100, 4000]),
    priority=st.sampled_from(["fcfs", "priority"]),
)
def test_the_steps_of_many_requests_are_seen_as_by_the_loop(
    rows, kernels, launches, more, captured, blocks, priority
):
    """Requests that come at once keep the engine busy: its own steps, through the second loop, give all times."""
    decode, chunk = kernels
    names = ("launch_sequence_ns", "tail_ns", "tail_sequence_ns")
    step_time = replace(table(decode, chunk, launches, captured), **dict(zip(names, more, strict=True)))
    settings = one_machine(step_time, blocks, queue_order=priority)
    trace = requests(*((0, *row) for row in rows))
    simulation = Simulation(settings, trace, RunOptions(schedule=True, check="full"))
    done = simulation.run().requests
    eager, pieces, graph = launches
    engine = Engine([], [])
    for _, prefill, decodes, *_ in simulation.replicas[0].schedule().steps:
        engine.kernels.append(chunk if prefill else decode)
        launch = eager if prefill + decodes > captured else pieces if prefill else graph
        engine.launches.append(launch + more[0] * decodes)
        engine.tails.append(more[1] + more[2] * decodes)
    seen = engine.seen()
    assert {*done["first_token_ns"].tolist(), *done["finish_ns"].tolist()} <= set(seen)
    assert done["finish_ns"].max() == seen[-1]


def test_launches_that_take_no_time_change_nothing():
    plain = random_trace(3, requests=50, sessions=7)
    settings = one_machine(cluster((110,)).machines[0].step_time, 110)
    (machine,) = settings.machines
    named = dict.fromkeys(("launch_ns", "pieces_launch_ns", "graph_launch_ns", "launch_sequence_ns"), 0)
    none = replace(machine, step_time=replace(machine.step_time, captured_tokens=64, **named))
    assert moments(replace(settings, machines=(none,)), plain) == moments(settings, plain)
