"""Requests of one simulation worked off in batches."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.offline.batches import Batches
from kvcache_sim.serving.offline.settings import OfflineSettings


def work_off(
    settings: OfflineSettings, requests: int, cluster: Cluster, trees: Sequence[MarkingStore | None]
) -> None:
    """Let a cluster's requests arrive batch by batch."""
    cluster.come_in(Batches(settings, requests, cluster.replicas, trees, cluster.engine))
