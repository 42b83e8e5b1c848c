"""The section ``offline`` of a scenario, the settings it stands for, and what rules it out."""

from __future__ import annotations

from kvcache_sim.scenario.quantities import MAX_COUNT, DurationNs
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.serving.offline.settings import OfflineSettings


class OfflineSection(Section):
    """Requests worked off in batches, such as the rollouts of a training run; arrivals count for nothing."""

    batch: int = Field(256, ge=1, le=MAX_COUNT, description="prompts of a batch")
    samples: int = Field(1, ge=1, le=4096, description="answers to each prompt")
    pause: DurationNs = Field(0, description="from the end of a batch to the next: the weight update")
    flush: bool = Field(True, description="the caches are emptied when a batch has ended")


def offline_settings(own: OfflineSection | None) -> OfflineSettings | None:
    """Return how a trace is worked off, None where its arrivals count."""
    return None if own is None else OfflineSettings(own.batch * own.samples, own.pause, own.flush)
