"""The loads that engines publish: of their last schedule, against the finished run's own steps and rows."""

from dataclasses import replace

import numpy as np
import pytest
from fleets import ID_TOKENS, Fleet, Machine
from kvcache_sim.serving.router import weighted
from kvcache_sim.serving.router.prefix_index import EstimatedIndex
from kvcache_sim.serving.router.vllm_dp import VllmDataParallel
from kvcache_sim.serving.router.weighted import Weighted
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster
from support.pools import pools, requests, step_times
from support.traces import random_trace

MS = 1_000_000
LLM_D = RouterSettings("weighted", scorers={"queue": 1.0, "kv-use": 1.0}, view_interval_ns=0)


def spied(monkeypatch, router=Weighted, module=weighted, name="Weighted"):
    """Return the list of (time, report) that a router sees at each choice."""
    seen = []

    class Spy(router):
        def choose(self, sequence):
            seen.append((self._view.now_ns(), self._view.loads.occupancy()))
            return super().choose(sequence)

    monkeypatch.setattr(module, name, Spy)
    return seen


def test_the_worked_case_of_three_machines(monkeypatch):
    """Steps of 40 ms from 0 on: a request admitted by the next schedule is never reported as waiting.

    At 0 each of three machines starts a step of 40 ms, and has one free slot. Machine 0 gets a request at
    5 ms, machine 1 two at 5 and 6 ms. At 40 ms one is admitted on each, which the step's end at 80 ms shows.
    """
    seen = spied(monkeypatch)
    any_step = {"base_ns": np.full(513, 40 * MS, np.int64), "decode_base_ns": np.full(9, 40 * MS, np.int64)}
    settings = pools("bbb", step_time=replace(step_times(), **any_step), max_num_seqs=2)
    arrivals_ms = (0, 0, 0, 5, 5, 6, 60, 110)
    trace = requests(*((at_ms, 16, 9) for at_ms in arrivals_ms))
    machines = iter([0, 1, 2, 0, 1, 1, 2, 2])

    class Placed(weighted.Weighted):
        def choose(self, sequence):
            super().choose(sequence)
            return next(machines)

    monkeypatch.setattr(weighted, "Weighted", Placed)
    simulate(replace(settings, router=LLM_D), trace)
    waiting = [report.waiting for _, report in seen]
    assert waiting[:6] == [[0, 0, 0]] * 6
    assert waiting[6:] == [[0, 0, 0], [0, 1, 0]]
    running = [report.running for _, report in seen]
    assert running[6:] == [[1, 1, 1], [2, 2, 1]]


def steps_of(run, machines):
    """Return by machine the start and duration of its steps (ns)."""
    events = run.events
    words = events["kind"].words
    is_step = np.array([words[code] == "step" for code in events["kind"].codes])
    columns = (events["machine"], events["time_ns"], events["duration_ns"])
    rows = sorted(zip(*(np.asarray(column)[is_step].tolist() for column in columns), strict=True))
    return [[(begin, took) for own, begin, took in rows if own == machine] for machine in range(machines)]


def expected(at, steps, now, admits_at_end):
    """Return waiting and running requests of a machine at its last step's end before ``now``.

    Of requests that came by that step's start. kvsim admits at a step's end what it decided at its start.
    """
    ended = [(begin, begin + took) for begin, took in steps if begin + took < now]
    if not ended:
        return 0, 0
    begin, end = ended[-1]
    admitted_by = end if admits_at_end else begin
    waiting = np.sum((at["queued"] <= begin) & (at["admitted"] > admitted_by))
    return int(waiting), int(np.sum((at["admitted"] <= admitted_by) & (at["finish_ns"] > end)))


@pytest.mark.parametrize("scheduler", ["kvsim", "vllm"])
@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("interval_ms", [0, 50])
def test_reports_are_of_the_last_schedule(scheduler, lookahead, interval_ms, monkeypatch):
    seen = spied(monkeypatch)
    settings = cluster((4000,), 3)
    rules = {"max_num_seqs": 3, "async_scheduling": "length" if lookahead else "none"}
    if scheduler == "vllm":
        rules["scheduler"] = "vllm"
        settings = replace(settings, cache=replace(settings.cache, semantics="vllm"))
    machines = tuple(replace(own, replica=replace(own.replica, **rules)) for own in settings.machines)
    router = replace(LLM_D, view_interval_ns=interval_ms * MS)
    run = simulate(
        replace(settings, machines=machines, router=router),
        random_trace(6),
        options=RunOptions(record_window_ns=(0, 10**15)),
    )
    rows = {key: np.asarray(column) for key, column in run.requests.items()}
    assert not rows["preemptions"].any()
    rows["queued"] = rows["arrival_ns"] + rows["lookup_ns"]
    rows["admitted"] = rows["queued"] + rows["queue_ns"]
    steps = steps_of(run, 3)
    reported = set()
    for now, report in seen:
        poll = now // router.view_interval_ns * router.view_interval_ns if interval_ms else now
        for machine in range(3):
            here = {key: column[rows["machine"] == machine] for key, column in rows.items()}
            want = expected(here, steps[machine], poll, lookahead and scheduler == "kvsim")
            assert (report.waiting[machine], report.running[machine]) == want, (now, machine)
            reported.add(want)
    assert len(reported) > 5


def test_a_data_parallel_balancer_counts_arrivals(monkeypatch):
    """vLLM's coordinator is fed after the drain of the input queue, too."""
    from kvcache_sim.serving.router import vllm_dp

    seen = spied(monkeypatch, VllmDataParallel, vllm_dp, "VllmDataParallel")
    trace = requests((0, 4000, 3), (5, 16, 9), (6, 16, 9), (7, 16, 9))
    router = RouterSettings("vllm-dp", view_interval_ns=0)
    settings = pools("b", step_time=step_times(max_tokens=8192), max_num_batched_tokens=8192)
    simulate(replace(settings, router=router), trace)
    assert [report.waiting for _, report in seen] == [[0], [0], [1], [2]]


def test_sglang_reports_prompts_and_every_fortieth_decode(monkeypatch):
    """One slot: from 10 ms on a request waits, which the 40th step of decoding reports, 80.16 ms after 0.

    The 160th reports five; the first request ends 400 ms after 0, and the next prompt reports the four behind it.
    """
    seen = spied(monkeypatch)
    settings = pools("b", tiers=(100,), max_num_seqs=1, scheduler="sglang")
    settings = replace(settings, cache=replace(settings.cache, semantics="sglang"), router=LLM_D)
    arrivals_ms = (10, 30, 79, 81, 158, 395, 425)
    simulate(settings, requests((0, 16, 200), *((at_ms, 16, 9) for at_ms in arrivals_ms)))
    reported = [(report.waiting[0], report.running[0]) for _, report in seen]
    assert reported == [(0, 0), (0, 1), (0, 1), (0, 1), (2, 1), (2, 1), (5, 1), (4, 1)]


def test_a_last_part_without_an_id_is_no_other_prompts():
    """Two prompts share their first id; the ids of the 200 tokens after it are left out."""
    fleet = Fleet(0, [Machine(gpu_blocks=99), Machine(gpu_blocks=99)])
    fleet.rows[:2], fleet.tokens[:2] = [[7], [7]], [ID_TOKENS + 200, ID_TOKENS + 200]
    fleet.trace.block_ids, fleet.trace.id_offsets = np.array([7, 7], np.uint32), np.array([0, 1, 2])
    index = EstimatedIndex(fleet.view(index_kind="estimated"))
    index.sent(fleet.request(0), 1)
    whole = ID_TOKENS // 64
    assert index.match(fleet.request(0)) == ([0, whole + 4], whole + 4, 64)
    assert index.match(fleet.request(1)) == ([0, whole], whole + 4, 64)
