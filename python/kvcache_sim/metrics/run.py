"""A finished run in memory, and the progress of a running one for observers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.base.values import Value, field
from kvcache_sim.metrics.channel_use import ChannelUse
from kvcache_sim.metrics.tier_use import TierUse
from kvcache_sim.policies.plugins.uses import PluginUse

if TYPE_CHECKING:
    from kvcache_sim.serving.membership.scaling import FleetChange


class CodedText(NamedTuple):
    """A text column as dictionary codes: entry i is ``words[codes[i]]``. Cost: 4 bytes per row."""

    codes: NDArray[np.int32]
    words: tuple[str, ...]


#: A column in memory: an array of the dtype in ``metrics/columns.py``, or CodedText for ``str``.
ColumnData = NDArray[Any] | CodedText


class CountedTimes(NamedTuple):
    """A counted histogram of durations: ``counts[i]`` observations of ``values_ns[i]`` (ascending)."""

    values_ns: NDArray[np.int64]
    counts: NDArray[np.int64]


class EngineUse(NamedTuple):
    """The engine that served a run, and its counts."""

    #: Name: ``native`` (the core), ``spec`` or ``spec-plain`` (the specification).
    name: str
    #: Iterations of all machines.
    steps: int
    #: Events popped from the heap of ``engine.py``, without the core's own events.
    events: int


#: Every counter of a run. All keys are always present; an absent tier counts 0.
COUNTERS: dict[str, str] = {
    **{
        f"evictions.{tier}": f"blocks evicted from {tier}, written down or, from a machine's last, discarded"
        for tier in TIERS
    },
    "dropped_blocks": "blocks that left unwritten: a policy said so, no space below, or an ancestor left",
}


class Mark(NamedTuple):
    """Counts at one time of a run: these fields of ``Run`` at that time."""

    itl_ns: CountedTimes
    counters: Mapping[str, int]
    channels: tuple[ChannelUse, ...]
    tiers: tuple[TierUse, ...]


class Run(Value):
    """All measurements of one run, before it is written or summarized.

    The tables have exactly the keys of ``REQUEST_COLUMNS``, ``SERIES_COLUMNS`` and
    ``EVENT_COLUMNS``; all columns of one table have the same length. ``requests`` is empty if its rows were
    streamed during the run.
    """

    requests: dict[str, ColumnData]
    series: Mapping[str, ColumnData]
    events: Mapping[str, ColumnData]
    #: The keys of COUNTERS, and further counters of the engine.
    counters: dict[str, int]
    #: Time from each token to the next one of the same request, the first token excluded.
    itl_ns: CountedTimes
    #: Digest of the semantic records (arrive, admit, first token, preempt, evict, transfer, finish).
    digest_events: str
    #: Digest of the columns of ``requests``.
    digest_results: str
    engine: EngineUse
    #: Simulated time of the last event.
    end_ns: int
    warnings: tuple[str, ...] = ()
    #: Every channel, and every tier of every machine.
    channels: tuple[ChannelUse, ...] = ()
    tiers: tuple[TierUse, ...] = ()
    #: The time in which counters, channels and tiers were counted; None: the whole run.
    counted_ns: int | None = None
    #: The columns of ``PREFIX_COLUMNS``, if requested.
    prefixes: dict[str, ColumnData] | None = None
    #: The columns of ``JUNCTION_COLUMNS``, of a cache of several groups.
    junctions: dict[str, ColumnData] | None = None
    #: Figures and digests of the engine's schedule, if it was recorded.
    schedule: dict[str, Any] | None = None
    #: Machines that a scaling policy added or released, in order.
    fleet_changes: tuple[FleetChange, ...] = ()
    #: Number and time of the calls of each plug-in, by kind and name.
    plugins: tuple[PluginUse, ...] = ()
    #: Counts of each outcome among the events that were streamed during the run; ``events`` has the
    #: others.
    left_outcomes: Mapping[str, int] = field(default_factory=dict)
    #: Simulated time → counts at that time, at the requested times.
    marks: Mapping[int, Mark] = field(default_factory=dict)


class Progress(Value):
    """A snapshot of a running simulation. Rates and shares are in [0, 1]."""

    now_ns: int
    finished_requests: int
    total_requests: int
    #: Iterations so far, over all machines.
    steps: int
    #: Share of each tier in use, over all machines; unbounded tiers are left out.
    tiers: Mapping[str, float]
    #: Cached over prompt tokens of the admitted requests so far.
    token_hit_rate: float
    #: Requests waiting for admission, over all machines.
    queue: int
    #: Last arrival of the trace, for the share of simulated time; 0 when unknown (closed loop).
    end_ns: int = 0
    #: The hit rate by tier; sums to ``token_hit_rate``.
    tier_hit_rates: Mapping[str, float] = field(default_factory=dict)
    #: Busy share of each channel since the start.
    channels: Mapping[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Watches a running simulation; it cannot change it.

    The engine calls ``update`` every few thousand events; the observer decides how often to draw.
    """

    def update(self, progress: Progress) -> None:
        """Receive one snapshot. Cheap if nothing is drawn; must not raise."""
        ...

    def phase(self, name: str) -> None:
        """Receive the name of a phase after the last event; must not raise."""
        ...
