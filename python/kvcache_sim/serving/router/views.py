"""Makes what routers look at: one source of loads, prompts and news for all routers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look, RouterView
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.router.report import reports_of
from kvcache_sim.serving.router.scrapes import Scrapes
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import ClusterSettings, RouterSettings
from kvcache_sim.workload.trace import Trace


class Views:
    """What the routers of a cluster share: polls of machines, prompts, and who hears of ended requests."""

    def __init__(
        self, trace: Trace, cluster: ClusterSettings, replicas: Sequence[NativeReplica], engine: Engine
    ) -> None:
        self._prompts = PromptBlocks(trace)
        self._engine = engine
        self._block = cluster.cache.block_size_tokens
        interval_ns = cluster.router.view_interval_ns
        self.scrapes = Scrapes(engine, replicas, interval_ns) if interval_ns else None
        #: Told the number of each request that is done.
        self.when_closed: list[Callable[[int], None]] = []

    def of(
        self,
        replicas: Sequence[NativeReplica],
        settings: RouterSettings,
        seed: int,
        look: Callable[[Arrival], Look],
        trees: Sequence[TieredStore | None] = (),
        heard: bool = False,
    ) -> RouterView:
        """Return the view of a router that chooses among some machines; ``heard`` as in ``look.look_at``."""
        engine = self._engine
        live = RouterView(
            replicas,
            settings,
            seed,
            self._block,
            look,
            trees,
            reports_of(replicas, engine, heard),
            None,
            self._prompts,
            lambda: engine.now_ns,
            self.when_closed,
        )
        if self.scrapes is None:
            return live
        return replace(live, scraped=self.scrapes.of(live, len(replicas)))
