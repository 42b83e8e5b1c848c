"""Prefill and decode pools, and settings that need both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kvcache_sim.cache.store_kinds import Ability, store_kind
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.serving.handover.rules import ALWAYS, RULES
from kvcache_sim.serving.router.registry import can_advise, needs_of
from kvcache_sim.serving.settings import Role
from kvcache_sim.tiers import STAGING, TIERS

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


def hands_over(machines: Sequence[MachineSection]) -> list[tuple[int, int]]:
    """Return the ordered pairs (source, target) of machines between which requests are handed over."""
    sources = [m for m, machine in enumerate(machines) if machine.role == "prefill"]
    targets = [m for m, machine in enumerate(machines) if machine.role != "prefill"]
    return [(source, target) for source in sources for target in targets]


def findings(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
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
            own = index < len(model.machines) and "role" in model.machines[index]
            yield Contradiction(("machines", index, "role") if own else ("pools", role), lacking)
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
    if model.handover.path == "via-cpu" and not all(machine.tiers.lower for machine in machines):
        why = f"KV is staged in the {TIERS[STAGING]} of both machines: add tiers.{TIERS[STAGING]}"
        yield ("handover", "path"), why


def _of_decision(model: ScenarioModel) -> Iterator[Finding]:
    """Yield settings of a hand-over decided per request without effect, or in conflict with others."""
    own = model.handover
    rule = RULES.get(own.decide, ALWAYS)
    for key in changed(own):
        if key in _FIGURES and key not in rule.keys:
            yield ("handover", key), f"handover.decide is not {' or '.join(_readers(key))}"
    if rule is ALWAYS:
        return
    where: Path = ("handover", "decide")
    if "prefill_busy" in rule.keys and own.prefill_busy is None:
        yield Contradiction(where, "add handover.prefill_busy")
    asked = [own.router] * rule.chooses_again + [model.router.policy] * rule.reads_prefill
    for policy in asked:
        if needs_of(policy).sent_blocks and not can_advise(policy):
            yield Contradiction(where, f"router {policy} counts each machine it names as chosen")


def _readers(key: str) -> list[str]:
    return [name for name, rule in RULES.items() if key in rule.keys]
