"""Tiers below the GPU with an engine's own semantics: required and replaced settings."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.base.tiers import COMPUTE, STAGING, TIERS
from kvcache_sim.cache.settings import LowerEngine, StoragePrefetch
from kvcache_sim.cache.store_kinds import WITH_LOWER
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel, by_event
from kvcache_sim.scenario.yaml_tree import Path

_OWN, _DISK = TIERS[STAGING], TIERS[STAGING + 1]
#: Semantics whose tiers store chunks of several blocks.
_CHUNKED = ("lmcache", "lmcache-server", "vllm-offload")
_SIMPLE = "vllm-simple-kv-offload"
#: The fetch policies that correspond to SGLang's stop policies.
_STOPS = ("best-effort", "wait", "timeout")


def lower_semantics(model: ScenarioModel) -> LowerEngine | None:
    """Return the semantics of the tier below the GPU, which are the same on all machines.

    Below a tree of cache groups the tier keeps groups too, with or without a setting.
    """
    lower = model.tiers.lower.get(_OWN)
    if lower is None:
        return None
    of_groups = model.cache.semantics == "tree" and model.cache.layer_groups == "by-kind"
    return "groups" if lower.semantics is None and of_groups else lower.semantics


def chunk_tokens(model: ScenarioModel) -> int:
    """Return the tokens of a chunk of an engine's tiers; 0: those of a block."""
    lower = model.tiers.lower.get(_OWN)
    return 0 if lower is None else lower.chunk_tokens or 0


def lazy_tokens(model: ScenarioModel) -> int | None:
    """Return a step's tokens that lazy stores keep free blocks for; None: computed blocks are stored."""
    lower = model.tiers.lower.get(_OWN)
    is_lazy = lower is not None and lower.lazy_offload
    return model.replica.max_num_batched_tokens if is_lazy else None


def lower_write(model: ScenarioModel) -> str:
    """Return the write policy that corresponds to the writes of the engine's tier."""
    policy = model.write.policy
    if lower_semantics(model) is None:
        return "back"
    return policy.get(TIERS[COMPUTE], "back") if isinstance(policy, dict) else policy


def storage_prefetch(model: ScenarioModel) -> StoragePrefetch | None:
    """Return HiCache's prefetch settings for machines with a storage tier; unset times are SGLang's."""
    named = [model.tiers.lower, *(machine.get("tiers") or {} for machine in model.machines)]
    if lower_semantics(model) != "hicache" or not any(tiers.get(_DISK) for tiers in named):
        return None
    fetch, lookahead = model.fetch, model.prefetch
    unset = StoragePrefetch(fetch.policy)
    return StoragePrefetch(
        fetch.policy,
        unset.timeout_ns if fetch.timeout is None else fetch.timeout,
        unset.timeout_per_ki_token_ns if fetch.timeout_per_ki_token is None else fetch.timeout_per_ki_token,
        lookahead.threshold or unset.threshold_tokens,
        lookahead.share,
    )


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings that an engine's own tier rules out, and machines that cannot have such a tier."""
    semantics = lower_semantics(model)
    yield from _prefetching(model)
    for machine in machines:
        for name, tier in machine.tiers.present.items():
            if name != _OWN and tier.semantics is not None:
                yield Contradiction(("tiers", name, "semantics"), f"engines' own rules are the {_OWN}'s")
            if tier.chunk_tokens is not None and (name != _OWN or semantics not in _CHUNKED):
                why = f"only tiers.{_OWN}.semantics {' or '.join(_CHUNKED)} stores chunks"
                yield ("tiers", name, "chunk_tokens"), why
            if tier.lazy_offload is not None and (name != _OWN or semantics != _SIMPLE):
                yield ("tiers", name, "lazy_offload"), f"only tiers.{_OWN}.semantics {_SIMPLE} has it"
        if lazy_tokens(model) not in (None, machine.replica.max_num_batched_tokens):
            why = "lazy stores count by replica.max_num_batched_tokens, the same on all machines"
            yield Contradiction(("tiers", _OWN, "lazy_offload"), why)
        here, common = machine.tiers.lower.get(_OWN), model.tiers.lower.get(_OWN)
        for key in ("semantics", "chunk_tokens", "lazy_offload"):
            if getattr(here, key, None) != getattr(common, key, None):
                yield Contradiction(("tiers", _OWN, key), f"the tiers of all machines have the same {key}")
    if semantics is None:
        return
    at = ("tiers", _OWN, "semantics")
    engine = WITH_LOWER[semantics].name
    if model.cache.semantics != engine or model.cache.accounting != "detailed":
        yield Contradiction(at, f"this tier is below {engine}'s own cache: cache.semantics {engine}")
    if semantics == "groups" and model.cache.layer_groups != "by-kind":
        yield Contradiction(at, "this tier keeps a tree's cache groups: cache.layer_groups by-kind")
    if semantics == "lmcache-server" and model.tiers.lower[_OWN].policy is None:
        yield Contradiction(at, f"add tiers.{_OWN}.policy: lru or arc, LMCache's server has no default")
    if not model.cache.enabled:
        yield Contradiction(at, "cache.enabled is false")
    if chunk_tokens(model) % model.cache.block_size:
        why = f"a chunk is whole blocks, and cache.block_size is {model.cache.block_size}"
        yield Contradiction(("tiers", _OWN, "chunk_tokens"), why)
    if model.pools.prefill or model.pools.decode:
        yield Contradiction(at, "requests are handed over between machines, which this tier does not support")
    for machine in machines:
        most = WITH_LOWER[semantics].tiers_below(machine.replica.scheduler)
        if deeper := list(machine.tiers.lower)[most:]:
            below = "" if machine.replica.scheduler == "kvsim" else " below an engine's own scheduler"
            yield Contradiction(("tiers", deeper[0]), f"{semantics} is the last tier here{below}")
        if machine.replica.scheduler not in WITH_LOWER[semantics].schedulers:
            why = f"with replica.scheduler {machine.replica.scheduler} the GPU is alone"
            if semantics == _SIMPLE:
                why = "its scheduler is replica.scheduler vllm alone"
            yield Contradiction(at, why)
        elif machine.replica.scheduler != "kvsim":
            yield from _below_own_scheduler(model, machine)
        if machine.replica.dp > 1:
            yield Contradiction(at, "ranks that step together have no lower tiers here")
        for name, tier in machine.tiers.lower.items():
            if str(tier.capacity) == "unbounded" and (semantics, name) != ("hicache", _DISK):
                yield Contradiction(("tiers", name, "capacity"), f"{semantics} needs a bound")
    yield from _movement(model, semantics)


def _below_own_scheduler(model: ScenarioModel, machine: MachineSection) -> Iterator[Finding]:
    """Yield what is not simulated of a tier below an engine's own scheduler."""
    scheduler = f"replica.scheduler {machine.replica.scheduler}"
    if not model.fetch.layer_pipelining:
        whole = (
            "waits for a whole load" if machine.replica.scheduler == "vllm" else "uses a load layer by layer"
        )
        yield ("fetch", "layer_pipelining"), f"{scheduler} {whole}"
    if model.fetch.read_buffer_layers is not None:
        yield ("fetch", "read_buffer_layers"), f"{scheduler} has no read buffers"
    if (machine.replica.pp or 1) > 1:
        yield Contradiction(
            ("tiers", _OWN, "semantics"), f"with {scheduler} micro-batches have no lower tier"
        )
    for name, channel in model.channels.items():
        if channel.scope != "machine" or by_event(channel):
            why = f"with {scheduler} each machine has its own, first come, first served"
            yield Contradiction(("channels", name), why)


def _prefetching(model: ScenarioModel) -> Iterator[Finding]:
    """Yield settings that a storage tier below HiCache needs, and settings that only it uses."""
    prefetch = storage_prefetch(model)
    if prefetch is not None and (prefetch.stop not in _STOPS or model.prefetch.policy != "queued"):
        stops = " or ".join(_STOPS)
        why = f"hicache's {_DISK} is read by prefetch only: prefetch.policy queued, fetch.policy {stops}"
        yield Contradiction(("tiers", _DISK), why)
    if model.prefetch.threshold is not None and prefetch is None:
        yield ("prefetch", "threshold"), f"no {_DISK} lies below tiers.{_OWN}.semantics hicache"
    if model.fetch.timeout_per_ki_token is not None and (prefetch is None or prefetch.stop != "timeout"):
        yield ("fetch", "timeout_per_ki_token"), f"no {_DISK} below hicache with fetch.policy timeout"


def _movement(model: ScenarioModel, semantics: LowerEngine) -> Iterator[Finding]:
    """Yield settings of data movement, which the engine's own semantics decide."""
    prefetches = storage_prefetch(model) is not None
    given = {
        ("write", "policy"): lower_write(model) not in WITH_LOWER[semantics].lower_writes,
        ("write", "selective_uses"): model.write.selective_uses != 2,
        ("fetch", "policy"): model.fetch.policy != "always" and not prefetches,
        ("fetch", "lookup"): model.fetch.lookup != "local",
        ("fetch", "exclusive"): bool(model.fetch.exclusive),
        ("prefetch", "policy"): model.prefetch.policy != "none" and not prefetches,
        ("cache", "cache_output"): not model.cache.cache_output,
        ("cache", "full_hit"): model.cache.full_hit != "prefill-remainder",
    }
    for path, is_given in given.items():
        if is_given:
            yield (
                path,
                f"tiers.{_OWN}.semantics {semantics} decides by rules of its own{_writes(path, semantics)}",
            )


def _writes(path: Path, semantics: LowerEngine) -> str:
    return f": {' or '.join(WITH_LOWER[semantics].lower_writes)}" if path == ("write", "policy") else ""
