"""vLLM's own Scheduler and OffloadingConnector over several cache groups, against ``tiers.cpu.semantics:
vllm-offload``.

Requests one after another, each alone; a copy is complete when its step has ended, of the last step when a step
without requests has. Every load, store and eviction of the tier and every hit must be equal. Run as a program:
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace
from support.offloaded_groups import with_tier

from engine_oracles import vllm_core, vllm_group_schedules, vllm_groups, vllm_schedules
from engine_oracles.streams import Refused, compare_streams, digest, stream
from engine_oracles.stubs import Real, Record
from engine_oracles.vllm_core import BLOCK

#: The kinds of groups of a stream.
KINDS: tuple[list[str], ...] = (
    [],
    ["sliding"],
    ["chunked"],
    ["linear"],
    ["sliding", "sliding"],
    ["sliding", "linear"],
)


class Drawn:
    """A stream, its groups in blocks of one size, the blocks of the pool, the tier's chunks and its policy."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.trace: Trace = stream(draw)
        size, made = BLOCK * draw.choice([1, 1, 2]), []
        for kind in ["full", *draw.choice(KINDS)]:
            reach = (
                draw.randint(1, 160) if kind == "sliding" else size * draw.randint(1, 6) * (kind == "chunked")
            )
            made += [KvGroup(kind, size, reach, (0,))] * draw.choice([1, 1, 2])  # type: ignore[arg-type]
        draw.shuffle(made)
        kinds = {group.kind for group in made}
        #: Full attention alone is compared with the replay.
        self.is_replay = kinds == {"full"}
        if self.is_replay:
            made, size = [KvGroup("full", BLOCK, 0, (0,))], BLOCK
        elif "linear" not in kinds:
            # of a prompt of whole blocks that the tier has vLLM computes one token, this project a block
            lengths = self.trace.input_tokens
            self.trace = replace(self.trace, input_tokens=lengths - ((lengths % size == 0) & (lengths > 1)))
        interval = draw.choice([0, 0, None, size, 2 * size])
        if kinds <= {"full", "chunked"}:
            interval = draw.choice([0, None])
        self.groups = GroupSettings(
            "drawn",
            KvLayout(tuple(made), 1, 1),
            draw.choice([64, 100, 256, 2048]),
            interval,
            vllm_groups.LONGEST,
        )
        longest = int((self.trace.input_tokens + self.trace.output_tokens).max())
        most = len(made) * -(-longest // size)
        self.gpu = most + 4 + draw.randint(0, most)
        self.cpu = draw.randint(1, 3 * most)
        self.policy = draw.choice(["lru", "lru", "arc"])
        #: Blocks of a chunk, of which the tier has ``cpu``.
        self.per = random.Random(-seed - 1).choice([1, 1, 2, 3, 4])
        self.cpu = max(1, self.cpu // self.per)
        if interval:
            self.groups = replace(self.groups, retention_interval=interval * self.per)


def connector_of() -> tuple[Any, Any]:
    """Return the modules of the wheel's connector and scheduler."""
    there = "vllm.distributed.kv_transfer.kv_connector"
    package, base, utilities = map(import_module, (f"{there}.v1", f"{there}.v1.base", f"{there}.utils"))
    for name in ("KVConnectorBase_V1", "KVConnectorRole", "SupportsHMA"):
        setattr(package, name, getattr(base, name))
    utilities.yield_req_data = scheduled_blocks  # type: ignore[attr-defined]
    connector = import_module(f"{there}.v1.offloading_connector")
    scheduling = import_module("vllm.v1.core.sched.scheduler")
    scheduling.SupportsHMA = base.SupportsHMA  # type: ignore[attr-defined]
    return connector, scheduling


def scheduled_blocks(out: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield name and blocks of each request of a step, and whether they are its whole table."""
    for new in out.scheduled_new_reqs:
        yield new.req_id, new.block_ids, True
    cached = out.scheduled_cached_reqs
    for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
        yield name, blocks, name in cached.resumed_req_ids


def ends(job: Any) -> Any:
    """Return source and target of a copy; a pair of them in older releases."""
    return (job.src_spec, job.dst_spec) if hasattr(job, "src_spec") else job.transfer_spec


class Engine:
    """The scheduler and the connector of a wheel, and a record of their actions."""

    def __init__(self, real: Real, drawn: Drawn) -> None:
        self.real, self.drawn = real, drawn
        self.tier = real.CPUOffloadingManager(drawn.cpu, drawn.policy)
        self.stored = self.evicted = self.stored_blocks = self.loaded_blocks = 0
        self.hits, self.local = list[tuple[int, int]](), dict[int, int]()
        self._count()
        connector, scheduling = connector_of()
        connector.OffloadingSpecFactory = Record(create_spec=self.specification)
        role = connector.KVConnectorRole.SCHEDULER
        scheduling.KVConnectorFactory = Record(
            create_connector=lambda config, kv_cache_config, **_: connector.OffloadingConnector(
                config, role, kv_cache_config
            )
        )
        self.complete = connector.OffloadingWorkerMetadata
        settings = ReplicaSettings(
            scheduler="vllm", max_num_seqs=8, max_num_batched_tokens=drawn.groups.max_num_batched_tokens
        )
        pool = (drawn.gpu, True)
        configuration = vllm_group_schedules.configuration(settings, drawn.groups, pool)
        add_connector(configuration, drawn)
        layout = drawn.groups.layout
        self.scheduler = real.Scheduler(
            configuration,
            vllm_groups.configuration(real, drawn.gpu, drawn.groups),
            vllm_schedules.GRAMMAR,
            block_size=layout.scheduler_block_size,
            hash_block_size=layout.hash_block_size,
        )
        self.jobs = dict[int, int]()
        self.lost = vllm_core.evictions_of(self.scheduler.kv_cache_manager)

    def specification(self, configuration: Any, groups: Any = None) -> Record:
        """Return the connector's specification: its defaults, and this tier; ``groups`` in older releases."""
        return Record(
            config=configuration,
            vllm_config=configuration,
            kv_cache_config=groups,
            extra_config={},
            kv_events_config=Record(enable_kv_cache_events=False, self_describing_kv_events=False),
            offload_prompt_only=True,
            tokens_per_block=tuple(group.tokens_per_block for group in configuration.groups or ()),
            gpu_block_size=tuple(group.kv_cache_spec.block_size for group in groups.kv_cache_groups)
            if groups
            else (),
            tokens_per_hash=self.drawn.groups.layout.hash_block_size,
            hash_block_size=self.drawn.groups.layout.hash_block_size,
            blocks_per_chunk=self.drawn.per,
            block_size_factor=self.drawn.per,
            get_manager=lambda: self.tier,
        )

    def _count(self) -> None:
        """Count the chunks that the tier stores and evicts."""
        store = self.tier.prepare_store

        def stored(keys: Any, context: Any) -> Any:
            done = store(keys, context)
            if done is not None:
                self.stored += len(done.keys_to_store)
                self.evicted += len(done.evicted_keys)
            return done

        self.tier.prepare_store = stored

    def step(self, request: Any) -> None:
        """Run a step and all its copies."""
        out = self.scheduler.schedule()
        meta = out.kv_connector_metadata
        self.loaded_blocks += sum(len(ends(job)[1].block_ids) for job in meta.load_jobs.values())
        self.stored_blocks += sum(len(ends(job)[0].block_ids) for job in meta.store_jobs.values())
        arrived = {job.req_id for job in meta.load_jobs.values()}
        self.jobs |= dict.fromkeys([*meta.load_jobs, *meta.store_jobs], 1)
        order = list(out.num_scheduled_tokens)
        sampled = [[] if request.is_prefill_chunk else [-1] for _ in order]
        # the worker submits a store with the step after: a refused offer comes again before the last one ends
        is_last = request.num_output_tokens + 1 == request.max_tokens and not request.is_prefill_chunk
        done = self.complete(completed_jobs={} if order and is_last else self.jobs)
        self.jobs = self.jobs if order and is_last else {}
        outputs = Record(
            sampled_token_ids=sampled,
            req_id_to_index={name: index for index, name in enumerate(order)},
            prompt_logprobs_dict={},
            prompt_token_id_logprobs_dict={},
            kv_connector_output=Record(kv_connector_worker_meta=done, finished_recving=arrived),
        )
        for new in out.scheduled_new_reqs:
            self.hits[int(new.req_id)] = (new.num_computed_tokens, self.hits[int(new.req_id)][1])
        self.scheduler.update_from_output(out, outputs)

    def run(self) -> None:
        """Serve the requests, one after another; a step without requests ends each."""
        connector = self.scheduler.connector
        allocated = connector.update_state_after_alloc

        def noted(request: Any, blocks: Any, tokens: int) -> None:
            if tokens:
                self.hits[int(request.request_id)] = (0, tokens)
            allocated(request, blocks, tokens)

        asked = connector.get_num_new_matched_tokens

        def matched(request: Any, computed: int) -> Any:
            self.local[int(request.request_id)] = computed
            return asked(request, computed)

        connector.update_state_after_alloc, connector.get_num_new_matched_tokens = noted, matched
        unit = self.drawn.groups.layout.hash_block_size
        for number in range(len(self.drawn.trace)):
            request = vllm_core.request(self.real, self.drawn.trace, number, unit)
            self.hits.append((0, 0))
            self.scheduler.add_request(request)
            while not request.is_finished():
                self.step(request)
            self.step(request)

    def figures(self) -> dict[str, Any]:
        """Return what a run of this project says."""
        return {
            "cached tokens": [cached for cached, _ in self.hits],
            "hits": digest(list(self.local.values())),
            "loads": digest([loaded for _, loaded in self.hits]),
            "stored chunks": self.stored,
            "stored blocks": self.stored_blocks,
            "loaded blocks": self.loaded_blocks,
            "evicted chunks": self.evicted,
            "evicted from the pool": self.lost["blocks"],
            "free queue": vllm_group_schedules.free_groups(self.scheduler),
        }


def add_connector(configuration: Any, drawn: Drawn) -> None:
    """Add what the connector reads to a configuration."""
    chunk = drawn.groups.layout.scheduler_block_size * drawn.per
    configuration.kv_transfer_config = Record(
        engine_id="engine", kv_connector_extra_config={"block_size": chunk}, kv_load_failure_policy="fail"
    )
    configuration.cache_config.prefix_cache_retention_interval = drawn.groups.retention_interval
    configuration.cache_config.cache_dtype = "auto"
    configuration.model_config.dtype = "bf16"
    parallel = configuration.parallel_config
    parallel.world_size = parallel.tensor_parallel_size = parallel.nnodes_within_dp = 1
    configuration.use_v2_model_runner = True


def replayed(drawn: Drawn) -> dict[str, Any]:
    """Return the same of ``cachesim --policy vllm --cpu-chunks``."""
    request = ReplayRequest(
        drawn.trace,
        BLOCK,
        drawn.gpu,
        outputs="computed",
        cpu_blocks=drawn.cpu * drawn.per,
        chunk_blocks=drawn.per,
        cpu_policy=drawn.policy,
        step_tokens=drawn.groups.max_num_batched_tokens,
    )
    row = REPLAYERS["vllm"](request, "")
    return {
        "hits": row["per_request_hit_tokens_sha256"],
        "loads": row["per_request_loaded_tokens_sha256"],
        "stored chunks": row["stored_chunks"],
        "evicted chunks": row["evicted_chunks"],
        "evicted from the pool": row["evictions"],
    }


def ours(drawn: Drawn) -> dict[str, Any]:
    """Return the same of a run of this project, requests a long time apart."""
    cpu = drawn.cpu * drawn.per
    settings = with_tier(drawn.groups, drawn.gpu, cpu, drawn.policy, chunk_blocks=drawn.per)
    trace = replace(drawn.trace, arrival_ns=np.arange(len(drawn.trace), dtype=np.int64) * 10**12)
    simulation = Simulation(settings, trace, RunOptions(check="full"))
    run = simulation.run()
    free: Any = simulation.replicas[0].store
    rows, block = run.requests, settings.cache.block_bytes
    return {
        "cached tokens": (rows["cached_gpu_tokens"] + rows["cached_cpu_tokens"]).tolist(),
        "hits": digest(rows["cached_gpu_tokens"].tolist()),
        "loads": digest(rows["cached_cpu_tokens"].tolist()),
        "stored blocks": run.counters.get("edge.gpu->cpu.bytes", 0) // block,
        "loaded blocks": run.counters.get("edge.cpu->gpu.bytes", 0) // block,
        "evicted chunks": run.counters["evictions.cpu"] // drawn.per,
        "evicted from the pool": run.counters["evictions.gpu"],
        "free queue": [None if key is None else key[0] for key in free.free_queue()],
    }


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = Drawn(seed)
    try:
        engine = Engine(real, drawn)
        engine.run()
    except AssertionError as error:  # older releases offload no chunked-local attention, for one
        raise Refused from error
    kinds = [f"{group.name}/{group.block_size_tokens}" for group in drawn.groups.layout.groups]
    said = (
        f"{kinds}, pool {drawn.gpu}, tier {drawn.cpu} of {drawn.per} {drawn.policy},"
        f" interval {drawn.groups.retention_interval}, step {drawn.groups.max_num_batched_tokens}"
    )
    theirs, own = engine.figures(), replayed(drawn) if drawn.is_replay else ours(drawn)
    for name, value in theirs.items():
        if own.get(name, value) != value:
            return (
                vllm_schedules.difference({name: value}, own, said)
                if isinstance(value, list)
                else (f"{name} (ours, theirs): {own[name], value} under {said}")
            )
    return None


if __name__ == "__main__":
    sys.exit(compare_streams("vLLM connector", vllm_core.load, differs, *sys.argv[1:4]))
