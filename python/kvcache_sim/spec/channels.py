"""Channels: the arrival times of KV that is sent (seed 001, "Channel.transmit"; semantics 3).

A channel carries jobs: some bytes in pieces, as L equal layers, for the KV of a block lies layer by layer.
A job occupies the channel for max(bytes / bandwidth + pieces · gap, pieces · overhead), each layer for a
L-th of that, rounded up; latency comes on top and occupies nothing unless that is set. A FIFO channel
answers at once with three times: completion, the first layer's completion, and the time of a layer; a later
job waits for the earlier ones. A job that an earlier hop feeds sends layer k when it has arrived and layer
k - 1 is sent (semantics 4). Under ``fair`` (processor sharing) and ``loads-first`` a channel is served layer
by layer, one event each, and a time is final only when it has come. Edges that name one channel contend (seed
001, "How to model serving system"); machines without a named channel between them get one a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import Struct, field

from kvcache_sim.base.units import LAST_NS, NS_PER_S
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.engine import NO_MACHINE, TRANSFER, Engine, Event, beyond_time

#: An unknown time: later than any other.
NOT_YET = 1 << 62
#: Parts of a nanosecond: a fair share among up to 16 jobs stays exact.
_PARTS = 720_720


class Size(NamedTuple):
    """The size of a job."""

    bytes: int
    pieces: int
    layers: int


class Expected(NamedTuple):
    """Expected arrivals of the first and the last layer of a job, in ns from now."""

    first_layer_ns: int
    last_layer_ns: int


class Sending(NamedTuple):
    """Times (ns) at which the first and the last layer of a job are sent, and the time per layer."""

    first_ns: int
    last_ns: int
    per_layer_ns: int


class Transmission(Struct):
    """The times (ns) of one job: start, arrival of its first layer and of all, and time per layer."""

    start_ns: int
    first_layer_ns: int
    completion_ns: int
    per_layer_ns: int
    #: Arrivals of the layers so far, on a channel served layer by layer.
    arrivals_ns: list[int] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """True once its times are final."""
        return self.completion_ns != NOT_YET


def layer_ns(settings: ChannelSettings, size: Size) -> int:
    """Return the time (ns) for which one layer of a job occupies a channel."""
    size_bytes, pieces, layers = size
    moved = -(-size_bytes * NS_PER_S // settings.bandwidth_bytes_per_s) + pieces * settings.piece_gap_ns
    per_layer = -(-max(moved, pieces * settings.piece_overhead_ns) // layers)
    if per_layer * layers > LAST_NS:
        raise beyond_time()
    return per_layer


class Link:
    """The base of every channel: its settings, and its traffic so far."""

    by_layer = False

    def __init__(self, settings: ChannelSettings) -> None:
        self.settings = settings
        #: Time in use, total time that jobs have waited for earlier jobs, bytes sent, and jobs.
        self.busy_ns = self.queued_ns = self.sent_bytes = self.jobs = 0

    def wait_ns(self, now_ns: int) -> int:
        """Return the time (ns) that a job queued now waits for earlier jobs."""
        raise NotImplementedError

    def expected_ns(self, size: Size, now_ns: int) -> Expected:
        """Return the expected arrival of the first and last layer of a job queued now, in ns from now."""
        start = self.wait_ns(now_ns) + self.settings.latency_ns
        per_layer = layer_ns(self.settings, size)
        return Expected(start + per_layer, start + size.layers * per_layer)


class FifoChannel(Link):
    """A channel that sends jobs one after another; their times are final when they are queued."""

    def __init__(self, settings: ChannelSettings) -> None:
        super().__init__(settings)
        self.free_at_ns = self.last_call_ns = 0

    def wait_ns(self, now_ns: int) -> int:
        """Return the time (ns) that a job queued now waits for earlier jobs."""
        return max(self.free_at_ns - now_ns, 0)

    def transmit(self, size: Size, now_ns: int, feed: Transmission | None = None) -> Transmission:
        """Queue a job and return its times. An empty job takes no time and no turn.

        ``feed``: times of the previous hop, which brings the job layer by layer; its first layer is here.
        """
        size_bytes, _, layers = size
        asked = now_ns if feed is None else feed.first_layer_ns
        if size_bytes == 0:
            return Transmission(asked, asked, now_ns if feed is None else feed.completion_ns, 0)
        per_layer = layer_ns(self.settings, size)
        start = asked + self.wait_ns(asked)
        self.busy_ns += layers * per_layer
        first, end, per_layer = self._occupy(start, per_layer, layers, feed)
        assert asked >= self.last_call_ns, "jobs are queued in time order"
        self.last_call_ns = asked
        self.queued_ns += start - asked
        self.sent_bytes += size_bytes
        self.jobs += 1
        latency = self.settings.latency_ns
        self.free_at_ns = end + latency if self.settings.latency_occupies else end
        return Transmission(start, first + latency, end + latency, per_layer)

    def _occupy(self, start_ns: int, layer_ns: int, layers: int, feed: Transmission | None) -> Sending:
        """Return the times at which the first and the last layer are sent, and the time per layer."""
        end = start_ns + layers * layer_ns
        if feed is not None:
            end = max(end, feed.completion_ns + layer_ns)
        return Sending(start_ns + layer_ns, end, layer_ns)


class LayeredJob:
    """A job on a channel that is served layer by layer."""

    def __init__(self, layers: int, at_hand: int, is_load: bool, on_layer: Callable[[int], None]) -> None:
        self.layers, self.at_hand, self.is_load, self.requested_ns = layers, at_hand, is_load, 0
        #: Called with the number of layers that have arrived, at each arrival; and the layers sent so far.
        self.on_layer, self.sent = on_layer, 0
        #: Remaining time of the current layer, in parts of a ns.
        self.left = 0
        self.times = Transmission(-1, NOT_YET, NOT_YET, 0)


class LayeredChannel(Link):
    """A channel that serves one layer after another, one event each.

    ``fifo`` sends whole jobs in turn. ``fair`` gives each job with a layer to send the same share. Under
    ``loads-first`` loads (towards the GPU) precede stores: from the next layer on, with ``fair`` at once.
    """

    by_layer = True

    def __init__(self, settings: ChannelSettings, engine: Engine) -> None:
        super().__init__(settings)
        self.engine = engine
        self._queue: list[LayeredJob] = []
        self._served: list[LayeredJob] = []
        self._at_ns = 0
        self._event: Event | None = None
        #: Until then latency occupies the channel.
        self._closed_until_ns = 0

    def wait_ns(self, now_ns: int) -> int:
        """Return the waiting time (ns) of a job if jobs are served in turn; 0 under ``fair``."""
        if self.settings.is_fair:
            return 0
        return sum((j.layers - j.sent) * j.times.per_layer_ns for j in self._queue)

    def submit(self, size: Size, at_hand: int, is_load: bool, on_layer: Callable[[int], None]) -> LayeredJob:
        """Queue a job with ``at_hand`` leading layers ready to send; the arguments are its own fields."""
        size_bytes, _, layers = size
        job = LayeredJob(layers, at_hand, is_load, on_layer)
        job.requested_ns = self.engine.now_ns
        job.times.per_layer_ns = layer_ns(self.settings, size)
        job.left = job.times.per_layer_ns * _PARTS
        self.sent_bytes += size_bytes
        self.jobs += 1
        self._enter(job, size)
        return job

    def _enter(self, job: LayeredJob, size: Size) -> None:
        self._account()
        self._queue.append(job)
        self._serve()

    def feed(self, job: LayeredJob, layers: int) -> None:
        """Make the first ``layers`` layers of a job ready to send."""
        self._account()
        job.at_hand = layers
        self._serve()

    def _account(self) -> None:
        """Subtract the service since the last event from the served jobs."""
        elapsed = self.engine.now_ns - self._at_ns
        if self._served and elapsed:
            self.busy_ns += elapsed
            for job in self._served:
                job.left -= elapsed * _PARTS // len(self._served)
        self._at_ns = self.engine.now_ns

    def _can_send(self, job: LayeredJob) -> bool:
        return job.sent < job.at_hand

    def _in_turn(self) -> Sequence[LayeredJob]:
        """Return the jobs in turn; the first is served."""
        return self._queue

    def _choose(self) -> list[LayeredJob]:
        """Return the jobs to serve from now on."""
        fair = self.settings.is_fair
        loads_first = self.settings.loads_first
        if not fair and any(job.left < job.times.per_layer_ns * _PARTS for job in self._served):
            return self._served  # a started layer is finished
        if not fair and not loads_first:
            return [job for job in self._in_turn()[:1] if self._can_send(job)]
        ready = [job for job in self._queue if self._can_send(job)]
        if loads_first and any(job.is_load for job in ready):
            ready = [job for job in ready if job.is_load]
        return ready if fair else ready[:1]

    def _serve(self) -> None:
        """Choose the jobs to serve, and schedule the next change."""
        if self._event is not None:
            self.engine.cancel(self._event)
            self._event = None
        now = self.engine.now_ns
        if self._closed_until_ns > now:
            self._served, at = [], self._closed_until_ns
        else:
            self._served = self._choose()
            if not self._served:
                return
            least = min(job.left for job in self._served)
            at = now + max(-(-least * len(self._served) // _PARTS), 0)
        for job in self._served:
            if job.times.start_ns < 0:
                job.times.start_ns = now
                self.queued_ns += now - job.requested_ns
        self._event = self.engine.schedule(at, TRANSFER, NO_MACHINE, self._on_event)

    def _on_event(self, _: object) -> None:
        self._event = None
        self._account()
        for job in [job for job in self._served if job.left <= 0]:
            self._layer_sent(job)
        self._serve()

    def _layer_sent(self, job: LayeredJob) -> None:
        arrival = self.engine.now_ns + self.settings.latency_ns
        job.sent += 1
        job.left += job.times.per_layer_ns * _PARTS
        job.times.arrivals_ns.append(arrival)
        if job.sent == 1:
            job.times.first_layer_ns = arrival
        if job.sent == job.layers:
            job.times.completion_ns = arrival
            self._queue.remove(job)
            if self.settings.latency_occupies:
                self._closed_until_ns = arrival
        elif not self._can_send(job):
            job.left = job.times.per_layer_ns * _PARTS  # no credit while it waits for its next layer
        self._served = [other for other in self._served if other is not job]
        sent = job.sent
        self.engine.schedule(arrival, TRANSFER, NO_MACHINE, lambda _: job.on_layer(sent))


Channel = FifoChannel | LayeredChannel


class Channels(dict[str, Channel]):
    """The channels of a cluster by name; channels between two machines are created on first use.

    If any channel is shared fairly or serves loads first, all are served layer by layer (``by_layer``): a hop
    between the two kinds could not be fed layer by layer.
    """

    fifo_class: type[FifoChannel] = FifoChannel
    layered_class: type[LayeredChannel] = LayeredChannel

    def __init__(
        self,
        settings: Mapping[str, ChannelSettings],
        reads: NetworkSettings,
        handovers: NetworkSettings,
        engine: Engine,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._reads, self._handovers = reads, handovers
        every = [*settings.values(), *(network.default for network in (reads, handovers))]
        self.by_layer = self._are_layered(every)
        for name, one in settings.items():
            self[name] = self._made(one)

    def _are_layered(self, every: Sequence[ChannelSettings]) -> bool:
        return any(one.sharing != "fifo" or one.priority != "in-order" for one in every)

    def _made(self, settings: ChannelSettings) -> Channel:
        return self.layered_class(settings, self._engine) if self.by_layer else self.fifo_class(settings)

    def between(self, owner: int, reader: int) -> Channel:
        """Return the channel over which ``reader`` reads from ``owner``."""
        return self._wire(self._reads, owner, reader)

    def handed_over(self, source: int, target: int) -> Channel:
        """Return the channel over which ``source`` hands requests over to ``target``."""
        return self._wire(self._handovers, source, target)

    def _wire(self, network: NetworkSettings, source: int, target: int) -> Channel:
        name = network.pairs.get((source, target))
        if name is None:
            name = f"{network.default.name}-{source}-{target}"
            if name not in self:
                self[name] = self._made(replace(network.default, name=name))
        return self[name]
