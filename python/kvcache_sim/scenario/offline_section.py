"""The section ``offline`` of a scenario, the settings it stands for, and what rules it out."""

from typing import Annotated

from kvcache_sim.scenario.quantities import Count, DurationNs, Machines
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.offline.settings import OfflineSettings


class OfflineSection(Section):
    """Requests worked off in batches, such as the rollouts of a training run; arrivals count for nothing."""

    batch: Annotated[Count, about("prompts of a batch")] = 256
    samples: Annotated[Machines, about("answers to each prompt")] = 1
    pause: Annotated[DurationNs, about("from the end of a batch to the next: the weight update")] = 0
    flush: Annotated[bool, about("the caches are emptied when a batch has ended")] = True


def offline_settings(own: OfflineSection | None) -> OfflineSettings | None:
    """Return how a trace is worked off, None where its arrivals count."""
    return None if own is None else OfflineSettings(own.batch * own.samples, own.pause, own.flush)
