"""Decisions over pipeline stages by a plain copy of the engine's loop, and the host's times in closed form."""

from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.stages import layers_by_stage, with_stages
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import simulate
from support.clusters import BLOCK, cluster, table
from support.examples import examples
from support.small_traces import trace_of


def over(stages: int, replica: ReplicaSettings):
    settings = cluster((4000,))
    machines = (replace(m, replica=replace(replica, stages=stages)) for m in settings.machines)
    cache = replace(CacheSettings(block_size_tokens=BLOCK), semantics="vllm")
    return replace(settings, cache=cache, machines=tuple(machines))


@dataclass
class Asked:
    arrival: int
    prompt: int
    answer: int
    got: int = 0
    in_flight: int = 0
    eligible: int = 0
    runs: bool = False
    first_ns: int = 0
    last_ns: int = 0


class Loop:
    """``step_with_batch_queue`` with the schedule of whole prompts, and stages as equal machines in a line.

    Steps without requests are batches too: they wait in the queue, and take no time. Up to 0.22, before steps are
    spaced, the engine then waits for the oldest batch.
    """

    def __init__(self, asked: list[Asked], stages: int, steps: str) -> None:
        self.asked, self.stages, self.steps = asked, stages, steps
        self.left, self.ends, self.number = [0] * stages, [0] * stages, 0

    def decided(self, now: int) -> list[Asked]:
        self.number += 1
        found = []
        for one in self.asked:
            if not one.runs:
                chosen = one.arrival <= now
            elif self.steps in ("none", "returned"):
                chosen = not one.in_flight
            else:
                chosen = self.steps == "chained" or self.number >= one.eligible
            # as AsyncScheduler: it leaves out the step after the last token only while one token is to come
            if chosen and one.got + bool(one.in_flight) < one.answer:
                found.append(one)
        return found

    def sent(self, parts: list[Asked], now: int) -> int:
        """The end of a step; 0 of one without requests."""
        decodes = [one.prompt + one.got + one.in_flight - 1 for one in parts if one.runs]
        chunks = tuple((one.prompt, 0) for one in parts if not one.runs)
        # a chained step waits for the tokens of the last one that had requests
        needed = {"chained": max(self.ends), "spaced": self.ends[-self.stages]}.get(self.steps, 0)
        at = max(now, needed)
        duration = table().step(StepBatch(chunks, len(decodes), sum(decodes), max(decodes, default=0)))
        for stage in range(self.stages if parts else 0):
            share = duration * (stage + 1) // self.stages - duration * stage // self.stages
            at = self.left[stage] = max(at, self.left[stage]) + share
        for one in parts:
            one.runs, one.in_flight, one.eligible = True, one.in_flight + 1, self.number + self.stages
        self.ends.append(at if parts else 0)
        return self.ends[-1]

    def play(self) -> None:
        queue: deque[tuple[int, list[Asked]]] = deque()
        depth, now = self.stages + (self.steps == "spaced"), 0
        fills = self.steps in (
            "none",
            "spaced",
        )  # ``pp_steps`` of a run without asynchronous scheduling is the default
        while any(one.got < one.answer for one in self.asked):
            if any(one.got < one.answer and one.arrival <= now for one in self.asked):
                parts = self.decided(now)
                queue.append((self.sent(parts, now), parts))
                if len(queue) < depth and (parts or fills):
                    continue
            elif not queue:
                now = min(one.arrival for one in self.asked if one.arrival > now)
                continue
            end, parts = queue.popleft()
            now = max(now, end)
            for one in parts:
                one.in_flight -= 1
                if one.got < one.answer:
                    one.got += 1
                    one.first_ns, one.last_ns = one.first_ns or now, now


@examples(60)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=7
    ),
    stages=st.integers(2, 4),
    steps=st.sampled_from(["none", "returned", "chained", "spaced"]),
)
def test_steps_over_stages_are_those_of_the_engines_loop(rows, stages, steps):
    asked, at = [], 0
    for wait, blocks, answer in rows:
        at += wait * 1_000_000
        asked.append(Asked(at, blocks * BLOCK, answer))
    blocks = [[f"{number}.{k}" for k in range(one.prompt // BLOCK)] for number, one in enumerate(asked)]
    columns = ([getattr(one, name) for one in asked] for name in ("prompt", "arrival", "answer"))
    trace = trace_of(blocks, BLOCK, *columns)
    mode = {"async_scheduling": "none"} if steps == "none" else {"pp_steps": steps}
    replica = ReplicaSettings(4096, 16, scheduler="vllm", **{"async_scheduling": "length", **mode})
    found = simulate(over(stages, replica), trace).requests
    Loop(asked, stages, steps).play()
    assert found["first_token_ns"].tolist() == [one.first_ns for one in asked]
    assert found["finish_ns"].tolist() == [one.last_ns for one in asked]


@pytest.mark.parametrize("launch_us", [1, 10_000])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stage_is_launched_after_the_one_before_and_the_engine_takes_its_time(launch_us, is_async):
    """One request on two stages: a step begins once it is launched, its second half not before that is, too."""
    engine, sequence, launch = 500_000, 25_000, launch_us * 1000
    replica = ReplicaSettings(
        4096,
        8,
        scheduler="vllm",
        pp_steps="returned",
        stage_launch_ns=launch,
        step_overhead_ns=engine,
        step_overhead_per_sequence_ns=sequence,
        async_scheduling="length" if is_async else "none",
    )
    run = simulate(over(2, replica), trace_of([[*range(4)]], 16, [64], [0], [3])).requests
    now = 0
    for batch in (StepBatch(((64, 0),)), StepBatch((), 1, 64, 64), StepBatch((), 1, 65, 65)):
        ns = table().step(batch)
        launched = now + engine + sequence + launch
        now = max(launched + ns // 2, launched + launch) + ns - ns // 2
    assert run["finish_ns"].tolist() == [now]


def test_layers_are_parted_as_vllm_does_and_the_last_stage_has_the_head():
    # vllm.distributed.utils.get_pp_indices
    parted = [layers_by_stage(*of) for of in ((28, 8), (32, 4), (7, 2))]
    assert parted == [(3, 3, 3, 4, 4, 4, 4, 3), (8, 8, 8, 8), (4, 3)]
    name, model = "roofline:qwen3-0.6b@h100", load_model("qwen3-0.6b")
    made = with_stages(load_step_time(name), name, model, 4, None).table(2048, 64)
    # 151,936 × 1,024 weights of two bytes, at .881 of 3.35 TB/s, and a kernel with its gap
    least_ns = 151_936 * 1024 * 2 / (0.881 * 3350)
    assert made.stage_head_ns[1] == pytest.approx(least_ns + 4400, rel=0.01)
    # hidden states and residual of 256 tokens are 1 MiB: an all-gather and a reduce-scatter of nvlink-h100
    assert made.stage_hop_ns[256] == 21_960
    assert made.stage_layers == (7, 7, 7, 7)


@pytest.mark.parametrize(
    ("release", "scheduling", "steps"),
    [
        ("0.14.0", "none", None),
        ("0.15.1", "stop-token", "returned"),
        ("0.22.1", "stop-token", "chained"),
        ("0.33.0", "stop-token", "spaced"),
    ],
)
def test_a_release_decides_how_steps_follow_over_stages(release, scheduling, steps):
    text = """
workload: {kind: conversational, requests: 20}
model: qwen3-8b
replica: {step_time: "roofline:qwen3-8b@h100", scheduler: vllm, pp: 2}
cache: {semantics: vllm}
tiers: {gpu: {capacity: 4096 blocks}}
"""
    made = scenario_from_text(text, "s.yaml", Path.cwd(), [f"replica.release=vllm@{release}"])
    replica = made.settings.machines[0].replica
    assert replica.async_scheduling == scheduling
    assert steps is None or replica.pp_steps == steps
    assert (replica.stage_launch_ns, replica.step_overhead_ns) == (670_000, 500_000)
