"""Settings of narrower KV below the GPU and on the wire that cannot have an effect, or contradict others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvcache_sim.cache.block_form import BlockForm
from kvcache_sim.scenario.cache_groups import has_groups
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.tiers import COMPUTE, TIERS

_KEYS = ("kv_ratio", "encode", "decode")


def findings(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield settings of a form without effect, or in conflict with others, each with the reason."""
    for key in changed(model.tiers.compute):
        if key in _KEYS:
            hint = f"the {TIERS[COMPUTE]}'s blocks are the measure: set it on a tier below"
            yield ("tiers", TIERS[COMPUTE], key), hint
    lower = {name: own for machine in machines for name, own in machine.tiers.lower.items()}
    own_forms = [name for name, own in lower.items() if own.form(BlockForm()) != BlockForm()]
    for name in own_forms:
        where = ("tiers", name)
        if model.replica.instant:
            for key in ("encode", "decode"):
                if key in changed(lower[name]):
                    yield (*where, key), "replica.instant is true: no time passes"
        if has_groups(model):
            yield Contradiction(where, "cache groups send pages of their layers as they are on the gpu")
        if model.cluster.pool is not None:
            yield Contradiction(where, "cluster.pool holds blocks as they are on the gpu")
        if model.handover.path == "via-cpu":
            yield Contradiction(("handover", "path"), "hand-overs cross memory as they are on the gpu")
    if model.handover.path == "via-cpu":
        for key in _KEYS:
            if key in changed(model.handover):
                yield ("handover", key), "handover.path is not gpu-direct"
