"""Read buffers: how far loading may run ahead of the step that computes on what it brings."""

from __future__ import annotations

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.layered_channel import LayeredChannel
from kvcache_sim.engine import TRANSFER


class ReadBuffers:
    """The layers of one step as they are computed: each frees a read buffer of every load it needed.

    Before the step ``read_buffer_layers`` layers of a load may come; layer k + n leaves when layer k has been
    computed. Layer k is computed when it has come and layer k − 1 is computed, in the share 1 / L of the
    step's compute time. Source: CachedAttention (ATC 2024), its read buffer for layer-wise pre-loading. Cost:
    an event a layer of a step that loads.
    """

    def __init__(self, mover: Mover, loads: tuple[Transfer, ...], begin_ns: int, compute_ns: int) -> None:
        assert mover.read_buffer_layers is not None
        self._mover = mover
        self._ahead = mover.read_buffer_layers
        self._loads = loads
        self._compute_ns = compute_ns
        self._computed = 0
        #: Since when, and from which layer on, the step has computed without a stall.
        self._since = (begin_ns, 0)
        self._at_work = False
        for load in self._loads:
            load.at_layer.append(self._came)
        self._go_on()

    def _came(self, _: Transfer) -> None:
        if not self._at_work:
            self._go_on()

    def _go_on(self) -> None:
        """Compute the next layer once all loads have brought it."""
        layer, layers = self._computed, self._mover.layers
        arrivals = []
        for load in self._loads:
            if load.sent is None or len(load.sent.arrivals_ns) <= layer:
                return
            arrivals.append(load.sent.arrivals_ns[layer])
        since, first = self._since
        start = since - (-self._compute_ns * (layer - first) // layers)
        if max(arrivals) > start:
            self._since = since, first = max(arrivals), layer
        end = since - (-self._compute_ns * (layer + 1 - first) // layers)
        self._at_work = True
        self._mover.engine.schedule(end, TRANSFER, self._mover.machine, self._layer_computed)

    def _layer_computed(self, _: object) -> None:
        self._at_work = False
        self._computed += 1
        for load in self._loads:
            if load.job is not None and isinstance(load.channel, LayeredChannel):
                load.channel.allow(load.job, self._computed + self._ahead)
        if self._computed < self._mover.layers:
            self._go_on()
