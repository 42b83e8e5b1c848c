"""Settings of narrower KV below the GPU and on the wire that cannot have an effect, or contradict others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvcache_sim.cache.block_form import FORM_KEYS
from kvcache_sim.scenario.cache_groups import has_groups
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.tiers_section import TierSection
from kvcache_sim.tiers import COMPUTE, TIERS

_AS_ON_GPU = f"as they are on the {TIERS[COMPUTE]}"


def findings(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield settings of a form without effect, or in conflict with others, each with the reason."""
    for key in FORM_KEYS:
        if getattr(model.tiers.compute, key) is not None:
            hint = f"the {TIERS[COMPUTE]}'s blocks are the measure: set it on a tier below"
            yield ("tiers", TIERS[COMPUTE], key), hint
    own_forms: dict[str, TierSection] = {}
    for machine in machines:
        for name, own in machine.tiers.lower.items():
            if own.kv_ratio is not None or own.encode is not None or own.decode is not None:
                own_forms[name] = own
    for name, own in own_forms.items():
        where = ("tiers", name)
        if model.replica.instant:
            for key in ("encode", "decode"):
                if getattr(own, key) is not None:
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
