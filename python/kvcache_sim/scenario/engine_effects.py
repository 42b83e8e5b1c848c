"""Settings of an engine that could not have an effect, on each machine."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.model.adjusted import CAPTURED_TOKENS
from kvcache_sim.scenario import speculation
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.yaml_tree import Path

#: What one engine's scheduler alone is told.
_ALONE = {
    "vllm": ("watermark", "reserve_full_isl", "long_prefill_token_threshold"),
    "sglang": (
        "schedule_policy",
        "max_prefill_tokens",
        "enable_mixed_chunk",
        "schedule_conservativeness",
    ),
}
_OWN_CACHE = {
    "vllm": "vLLM's scheduler gives out the blocks of its own pool: cache.semantics vllm",
    "sglang": "SGLang's scheduler gives out the pages of its own tree: cache.semantics sglang",
}
#: The orders of the queue that an engine's scheduler knows, and what is said of others.
_ORDERS = {"vllm": ("fcfs", "priority"), "sglang": ("fcfs",)}
_OWN_ORDER = {
    "vllm": "vLLM's scheduler knows fcfs and priority",
    "sglang": "SGLang's scheduler goes by replica.schedule_policy",
}
_NOBODY_WAITS = {
    "vllm": "vLLM's blocks have their keys before they are computed: nobody waits",
    "sglang": "SGLang's scheduler does not see what is being computed: nobody waits",
}
#: Key → why it has no effect where requests are served without service time, one after another.
_INSTANT = {
    "async_scheduling": "replica.instant is true",
    "client_offset": "replica.instant is true",
    "client_offset_per_token": "replica.instant is true",
    "step_overhead_per_sequence": "replica.instant is true",
    "launch_per_layer": "replica.instant is true",
    "copy_submit": "replica.instant is true",
    "copy_gpu_share": "replica.instant is true",
    "host": "replica.instant is true",
    "duplicate_prefill": "replica.instant is true",
    "links": "replica.instant is true",
    "queue_order": "replica.instant is true: nobody waits",
    "scheduler": "replica.instant is true",
}


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield the settings that differ from their default and cannot have an effect, each with the reason."""
    for index, machine in enumerate(machines):
        own = model.machines[index].get("replica") if index < len(model.machines) else None
        for key, why in (*_without_effect(model, machine.replica), *_copies(model, machine)):
            here = isinstance(own, dict) and key in own
            at: Path = ("machines", index, "replica", key) if here else ("replica", key)
            ruled_out = key in ("scheduler", "speculation") and not machine.replica.instant
            yield Contradiction(at, why) if ruled_out else (at, why)
        if isinstance(own, dict) and "instant" in own:
            path: Path = ("machines", index, "replica", "instant")
            yield Contradiction(path, "service time is off for all machines or for none")


def _without_effect(model: ScenarioModel, replica: ReplicaSection) -> Iterator[tuple[str, str]]:
    if replica.instant:
        yield from ((key, _INSTANT[key]) for key in changed(replica) if key in _INSTANT)
    if replica.step_overhead_per_sequence and replica.async_scheduling != "none":
        yield "step_overhead_per_sequence", "replica.async_scheduling: the host works while a step runs"
    if replica.launch_per_layer and replica.max_num_batched_tokens <= CAPTURED_TOKENS:
        why = f"no step has more than the {CAPTURED_TOKENS} tokens that a CUDA graph holds"
        yield "launch_per_layer", why
    yield from _scheduler(model, replica)
    yield from speculation.findings(model, replica)
    if not model.cache.enabled:
        if replica.duplicate_prefill == "wait":
            yield "duplicate_prefill", "cache.enabled is false"
        if replica.queue_order in ("longest-prefix", "ragcache"):
            yield "queue_order", "cache.enabled is false: nobody has a cached prefix"


def _copies(model: ScenarioModel, machine: MachineSection) -> Iterator[tuple[str, str]]:
    """Yield what copies cost where nothing is copied to or from the fastest tier."""
    if machine.tiers.lower or model.pools.prefill or machine.replica.instant:
        return
    for key in ("copy_submit", "copy_gpu_share"):
        if getattr(machine.replica, key):
            yield key, "nothing is copied: there is no lower tier and nothing is handed over"


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
    if model.pools.prefill or model.pools.decode or roles:
        yield "scheduler", "requests are handed over between machines: kvsim's own scheduler does that"
    if replica.queue_order not in _ORDERS[replica.scheduler]:
        yield "queue_order", _OWN_ORDER[replica.scheduler]
    if replica.duplicate_prefill == "wait":
        yield "duplicate_prefill", _NOBODY_WAITS[replica.scheduler]
    if replica.scheduler == "sglang" and not (model.cache.enabled and model.cache.cache_output):
        yield (
            "scheduler",
            "SGLang's tree keeps prompts and answers: cache.enabled and cache.cache_output",
        )
