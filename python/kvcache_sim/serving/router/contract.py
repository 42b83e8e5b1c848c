"""The contract of a router: the ``Router`` protocol and the view that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kvcache_sim.base.tiers import ROUTER_CREDITS
from kvcache_sim.base.values import Value, field
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import RouterSettings

# Figures that routers need of every machine at every decision, read without a Python call per machine.
_REQUESTS = attrgetter("load.requests")
_QUEUED_TOKENS = attrgetter("load.queued_tokens")
_EXPECTED_TOKENS = attrgetter("load.expected_prefill_tokens")


class Look(NamedTuple):
    """The cached and private blocks of each machine, by machine."""

    #: Leading blocks of the request cached there, on any tier.
    found_blocks: list[int]
    #: Blocks on its GPU that running requests hold and do not share.
    private_blocks: list[int]
    #: Leading blocks of the request that are ready on its GPU.
    gpu_blocks: list[int]


class Occupancy(NamedTuple):
    """The load that the engine of each machine reports, by machine."""

    #: Requests that wait to be scheduled; of a published report, those that the last schedule left.
    waiting: list[int]
    #: Requests in the batch.
    running: list[int]
    #: Share of the GPU's blocks that can serve no other request now, from 0 to 1.
    kv_use: list[float]


class Loads(Protocol):
    """The load of every machine, now or at the last poll."""

    def requests(self) -> list[int]:
        """Return by machine the number of unfinished requests sent there."""
        ...

    def queued_tokens(self) -> list[int]:
        """Return by machine the prompt tokens sent there that are not computed yet."""
        ...

    def occupancy(self) -> Occupancy:
        """Return what the engines report."""
        ...

    @property
    def looks(self) -> int:
        """Number of polls so far; -1: the loads are read at every decision."""
        ...


class Promised:
    """Requests that are promised to a machine and still computed elsewhere, as the router counts them."""

    def __init__(self, machines: int) -> None:
        self.requests, self.tokens = [0] * machines, [0] * machines
        self._open: dict[int, tuple[int, int]] = {}

    def add(self, sequence: Arrival, machine: int) -> None:
        """Promise a request to a machine."""
        self._open[sequence.request] = machine, sequence.prompt_num_tokens
        self._count(machine, 1, sequence.prompt_num_tokens)

    def machine_of(self, request: int) -> int | None:
        """Return the machine that a request was promised to, which has it from now on; None: none was."""
        machine, tokens = self._open.pop(request, (None, 0))
        if machine is not None:
            self._count(machine, -1, -tokens)
        return machine

    def closed(self, request: int) -> None:
        """Forget a request that finished elsewhere."""
        self.machine_of(request)

    def _count(self, machine: int, requests: int, tokens: int) -> None:
        self.requests[machine] += requests
        self.tokens[machine] += tokens


def _no_report() -> Occupancy:
    raise AssertionError("this view was made without engines that report")


class RouterView(Value):
    """The state that a router may read. Reading never changes recency.

    Arrays and lists have one entry per machine, in the order of the indices that ``Router.choose`` returns.
    """

    replicas: Sequence[NativeReplica]
    settings: RouterSettings
    #: The seed of the run; draw from ``rng.stream(seed, name)``.
    seed: int
    block_size_tokens: int
    #: Current cached and private blocks of every machine; cost: one walk along the prefix per machine.
    look: Callable[[Arrival], Look]
    #: By machine its tree of blocks, if it has lower tiers and the router sees the tier of a block.
    trees: Sequence[TieredStore | None] = ()
    #: Current reports of the engines.
    report: Callable[[], Occupancy] = _no_report
    #: The loads at the last multiple of ``router.view.interval``; None: current loads.
    scraped: Loads | None = None
    #: The blocks of each prompt, for routers that record the prompts they sent.
    prompts: PromptBlocks | None = None
    #: The current time (ns).
    now_ns: Callable[[], int] = lambda: 0
    #: Callbacks with the number of each finished request; a router may append its own.
    when_closed: list[Callable[[int], None]] = field(default_factory=list)
    #: True if it chooses decode machines, which compute no prompt.
    decodes: bool = False
    #: Requests whose decode machine was chosen at their arrival; None: no such requests.
    promised: Promised | None = None

    @property
    def loads(self) -> Loads:
        """The machines' own figures, as of the last poll (``router.view.interval``).

        Counts that a router keeps itself, for example ``requests`` here, are always current.
        """
        return self if self.scraped is None else self.scraped

    @property
    def looks(self) -> int:
        """Number of reads of the loads so far; −1, since this view reads them at every decision."""
        return -1

    def occupancy(self) -> Occupancy:
        """Return the current reports of the engines."""
        return self.report()

    def requests(self) -> list[int]:
        """Return by machine the number of unfinished requests sent there."""
        sent = list(map(_REQUESTS, self.replicas))
        return sent if self.promised is None else list(map(add, sent, self.promised.requests))

    def queued_tokens(self) -> list[int]:
        """Return by machine the prompt tokens sent there that are not computed yet."""
        sent = list(map(_QUEUED_TOKENS, self.replicas))
        return sent if self.promised is None else list(map(add, sent, self.promised.tokens))

    def expected_prefill_tokens(self) -> list[int]:
        """Return by machine the queued tokens that the router expected to be computed."""
        return list(map(_EXPECTED_TOKENS, self.replicas))

    def new_prefill_tokens(self, sequence: Arrival, found_blocks: Sequence[int]) -> list[int]:
        """Return by machine the prompt tokens that are not cached there."""
        prompt, block = sequence.prompt_num_tokens, self.block_size_tokens
        return [max(prompt - found * block, 0) for found in found_blocks]

    def large_enough(self, chosen: int, sequence: Arrival) -> int | None:
        """Return the chosen machine, or the next that can hold the whole request; None: none can."""
        from_there = (*range(chosen, len(self.replicas)), *range(chosen))
        tokens = sequence.total_kv_tokens
        return next((at for at in from_there if self.replicas[at].can_ever_hold(tokens)), None)

    def uncredited_blocks(self, sequence: Arrival, found_blocks: Sequence[int]) -> list[float]:
        """Return by machine the credit that its found blocks lack compared with as many GPU blocks.

        A block counts with the credit of its fastest tier. Cost: one walk along the prefix per machine with
        lower tiers.
        """
        if not any(self.trees):
            return [0.0] * len(found_blocks)
        return [
            sum(
                (end - start) * (1 - ROUTER_CREDITS[tier])
                for tier, start, end, _ in (tree.match_prefix(sequence.request, found) if tree else ())
            )
            for tree, found in zip(self.trees, found_blocks, strict=True)
        ]


class Router(Protocol):
    """Chooses a machine for each request, in arrival order. Made once per run from a ``RouterView``."""

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of a request.

        Args:
            sequence: The request at its arrival: times in ns, lengths in tokens.

        Returns:
            An index from 0 to the number of machines − 1.
        """
        ...


class Needs(NamedTuple):
    """Inputs of a router in addition to the requests; a built-in router's class has them as ``needs``."""

    #: The machines' caches.
    caches: bool = False
    #: The engines' own figures, as of the last poll (``router.view.interval``).
    engine_loads: bool = False
    #: Of these figures, the counts that an engine publishes at the end of a step, not the current ones.
    published: bool = False
    #: The machines' own estimates: it has no index.
    estimates: bool = False
    #: Load alone: there is none in a run without time.
    load_alone: bool = False
    #: The blocks of the prompts that it sent: needs the whole trace in memory.
    sent_blocks: bool = False
    #: The time: as a decode router it disables lookahead.
    clock: bool = False
    #: The keys of the section ``router`` that it reads.
    keys: tuple[str, ...] = ()
    #: The ``router.index.kind`` that it supports in addition to ``truth``.
    own_index: str = "truth"
    #: Of its keys, those with a default of its own.
    defaults: Mapping[str, Any] = MappingProxyType({})
