"""A channel: what carries KV between two tiers, first come, first served (semantics 3)."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from kvcache_sim.channels.demand import AnyDemand, Demand
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import beyond_time
from kvcache_sim.units import LAST_NS, NS_PER_S
from kvcache_sim.values import dataclass

#: A time that is not known yet: later than any other.
NOT_YET = 1 << 62


@dataclass(slots=True)
class Transmission:
    """When one job's KV arrives: whole, its first layer, and the time each layer takes on the channel.

    On a channel served layer by layer a time is ``NOT_YET`` until it has come; ``arrivals_ns`` then holds
    the layers sent so far.
    """

    start_ns: int
    first_layer_ns: int
    completion_ns: int
    per_layer_ns: int
    arrivals_ns: list[int] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether its times are final."""
        return self.completion_ns != NOT_YET


class Link(Protocol):
    """What is known of any channel: its settings and what it has carried so far."""

    @property
    def settings(self) -> ChannelSettings:
        """What it is like."""
        ...

    @property
    def busy_ns(self) -> int:
        """For how long it has been, or will be, occupied by what was queued."""
        ...

    @property
    def queued_ns(self) -> int:
        """How long jobs have waited for earlier ones, all together."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Bytes queued so far."""
        ...

    @property
    def jobs(self) -> int:
        """Jobs queued so far."""
        ...

    @property
    def demand(self) -> AnyDemand:
        """The rate that was asked of it."""
        ...

    @property
    def by_layer(self) -> bool:
        """Whether it is served layer by layer, its times final only as they come."""
        ...

    def wait_ns(self, now_ns: int, pieces: int = 0, /) -> int:
        """Return how long a job of so many pieces would wait, as far as is known, before its first byte."""
        ...


class FifoLink(Link, Protocol):
    """A link on which a job's times are final when it is queued: ``Channel`` here, or the core's."""

    @property
    def last_call_ns(self) -> int:
        """When the last job was queued."""
        ...

    def transmit(self, size_bytes: int, pieces: int, layers: int, now_ns: int, /) -> Transmission:
        """Queue a job whose data are all at hand."""
        ...

    def forward(self, size_bytes: int, pieces: int, layers: int, feed: Transmission, /) -> Transmission:
        """Queue a job fed layer by layer by an earlier hop."""
        ...


def layer_ns(settings: ChannelSettings, size_bytes: int, pieces: int, layers: int) -> int:
    """Return the time one of ``layers`` equal parts of a job occupies a channel, in ns.

    occupation = max(bytes / bandwidth + pieces · gap, pieces · overhead); a layer takes
    ceil(occupation / layers).
    UsageError where the whole job takes longer than simulated time lasts.
    """
    moved = -(-size_bytes * NS_PER_S // settings.bandwidth_bytes_per_s)
    occupied = max(moved + pieces * settings.piece_gap_ns, pieces * settings.piece_overhead_ns)
    per_layer = -(-occupied // layers)
    if per_layer * layers > LAST_NS:
        raise beyond_time()
    return per_layer


def submit_ns(settings: ChannelSettings, pieces: int) -> int:
    """Return how long the CPU submits so many pieces, in ns; UsageError beyond simulated time."""
    submitted = pieces * settings.piece_submit_ns
    if submitted > LAST_NS:
        raise beyond_time()
    return submitted


class Channel:
    """A FIFO link: jobs are sent one after another, layer by layer; latency does not occupy it.

    Where pieces are submitted, the CPU does so job after job: a job's bytes wait until all of its pieces are
    submitted, and those of the jobs before it go meanwhile. The times of a job are final when it is queued.
    """

    by_layer = False

    def __init__(self, settings: ChannelSettings) -> None:
        self.settings = settings
        self.free_at_ns = 0
        #: When the CPU has submitted what is queued.
        self.submitted_ns = 0
        self.busy_ns = 0
        self.queued_ns = 0
        self.sent_bytes = 0
        self.jobs = 0
        self.demand = Demand()
        self.last_call_ns = 0

    def wait_ns(self, now_ns: int, pieces: int = 0) -> int:
        """Return how long a job of so many pieces queued now waits for earlier ones and its submission."""
        submitted = max(self.submitted_ns - now_ns, 0) + submit_ns(self.settings, pieces)
        return max(self.free_at_ns - now_ns, submitted)

    def _can_start(self, asked_ns: int, pieces: int) -> int:
        """Let the CPU submit a job; return when its first byte can go."""
        self.submitted_ns = max(asked_ns, self.submitted_ns) + submit_ns(self.settings, pieces)
        return max(self.submitted_ns, self.free_at_ns)

    def transmit(self, size_bytes: int, pieces: int, layers: int, now_ns: int) -> Transmission:
        """Queue a job whose data are all at hand; nothing to send takes no time and no turn."""
        if size_bytes == 0:
            return Transmission(now_ns, now_ns, now_ns, 0)
        per_layer = layer_ns(self.settings, size_bytes, pieces, layers)
        start = self._can_start(now_ns, pieces)
        end = start + layers * per_layer
        latency = self.settings.latency_ns
        self._account((now_ns, start), layers * per_layer, size_bytes, pieces)
        self.free_at_ns = end + latency if self.settings.latency_occupies else end
        return Transmission(start, start + latency + per_layer, end + latency, per_layer)

    def forward(self, size_bytes: int, pieces: int, layers: int, feed: Transmission) -> Transmission:
        """Queue a job fed layer by layer by an earlier hop; called when the hop's first layer arrives.

        Layer k leaves when it has arrived and the channel is done with layer k − 1: the last one arrives at
        latency + max(f₁ + L·p₂, f₁ + (L−1)·p₁ + p₂, s₂ + L·p₂) (semantics 4).
        """
        if size_bytes == 0:
            return Transmission(feed.first_layer_ns, feed.first_layer_ns, feed.completion_ns, 0)
        per_layer = layer_ns(self.settings, size_bytes, pieces, layers)
        latency = self.settings.latency_ns
        arrived = feed.first_layer_ns
        start = self._can_start(arrived, pieces)
        end = max(start + layers * per_layer, feed.completion_ns + per_layer)
        self._account((arrived, start), layers * per_layer, size_bytes, pieces)
        self.free_at_ns = end + latency if self.settings.latency_occupies else end
        return Transmission(start, start + latency + per_layer, end + latency, per_layer)

    def _account(self, times_ns: tuple[int, int], occupied_ns: int, size_bytes: int, pieces: int) -> None:
        asked_ns, start_ns = times_ns
        assert asked_ns >= self.last_call_ns, "jobs are queued in time order"
        self.last_call_ns = asked_ns
        self.queued_ns += start_ns - asked_ns - submit_ns(self.settings, pieces)
        self.busy_ns += occupied_ns
        self.sent_bytes += size_bytes
        self.jobs += 1
