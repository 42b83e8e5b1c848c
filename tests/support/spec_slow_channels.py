"""The specification with channels that slow down, which no seed asks for: a model of the core's rules.

A slowed channel has a share of its rate in some spans of time.
"""

from collections.abc import Iterable

from kvcache_sim.base.units import LAST_NS
from kvcache_sim.engine import beyond_time
from kvcache_sim.spec.channels import FifoChannel, Sending

from support.product.machines import Slowdown
from support.product.spec import Transmission

_WHOLE_PPM = 1_000_000


class SlowedFifo(FifoChannel):
    """A channel whose jobs go one after another, at times slowly."""

    def _occupy(self, start_ns: int, layer_ns: int, layers: int, feed: Transmission | None) -> Sending:
        first, end, per_layer = super()._occupy(start_ns, layer_ns, layers, feed)
        if any(slow.from_ns < end and start_ns < slow.until_ns for slow in self.settings.slowdowns):
            end, per_layer = self._slowed(start_ns, layer_ns, layers, feed)
            self.busy_ns += end - start_ns - layers * layer_ns
            first = end - (layers - 1) * per_layer
        return Sending(first, end, per_layer)

    def _slowed(
        self, start_ns: int, per_layer: int, layers: int, feed: Transmission | None
    ) -> tuple[int, int]:
        """Return when a job ends that slowdowns touch, and the time of its fastest layer.

        Its layers are reported as if the slow ones came first: none is reported before it is there.
        """
        end, fastest = start_ns, LAST_NS
        for layer in range(layers):
            begins = end
            if feed is not None:
                begins = max(begins, feed.completion_ns - (layers - 1 - layer) * feed.per_layer_ns)
            done = slowed_end_ns(begins, per_layer, self.settings.slowdowns)
            fastest, end = min(fastest, done - end), done
        return end, fastest


def slowed_end_ns(start_ns: int, work_ns: int, slowdowns: Iterable[Slowdown]) -> int:
    """Return when work of so many ns at the whole rate ends that starts at a time.

    What passes in a slowdown is rounded down, the end in one up.
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
        passes = (slow.until_ns - now) * slow.share_ppm // _WHOLE_PPM
        if left <= passes:
            return now + -(-left * _WHOLE_PPM // slow.share_ppm)
        now, left = slow.until_ns, left - passes
    if now + left > LAST_NS:
        raise beyond_time()
    return now + left
