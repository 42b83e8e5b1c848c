"""vLLM's own Scheduler, OffloadingConnector and CPUOffloadingManager with many requests at once, against
``replica.scheduler: vllm`` above ``tiers.cpu.semantics: vllm-offload``.

The worker is stood in for: it submits a step's stores as the next step begins, its loads as it begins, waits for
the jobs that it is to flush, and reports what has ended when a step has (``offloading/worker.py``). Copies take a
channel's time. Steps, admissions, tokens, hits by tier, the pool's free queue and what the tier
keeps must be equal; one in three streams preempts. Run as a program: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster

from engine_oracles import vllm_connector, vllm_core, vllm_schedules
from engine_oracles.offload_worker import Copies, Worker
from engine_oracles.streams import compare_streams, lines_digest, stream
from engine_oracles.stubs import Real, Record
from engine_oracles.vllm_core import BLOCK


def coming(draw: random.Random) -> Trace:
    """Return a stream with arrivals and priorities."""
    trace = stream(draw)
    gap = draw.choice([0, 2, 5, 30, 200])
    arrivals = np.cumsum([draw.randint(0, gap) for _ in range(len(trace))]) * 10**6
    priority = np.array([draw.randrange(3) for _ in range(len(trace))], np.int64)
    return replace(trace, arrival_ns=arrivals, priority=priority)


def settings_of(draw: random.Random) -> ReplicaSettings:
    """Return settings of a scheduler, in some streams with bounds of steps and of requests that come."""
    settings = ReplicaSettings(
        scheduler="vllm",
        max_num_batched_tokens=draw.choice([64, 150, 512, 2048]),
        max_num_seqs=draw.choice([3, 8, 40]),
        queue_order=draw.choice(["fcfs", "fcfs", "priority"]),
        watermark=draw.choice([0.0, 0.0, 0.05]),
        reserve_full_isl=draw.random() < 0.3,
        long_prefill_token_threshold=draw.choice([0, 0, 50]),
        async_scheduling=draw.choice(["none", "length"]),
    )
    if draw.random() < 0.3:
        settings = replace(settings, **vllm_schedules.limits(draw, settings))
    return settings


class Drawn:
    """A stream, the scheduler's settings, blocks of the pool, chunks of the tier, its policy and the copies' time."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.trace = trace = coming(draw)
        aborts = random.Random(f"aborts {seed}")
        if aborts.random() < 0.4:
            # a time at which nothing else happens
            after = [aborts.choice([-1, aborts.randint(1, 400) * 10**6 + 1]) for _ in range(len(trace))]
            self.trace = replace(self.trace, abort_after_ns=np.array(after, np.int64))
        longest = -(-int((trace.input_tokens + trace.output_tokens).max()) // BLOCK)
        self.settings = settings_of(draw)
        self.gpu = longest + 4 + draw.randint(0, longest // 2)
        #: Blocks of a chunk, of which the tier has ``cpu``.
        self.per = draw.choice([1, 1, 2, 3, 4])
        self.cpu = max(1, draw.randint(1, 4 * longest) // self.per)
        self.policy = draw.choice(["lru", "lru", "arc"])
        self.copies = draw.choice(
            [Copies(1, 0), Copies(1, 7_000_000), Copies(800_000, 0), Copies(2_500_000, 1000)]
        )
        full = KvLayout((KvGroup("full", BLOCK, 0, (0,)),), 1, 1)
        self.groups = GroupSettings("drawn", full, self.settings.max_num_batched_tokens, None, 1 << 20)

    def __str__(self) -> str:
        tier = f"tier {self.cpu} of {self.per} {self.policy}, {self.copies}"
        return f"{self.settings}, pool {self.gpu}, {tier}"


class Step(NamedTuple):
    """A decided step: the scheduler's output, its computation's time, whose token it brings, its line in the log."""

    out: Any
    takes: int
    brings: list[str]
    line: int


class Engine(vllm_schedules.Engine):
    """The scheduler of a wheel above its connector and tier, and a record of their actions."""

    def __init__(self, real: Real, drawn: Drawn) -> None:
        self.drawn = drawn
        self.counts, self.hits = Counter[str](), dict[int, tuple[int, int]]()
        self.local = dict[str, int]()
        self.worker = Worker(drawn.copies)
        self.gone = list[str]()
        after = drawn.trace.abort_after_ns.tolist()
        at = [(int(drawn.trace.arrival_ns[r]) + wait, r) for r, wait in enumerate(after) if wait >= 0]
        self.aborts = sorted(at)
        super().__init__(real, drawn.trace, drawn.settings, (drawn.gpu, True))
        self.lost = vllm_core.evictions_of(self.scheduler.kv_cache_manager)

    def made(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        """Return the scheduler with its connector over a pool of full attention."""
        self.tier = self.real.CPUOffloadingManager(self.drawn.cpu, self.drawn.policy)
        connector, scheduling = vllm_connector.connector_of()
        connector.OffloadingSpecFactory = Record(create_spec=self.specification)
        role = connector.KVConnectorRole.SCHEDULER
        scheduling.KVConnectorFactory = Record(
            create_connector=lambda config, kv_cache_config, **_: connector.OffloadingConnector(
                config, role, kv_cache_config
            )
        )
        self.complete = connector.OffloadingWorkerMetadata
        scheduler = self.built(kind, settings, pool)
        self.watch(scheduler.connector)
        return scheduler

    def built(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        """Return the scheduler over the drawn stream's groups."""
        configuration = vllm_schedules.configuration(settings, pool)
        vllm_connector.add_connector(configuration, self.drawn)
        configuration.kv_transfer_config.is_kv_consumer = True
        cache = vllm_core.cache_configuration(self.real, pool[0])
        return kind(configuration, cache, vllm_schedules.GRAMMAR, block_size=BLOCK, hash_block_size=BLOCK)

    def specification(self, configuration: Any, groups: Any = None) -> Record:
        """Return the connector's specification: its defaults, and this tier."""
        return Record(
            config=configuration,
            extra_config={},
            kv_events_config=Record(enable_kv_cache_events=False, self_describing_kv_events=False),
            offload_prompt_only=True,
            tokens_per_block=tuple(group.tokens_per_block for group in configuration.groups),
            tokens_per_hash=self.drawn.groups.layout.hash_block_size,
            blocks_per_chunk=self.drawn.per,
            get_manager=lambda: self.tier,
        )

    def watch(self, connector: Any) -> None:
        """Count refused stores, held back requests and loads; finished requests are handed over as they ended."""
        store, built = self.tier.prepare_store, connector.build_connector_meta

        def stored(keys: Any, context: Any) -> Any:
            done = store(keys, context)
            self.counts["refused stores"] += done is None
            if done is not None:
                self.counts["stored"] += len(done.keys_to_store)
                self.counts["evicted"] += len(done.evicted_keys)
            return done

        def in_order(out: Any) -> Any:
            # the scheduler's set has no order
            out.finished_req_ids = [name for name in self.gone if name in out.finished_req_ids]
            self.gone.clear()
            return built(out)

        ended = connector.request_finished_all_groups

        def over(request: Any, blocks: Any) -> Any:
            self.gone.append(request.request_id)
            return ended(request, blocks)

        self.note_hits(connector)
        self.tier.prepare_store, connector.build_connector_meta = stored, in_order
        connector.request_finished_all_groups = over

    def arrive(self) -> None:
        """Add all requests that have come, and end those whose clients are gone."""
        now = self.now
        while self.aborts and self.aborts[0][0] <= now:
            self.now, request = self.aborts.pop(0)
            super().arrive()
            name = f"{request:06d}"
            if name in self.live:
                self.scheduler.finish_requests([name], self.real.RequestStatus.FINISHED_ABORTED)
                self.counts["aborts"] += 1
                del self.live[name]
        self.now = now
        super().arrive()

    def note_hits(self, connector: Any) -> None:
        """Keep the hits of pool and tier at a request's first admission; count loads."""
        asked, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def matched(request: Any, computed: int) -> Any:
            self.local[request.request_id] = computed
            found = asked(request, computed)
            self.counts["held back"] += found[0] is None
            return found

        def noted(request: Any, blocks: Any, tokens: int) -> None:
            if request.num_computed_tokens == 0:  # not one whose load has ended
                self.hits.setdefault(int(request.request_id), (self.local[request.request_id], tokens))
            self.counts["loads"] += tokens > 0
            allocated(request, blocks, tokens)

        connector.get_num_new_matched_tokens, connector.update_state_after_alloc = matched, noted

    def decide(self) -> Step:
        """Decide a step; its start is noted when it begins."""
        line = len(self.steps)
        out, end, brings = self.schedule(0)
        self.counts["preemptions"] += len(out.preempted_req_ids or ())
        return Step(out, end if out.num_scheduled_tokens else 0, brings, line)

    def begin(self, step: Step, now: int) -> int:
        """Let a step begin; return its end."""
        begun = self.worker.begin(step.out.kv_connector_metadata, now)
        if step.out.num_scheduled_tokens:
            self.steps[step.line] = (begun, *self.steps[step.line][1:])
        return begun + step.takes

    def over(self, step: Step) -> None:
        """Hand over what a step brings, and what has been copied, at its end, which is now."""
        self.worker.end(step.out.kv_connector_metadata)
        self.process(step.out, step.brings)

    def outputs(self, **values: Any) -> Record:
        """Return a step's outputs with the jobs that have ended."""
        jobs, arrived = self.worker.ended(self.now)
        done = Record(kv_connector_worker_meta=self.complete(completed_jobs=jobs), finished_recving=arrived)
        return Record(**values, kv_connector_output=done)

    def next_event(self) -> int:
        """Return the time of the next arrival or end of a copy, now where there is neither."""
        times = list(self.worker.ends.values())
        times += self.trace.arrival_ns[self.next : self.next + 1].tolist() + [at for at, _ in self.aborts[:1]]
        return max(self.now, min(times, default=self.now))

    def run(self) -> None:
        """Serve all requests, one step after another, or deciding each while the one before runs."""
        queue, ends = list[Step](), dict[int, int]()
        depth = 2 if self.is_async else 1
        while True:
            self.arrive()
            if not queue and not self.scheduler.has_requests():
                if self.next == len(self.trace):
                    return
                self.now = int(self.trace.arrival_ns[self.next])
                continue
            if self.scheduler.has_requests():
                step = self.decide()
                queue.append(step)
                if len(queue) == 1:
                    ends[id(step)] = self.begin(step, self.now)
                if len(queue) < depth and step.out.num_scheduled_tokens:
                    continue
            step = queue.pop(0)
            is_idle = all(map(self.rests, [step, *queue]))
            self.now = max(self.now, ends.pop(id(step)))
            if is_idle:
                self.now = self.next_event()
            self.arrive()
            self.over(step)
            if queue:
                ends[id(queue[0])] = self.begin(queue[0], self.now)

    def rests(self, step: Step) -> bool:
        """True if a step computes and begins nothing: the engine polls until something comes."""
        meta = step.out.kv_connector_metadata
        copies = meta.store_jobs or meta.load_jobs or meta.jobs_to_flush or self.worker.unsubmitted
        return not (step.out.num_scheduled_tokens or step.out.preempted_req_ids or copies)

    def figures(self) -> dict[str, Any]:
        """Return what a run of this project says."""
        figures = super().figures()
        # of a prompt found whole a token is computed; the engine counts it as cached
        requests = [(r, *times, sum(self.hits[r]), last) for r, *times, _, last in figures["requests"]]
        return figures | {
            "requests": requests,
            "hits by tier": [list(self.hits[r]) for r in sorted(self.first)],
            "stored blocks": self.worker.stored_blocks,
            "loaded blocks": self.worker.loaded_blocks,
            "evicted chunks": self.counts["evicted"],
            "evicted from the pool": self.lost["blocks"],
        }


def ours(drawn: Drawn, lower: str = "vllm-offload", **changes: Any) -> dict[str, Any]:
    """Return the same of this project's scheduler, above a tier of these semantics."""
    below = {"lower_semantics": lower, "lower_chunk_tokens": drawn.per * BLOCK} | changes
    return run_of(drawn, replace(cluster((1, 1)).cache, semantics="vllm", num_layers=1, **below))[1]


def run_of(drawn: Drawn, cache: CacheSettings) -> tuple[Any, dict[str, Any]]:
    """Return the simulation of a stream, and what it says."""
    made = cluster((drawn.gpu, drawn.cpu * drawn.per))
    tiers = (TierSettings("gpu", drawn.gpu), TierSettings("cpu", drawn.cpu * drawn.per, drawn.policy))
    machine = replace(
        made.machines[0], tiers=tiers, replica=drawn.settings, step_time=load_step_time(vllm_schedules.CLOCK)
    )
    rate = cache.block_bytes * 10**9 // drawn.copies.block_ns
    channels = {
        name: ChannelSettings(name, rate, drawn.copies.latency_ns) for name in machine.edge_channels.values()
    }
    settings = replace(made, machines=(machine,), cache=cache, channels=channels)
    simulation = Simulation(settings, drawn.trace, RunOptions(schedule=True, check="full"))
    run = simulation.run()
    replica: Any = simulation.replicas[0]
    log, rows, block = replica.schedule(), run.requests, cache.block_bytes
    hits = np.stack((rows["cached_gpu_tokens"], rows["cached_cpu_tokens"]), 1)
    hits = hits[rows["first_token_ns"] >= 0]
    assert run.schedule is not None
    return simulation, {
        "steps": log.steps,
        "admissions": log.admissions,
        "requests": sorted(log.requests),
        "turned away": vllm_schedules.turned_away(run),
        "hits by tier": hits.tolist(),
        "stored blocks": run.counters.get("edge.gpu->cpu.bytes", 0) // block,
        "loaded blocks": run.counters.get("edge.cpu->gpu.bytes", 0) // block,
        "evicted chunks": run.counters["evictions.cpu"] // drawn.per,
        "evicted from the pool": run.counters["evictions.gpu"],
        "free queue": run.schedule.get("final_free_queue_sha256"),
    }


def digests(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures as a row keeps them."""
    return {
        name if isinstance(value, int) else f"{name}_sha256": lines_digest(value)
        if isinstance(value, list)
        else value
        for name, value in figures.items()
    }


#: What the streams so far have met, to print at the end.
MET = Counter[str]()


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = Drawn(seed)
    return compared(Engine(real, drawn), lambda: ours(drawn))


def compared(engine: Engine, own: Callable[[], dict[str, Any]]) -> str | None:
    """Return how a stream differs, None where it is equal, and count what it met."""
    different = vllm_schedules.compared(engine, own, str(engine.drawn))
    MET.update(engine.counts)
    MET.update(f"streams with {name}" for name, count in engine.counts.items() if count)
    return different


def met() -> str:
    """Return what the streams have met."""
    return ", ".join(f"{name} {count}" for name, count in sorted(MET.items()))


if __name__ == "__main__":
    code = compare_streams("vLLM offload schedules", vllm_core.load, differs, *sys.argv[1:4])
    print(met())
    sys.exit(code)
