"""``replica.dp``: machines that are data-parallel ranks of one engine."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree


def with_machines_of_ranks(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario with a machine a rank, unless it says how many, and their balancer.

    Raises UsageError where machines are no whole number of engines.
    """
    ranks, machines = model.replica.dp, model.cluster.machines
    if ranks == 1:
        return model
    given = tree.values.get("cluster")
    if isinstance(given, dict) and "machines" in given:
        if machines % ranks:
            where, expected = tree.place(("cluster", "machines")), f"a multiple of replica.dp, {ranks}"
            raise UsageError("cluster.machines: no whole number of engines", where, str(machines), expected)
    else:
        model = replace(model, cluster=replace(model.cluster, machines=ranks))
    router = tree.values.get("router")
    if isinstance(router, dict) and "policy" in router:
        return model
    return replace(model, router=replace(model.router, policy="vllm-dp"))


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield what ranks that step together cannot have, each with the reason."""
    for index, own in enumerate(model.machines):
        if isinstance(own.get("replica"), dict) and "dp" in own["replica"]:
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
