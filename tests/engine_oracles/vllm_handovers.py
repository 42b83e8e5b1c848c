"""vLLM's own Schedulers of a prefill and a decode machine with the scheduler side of its NixlConnector, against
``replica.scheduler: vllm`` on machines with roles.

The workers are stood in for: a decode machine's reads take a channel's time from the begin of their step on, and both
machines see at the end of a step which reads have ended. Steps, admissions, tokens and free queues of both machines
must be equal, and what was read. Run as a program: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster

from engine_oracles import vllm_connector, vllm_core, vllm_schedules
from engine_oracles.offload_worker import Channel, Copies
from engine_oracles.streams import compare_streams
from engine_oracles.stubs import Real, Record
from engine_oracles.vllm_core import BLOCK
from engine_oracles.vllm_offload_schedules import coming, compared, met, settings_of

#: The machines, and the order of what happens at one instant: reads end, requests come and leave, steps end, prompts
#: are handed over.
PREFILL, DECODE = 0, 1
READ, OUTSIDE, STEP, HAND_OVER = range(4)


class Drawn:
    """A stream, both machines' settings and pools, and the time of a read."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(f"handovers {seed}")
        self.trace = trace = coming(draw)
        if draw.random() < 0.4:
            # a time at which nothing else happens
            after = [draw.choice([-1, draw.randint(1, 400) * 10**6 + 1]) for _ in range(len(trace))]
            self.trace = replace(self.trace, abort_after_ns=np.array(after, np.int64))
        longest = [int(trace.input_tokens.max()), int((trace.input_tokens + trace.output_tokens).max())]
        blocks = [-(-tokens // BLOCK) for tokens in longest]
        # a queue's bounds would turn a computed prompt away
        unbounded = {"max_num_queued_reqs": None, "max_num_queued_tokens": None}
        self.settings = [replace(settings_of(draw), **unbounded) for _ in blocks]
        self.pools = [most + draw.choice([1, 4]) + draw.randint(0, most // 2) for most in blocks]
        self.copies = draw.choice(
            [Copies(1, 7), Copies(1, 7_000_013), Copies(800_000, 13), Copies(2_500_000, 1013)]
        )
        self.keeps = draw.random() < 0.9

    def __str__(self) -> str:
        return f"{self.settings}, pools {self.pools}, keeps prefixes {self.keeps}, {self.copies}"


class Side(vllm_schedules.Engine):
    """The scheduler of one machine, its connector, and a stand-in for its worker."""

    def __init__(self, real: Real, drawn: Drawn, role: int, counts: Counter[str]) -> None:
        self.role, self.counts = role, counts
        #: Reads to begin, requests whose clients have left, and what the worker reports next.
        self.reads, self.leaving = list[tuple[str, int]](), list[str]()
        self.received, self.sent = list[str](), list[str]()
        self.handed = dict[int, Any]()
        trace = drawn.trace
        if role == PREFILL:
            trace = replace(trace, output_tokens=np.ones(len(trace), np.int64))
        super().__init__(real, trace, drawn.settings[role], (drawn.pools[role], drawn.keeps))

    def made(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        """Return the scheduler with the connector's scheduler side."""
        there = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"
        _, scheduling = vllm_connector.connector_of()
        nixl = import_module(there)
        role = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base").KVConnectorRole.SCHEDULER
        scheduling.KVConnectorFactory = Record(
            create_connector=lambda config, kv_cache_config, **_: nixl.NixlPullConnector(
                config, role, kv_cache_config
            )
        )
        configuration = vllm_schedules.configuration(settings, pool)
        configuration.kv_transfer_config = Record(
            engine_id=f"engine {self.role}",
            kv_role="kv_consumer" if self.role == DECODE else "kv_producer",
            is_kv_consumer=self.role == DECODE,
            is_kv_producer=self.role == PREFILL,
            kv_load_failure_policy="fail",
            get_from_extra_config=lambda name, default: default,
        )
        configuration.parallel_config.tensor_parallel_size = 1
        configuration.scheduler_config.disable_hybrid_kv_cache_manager = True
        cache = vllm_core.cache_configuration(self.real, pool[0])
        scheduler = kind(configuration, cache, vllm_schedules.GRAMMAR, block_size=BLOCK)
        self.watch(scheduler.connector)
        return scheduler

    def watch(self, connector: Any) -> None:
        """Keep what a finished prompt's answer says of its blocks."""
        ended = connector.request_finished_all_groups

        def over(request: Any, blocks: Any) -> Any:
            delays, parameters = ended(request, blocks)
            if parameters is not None:
                self.handed[int(request.request_id)] = parameters
            return delays, parameters

        connector.request_finished_all_groups = over

    def add(self, number: int, parameters: dict[str, Any] | None) -> None:
        """Add a request that comes now."""
        request = vllm_core.request(self.real, self.trace, number)
        request.arrival_time, request.kv_transfer_params = float(self.now), parameters
        self.live[request.request_id] = request
        self.scheduler.add_request(request)

    def arrive(self) -> None:
        """Requests come through ``add``."""

    def abort(self) -> None:
        """End the requests whose clients have left, in that order."""
        for name in self.leaving:
            self.scheduler.finish_requests([name], self.real.RequestStatus.FINISHED_ABORTED)
            self.counts["aborts"] += 1
            del self.live[name]
        self.leaving.clear()

    def outputs(self, **values: Any) -> Record:
        """Return a step's outputs with the reads that have ended."""
        done = Record(finished_recving=list(self.received), finished_sending=list(self.sent))
        self.received.clear()
        self.sent.clear()
        return Record(**values, kv_connector_output=done)

    def begin(self, out: Any) -> None:
        """Begin a step's reads; of a request without blocks the other machine is only notified."""
        for name, meta in out.kv_connector_metadata.reqs_to_recv.items():
            self.reads.append((name, sum(map(len, meta.local_block_ids))))

    def serve(self) -> Iterator[int | None]:
        """Serve; yield the time until which to wait, None where anything that happens here wakes it."""
        queue, begun = list[tuple[Any, int, list[str], int]](), 0
        depth = 2 if self.is_async else 1
        while True:
            if not queue and not self.scheduler.has_requests():
                yield None
                continue
            if self.scheduler.has_requests():
                line = len(self.steps)
                out, takes, brings = self.schedule(0)
                self.counts["preemptions"] += len(out.preempted_req_ids or ())
                queue.append((out, takes if out.num_scheduled_tokens else 0, brings, line))
                if len(queue) == 1:
                    begun = self.starts(queue[0])
                if len(queue) < depth and out.num_scheduled_tokens:
                    continue
            if all(self.rests(step[0]) for step in queue):
                yield None
            else:
                yield begun + queue[0][1]
            step = queue.pop(0)
            self.process(step[0], step[2])
            if queue:
                begun = self.starts(queue[0])

    def starts(self, step: tuple[Any, int, list[str], int]) -> int:
        """Let a step begin now; return the time."""
        self.begin(step[0])
        if step[0].num_scheduled_tokens:
            self.steps[step[3]] = (self.now, *self.steps[step[3]][1:])
        return self.now

    @staticmethod
    def rests(out: Any) -> bool:
        """True if a step computes and begins nothing: the engine polls until something comes."""
        return not (
            out.num_scheduled_tokens or out.preempted_req_ids or out.kv_connector_metadata.reqs_to_recv
        )


class Engine:
    """Both machines, and what goes from one to the other."""

    def __init__(self, real: Real, drawn: Drawn) -> None:
        self.drawn, self.counts = drawn, Counter[str]()
        self.sides = [Side(real, drawn, role, self.counts) for role in (PREFILL, DECODE)]
        self.channel = Channel(drawn.copies)
        self.events, self.number = list[tuple[int, int, int, str, Any]](), 0
        self.read = dict[int, int]()
        for request, at in enumerate(drawn.trace.arrival_ns.tolist()):
            self.happens(at, OUTSIDE, "comes", request)
        for request, after in enumerate(drawn.trace.abort_after_ns.tolist()):
            if after >= 0:
                self.happens(int(drawn.trace.arrival_ns[request]) + after, OUTSIDE, "leaves", request)

    def happens(self, at: int, rank: int, what: str, of: Any) -> None:
        """Let something happen at a time."""
        self.number += 1
        heapq.heappush(self.events, (at, rank, self.number, what, of))

    def run(self) -> None:
        """Serve all requests."""
        loops = [side.serve() for side in self.sides]
        wakes = [next(loop) for loop in loops]
        while True:
            steps = [(at, STEP, role) for role, at in enumerate(wakes) if at is not None]
            first = min(
                [*steps, *((event[0], event[1], event[2]) for event in self.events[:1])], default=None
            )
            if first is None:
                return
            now, rank, role = first
            for side in self.sides:
                side.now = now
            if rank != STEP:
                _, _, _, what, of = heapq.heappop(self.events)
                for role in self.apply(what, of):
                    if wakes[role] is None:
                        wakes[role] = now
                continue
            side = self.sides[role]
            side.abort()
            wakes[role] = next(loops[role])
            self.follow(role)

    def apply(self, what: str, of: Any) -> list[int]:
        """Let something happen now; return the machines that it concerns."""
        if what == "comes":
            hands_over = self.drawn.trace.output_tokens[of] > 1
            self.sides[PREFILL].add(of, {"do_remote_decode": True} if hands_over else None)
            return [PREFILL]
        if what == "moves":
            number, parameters = of
            self.sides[DECODE].add(number, parameters)
            return [DECODE]
        if what == "read":
            self.sides[DECODE].received.append(of)
            self.sides[PREFILL].sent.append(of)
            return [PREFILL, DECODE]
        if what == "notified":
            self.sides[PREFILL].sent.append(of)
            return [PREFILL]
        for role, side in enumerate(self.sides):
            if f"{of:06d}" in side.live:
                side.leaving.append(f"{of:06d}")
                return [role]
        return []

    def follow(self, role: int) -> None:
        """Hand prompts over that have just been computed, and begin reads."""
        side = self.sides[role]
        if role == PREFILL:
            for number, parameters in side.handed.items():
                self.happens(side.now, HAND_OVER, "moves", (number, parameters))
            side.handed.clear()
            return
        for name, blocks in side.reads:
            if blocks:
                self.read[int(name)] = blocks
                self.happens(self.channel.send(blocks, side.now), READ, "read", name)
            else:
                self.happens(side.now, HAND_OVER, "notified", name)
        side.reads.clear()

    def figures(self) -> dict[str, Any]:
        """Return what a run of this project says."""
        figures = dict[str, Any]()
        prefill, decode = (side.figures() for side in self.sides)
        for name, one in (("prefill", prefill), ("decode", decode)):
            figures |= {f"{name} {key}": one[key] for key in ("steps", "admissions", "free queue")}
        before = {request[0]: request for request in prefill["requests"]}
        figures["requests"] = sorted(
            [
                (r, first, last, before[r][3], preempted + before[r][4])
                for r, first, last, _, preempted in decode["requests"]
            ]
            + [row for row in before.values() if self.drawn.trace.output_tokens[row[0]] == 1]
        )
        figures["read"] = sorted(self.read.items())
        return figures


def ours(drawn: Drawn) -> dict[str, Any]:
    """Return the same of this project's schedulers."""
    made = cluster((1,), 2)
    machines = tuple(
        replace(
            made.machines[0],
            tiers=(TierSettings("gpu", drawn.pools[role]),),
            replica=drawn.settings[role],
            step_time=load_step_time(vllm_schedules.CLOCK),
            role=("prefill", "decode")[role],
        )
        for role in (PREFILL, DECODE)
    )
    cache = CacheSettings(block_size_tokens=BLOCK, semantics="vllm", enabled=drawn.keeps, num_layers=1)
    rate = cache.block_bytes * 10**9 // drawn.copies.block_ns
    wire = ChannelSettings("handover", rate, drawn.copies.latency_ns)
    handover = HandoverSettings(network=NetworkSettings(default=wire))
    settings = replace(made, machines=machines, cache=cache, handover=handover)
    simulation = Simulation(settings, drawn.trace, RunOptions(schedule=True, check="full"))
    run = simulation.run()
    figures = dict[str, Any]()
    logs = [replica.schedule() for replica in simulation.replicas]  # type: ignore[attr-defined]
    assert run.schedule is not None
    for name, log, digests in zip(("prefill", "decode"), logs, run.schedule["by_machine"], strict=True):
        figures |= {f"{name} steps": log.steps, f"{name} admissions": log.admissions}
        figures[f"{name} free queue"] = digests["final_free_queue_sha256"]
    figures["requests"] = sorted([*logs[0].requests, *logs[1].requests])
    rows = run.requests
    read = zip(rows["request"].tolist(), rows["handover_blocks"].tolist(), strict=True)
    figures["read"] = sorted((request, blocks) for request, blocks in read if blocks)
    return figures


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal, and count what it met."""
    drawn = Drawn(seed)
    return compared(Engine(real, drawn), lambda: ours(drawn))


if __name__ == "__main__":
    code = compare_streams("vLLM hand-overs", vllm_core.load, differs, *sys.argv[1:4])
    print(met())
    sys.exit(code)
