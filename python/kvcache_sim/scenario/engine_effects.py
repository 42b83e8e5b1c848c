"""Engine settings that could not have an effect, on each machine: scheduler, window, stages, ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcache_sim.model.adjusted import CAPTURED_TOKENS
from kvcache_sim.model.step_times import is_sum_of_kernels, measured_on
from kvcache_sim.scenario import speculation
from kvcache_sim.scenario.engine_tiers import lower_semantics
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.release_defaults import release_of
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.served_model import cache_groups, served_model
from kvcache_sim.scenario.yaml_tree import Path

#: Settings that apply to a single engine's scheduler.
_ALONE = {
    "vllm": (
        "watermark",
        "reserve_full_isl",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "max_num_scheduled_tokens",
        "max_num_active_seqs",
        "prefill_schedule_interval",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
    ),
    "sglang": (
        "max_queued_requests",
        "priority_preemption",
        "schedule_policy",
        "max_prefill_tokens",
        "enable_mixed_chunk",
        "schedule_conservativeness",
    ),
}
#: Bounds, and those that they may only lower.
_BOUNDED = {"max_num_scheduled_tokens": "max_num_batched_tokens", "max_num_active_seqs": "max_num_seqs"}
_OWN_CACHE = {
    "vllm": "vLLM's scheduler gives out the blocks of its own pool: cache.semantics vllm",
    "sglang": "SGLang's scheduler gives out the pages of its own tree: cache.semantics sglang",
}
#: Queue orders that engines' schedulers support, and the refusal of other orders by each.
_ORDERS = ("fcfs", "priority")
_OWN_ORDER = {
    "vllm": "vLLM's scheduler supports fcfs and priority",
    "sglang": "SGLang's scheduler uses replica.schedule_policy, and supports priority",
}
_NOTHING_WAITS = {
    "vllm": "vLLM's blocks have their keys before they are computed: no request waits",
    "sglang": "SGLang's scheduler does not see blocks that are being computed: no request waits",
}
#: Key → reason why it has no effect when requests are served without service time, one after another.
_INSTANT = {
    "async_scheduling": "replica.instant is true",
    "client_offset": "replica.instant is true",
    "client_offset_per_token": "replica.instant is true",
    "step_overhead_per_sequence": "replica.instant is true",
    "launch_per_layer": "replica.instant is true",
    "eager_chunks": "replica.instant is true",
    "step_extra": "replica.instant is true",
    "step_extra_per_layer": "replica.instant is true",
    "sampling": "replica.instant is true",
    "sustained_clocks": "replica.instant is true",
    "copy_submit": "replica.instant is true",
    "copy_gpu_share": "replica.instant is true",
    "host": "replica.instant is true",
    "duplicate_prefill": "replica.instant is true",
    "links": "replica.instant is true",
    "queue_order": "replica.instant is true: no request waits",
    "scheduler": "replica.instant is true",
}


def of_engine(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield the non-default settings that cannot have an effect, each with the reason."""
    for index, machine in enumerate(machines):
        written = model.machines[index].get("replica") if index < len(model.machines) else None
        for key, why in (*_without_effect(model, machine.replica), *_copies(model, machine)):
            here = isinstance(written, dict) and key in written
            at: Path = ("machines", index, "replica", key) if here else ("replica", key)
            ruled_out = key in ("scheduler", "speculation") and not machine.replica.instant
            yield Contradiction(at, why) if ruled_out else (at, why)
        if isinstance(written, dict) and "instant" in written:
            path: Path = ("machines", index, "replica", "instant")
            yield Contradiction(path, "service time is off for all machines or for none")


def _without_effect(model: ScenarioModel, replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    if replica.instant:
        yield from ((key, _INSTANT[key]) for key in changed(replica) if key in _INSTANT)
    if replica.step_overhead_per_sequence and replica.async_scheduling != "none" and (replica.pp or 1) == 1:
        yield "step_overhead_per_sequence", "replica.async_scheduling: the host works while a step runs"
    if replica.eager_chunks and not replica.launch_per_layer:
        yield "eager_chunks", "replica.launch_per_layer is 0"
    is_captured = replica.max_num_batched_tokens <= CAPTURED_TOKENS and not replica.eager_chunks
    if replica.launch_per_layer and is_captured:
        why = f"no step has more than the {CAPTURED_TOKENS} tokens that a CUDA graph holds"
        yield "launch_per_layer", why
    if not replica.instant and not is_sum_of_kernels(replica.step_time):
        why = f"replica.step_time={replica.step_time} is no sum of kernels"
        if replica.sampling != "model":
            yield "sampling", why
        if not replica.sustained_clocks:
            yield "sustained_clocks", why
    yield from _memory(replica)
    yield from _of_stages(replica)
    yield from _scheduler(model, replica)
    if replica.speculation is not None:
        yield from speculation.findings(model, replica, replica.speculation)
    if not model.cache.enabled:
        if replica.duplicate_prefill == "wait":
            yield "duplicate_prefill", "cache.enabled is false"
        if replica.queue_order in ("longest-prefix", "ragcache"):
            yield "queue_order", "cache.enabled is false: no request has a cached prefix"


def _of_stages(replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    """Yield settings of pipeline stages that nothing uses."""
    for key in ("pp_steps", "stage_launch"):
        if key in changed(replica) and (replica.pp or 1) == 1:
            yield key, "replica.pp is 1: there are no stages"
        elif key == "pp_steps" and key in changed(replica) and replica.async_scheduling == "none":
            yield key, "replica.async_scheduling is none: a step follows when its token has returned"


def _memory(replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    """Yield the share of memory that another engine knows."""
    is_sglang = release_of(replica).engine == "sglang"
    if is_sglang and replica.gpu_memory_utilization != ReplicaSection().gpu_memory_utilization:
        yield "gpu_memory_utilization", f"{replica.release}: SGLang's share is replica.mem_fraction_static"
    if not is_sglang and replica.mem_fraction_static is not None:
        why = f"{release_of(replica)}: vLLM's share is replica.gpu_memory_utilization"
        yield "mem_fraction_static", why


def _copies(model: ScenarioModel, machine: MachineSection) -> Iterator[tuple[str, str]]:
    """Yield copy costs on machines that copy nothing to or from the fastest tier, or within steps alone."""
    why = "nothing is copied: there is no lower tier and nothing is handed over"
    if machine.replica.scheduler == "vllm" and lower_semantics(model) == "lmcache":
        why = "below vLLM's scheduler LMCache's copies are parts of the steps"
    elif machine.tiers.lower or model.pools.prefill or machine.replica.instant:
        return
    for key in ("copy_submit", "copy_gpu_share"):
        if getattr(machine.replica, key):
            yield key, why


def _scheduler(model: ScenarioModel, replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    given = changed(replica)
    for engine, alone in _ALONE.items():
        if replica.scheduler != engine:
            yield from ((key, f"replica.scheduler is not {engine}") for key in given if key in alone)
    if replica.scheduler == "kvsim":
        return
    if model.cache.semantics != replica.scheduler or model.cache.accounting != "detailed":
        yield "scheduler", _OWN_CACHE[replica.scheduler]
    roles = any(machine.get("role", "both") != "both" for machine in model.machines)
    if replica.scheduler == "sglang" and (model.pools.prefill or model.pools.decode or roles):
        yield "scheduler", "requests are handed over between machines: kvsim's scheduler and vLLM's do that"
    yield from _limits(replica)
    if replica.queue_order not in _ORDERS:
        yield "queue_order", _OWN_ORDER[replica.scheduler]
    if replica.duplicate_prefill == "wait":
        yield "duplicate_prefill", _NOTHING_WAITS[replica.scheduler]
    if replica.scheduler == "sglang":
        yield from _sglang(model, replica, given)


def _sglang(
    model: ScenarioModel, replica: ReplicaSection, given: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield settings that SGLang's scheduler does not combine."""
    cache, by_priority = model.cache, replica.queue_order == "priority"
    if cache.enabled and not cache.cache_output:
        yield "scheduler", "SGLang's tree keeps prompts and answers: cache.cache_output"
    if not cache.enabled and replica.schedule_policy in ("lpm", "dfs-weight"):
        yield "schedule_policy", "cache.enabled is false: no request has a cached prefix"
    if by_priority and replica.schedule_policy not in ("fcfs", "lof"):
        yield "schedule_policy", "SGLang serves priorities with fcfs and lof alone"
    if by_priority and replica.max_queued_requests is not None:
        yield (
            "max_queued_requests",
            "with priorities a full queue drops its last request, which is not simulated",
        )
    if "priority_preemption" in given and not by_priority:
        yield "priority_preemption", "replica.queue_order is not priority"


def _limits(replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    """Yield bounds of a step that another bound, or none, leaves without effect."""
    for key, most in _BOUNDED.items():
        if (getattr(replica, key) or 0) > getattr(replica, most):
            yield key, f"replica.{most} is less"
    if replica.long_prefill_token_threshold_adaptive and not replica.long_prefill_token_threshold:
        yield "long_prefill_token_threshold_adaptive", "replica.long_prefill_token_threshold is 0"


def of_context_window(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield paths of context-window settings without effect, and the reason."""
    replica = model.replica
    for index, machine in enumerate(machines):
        written = model.machines[index].get("replica") if index < len(model.machines) else None
        for key in ("max_model_len", "allow_long_max_model_len", "on_overflow"):
            given = isinstance(written, dict) and key in written
            if given and getattr(machine.replica, key) != getattr(replica, key):
                path = ("machines", index, "replica", key)
                yield Contradiction(path, f"all machines serve one model: set replica.{key}")
    if replica.allow_long_max_model_len and model.models is None and not _is_long(model):
        yield ("replica", "allow_long_max_model_len"), "replica.max_model_len is within the model's context"
    if replica.on_overflow == "reject":
        return
    if replica.max_model_len is None:
        yield (
            ("replica", "on_overflow"),
            "instant runs and simplified accounting need a replica.max_model_len",
        )
    elif kind := model.workload.get("kind"):
        from kvcache_sim.workload.generate.build import KINDS

        if kind in KINDS and not hasattr(KINDS[kind], "turns"):
            yield ("replica", "on_overflow"), f"workload.kind {kind} has no sessions: there is no history"


def _is_long(model: ScenarioModel) -> bool:
    """Return True if the context is longer than that of the served model."""
    given, longest = model.replica.max_model_len, served_model(model).context.longest_tokens
    return given is not None and longest is not None and given > longest


def of_parallel(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings that conflict with pipeline stages and context parallelism, each with the reason."""
    for index, machine in enumerate(machines):
        written = model.machines[index].get("replica") if index < len(model.machines) else None
        for key, why in (*_stages(machine), *_shared(model, machine)):
            here = isinstance(written, dict) and key in written
            path: Path = ("machines", index, "replica", key) if here else ("replica", key)
            yield Contradiction(path, why)


def _stages(machine: MachineSection) -> Iterator[tuple[str, str]]:
    replica = machine.replica
    if (replica.pp or 1) == 1:
        return
    if replica.scheduler != "vllm":
        yield "pp", "micro-batches are those of vLLM's own scheduler: replica.scheduler vllm"
    elif machine.tiers.lower:
        yield "pp", "stages have no lower tiers here"


def _shared(model: ScenarioModel, machine: MachineSection) -> Iterator[tuple[str, str]]:
    replica = machine.replica
    cp = replica.cp or 1
    if cp == 1:
        return
    groups = cache_groups(model)
    if model.cache.block_size % cp:
        yield "cp", f"cache.block_size {model.cache.block_size} is no multiple of it"
    elif groups is not None and any(group.kind != "full" for group in groups.layout.groups):
        yield "cp", "windows and states are not shared out over GPUs (vLLM 0.33: full attention alone)"
    else:
        gpus = measured_on(replica.step_time).tensor_parallel
        spec = served_model(model)
        copies = gpus * spec.kv_bytes_per_token_per_gpu(gpus) // max(spec.kv_bytes_per_token, 1)
        if gpus % cp or cp > copies:
            # Fewer KV heads than GPUs, or a latent, are replicated; those GPUs can split the tokens.
            yield "cp", f"the {gpus} GPUs of the step-time set hold {copies} copies of {spec.name}'s KV"


def of_ranks(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings that conflict with data-parallel ranks, each with the reason."""
    for index, written in enumerate(model.machines):
        if isinstance(written.get("replica"), dict) and "dp" in written["replica"]:
            why = "ranks are counted for all machines or for none"
            yield Contradiction(("machines", index, "replica", "dp"), why)
    if model.replica.dp == 1:
        return
    path = ("replica", "dp")
    if model.replica.instant:
        yield path, "replica.instant is true: no step takes time"
    if any(machine.tiers.lower for machine in machines):
        yield Contradiction(path, "ranks that step together have no lower tiers here")
    if model.pools.prefill or model.pools.decode:
        yield Contradiction(path, "ranks hand nothing over between machines here")
    if any(machine.replica.scheduler != "kvsim" for machine in machines):
        yield Contradiction(path, "ranks step together under kvsim's own scheduler")
