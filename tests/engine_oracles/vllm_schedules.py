"""vLLM's own Scheduler and AsyncScheduler, step by step under a virtual clock, against ``replica.scheduler:
vllm``.

Each stream draws requests, a pool and the scheduler's settings; start, tokens and queue of every step, every
admission, first and last tokens and the final free queue must be equal. Run as a program, since its stand-ins
are
others than those of the other engines: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import Run
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster

from engine_oracles import vllm_core
from engine_oracles.streams import compare_streams, stream
from engine_oracles.stubs import Fields, Real, Record
from engine_oracles.vllm_core import BLOCK

#: The clock: nanoseconds a step, a token, a decoding request, a token that it reads.
BASE_NS, TOKEN_NS, DECODE_NS, CONTEXT_NS = 5_000_000, 20_000, 1_000, 50
CLOCK = "linear:base=5ms,token=20us,decode=1us,context=50ns"
#: Structured output, which accepts every token.
GRAMMAR = Record(accept_tokens=lambda request, tokens: True, should_advance=lambda request: False)


def asked(seed: int) -> tuple[Trace, ReplicaSettings, int, bool]:
    """Return a stream's requests, the scheduler's settings, blocks of the pool, whether it keeps prefixes."""
    draw = random.Random(seed)
    trace = stream(draw)
    gap = draw.choice([0, 5, 30, 200])
    arrivals = np.cumsum([draw.randint(0, gap) for _ in range(len(trace))]) * 10**6
    priority = np.array([draw.randrange(3) for _ in range(len(trace))], np.int64)
    longest = -(-int((trace.input_tokens + trace.output_tokens).max()) // BLOCK)
    settings = ReplicaSettings(
        scheduler="vllm",
        max_num_batched_tokens=draw.choice([64, 150, 512, 2048]),
        max_num_seqs=draw.choice([1, 3, 8, 40]),
        queue_order=draw.choice(["fcfs", "priority"]),
        watermark=draw.choice([0.0, 0.0, 0.05]),
        reserve_full_isl=draw.random() < 0.5,
        long_prefill_token_threshold=draw.choice([0, 0, 50]),
        async_scheduling=draw.choice(["none", "length"]),
    )
    settings = replace(settings, **limits(draw, settings))
    # the watermark that an admission must leave while requests run is at most a twentieth
    blocks = longest + 4 + draw.randint(0, 2 * longest)
    return replace(trace, arrival_ns=arrivals, priority=priority), settings, blocks, draw.random() < 0.8


def limits(draw: random.Random, settings: ReplicaSettings) -> dict[str, Any]:
    """Return bounds of steps and of requests that come, each in some streams."""
    return {
        "long_prefill_token_threshold_adaptive": draw.random() < 0.5,
        "max_num_scheduled_tokens": draw.choice([None, None, settings.max_num_batched_tokens // 2 + 1]),
        "max_num_active_seqs": draw.choice([None, None, settings.max_num_seqs // 2 + 1]),
        "prefill_schedule_interval": draw.choice([1, 1, 2, 3, 7, 20]),
        "max_num_queued_reqs": draw.choice([None, None, 1, 3, 10]),
        "max_num_queued_tokens": draw.choice([None, None, 50, 300, 2000]),
    }


#: Steps without a token after which requests are taken to preempt each other without end.
ENDLESS = 3000


class Endless(Exception):
    """Requests preempt each other without end."""


class Engine:
    """The scheduler of a wheel with requests of a trace, and a record of its actions."""

    def __init__(
        self,
        real: Real,
        trace: Trace,
        settings: ReplicaSettings,
        pool: tuple[int, bool],
    ) -> None:
        self.real, self.trace, self.unit = real, trace, BLOCK
        self.is_async = settings.async_scheduling != "none"
        kind = real.AsyncScheduler if self.is_async else real.Scheduler
        self.scheduler = self.made(kind, settings, pool)
        self.now, self.next, self.live = 0, 0, dict[str, Any]()
        self.without_token = 0
        self.steps, self.admissions = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self.first, self.last = dict[int, int](), dict[int, int]()
        self.cached, self.preemptions = dict[int, int](), dict[int, int]()
        self.turned_away = list[int]()
        self.door = Record(
            scheduler_config=configuration(settings, pool).scheduler_config,
            get_num_unfinished_requests=lambda: len(self.live),
            get_num_queued_tokens=self.queued_tokens,
            _record_admission_rejection=lambda reason: None,
        )

    def made(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        """Return the scheduler over a pool of full attention."""
        groups = vllm_core.cache_configuration(self.real, pool[0])
        return kind(configuration(settings, pool), groups, GRAMMAR, block_size=BLOCK)

    def arrive(self) -> None:
        """Add all requests that have come."""
        while self.next < len(self.trace) and self.trace.arrival_ns[self.next] <= self.now:
            if not self.lets_in():
                self.turned_away.append(self.next)
                self.next += 1
                continue
            request = vllm_core.request(self.real, self.trace, self.next, self.unit)
            self.live[request.request_id] = request
            self.scheduler.add_request(request)
            self.next += 1

    def queued_tokens(self) -> int:
        """Return the prompt tokens of requests without a token, as the server counts them."""
        states = {
            name: Fields(prompt_len=request.num_prompt_tokens, is_prefilling=int(name) not in self.first)
            for name, request in self.live.items()
        }
        counted: int = self.real.OutputProcessor.get_num_queued_tokens(Fields(request_states=states))
        return counted

    def lets_in(self) -> bool:
        """Ask the server whether a request that comes is one too many."""
        try:
            self.real.AsyncLLM.check_admission(self.door)
        except (self.real.exceptions.QueueOverflowError, self.real.exceptions.MaxQueuedTokensError):
            return False
        return True

    def schedule(self, start: int) -> tuple[Any, int, list[str]]:
        """Decide a step that starts then; return it, its end, and whose token it brings."""
        out = self.scheduler.schedule()
        decodes = context = 0
        brings = []
        resumed = out.scheduled_cached_reqs
        hits = dict(zip(resumed.req_ids, resumed.num_computed_tokens, strict=True))
        hits = {name: hits[name] for name in resumed.resumed_req_ids}
        hits |= {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
        for name, tokens in out.num_scheduled_tokens.items():
            request = self.live[name]
            if name in hits:
                self.admissions.append((len(self.steps), int(name), hits[name]))
                self.cached.setdefault(int(name), hits[name])
            if request.is_prefill_chunk:
                continue
            brings.append(name)
            generated = request.num_output_tokens + request.num_output_placeholders - self.is_async
            if tokens == 1 and generated:
                decodes += 1
                context += request.num_computed_tokens
        total = sum(out.num_scheduled_tokens.values())
        end = start + BASE_NS + TOKEN_NS * total + DECODE_NS * decodes + CONTEXT_NS * context
        if total:
            self.steps.append((start, total - decodes, decodes, *self.scheduler.get_request_counts()))
        return out, end, brings

    def outputs(self, **values: Any) -> Record:
        """Return what the model runner returns of a step."""
        return Record(**values)

    def process(self, out: Any, brings: list[str]) -> None:
        """Hand a step's tokens over at its end, which is now."""
        order = list(out.num_scheduled_tokens)
        sampled = [[-1 - int(name)] if name in brings else [] for name in order]
        before = {name: request.num_output_tokens for name, request in self.live.items()}
        positions = {name: index for index, name in enumerate(order)}
        outputs = self.outputs(
            sampled_token_ids=sampled,
            req_id_to_index=positions,
            prompt_logprobs_dict={},
            prompt_token_id_logprobs_dict={},
        )
        self.scheduler.update_from_output(out, outputs)
        self.without_token += 1
        if self.without_token == ENDLESS:
            raise Endless
        for name, request in list(self.live.items()):
            if request.num_output_tokens > before[name]:
                self.without_token = 0
                self.first.setdefault(int(name), self.now)
            if request.is_finished():
                self.last[int(name)] = self.now
                self.preemptions[int(name)] = request.num_preemptions
                del self.live[name]

    def run(self) -> None:
        """Serve all requests, one step after another, or deciding each while the one before runs."""
        in_flight: tuple[Any, int, list[str]] | None = None
        is_empty = False
        while True:
            self.arrive()
            if not self.live and in_flight is None:
                if self.next == len(self.trace):
                    return
                self.now = int(self.trace.arrival_ns[self.next])
                continue
            decided = None
            if self.live:
                decided = self.schedule(self.now if in_flight is None else in_flight[1])
                decided = decided if decided[0].num_scheduled_tokens else None
            if in_flight is None and self.is_async and decided is not None:
                in_flight = decided
                continue
            done = in_flight if self.is_async else decided
            assert done is not None or not is_empty, "a request can always be scheduled"
            is_empty = done is None
            if done is None:  # older releases end a step whose least urgent request preempted itself
                continue
            self.now = done[1]
            self.arrive()
            self.process(done[0], done[2])
            in_flight = decided if self.is_async else None

    def figures(self) -> dict[str, Any]:
        """Return what ``replica.schedule()`` and the summary say."""
        return {
            "steps": self.steps,
            "admissions": self.admissions,
            "requests": [
                (r, self.first[r], self.last[r], self.cached[r], self.preemptions[r])
                for r in sorted(self.last)
            ],
            "turned away": self.turned_away,
            "free queue": vllm_core.free_queue(self.scheduler.kv_cache_manager),
        }


def configuration(settings: ReplicaSettings, pool: tuple[int, bool]) -> Record:
    """Return vLLM's configuration: the values that decide, and plain ones of what is not used."""
    blocks, keeps = pool
    scheduler = Record(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        policy=settings.queue_order,
        watermark=settings.watermark,
        scheduler_reserve_full_isl=settings.reserve_full_isl,
        enable_chunked_prefill=True,
        max_num_scheduled_tokens=settings.max_num_scheduled_tokens,
        max_num_active_seqs=settings.max_num_active_seqs,
        long_prefill_token_threshold_adaptive=settings.long_prefill_token_threshold_adaptive,
        prefill_schedule_interval=settings.prefill_schedule_interval,
        max_num_queued_reqs=settings.max_num_queued_reqs,
        max_num_queued_tokens=settings.max_num_queued_tokens,
    )
    return Record(
        scheduler_config=scheduler,
        cache_config=Record(
            num_gpu_blocks=blocks + 1, enable_prefix_caching=keeps, block_size=BLOCK, mamba_cache_mode="none"
        ),
        model_config=Record(max_model_len=1 << 20, runner_type="generate"),
        parallel_config=Record(
            data_parallel_index=0,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            pipeline_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        observability_config=Record(per_request_spec_decode_metrics="none"),
        ec_manager_config=Record(get_encoder_cache_manager_obj=lambda: Record(create_manager=no_encoder)),
        aux_output_config=Record(enabled=False),
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        max_concurrent_batches=2 if settings.async_scheduling != "none" else 1,
        max_in_flight_tokens=2 * settings.max_num_batched_tokens,
    )


def no_encoder(**_: Any) -> Record:
    """Return an encoder cache that stores nothing."""
    return Record(get_freed_mm_hashes=list, free=lambda request: None, get_manager_metadata=lambda: None)


def ours(trace: Trace, settings: ReplicaSettings, pool: tuple[int, bool]) -> dict[str, Any]:
    """Return the same of this project's scheduler."""
    blocks, keeps = pool
    made = cluster((blocks,))
    machine = replace(made.machines[0], replica=settings, step_time=load_step_time(CLOCK))
    cache = CacheSettings(block_size_tokens=BLOCK, semantics="vllm", enabled=keeps)
    simulation = Simulation(replace(made, machines=(machine,), cache=cache), trace, RunOptions(schedule=True))
    run = simulation.run()
    schedule = run.schedule
    replica: Any = simulation.replicas[0]
    log = replica.schedule()
    assert schedule is not None
    return {
        "steps": log.steps,
        "admissions": log.admissions,
        "requests": sorted(log.requests),
        "turned away": turned_away(run),
        "free queue": schedule["final_free_queue_sha256"],
    }


def turned_away(run: Run) -> list[int]:
    """Return the requests that a full queue has turned away."""
    rows = run.requests
    return sorted(rows["request"][rows["status"] == STATUSES.index("turned_away")].tolist())


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    trace, settings, *pool = asked(seed)
    engine = Engine(real, trace, settings, (pool[0], pool[1]))
    return compared(engine, lambda: ours(trace, settings, (pool[0], pool[1])), f"{settings}, pool {pool}")


def compared(engine: Engine, own: Callable[[], dict[str, Any]], drawn: str) -> str | None:
    """Run both; return the first difference. Where vLLM's requests preempt each other without end, so must ours."""
    try:
        engine.run()
    except Endless:
        try:
            own()
        except StoreError as error:
            return None if "without end" in str(error) else f"{error} under {drawn}"
        return f"vLLM never ends under {drawn}"
    return difference(engine.figures(), own(), drawn)


def difference(theirs: dict[str, Any], own: dict[str, Any], drawn: str) -> str | None:
    """Return the first entry that differs of the first figure that does, None where all are equal."""
    for name, value in theirs.items():
        if own[name] != value:
            pairs = (
                list(zip(own[name], value, strict=False)) if isinstance(value, list) else [(own[name], value)]
            )
            first = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
            return f"{name} {first} (ours, theirs): {pairs[first : first + 1]} under {drawn}"
    return None


if __name__ == "__main__":
    sys.exit(compare_streams("vLLM schedules", vllm_core.load, differs, *sys.argv[1:4]))
