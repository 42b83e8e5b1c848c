"""What requests of one simulation wait for before their engine has them: a model's turn, an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.router.contract import Held
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.models.holding import Holder


class Holders:
    """Models that take turns, or adapters, as far as a run has them."""

    def __init__(
        self,
        settings: ClusterSettings,
        trace: Trace,
        cluster: Cluster,
        trees: Sequence[MarkingStore | None],
        held: Held | None,
    ) -> None:
        self._by_name: dict[str, Holder] = {}
        if held is None:
            return
        if settings.models is not None and settings.models.takes_turns:
            from kvcache_sim.serving.membership.emptying import empty_compute_tier
            from kvcache_sim.serving.models.turns import Turns

            def empty(machine: int, requests: Sequence[int]) -> None:
                empty_compute_tier(cluster.replicas[machine], trees[machine], requests)

            self._by_name["models"] = Turns(settings.models, held, empty, cluster.engine)
        if settings.adapters is not None:
            from kvcache_sim.serving.models.adapters import Adapters

            self._by_name["adapters"] = Adapters(
                settings.adapters, trace.adapter.tolist(), held, cluster.engine
            )
        for holder in self._by_name.values():
            cluster.hold_before_engines(holder)

    @property
    def counts(self) -> dict[str, int]:
        """What was changed and loaded so far."""
        return {
            f"{name}.{what}": count
            for name, holder in self._by_name.items()
            for what, count in holder.counts.items()
        }
