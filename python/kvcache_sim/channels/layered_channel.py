"""A channel served layer by layer, event by event: fair sharing, loads first, and FIFO as their check.

Here a job's times are final only when they come (semantics 3): what others do meanwhile changes them.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.channels.channel import NOT_YET, Transmission, layer_ns, submit_ns
from kvcache_sim.channels.demand import Demand
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import NO_MACHINE, TRANSFER, Engine, Event

#: Parts of a nanosecond: a share of up to 16 jobs stays exact.
_PARTS = 720_720


class LayeredJob:
    """A job on its way: layers at hand, layers sent, and what its current layer still costs."""

    __slots__ = (
        "allowed",
        "asked_ns",
        "at_hand",
        "is_load",
        "is_submitted",
        "layers",
        "left",
        "on_layer",
        "sent",
        "submit_ns",
        "times",
    )

    def __init__(
        self, layers: int, at_hand: int, is_load: bool, on_layer: Callable[[int], None], now_ns: int
    ) -> None:
        self.layers = layers
        self.at_hand = at_hand
        #: Layers for which there is a read buffer: all, unless someone says less.
        self.allowed = layers
        self.is_load = is_load
        #: Whether the CPU has submitted it, and how long that takes.
        self.is_submitted = True
        self.submit_ns = 0
        #: Called with the number of layers that have arrived, at each arrival.
        self.on_layer = on_layer
        self.asked_ns = now_ns
        self.sent = 0
        self.left = 0
        self.times = Transmission(-1, NOT_YET, NOT_YET, 0)

    def limit(self, layers: int) -> None:
        """Let it send its first ``layers`` layers at most until more buffers are free."""
        self.allowed = min(layers, self.layers)

    @property
    def can_send(self) -> bool:
        """Whether it is submitted, and its next layer is at hand and has a buffer to go to."""
        return self.is_submitted and self.sent < self.at_hand and self.sent < self.allowed

    @property
    def waits_for_buffer(self) -> bool:
        """Whether its next layer has nowhere to go to: others pass it then."""
        return self.sent == self.allowed


class LayeredChannel:
    """A link that serves one layer after another.

    ``fifo`` sends whole jobs in turn; one whose next layer has no read buffer is passed by others. ``fair``
    gives every job with a layer to send the same share (processor sharing). ``loads-first`` serves loads
    (towards the GPU) before stores: under ``fifo`` the choice is made anew at every layer, under ``fair`` at
    once. Cost: an event a layer.
    """

    by_layer = True

    def __init__(self, settings: ChannelSettings, engine: Engine) -> None:
        self.settings = settings
        self.engine = engine
        self.busy_ns = 0
        self.queued_ns = 0
        self.sent_bytes = 0
        self.jobs = 0
        self.demand = Demand()
        self._queue: list[LayeredJob] = []
        self._served: list[LayeredJob] = []
        self._at_ns = 0
        self._event: Event | None = None
        #: When the CPU has submitted what is queued.
        self.submitted_ns = 0
        #: Until then latency occupies the link.
        self._closed_until_ns = 0

    def wait_ns(self, now_ns: int, pieces: int = 0) -> int:
        """Return how long a job of so many pieces would wait for its first byte, were it served in turn."""
        own = submit_ns(self.settings, pieces)
        submitted = own and max(self.submitted_ns - now_ns, 0) + own
        if self.settings.sharing == "fair":
            return submitted
        sent = sum((job.layers - job.sent) * job.times.per_layer_ns for job in self._queue)
        return max(sent, submitted)

    def submit(
        self,
        size: tuple[int, int, int],
        at_hand: int,
        is_load: bool,
        on_layer: Callable[[int], None],
    ) -> LayeredJob:
        """Queue a job of (bytes, pieces, layers), ``at_hand`` of its layers ready to go; return it.

        ``on_layer`` is called at every arrival, never before this returns.
        """
        size_bytes, pieces, layers = size
        job = LayeredJob(layers, at_hand, is_load, on_layer, self.engine.now_ns)
        job.times.per_layer_ns = layer_ns(self.settings, size_bytes, pieces, layers)
        job.left = job.times.per_layer_ns * _PARTS
        self.sent_bytes += size_bytes
        self.jobs += 1
        job.submit_ns = submit_ns(self.settings, pieces)
        self._catch_up()
        self._queue.append(job)
        if job.submit_ns:
            self.submitted_ns = max(self.engine.now_ns, self.submitted_ns) + job.submit_ns
            job.is_submitted = False
            self.engine.schedule(self.submitted_ns, TRANSFER, NO_MACHINE, self._on_submitted, job)
        self._serve()
        return job

    def _on_submitted(self, job: LayeredJob) -> None:
        self._catch_up()
        job.is_submitted = True
        self._serve()

    def feed(self, job: LayeredJob, layers: int) -> None:
        """Let a job send its first ``layers`` layers."""
        self._catch_up()
        job.at_hand = layers
        self._serve()

    def allow(self, job: LayeredJob, layers: int) -> None:
        """Let a job send its first ``layers`` layers as far as they are at hand: buffers became free."""
        self._catch_up()
        job.allowed = min(layers, job.layers)
        self._serve()

    def _catch_up(self) -> None:
        """Account for what was sent since the last event."""
        now = self.engine.now_ns
        elapsed = now - self._at_ns
        if self._served and elapsed:
            self.busy_ns += elapsed
            share = elapsed * _PARTS // len(self._served)
            for job in self._served:
                job.left -= share
        self._at_ns = now

    def _choose(self) -> list[LayeredJob]:
        fair = self.settings.sharing == "fair"
        loads_first = self.settings.priority == "loads-first"
        if not fair and any(job.left < job.times.per_layer_ns * _PARTS for job in self._served):
            return self._served  # a layer that has begun is finished
        if not fair and not loads_first:
            first = next((job for job in self._queue if not job.waits_for_buffer), None)
            return [first] if first is not None and first.can_send else []
        ready = [job for job in self._queue if job.can_send]
        if loads_first and any(job.is_load for job in ready):
            ready = [job for job in ready if job.is_load]
        return ready if fair else ready[:1]

    def _serve(self) -> None:
        """Choose whom to serve from now on, and when that next changes."""
        if self._event is not None:
            self.engine.cancel(self._event)
            self._event = None
        now = self.engine.now_ns
        if self._closed_until_ns > now:
            self._served = []
            at = self._closed_until_ns
        else:
            self._served = self._choose()
            if not self._served:
                return
            least = min(job.left for job in self._served)
            at = now + max(-(-least * len(self._served) // _PARTS), 0)
        for job in self._served:
            if job.times.start_ns < 0:
                job.times.start_ns = now
                self.queued_ns += now - job.asked_ns - job.submit_ns
        self._event = self.engine.schedule(at, TRANSFER, NO_MACHINE, self._on_event)

    def _on_event(self, _: object) -> None:
        self._event = None
        self._catch_up()
        for job in [job for job in self._served if job.left <= 0]:
            self._layer_sent(job)
        self._serve()

    def _layer_sent(self, job: LayeredJob) -> None:
        now, latency = self.engine.now_ns, self.settings.latency_ns
        job.sent += 1
        job.left += job.times.per_layer_ns * _PARTS
        job.times.arrivals_ns.append(now + latency)
        if job.sent == 1:
            job.times.first_layer_ns = now + latency
        if job.sent == job.layers:
            job.times.completion_ns = now + latency
            self._queue.remove(job)
            if self.settings.latency_occupies:
                self._closed_until_ns = now + latency
        elif not job.can_send:
            job.left = job.times.per_layer_ns * _PARTS  # no credit while it waits for its next layer
        self._served = [other for other in self._served if other is not job]
        self.engine.schedule(now + latency, TRANSFER, NO_MACHINE, self._arrived, (job, job.sent))

    def _arrived(self, arrival: tuple[LayeredJob, int]) -> None:
        job, layers = arrival
        job.on_layer(layers)
