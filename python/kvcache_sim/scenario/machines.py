"""The machines of a cluster: the common tiers and replica, with ``machines[k]`` merged over them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.cluster_sections import model_of_machine
from kvcache_sim.scenario.context_length import CONTEXT, refuse_small_gpu, with_context_length
from kvcache_sim.scenario.fleet_events import fleet_events
from kvcache_sim.scenario.gpu_memory import GPU_CAPACITY, with_gpu_capacity
from kvcache_sim.scenario.pools import pool_role
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.validation import check
from kvcache_sim.scenario.yaml_tree import Path, Tree


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
        own = model.machines[index] if index < len(model.machines) else {}
        role = pool_role(model, index)
        served = None if model.models is None else model_of_machine(model.models, index)
        if served is not None and served.step_time is not None:
            own = _overlay({"replica": {"step_time": served.step_time}}, own)
        its = model if served is None else replace(model, model=served.model or model.model)
        if own or its.model != model.model:
            base = {**written, "role": role}
            machine = check(MachineSection, _overlay(base, own), tree, ("machines", index))
            path = own_path(tree, index, GPU_CAPACITY)
            is_auto = machine.tiers.compute.capacity.auto
            machine = with_gpu_capacity(machine, its, tree, path)
            if served is None and "max_model_len" not in own.get("replica", {}):
                same = replace(machine.replica, max_model_len=model.replica.max_model_len)
                machine = replace(machine, replica=same)
            else:
                machine = with_context_length(machine, its, tree, own_path(tree, index, CONTEXT))
            if is_auto:
                refuse_small_gpu(machine, its, tree, own_path(tree, index, CONTEXT))
            machines.append(machine)
        else:
            common = MachineSection(tiers=model.tiers, replica=model.replica, role=role)
            machines.append(common)
    return tuple(machines)


def own_path(tree: Tree, index: int, path: Path) -> Path:
    """Return the path of machine ``index``'s setting at ``path``: its own entry, or the common one."""
    own: Path = ("machines", index, *path)
    return own if own in tree.locations else path


def _overlay(base: Any, own: Any) -> Any:
    """Return ``base`` with ``own`` merged over it, mapping by mapping; null removes a setting."""
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    return {**base, **{key: _overlay(base.get(key), value) for key, value in own.items()}}
