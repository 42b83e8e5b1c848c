"""A FIFO channel whose rate is known to fall for some times: a link that is slow, or down, and comes back."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.channels.channel import Channel, Transmission, layer_ns
from kvcache_sim.channels.settings import Slowdown
from kvcache_sim.engine import beyond_time
from kvcache_sim.units import LAST_NS

_WHOLE = 1_000_000


def ends_ns(start_ns: int, work_ns: int, slowdowns: Sequence[Slowdown]) -> int:
    """Return when work of so many ns at the whole rate ends that starts at a time.

    ``slowdowns`` are in order and apart. Rounded up once in the slowdown in which it ends; what passes in one
    is rounded down. UsageError beyond the time that a run may last.
    """
    now, left = start_ns, work_ns
    for slow in slowdowns:
        if left == 0 or slow.until_ns <= now:
            continue
        if now < slow.from_ns:
            if left <= slow.from_ns - now:
                break
            left -= slow.from_ns - now
            now = slow.from_ns
        passes = (slow.until_ns - now) * slow.share_ppm // _WHOLE
        if left <= passes:
            return now + -(-left * _WHOLE // slow.share_ppm)
        now, left = slow.until_ns, left - passes
    if now + left > LAST_NS:
        raise beyond_time()
    return now + left


class SlowedChannel(Channel):
    """``Channel`` whose rate falls by ``settings.slowdowns``, also for a job that is under way.

    A job's end is exact. Its layers are told as if the slow ones came first, at the pace of the fastest: none
    is told before it is there. Cost: a walk of the slowdowns a layer.
    """

    def transmit(self, size_bytes: int, pieces: int, layers: int, now_ns: int) -> Transmission:
        """Queue a job whose data are all at hand."""
        if size_bytes == 0:
            return Transmission(now_ns, now_ns, now_ns, 0)
        per_layer = layer_ns(self.settings, size_bytes, pieces, layers)
        start = now_ns + self.wait_ns(now_ns, pieces)
        if not self._is_slow(start, start + layers * per_layer):
            return super().transmit(size_bytes, pieces, layers, now_ns)
        return self._send(now_ns, per_layer, (size_bytes, pieces, layers), None)

    def forward(self, size_bytes: int, pieces: int, layers: int, feed: Transmission) -> Transmission:
        """Queue a job fed layer by layer by an earlier hop; called when the hop's first layer arrives."""
        if size_bytes == 0:
            return Transmission(feed.first_layer_ns, feed.first_layer_ns, feed.completion_ns, 0)
        per_layer = layer_ns(self.settings, size_bytes, pieces, layers)
        start = feed.first_layer_ns + self.wait_ns(feed.first_layer_ns, pieces)
        if not self._is_slow(start, max(start + layers * per_layer, feed.completion_ns + per_layer)):
            return super().forward(size_bytes, pieces, layers, feed)
        return self._send(feed.first_layer_ns, per_layer, (size_bytes, pieces, layers), feed)

    def _is_slow(self, start_ns: int, end_ns: int) -> bool:
        return any(slow.from_ns < end_ns and start_ns < slow.until_ns for slow in self.settings.slowdowns)

    def _send(
        self, asked_ns: int, per_layer: int, size: tuple[int, int, int], feed: Transmission | None
    ) -> Transmission:
        size_bytes, pieces, layers = size
        start = end = self._can_start(asked_ns, pieces)
        fastest = LAST_NS
        for layer in range(layers):
            begins = end
            if feed is not None:
                begins = max(begins, feed.completion_ns - (layers - 1 - layer) * feed.per_layer_ns)
            done = ends_ns(begins, per_layer, self.settings.slowdowns)
            fastest, end = min(fastest, done - end), done
        latency = self.settings.latency_ns
        self._account((asked_ns, start), end - start, size_bytes, pieces)
        self.free_at_ns = end + latency if self.settings.latency_occupies else end
        return Transmission(start, end - (layers - 1) * fastest + latency, end + latency, fastest)
