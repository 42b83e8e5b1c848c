"""Refusal of settings that could not have an effect in a scenario, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, LOAD_EDGES, STAGING, TIERS, WRITE_EDGES
from kvcache_sim.cache.settings import FORM_KEYS
from kvcache_sim.cache.store_kinds import WITH_LOWER, Ability, beyond_store, lower_kinds, store_kind
from kvcache_sim.scenario import (
    engine_effects,
    engine_tiers,
    fleet,
    objectives,
    request_effects,
    shared_pool,
)
from kvcache_sim.scenario.channels import DEFAULT_CHANNELS, default_channel
from kvcache_sim.scenario.idle import Contradiction, Finding, IdleError
from kvcache_sim.scenario.machines import of_roles
from kvcache_sim.scenario.release_defaults import written_keys
from kvcache_sim.scenario.request_effects import idle_of_router
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.served_model import has_groups, of_groups, served_model
from kvcache_sim.scenario.yaml_tree import Path, Tree

_AS_ON_GPU = f"as they are on the {TIERS[COMPUTE]}"
_NEVER_EVICTED = "nothing is ever evicted from an unbounded tier"


def _findings(
    model: ScenarioModel, machines: tuple[MachineSection, ...], written: Collection[str]
) -> Iterator[Finding]:
    """Yield the findings in the order of their refusal; ``written``: the sections that the scenario has.

    A section that is left out has nothing without an effect.
    """
    of_engine = "replica" in written or "machines" in written
    yield from _tiers(model, machines)
    yield from engine_tiers.findings(model, machines)
    if "cache" in written:
        yield from _touch(model, machines)
        yield from _eviction_batch(model, machines)
        yield from (_of_cache(key, why) for key, why in beyond_store(model.cache))
    if "session_view" in written or "prefix_view" in written:
        yield from _views(model)
    if "write" in written or "fetch" in written or "prefetch" in written:
        yield from _movement(model, machines)
    if model.cluster.pool is not None:
        yield from shared_pool.findings(model, machines)
    if model.channels:
        yield from _channels(model, machines)
    if "workload" in written:
        yield from _requests(model)
    if model.slo is not None:
        yield from objectives.findings(model)
    if "fleet" in written:
        yield from fleet.findings(model, machines)
    if model.tenants is not None:
        yield from request_effects.of_tenants(model)
    if model.models is not None or model.adapters is not None:
        yield from request_effects.of_models(model, machines)
    if model.retention is not None:
        yield from request_effects.of_retention(model)
    if of_engine:
        yield from engine_effects.of_context_window(model, machines)
    yield from _kv_size(model, machines)
    yield from of_groups(model, machines)
    if of_engine:
        yield from engine_effects.of_ranks(model, machines)
        yield from engine_effects.of_parallel(model, machines)
        yield from engine_effects.of_engine(model, machines)
    if "pools" in written or "handover" in written or "machines" in written:
        yield from of_roles(model, machines)
    yield from _forms(model, machines)
    if model.router != RouterSection():
        yield from idle_of_router(model, sum(machine.role != "decode" for machine in machines))


def refuse_without_effect(model: ScenarioModel, machines: tuple[MachineSection, ...], tree: Tree) -> None:
    """Raise IdleError for the first written setting that cannot have an effect.

    Raises UsageError if other settings rule it out.
    """
    given = frozenset().union(*(written_keys(tree, index) for index in range(len(machines))))
    for finding in _findings(model, machines, tree.values.keys()):
        path, why = finding
        if path[0] == "replica" and not isinstance(finding, Contradiction) and path[1] not in given:
            continue  # a value of the release: no text has it
        what, where = f"{'.'.join(map(str, path))} has no effect", tree.location(path)
        if isinstance(finding, Contradiction):
            raise UsageError(what, where=where, hint=why)
        raise IdleError(what, where=where, hint=why, path=path)


def _tiers(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    lacks = store_kind(model.cache).lacks
    for index, machine in enumerate(machines):
        lower = machine.tiers.lower
        for upper, tier in pairwise(TIERS[STAGING:]):
            if tier in lower and upper not in lower:
                why = f"blocks reach the {tier} through the {upper}: add tiers.{upper}"
                yield _tier_path(model, index, tier), why
        for tier, section in lower.items():
            if section.capacity.auto:
                why = f"auto is for the {TIERS[COMPUTE]}: its model is known"
                yield Contradiction((*_tier_path(model, index, tier), "capacity"), why)
        if lower and not model.cache.enabled:
            yield _tier_path(model, index, next(iter(lower))), "cache.enabled is false"
        if lower and Ability.LOWER_TIERS in lacks and engine_tiers.lower_semantics(model) is None:
            why, kinds = lacks[Ability.LOWER_TIERS], lower_kinds(store_kind(model.cache))
            named = f"; set tiers.{TIERS[STAGING]}.semantics to {' or '.join(kinds)}" if kinds else ""
            yield Contradiction(_tier_path(model, index, TIERS[STAGING]), why + named)
        unbounded = str(machine.tiers.present[TIERS[COMPUTE]].capacity) == "unbounded"
        if unbounded and Ability.NO_BOUND in lacks:
            path = (*_tier_path(model, index, TIERS[COMPUTE]), "capacity")
            yield Contradiction(path, lacks[Ability.NO_BOUND])
        yield from _eviction(model, machine, index)
    if model.cache.scheduler_aware_window and model.replica.instant:
        yield ("cache", "scheduler_aware_window"), "replica.instant is true: no request waits"
    if model.cache.admission != "all":
        if model.cache.discard_on_finish:
            yield ("cache", "admission"), "cache.discard_on_finish keeps nothing"
        if model.cache.admission == "prompt" and not model.cache.cache_output:
            yield ("cache", "admission"), "cache.cache_output is false"
    if model.cache.full_hit != "prefill-remainder" and any(m.replica.scheduler != "kvsim" for m in machines):
        yield ("cache", "full_hit"), "an engine's scheduler always computes a prompt's last token"
    if not model.cache.enabled:
        for key in (
            "accounting",
            "admission",
            "semantics",
            "policy",
            "cache_output",
            "touch",
            "eviction_batch_blocks",
            "overflow",
            "full_hit",
            "lookup_time",
            "discard_on_finish",
            "scheduler_aware_window",
        ):
            if key == "semantics" and any(machine.replica.scheduler != "kvsim" for machine in machines):
                continue  # an engine's scheduler gives out blocks of its own cache, kept or not
            if key in changed(model.cache):
                yield ("cache", key), "cache.enabled is false"


def _of_cache(key: str, why: str) -> Finding:
    """Return the finding of a cache setting; a setting of the other accounting is a contradiction."""
    return Contradiction(("cache", key), why) if key == "accounting" else (("cache", key), why)


def _eviction(model: ScenarioModel, machine: MachineSection, index: int) -> Iterator[Finding]:
    """Yield tiers whose eviction policy cannot have an effect."""
    lacking = store_kind(model.cache).lacks.get(Ability.TIER_POLICIES)
    why = lacking if model.cache.enabled else "cache.enabled is false"
    for tier, section in machine.tiers.present.items():
        if section.semantics is not None:
            known = WITH_LOWER[section.semantics].lower_policies or (model.cache.policy,)
            if (section.policy or model.cache.policy) not in known:
                yield (*_tier_path(model, index, tier), "policy"), f"its rules know {' and '.join(known)}"
            continue
        if section.policy is not None and section.policy != model.cache.policy:
            reason = why or (_NEVER_EVICTED if str(section.capacity) == "unbounded" else None)
            if reason:
                yield (*_tier_path(model, index, tier), "policy"), reason


def _touch(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield reasons why ``cache.touch: admission`` would have no effect."""
    if model.cache.touch == "release" or not model.cache.enabled:
        return
    used = [tier for machine in machines for tier in machine.tiers.present.values()]
    others = {tier.policy or model.cache.policy for tier in used} - {"lru"}
    reasons = [
        (
            model.replica.instant and not any(machine.tiers.lower for machine in machines),
            "replica.instant is true: a request ends before the next one is admitted",
        ),
        (
            bool(others),
            f"policy {min(others, default='')} is notified of releases only: only lru has the choice",
        ),
        (_all_unbounded(machines), _NEVER_EVICTED),
    ]
    for holds, why in reasons:
        if holds:
            yield ("cache", "touch"), why


def _eviction_batch(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings of evictions that cannot have an effect."""
    if not model.cache.enabled:
        return
    if model.cache.eviction_batch_blocks > 1 and _all_unbounded(machines):
        yield ("cache", "eviction_batch_blocks"), _NEVER_EVICTED
    is_tree = model.cache.semantics == "tree" and model.cache.accounting == "detailed"
    if is_tree and model.cache.overflow != "wait":
        lower = [tier for machine in machines for tier in machine.tiers.lower.values()]
        if all(str(tier.capacity) == "unbounded" for tier in lower):
            yield ("cache", "overflow"), f"no tier below the {TIERS[COMPUTE]} can be full"


def _all_unbounded(machines: tuple[MachineSection, ...]) -> bool:
    used = [tier for machine in machines for tier in machine.tiers.present.values()]
    return all(str(tier.capacity) == "unbounded" for tier in used)


def _views(model: ScenarioModel) -> Iterator[Finding]:
    why = store_kind(model.cache).lacks.get(Ability.VIEWS)
    for section in ("session_view", "prefix_view"):
        given = getattr(model, section)
        for key in changed(given):
            if (section, key) == ("session_view", "max_tokens"):
                continue  # it shortens prompts, for any store
            if not model.cache.enabled:
                yield (section, key), "cache.enabled is false"
            if why:
                yield (section, key), why


def _tier_path(model: ScenarioModel, index: int, tier: str) -> Path:
    written = model.machines[index].get("tiers") if index < len(model.machines) else None
    return (
        ("machines", index, "tiers", tier)
        if isinstance(written, dict) and tier in written
        else ("tiers", tier)
    )


def _movement(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    there = {tier for machine in machines for tier in machine.tiers.present}
    lower = there - {TIERS[COMPUTE]}
    deeper = lower - {TIERS[STAGING]}
    looks_elsewhere = model.fetch.lookup == "cluster" or model.cluster.pool is not None
    no_lower = f"no machine has a tier below the {TIERS[COMPUTE]}"
    policy = model.write.policy
    if isinstance(policy, dict):
        for upper, below in pairwise(TIERS):
            if upper in policy and policy[upper] != "back" and below not in there:
                yield ("write", "policy", upper), f"no machine has a {below} tier to write to"
    elif policy != "back" and not lower:
        yield ("write", "policy"), no_lower
    used = set(policy.values()) if isinstance(policy, dict) else {policy}
    if model.write.selective_uses != 2 and "selective" not in used:
        yield ("write", "selective_uses"), "no edge has the write policy selective"
    if model.fetch.policy != "always" and not lower:
        yield ("fetch", "policy"), no_lower
    by_upper = policy if isinstance(policy, dict) else {}
    for upper in TIERS[STAGING:-1]:
        if by_upper.get(upper) == "through-sync":
            yield ("write", "policy", upper), f"no batch waits for what the {upper} writes on: say through"
    if model.fetch.policy in ("best-effort", "wait", "timeout") and model.prefetch.policy in (
        "none",
        "session",
    ):
        yield ("fetch", "policy"), "nothing is fetched before the admission: set prefetch.policy queued"
    if model.prefetch.policy != "none" and lower and not (deeper or looks_elsewhere):
        yield ("prefetch", "policy"), f"nothing lies below the {TIERS[STAGING]}"
    if model.prefetch.policy != "none" and model.fetch.policy == "never":
        yield ("prefetch", "policy"), "fetch.policy is never"
    if model.prefetch.policy == "none" and model.prefetch.share != 0.5:
        yield ("prefetch", "share"), "prefetch.policy is none"
    if model.prefetch.policy in ("none", "queued") and model.prefetch.lead != 1_000_000_000:
        yield ("prefetch", "lead"), "prefetch.policy is not session"
    if model.fetch.lookup == "cluster":
        if model.cluster.machines == 1:
            yield ("fetch", "lookup"), "there is one machine"
        elif not lower:
            landing = TIERS[STAGING]
            why = f"KV of other machines is read from and lands on a {landing}: add tiers.{landing}"
            yield ("fetch", "lookup"), why
        elif model.fetch.policy == "never":
            yield ("fetch", "lookup"), "fetch.policy is never"
    if model.fetch.remote_disk != "direct":
        if model.fetch.lookup != "cluster":
            yield ("fetch", "remote_disk"), "fetch.lookup is local"
        elif not deeper:
            yield ("fetch", "remote_disk"), f"no machine has a {TIERS[STAGING + 1]} tier"
    if not model.fetch.layer_pipelining and not lower:
        yield ("fetch", "layer_pipelining"), no_lower
    if model.fetch.read_buffer_layers is not None:
        if not lower:
            yield ("fetch", "read_buffer_layers"), no_lower
        elif not model.fetch.layer_pipelining:
            yield (
                ("fetch", "read_buffer_layers"),
                "fetch.layer_pipelining is false: a load is waited for whole",
            )
        elif model.fetch.policy == "never":
            yield ("fetch", "read_buffer_layers"), "fetch.policy is never"
    if model.fetch.timeout is not None and model.fetch.policy != "timeout":
        yield ("fetch", "timeout"), "fetch.policy is not timeout"
    for position, edge in enumerate(model.fetch.exclusive):
        if edge.split("->")[0] not in there:
            yield ("fetch", "exclusive", position), "no machine has this edge"
        elif model.fetch.policy == "never":
            yield ("fetch", "exclusive", position), "fetch.policy is never"
    if model.prefetch.policy != "none" and not lower:
        yield ("prefetch", "policy"), no_lower


def _channels(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    for name, channel in model.channels.items():
        if channel.latency_occupies and channel.sharing == "fair":
            yield ("channels", name, "latency_occupies"), "a fair channel is not taken in turns"
        elif channel.latency_occupies and channel.latency == 0:
            yield ("channels", name, "latency_occupies"), "the channel has no latency"
        stores = [edge.split(":")[-1].strip() in WRITE_EDGES for edge in channel.edges]
        loads = [edge.split(":")[-1].strip() in LOAD_EDGES for edge in channel.edges]
        unused = model.fetch.policy == "never" and model.handover.path != "via-cpu"
        if (
            unused
            and all(loads)
            and (name not in DEFAULT_CHANNELS or channel != default_channel(name, model, machines))
        ):
            yield ("channels", name), "fetch.policy is never: nothing is loaded"
        if channel.priority == "loads-first" and (all(stores) or not any(stores)):
            yield ("channels", name, "priority"), "the channel carries no loads that compete with stores"


def _kv_size(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    moves = any(machine.tiers.lower or machine.role == "prefill" for machine in machines)
    sized = any(machine.tiers.compute.capacity.size_bytes is not None for machine in machines)
    given = model.cache.kv_bytes_per_token
    if given and not (moves or sized) and given != served_model(model).kv_bytes_per_token:
        yield ("cache", "kv_bytes_per_token"), "no KV moves, and no capacity is in bytes"


def _forms(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield settings of narrower KV, below the GPU or on the wire, that have no effect or conflict."""
    for key in FORM_KEYS:
        if getattr(model.tiers.compute, key) is not None:
            hint = f"the {TIERS[COMPUTE]}'s blocks are the measure: set it on a tier below"
            yield ("tiers", TIERS[COMPUTE], key), hint
    own_forms = {
        name: tier_section
        for machine in machines
        for name, tier_section in machine.tiers.lower.items()
        if tier_section.kv_ratio is not None
        or tier_section.encode is not None
        or tier_section.decode is not None
    }
    for name, tier_section in own_forms.items():
        where = ("tiers", name)
        if model.replica.instant:
            for key in ("encode", "decode"):
                if getattr(tier_section, key) is not None:
                    yield (*where, key), "replica.instant is true: no time passes"
        if has_groups(model):
            yield Contradiction(where, f"cache groups send pages of their layers {_AS_ON_GPU}")
        if model.cluster.pool is not None:
            yield Contradiction(where, f"cluster.pool holds blocks {_AS_ON_GPU}")
        if model.handover.path == "via-cpu":
            yield Contradiction(("handover", "path"), f"hand-overs cross memory {_AS_ON_GPU}")
    if model.handover.path == "via-cpu":
        for key in changed(model.handover):
            if key in FORM_KEYS:
                yield ("handover", key), "hand-overs cross memory (handover.path)"


def _requests(model: ScenarioModel) -> Iterator[Finding]:
    if model.trace is not None and "kind" in model.workload:
        yield Contradiction(("trace",), "workload.kind generates the requests: keep one of the two")
    yield from request_effects.of_lanes(model)
    if model.workload.get("prompt_structure") == "new_input_only":
        why = "it is how 'kvsim trace generate' writes rows: a run has whole prompts in memory"
        yield Contradiction(("workload", "prompt_structure"), why)
