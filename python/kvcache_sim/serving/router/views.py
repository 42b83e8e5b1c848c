"""Construction of routers' views: one source of loads, prompts and notifications per cluster.

A gateway that polls its engines has the loads of its last scrape between two polls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.engine import NO_MACHINE, TRANSFER, Engine
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.affinity import Bindings
from kvcache_sim.serving.router.contract import Loads, Look, Occupancy, RouterView
from kvcache_sim.serving.router.in_core import DecodeClock
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.router.registry import needs_of
from kvcache_sim.serving.router.report import counts_of, published_by
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import ClusterSettings, RouterSettings
from kvcache_sim.workload.trace import Trace


class ScrapedLoads:
    """The loads of one group of machines at the last poll; zero before the first."""

    def __init__(self, live: Loads, machines: int) -> None:
        self._live = live
        self._requests, self._queued = [0] * machines, [0] * machines
        self._occupancy = Occupancy([0] * machines, [0] * machines, [0.0] * machines)
        self._polls = 0

    def poll(self) -> None:
        """Read the loads of the machines."""
        self._requests, self._queued = self._live.requests(), self._live.queued_tokens()
        self._occupancy = self._live.occupancy()
        self._polls += 1

    @property
    def looks(self) -> int:
        """Polls so far."""
        return self._polls

    def requests(self) -> list[int]:
        """Return the requests at the last poll."""
        return self._requests

    def queued_tokens(self) -> list[int]:
        """Return the queued tokens at the last poll."""
        return self._queued

    def occupancy(self) -> Occupancy:
        """Return the engines' reports at the last poll."""
        return self._occupancy


class Scrapes:
    """Polls at multiples of ``interval_ns``, before all other events of that instant, if a decision needs it.

    A poll without a decision before the next poll is left out. In an open loop, where only arrivals are
    decided on and are ``expected`` in order, only the last poll before each arrival is made; otherwise every
    poll while requests are open. So an interval of milliseconds costs at most one poll per arrival there.
    """

    def __init__(self, engine: Engine, replicas: Sequence[NativeReplica], interval_ns: int) -> None:
        self._engine, self._replicas, self._interval_ns = engine, replicas, interval_ns
        self._groups: list[ScrapedLoads] = []
        #: True if decisions are made only at expected arrivals.
        self._arrivals_only = False
        self._expected: list[int] = []
        self._next_ns: int | None = None
        self._last_ns = -interval_ns

    def of(self, live: Loads, machines: int) -> ScrapedLoads:
        """Return the polled loads of a group of machines."""
        group = ScrapedLoads(live, machines)
        self._groups.append(group)
        return group

    def for_arrivals_only(self) -> None:
        """Declare that decisions are made only at expected arrivals, which come in order."""
        self._arrivals_only = True

    def expect(self, arrival_ns: int) -> None:
        """Announce a future arrival."""
        heappush(self._expected, arrival_ns)
        if self._next_ns is None:
            self._queue()

    def _queue(self) -> None:
        """Queue the next poll that a decision may need, if any."""
        now, interval = self._engine.now_ns, self._interval_ns
        seen_ns = self._last_ns + interval if self._arrivals_only else now  # a new poll is due after it
        while self._expected and self._expected[0] < seen_ns:
            heappop(self._expected)
        first = max(self._last_ns + interval, -(-now // interval) * interval)
        wanted = [] if not self._expected else [max(self._expected[0] // interval * interval, first)]
        if not self._arrivals_only and any(replica.load.requests for replica in self._replicas):
            wanted.append(first)
        self._next_ns = min(wanted, default=None)
        if self._next_ns is not None:
            self._engine.schedule(self._next_ns, TRANSFER, NO_MACHINE, self._poll)

    def _poll(self, _: object) -> None:
        self._last_ns = self._engine.now_ns
        for group in self._groups:
            group.poll()
        self._queue()


class Views:
    """Shared by the routers of a cluster: polls of machines, prompts, and callbacks for finished requests."""

    def __init__(
        self, trace: Trace, cluster: ClusterSettings, replicas: Sequence[NativeReplica], engine: Engine
    ) -> None:
        self._prompts = PromptBlocks(trace)
        self._engine = engine
        self._block = cluster.cache.block_size_tokens
        self._trace, self._affinity = trace, cluster.router.affinity
        interval_ns = cluster.router.view_interval_ns
        self.scrapes = Scrapes(engine, replicas, interval_ns) if interval_ns else None
        #: Callbacks with the number of each finished request.
        self.when_closed: list[Callable[[int], None]] = []

    def bindings(self) -> Bindings | None:
        """Return new bindings of requests to machines, of one pool; None: no request is bound."""
        if self._affinity is None:
            return None
        engine = self._engine
        found = Bindings(self._affinity, self._trace, lambda: engine.now_ns)
        self.when_closed.append(found.closed)
        return found

    def of(
        self,
        replicas: Sequence[NativeReplica],
        settings: RouterSettings,
        seed: int,
        look: Callable[[Arrival], Look],
        trees: Sequence[TieredStore | None] = (),
        clock: DecodeClock | None = None,
    ) -> RouterView:
        """Return the view of a router over ``replicas``; ``clock``: it chooses decode machines."""
        engine = self._engine
        published = needs_of(settings.policy).published
        live = RouterView(
            replicas,
            settings,
            seed,
            self._block,
            look,
            trees,
            published_by(replicas) if published else counts_of(replicas, clock or engine),
            None,
            self._prompts,
            lambda: engine.now_ns,
            self.when_closed,
            clock is not None,
            None if clock is None else clock.promised,
        )
        if self.scrapes is None:
            return live
        return replace(live, scraped=self.scrapes.of(live, len(replicas)))
