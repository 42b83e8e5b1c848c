"""The contract of a router: what it is asked, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.tiers import ROUTER_CREDITS
from kvcache_sim.values import Value, field

# What routers ask of every machine at every decision, read without a call of Python a machine.
_REQUESTS = attrgetter("load.requests")
_QUEUED_TOKENS = attrgetter("load.queued_tokens")
_EXPECTED_TOKENS = attrgetter("load.expected_prefill_tokens")


class Look(NamedTuple):
    """What each machine has, by machine."""

    #: Leading blocks of the request that are found there on any tier.
    found_blocks: list[int]
    #: Blocks that running requests hold on its GPU, a shared one counted once.
    active_blocks: list[int]


class Occupancy(NamedTuple):
    """What the engine of each machine reports of itself, by machine."""

    #: Requests that wait to be scheduled.
    waiting: list[int]
    #: Requests in the batch.
    running: list[int]
    #: Share of the GPU's blocks that running requests hold, from 0 to 1.
    kv_use: list[float]


class Loads(Protocol):
    """The load of every machine, as it is now or as it was when it was last looked at."""

    def requests(self) -> list[int]:
        """Return by machine how many requests were sent there and are not finished."""
        ...

    def queued_tokens(self) -> list[int]:
        """Return by machine the prompt tokens sent there that are not computed yet."""
        ...

    def occupancy(self) -> Occupancy:
        """Return what the engines report."""
        ...

    @property
    def looks(self) -> int:
        """How often the machines have been looked at so far; -1: at every decision."""
        ...


def _no_report() -> Occupancy:
    raise AssertionError("this view was made without engines that report")


class RouterView(Value):
    """What a router may look at. Looking never changes recency."""

    replicas: Sequence[NativeReplica]
    settings: RouterSettings
    #: The seed of the run; draw from ``rng.stream(seed, name)``.
    seed: int
    block_size_tokens: int
    #: Look at every machine at once, as it is now; cost: one walk along the prefix a machine.
    look: Callable[[Arrival], Look]
    #: By machine its tree of blocks, where it has lower tiers and the router sees which one holds a block.
    trees: Sequence[TieredStore | None] = ()
    #: What the engines report now.
    report: Callable[[], Occupancy] = _no_report
    #: The loads as they were at the last multiple of ``router.view.interval``; None: as they are now.
    scraped: Loads | None = None
    #: The blocks of each prompt, for routers that keep a record of what they sent.
    prompts: PromptBlocks | None = None
    #: The time.
    now_ns: Callable[[], int] = lambda: 0
    #: Who is told the number of each request that is done; a router that wants to hear adds itself.
    when_closed: list[Callable[[int], None]] = field(default_factory=list)

    @property
    def loads(self) -> Loads:
        """The machines' own figures, as old as ``router.view.interval`` makes them.

        What a router counts by itself, such as ``requests`` here, is never old.
        """
        return self if self.scraped is None else self.scraped

    @property
    def looks(self) -> int:
        """Minus one: this view looks at every decision."""
        return -1

    def occupancy(self) -> Occupancy:
        """Return what the engines report now."""
        return self.report()

    def requests(self) -> list[int]:
        """Return by machine how many requests were sent there and are not finished."""
        return list(map(_REQUESTS, self.replicas))

    def queued_tokens(self) -> list[int]:
        """Return by machine the prompt tokens sent there that are not computed yet."""
        return list(map(_QUEUED_TOKENS, self.replicas))

    def expected_prefill_tokens(self) -> list[int]:
        """Return by machine how many of these the router expected to be computed."""
        return list(map(_EXPECTED_TOKENS, self.replicas))

    def new_prefill_tokens(self, sequence: Arrival, found_blocks: Sequence[int]) -> list[int]:
        """Return by machine how many prompt tokens are not found there."""
        prompt, block = sequence.prompt_num_tokens, self.block_size_tokens
        return [max(prompt - found * block, 0) for found in found_blocks]

    def uncredited_blocks(self, sequence: Arrival, found_blocks: Sequence[int]) -> list[float]:
        """Return by machine what its found blocks lack to be worth as many on the GPU.

        A block counts with the credit of its fastest tier. Cost: one walk along the prefix a machine with
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
    """Chooses a machine for each request, in arrival order. Made once a run, from a ``RouterView``."""

    def choose(self, sequence: Arrival) -> int:
        """Return the index of the machine."""
        ...


class Needs(NamedTuple):
    """What a router goes by beside the requests themselves; a built-in router's class has it as ``needs``."""

    #: What the machines have cached.
    caches: bool = False
    #: The engines' own figures, which ``router.view.interval`` makes old.
    engine_loads: bool = False
    #: Nothing but load: it has none to go by where a run takes no time.
    load_alone: bool = False
    #: The blocks of the prompts that it sent: a trace is read whole for it.
    sent_blocks: bool = False
    #: The time: as a decode router it keeps machines on the clock.
    clock: bool = False
    #: The keys of the section ``router`` that it reads.
    keys: tuple[str, ...] = ()
    #: The ``router.index.kind`` that it can keep in place of the truth.
    own_index: str = "truth"
