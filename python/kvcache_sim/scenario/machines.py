"""The machines of a cluster: their number and roles, and ``machines[k]`` merged over the common settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import STAGING, TIERS
from kvcache_sim.cache.store_kinds import Ability, store_kind
from kvcache_sim.scenario.cluster_sections import model_of_machine
from kvcache_sim.scenario.fleet_events import fleet_events
from kvcache_sim.scenario.gpu_memory import (
    CONTEXT,
    GPU_CAPACITY,
    refuse_small_gpu,
    with_context_length,
    with_gpu_capacity,
)
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.release_defaults import with_release, with_running_requests
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel, by_event
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.token_capacities import tiers_in_blocks
from kvcache_sim.scenario.validation import check
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.serving.handover import of_vllm
from kvcache_sim.serving.handover.rules import ALWAYS, RULES
from kvcache_sim.serving.router.registry import can_advise, needs_of
from kvcache_sim.serving.settings import Role

#: The figures of ``handover.decide``.
_FIGURES = tuple(dict.fromkeys(key for rule in RULES.values() for key in rule.keys))


def with_machines_of_pools(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario with as many machines as its pools have, unless it sets the number itself.

    Raises UsageError if it sets a lower number.
    """
    pooled = model.pools.prefill + model.pools.decode
    given = tree.values.get("cluster")
    if not pooled:
        return model
    if isinstance(given, dict) and "machines" in given:
        if model.cluster.machines < pooled:
            where, got = tree.location(("cluster", "machines")), str(model.cluster.machines)
            raise UsageError("cluster.machines: fewer than the pools have", where, got, f"at least {pooled}")
        return model
    return replace(model, cluster=replace(model.cluster, machines=pooled))


def with_machines_of_ranks(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario with one machine per rank, unless it sets the number, and the ranks' balancer.

    Raises UsageError if the machines are not a whole number of engines.
    """
    ranks, machines = model.replica.dp, model.cluster.machines
    if ranks == 1:
        return model
    given = tree.values.get("cluster")
    if isinstance(given, dict) and "machines" in given:
        if machines % ranks:
            where, expected = tree.location(("cluster", "machines")), f"a multiple of replica.dp, {ranks}"
            raise UsageError("cluster.machines: no whole number of engines", where, str(machines), expected)
    else:
        model = replace(model, cluster=replace(model.cluster, machines=ranks))
    router = tree.values.get("router")
    if isinstance(router, dict) and "policy" in router:
        return model
    return replace(model, router=replace(model.router, policy="vllm-dp"))


def pool_role(model: ScenarioModel, index: int) -> Role:
    """Return the role of a machine without its own: the first machines prefill, the next ones decode."""
    if index < model.pools.prefill:
        return "prefill"
    return "decode" if index < model.pools.prefill + model.pools.decode else "both"


def build_machines(model: ScenarioModel, tree: Tree) -> tuple[MachineSection, ...]:
    """Return one section per machine, in machine order.

    Raises UsageError for an entry past ``cluster.machines`` and for any error inside an entry.
    """
    count = model.cluster.machines
    if len(model.machines) > count:
        raise UsageError(
            f"machines[{len(model.machines) - 1}] does not exist",
            where=tree.location(("machines", len(model.machines) - 1)),
            expected=f"at most {count} entries",
            hint="raise cluster.machines",
        )
    written: dict[str, Any] = {k: tree.values[k] for k in ("tiers", "replica") if k in tree.values}
    machines = []
    fleet, joining = model.fleet, 0
    if fleet.plan or fleet.faults:
        joining = sum(event.do == "join" for event in fleet_events(model, tree))
    scaling = fleet.scaling
    for index in range(max(count + joining, 0 if scaling is None else scaling.most)):
        settings = model.machines[index] if index < len(model.machines) else {}
        role = pool_role(model, index)
        served = None if model.models is None else model_of_machine(model.models, index)
        if served is not None and served.step_time is not None:
            settings = _overlay({"replica": {"step_time": served.step_time}}, settings)
        its = model if served is None else replace(model, model=served.model or model.model)
        if settings or its.model != model.model:
            base = {**written, "role": role}
            machine = check(MachineSection, _overlay(base, settings), tree, ("machines", index))
            machine = replace(machine, tiers=tiers_in_blocks(machine.tiers, its, tree, index))
            path = own_path(tree, index, GPU_CAPACITY)
            is_auto = machine.tiers.compute.capacity.auto
            machine = with_release(machine, its, tree, index)
            machine = with_gpu_capacity(machine, its, tree, path)
            if served is None and "max_model_len" not in settings.get("replica", {}):
                same = replace(machine.replica, max_model_len=model.replica.max_model_len)
                machine = replace(machine, replica=same)
            else:
                machine = with_context_length(machine, its, tree, own_path(tree, index, CONTEXT))
            machine = with_running_requests(machine, its, tree, index)
            if is_auto:
                refuse_small_gpu(machine, its, tree, own_path(tree, index, CONTEXT))
            machines.append(machine)
        else:
            common = MachineSection(tiers=model.tiers, replica=model.replica, role=role)
            machines.append(common)
    return tuple(machines)


def own_path(tree: Tree, index: int, path: Path) -> Path:
    """Return the path of machine ``index``'s setting at ``path``: its own entry, or the common one."""
    of_machine: Path = ("machines", index, *path)
    return of_machine if of_machine in tree.locations else path


def _overlay(base: Any, over: Any) -> Any:
    """Return ``base`` with ``own`` merged over it, mapping by mapping; null removes a setting."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: _overlay(base.get(key), value) for key, value in over.items()}}


def of_roles(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield pool and hand-over settings that cannot have an effect, each with the reason."""
    roles = [machine.role for machine in machines]
    for role, other, lacking in (
        ("prefill", "decode", "no machine decodes: add pools.decode"),
        ("decode", "prefill", "nothing is handed over: add pools.prefill"),
    ):
        if role in roles and all(r in (role, "both") for r in roles) and other not in roles:
            if role == "prefill" and "both" in roles:
                continue
            index = roles.index(role)
            written = index < len(model.machines) and "role" in model.machines[index]
            yield Contradiction(("machines", index, "role") if written else ("pools", role), lacking)
    if "prefill" not in roles:
        for key in changed(model.handover):
            yield ("handover", key), "no machine has the role prefill: set pools.prefill"
        return
    path: Path = ("pools",) if model.pools.prefill else ("machines",)
    if model.replica.instant:
        yield Contradiction(path, "replica.instant is true: there are no service times")
    if why := store_kind(model.cache).lacks.get(Ability.BLOCKS):
        yield Contradiction(path, f"{why} to hand over")
    if model.handover.router != "least-loaded" and len(machines) - roles.count("prefill") == 1:
        yield ("handover", "router"), "one machine decodes"
    yield from _of_decision(model)
    if any(machine.replica.scheduler == "vllm" for machine in machines):
        yield from _of_vllm(model, machines)
    if model.handover.path == "via-cpu" and not all(machine.tiers.lower for machine in machines):
        why = f"KV is staged in the {TIERS[STAGING]} of both machines: add tiers.{TIERS[STAGING]}"
        yield ("handover", "path"), why


def _of_vllm(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield what hand-overs under vLLM's own scheduler do not have."""
    if any(machine.replica.scheduler != "vllm" for machine in machines):
        yield Contradiction(("replica", "scheduler"), of_vllm.ONE_SCHEDULER)
    how = model.handover
    for key, why in of_vllm.refused_values(path=how.path, transfer=how.transfer, first_token=how.first_token):
        yield Contradiction(("handover", key), why)
    for machine in machines:
        if (machine.replica.pp or 1) > 1:
            yield Contradiction(("replica", "pp"), of_vllm.NO_STAGES)
        if machine.tiers.lower:
            yield Contradiction(("tiers", next(iter(machine.tiers.lower))), of_vllm.GPU_ALONE)
        for key in of_vllm.QUEUE_BOUNDS:
            if machine.role != "prefill" and getattr(machine.replica, key) is not None:
                yield Contradiction(("replica", key), of_vllm.QUEUED_TWICE)
    for name, channel in model.channels.items():
        if by_event(channel):
            yield Contradiction(("channels", name), of_vllm.IN_ORDER)


def _of_decision(model: ScenarioModel) -> Iterator[Finding]:
    """Yield settings of a hand-over decided per request without effect, or in conflict with others."""
    section = model.handover
    rule = RULES.get(section.decide, ALWAYS)
    for key in changed(section):
        if key in _FIGURES and key not in rule.keys:
            yield ("handover", key), f"handover.decide is not {' or '.join(_readers(key))}"
    where: Path = ("handover", "decide")
    if "prefill_busy" in rule.keys and section.prefill_busy is None:
        yield Contradiction(where, "add handover.prefill_busy")
    asked = [section.router] * rule.chooses_again + [model.router.policy] * rule.reads_prefill
    for policy in asked:
        if needs_of(policy).sent_blocks and not can_advise(policy):
            yield Contradiction(where, f"router {policy} counts each machine it names as chosen")


def _readers(key: str) -> list[str]:
    return [name for name, rule in RULES.items() if key in rule.keys]
