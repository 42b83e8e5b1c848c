"""Where the context window of a scenario, ``replica.max_model_len``, would have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield the path of a setting of the window that cannot matter, and why."""
    replica = model.replica
    for index, machine in enumerate(machines):
        for key in ("max_model_len", "on_overflow"):
            if getattr(machine.replica, key) != getattr(replica, key):
                path = ("machines", index, "replica", key)
                yield Contradiction(path, f"all machines serve one model: set replica.{key}")
    if replica.on_overflow == "reject":
        return
    if replica.max_model_len is None:
        yield ("replica", "on_overflow"), "replica.max_model_len is null: no request is too long"
    elif kind := model.workload.get("kind"):
        from kvcache_sim.workload.generate.build import KINDS

        if kind in KINDS and not hasattr(KINDS[kind], "turns"):
            yield ("replica", "on_overflow"), f"workload.kind {kind} has no sessions: there is no history"
