"""Pipeline stages and context parallelism: closed forms for two stages, one stage as none, shared blocks."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import BLOCK, cluster, table
from support.examples import examples
from support.schedules import replicas
from support.small_traces import trace_of
from support.traces import random_trace

STEPS = st.sampled_from(["none", "returned", "chained", "spaced"])


def over(stages: int, blocks: int = 400, replica: ReplicaSettings | None = None, steps: str = "none"):
    own = replica or ReplicaSettings(4096, 8, scheduler="vllm")
    if steps == "none":
        own = replace(own, async_scheduling="none")
    else:
        own = replace(own, async_scheduling="length", pp_steps=steps)
    settings = cluster((blocks,))
    machines = (replace(m, replica=replace(own, stages=stages)) for m in settings.machines)
    cache = replace(CacheSettings(block_size_tokens=BLOCK), semantics="vllm")
    return replace(settings, cache=cache, machines=tuple(machines))


def chunk(new: int, past: int = 0) -> int:
    return table().step(StepBatch(((new, past),), 0, 0, 0))


def decode(length: int) -> int:
    return table().step(StepBatch((), 1, length, length))


def test_one_request_gets_nothing_from_a_second_stage():
    """Its next token needs the last one: a step goes through both stages, and takes what it took."""
    trace = trace_of([[*range(4)]], 16, [64], [0], [3])
    kinds = [(1, "none"), (2, "none"), (3, "returned"), (3, "chained"), (2, "spaced"), (3, "spaced")]
    runs = [simulate(over(stages, steps=steps), trace) for stages, steps in kinds]
    expected = chunk(64) + decode(64) + decode(65)
    assert [int(run.requests["finish_ns"][0]) for run in runs] == [expected] * 6


def test_two_requests_on_two_stages_are_each_other_s_second_stage():
    """Prompts that fill a step each make two batches, and each request decodes in its own, half a step apart.

    Their steps alternate as two jobs do on two machines: the batch behind follows as the first stage is free.
    """
    trace = trace_of([[*range(4)], [*range(10, 14)]], 16, [64, 64], [0, 0], [5, 5])
    run = simulate(over(2, replica=ReplicaSettings(64, 8, scheduler="vllm")), trace)
    durations, times, ends = [chunk(64), chunk(64)], [0, 0], [0, 0]
    for _ in range(4):
        for request in (0, 1):
            begun = flow_shop(durations, times, 2)
            ends[request] = begun[len(durations) - 2][1]
            times.append(ends[request])
            durations.append(decode(64 + (len(durations) - 2) // 2))
    reported = flow_shop(durations, times, 2)
    assert run.requests["first_token_ns"].tolist() == [reported[0][1], reported[1][1]]
    assert run.requests["finish_ns"].tolist() == [reported[-2][1], reported[-1][1]]
    # from then on neither waits: a token a step of one request, where one stage computes both in each step
    assert reported[1][1] == chunk(64) + chunk(64) - chunk(64) // 2
    assert reported[-1][1] - reported[-3][1] == pytest.approx(decode(67), rel=1e-4)


def test_no_more_batches_are_in_flight_than_stages():
    """Three prompts that fill a step each: the third shares its batch with the first one's decode, once that
    is back."""
    trace = trace_of([[*range(n, n + 4)] for n in (0, 10, 20)], 16, [64] * 3, [0] * 3, [5] * 3)
    run = simulate(over(2, replica=ReplicaSettings(64, 8, scheduler="vllm")), trace)
    at_once = flow_shop([chunk(64)] * 3, [0] * 3, 2)
    assert run.requests["first_token_ns"].tolist()[:2] == [end for _, end in at_once[:2]]
    assert run.requests["first_token_ns"][2] > at_once[2][1]


def flow_shop(durations: list[int], times: list[int], stages: int) -> list[tuple[int, int]]:
    """Begin and end of each step by the recurrence of a line of machines, cell by cell."""
    left = np.zeros((len(durations) + 1, stages + 1), np.int64)
    reported = []
    for j, (duration, now) in enumerate(zip(durations, times, strict=True), 1):
        begin = left[j][0] = max(now, left[j - 1][1])
        for s in range(1, stages + 1):
            share = duration * s // stages - duration * (s - 1) // stages
            left[j][s] = max(left[j][s - 1], left[j - 1][s]) + share
        reported.append((int(begin), int(left[j][stages])))
    return reported


@examples(60)
@given(
    prompts=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), min_size=1, max_size=6),
    stages=st.integers(1, 5),
)
def test_steps_go_through_stages_as_jobs_through_machines(prompts, stages):
    """Prompts of whole chunks: every step computes one, and goes through the stages behind the one before it.

    The engine decides on steps while fewer are in flight than there are stages and a prompt is there, whether there
    is something to compute or not; else it waits for the oldest one, and sees only then what has come meanwhile.
    """
    arrivals = (np.cumsum([wait for _, wait in prompts]) * 1_000_000).tolist()
    rows = [[f"{number}.{k}" for k in range(4 * chunks)] for number, (chunks, _) in enumerate(prompts)]
    trace = trace_of(rows, 16, [64 * chunks for chunks, _ in prompts], arrivals, [1] * len(prompts))
    to_do = [
        (arrivals[number], chunk(64, 64 * k))
        for number, (chunks, _) in enumerate(prompts)
        for k in range(chunks)
    ]
    now, ended, times = 0, 0, []
    reported: list[tuple[int, int]] = []
    queue: deque[int | None] = deque()
    while len(reported) < len(to_do):
        is_there = to_do[len(reported)][0] <= now
        if len(queue) < stages and is_there:
            queue.append(len(times))
            times.append(now)
            reported = flow_shop([duration for _, duration in to_do[: len(times)]], times, stages)
        elif len(queue) < stages and ended < len(reported):
            queue.append(None)
        elif queue:
            if queue.popleft() is not None:
                now, ended = reported[ended][1], ended + 1
        else:
            now = to_do[len(reported)][0]
    last = np.cumsum([chunks for chunks, _ in prompts]) - 1
    settings = over(stages, 4000, ReplicaSettings(64, 8, scheduler="vllm"))
    assert simulate(settings, trace).requests["first_token_ns"].tolist() == [reported[k][1] for k in last]


@examples(10)
@given(
    replica=replicas,
    blocks=st.sampled_from([70, 400]),
    stages=st.sampled_from([1, 2, 4]),
    seed=st.integers(1, 9),
    steps=STEPS,
)
def test_every_request_gets_its_tokens_whatever_the_stages(replica, blocks, stages, seed, steps):
    """With invariants checked at every boundary: what ends in one stage ends in several, with as many
    tokens."""
    trace = random_trace(seed, requests=30, sessions=7)
    replica = replace(replica, max_num_queued_reqs=None)  # a full queue refuses by its times
    settings = over(stages, blocks, replica, steps)
    found = simulate(settings, trace, options=RunOptions(check="full")).requests
    alone = simulate(over(1, blocks, replica), trace).requests
    for name in ("status", "output_tokens"):
        assert (found[name] == alone[name]).all()


SHARED = """
workload: {kind: conversational, requests: 20}
model: deepseek-r1
replica: {step_time: "roofline:deepseek-r1@h200:tp16"}
cache: {block_size: 64}
tiers: {gpu: {capacity: auto}}
"""


def test_stages_of_settings_made_by_hand_are_refused_too():
    with pytest.raises(UsageError, match="micro-batches are those of vLLM's own scheduler"):
        simulate(over(2, replica=ReplicaSettings(512, 8)), random_trace(1))


def blocks_of(*overrides: str) -> int:
    settings = scenario_from_text(SHARED, "s.yaml", Path.cwd(), list(overrides)).settings
    blocks = settings.machines[0].tiers[0].capacity_blocks
    assert blocks is not None
    return blocks


def test_gpus_that_share_out_a_block_hold_as_many_more():
    """A latent stands on all 16 GPUs: 2, 4 or 16 of them that share out its tokens hold 2, 4 or 16 times as
    many."""
    one = blocks_of()
    for cp in (2, 4, 16):
        assert one * cp <= blocks_of(f"replica.cp={cp}") < (one + 1) * cp
    # vLLM's own block is a GPU's: 64 tokens on one are 128 on two that share them out, in as many blocks
    assert blocks_of("cache.block_size=128", "replica.cp=2") == one
