"""``replica.speculation``: acceptance by draft position from the scenario's settings."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.scenario.engine_tiers import lower_semantics
from kvcache_sim.scenario.machine_sections import ReplicaSection, SpeculationSection
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.served_model import cache_groups
from kvcache_sim.serving.speculation import SpeculationSettings

_WHERE = "replica.speculation"


def speculation(section: SpeculationSection, seed: int) -> SpeculationSettings:
    """Return the settings of speculative decoding, drawn from the seed's stream ``speculation``.

    Raises UsageError unless exactly one of ``acceptance`` and ``mean_length`` is
    given.
    """
    key = int(stream(seed, "speculation").integers(1 << 63))
    return SpeculationSettings(_rates(section), section.draft_time, section.eagle, key)


def _rates(section: SpeculationSection) -> tuple[float, ...]:
    k, given, mean = section.tokens, section.acceptance, section.mean_length
    if (given is None) == (mean is None):
        got = "neither" if given is None else "both"
        raise UsageError("one of acceptance and mean_length says what is accepted", _WHERE, got)
    if given is not None:
        falls = all(after <= before for before, after in zip([1.0, *given], [*given, 0.0], strict=True))
        if len(given) != k or not falls:
            expected = f"{k} shares from 1 to 0, none above the one before"
            raise UsageError(
                "not the acceptance of each position", f"{_WHERE}.acceptance", str(given), expected
            )
        return tuple(given)
    assert mean is not None
    if mean > k + 1:
        raise UsageError(
            "more than a step can bring", f"{_WHERE}.mean_length", f"{mean:g}", f"1 to {k + 1}, tokens + 1"
        )
    share = _share(mean - 1, k)
    return tuple(share**position for position in range(1, k + 1))


def _share(accepted: float, k: int) -> float:
    """Return p with p + p² + … + p^k = ``accepted``: every draft has the same acceptance probability."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(1, k + 1)) < accepted else (low, middle)
    return high if accepted else 0.0


def findings(
    model: ScenarioModel, replica: ReplicaSection, drafts: SpeculationSection
) -> Iterator[tuple[str, str]]:
    """Yield (key of the replica, reason) if drafts conflict with other settings."""
    if replica.instant:
        yield "speculation", "replica.instant is true: no step takes time"
    elif replica.scheduler != "kvsim":
        yield "speculation", f"replica.scheduler {replica.scheduler} drafts no tokens here"
    elif replica.async_scheduling != "none":
        yield "speculation", "asynchronous scheduling with drafts is not simulated: set async_scheduling none"
    elif model.pools.prefill or model.pools.decode:
        yield "speculation", "drafts are not handed over between machines"
    elif (groups := cache_groups(model)) is not None and (
        why := _with_groups(groups, drafts, lower_semantics(model) is not None)
    ):
        yield "speculation", why
    elif drafts.eagle and not model.cache.enabled:
        yield "speculation", "cache.enabled is false: no hit loses its last block"


def _with_groups(groups: GroupSettings, section: SpeculationSection, has_tier: bool) -> str:
    """Return the reason why drafts cannot be simulated with several cache groups; "" if they can."""
    if any(group.kind == "linear" for group in groups.layout.groups):
        return "what a rejected draft leaves of a state is not simulated in several cache groups"
    if section.eagle:
        return "a hit that loses its last block is not simulated in several cache groups"
    return "drafts in several cache groups with a tier below are not simulated" if has_tier else ""
