"""The specification with read buffers, which no seed asks for: a model of the core's rules.

Before a step ``read_buffer_layers`` layers of a load may come. Layer k is computed when it has come and layer
k - 1 is computed, in the share 1 / L of the step; it frees the buffer of layer k + n. A job whose next layer
has no buffer is passed. All channels are served layer by layer. Source: CachedAttention (ATC 2024).
"""

from collections.abc import Callable, Sequence
from typing import Any

from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.engine import TRANSFER
from kvcache_sim.spec.batch import NextStep
from kvcache_sim.spec.channels import Channels, LayeredChannel, LayeredJob
from kvcache_sim.spec.mover import HOP, Mover

from support.product.spec import Transfer


class BufferedChannel(LayeredChannel):
    """A channel whose jobs may have fewer buffers than layers."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._allowed: dict[LayeredJob, int] = {}

    def _allowed_of(self, job: LayeredJob) -> int:
        return self._allowed.get(job, job.layers)

    def _can_send(self, job: LayeredJob) -> bool:
        return super()._can_send(job) and job.sent < self._allowed_of(job)

    def _in_turn(self) -> Sequence[LayeredJob]:
        return [job for job in self._queue if job.sent != self._allowed_of(job)]

    def allow(self, job: LayeredJob, layers: int) -> None:
        """Let a job send its first ``layers`` layers, of which the first is free at once: they have a buffer."""
        self._account()
        self._allowed[job] = min(layers, job.layers)
        self._serve()


class BufferedChannels(Channels):
    """Channels that are all served layer by layer."""

    def _are_layered(self, every: Sequence[Any]) -> bool:
        return True


class BufferedMover(Mover):
    """A mover whose loads to the GPU have ``read_buffer_layers`` buffers each."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        movement = parts[-1]
        self.read_buffer_layers: int = movement.read_buffer_layers

    def _send(self, transfer: Transfer, feed: Transfer | None) -> None:
        super()._send(transfer, feed)
        is_load = transfer.from_tier > transfer.to_tier == COMPUTE and transfer.move != HOP
        if is_load and transfer.job is not None and isinstance(transfer.channel, BufferedChannel):
            transfer.channel.allow(transfer.job, self.read_buffer_layers)

    def _on_layer(self, transfer: Transfer, layers: int) -> None:
        for notify in at_layer(transfer):
            notify()
        super()._on_layer(transfer, layers)


def at_layer(transfer: Any) -> list[Callable[[], None]]:
    """Return the callback for each arrival of a layer of a transfer."""
    listeners: list[Callable[[], None]] = transfer.__dict__.setdefault("at_layer", [])
    return listeners


class BufferedStep(NextStep):
    """A step that frees buffers as it computes."""

    def _settle(self, begin_ns: int) -> None:
        super()._settle(begin_ns)
        if self._unsettled:
            loads = dict.fromkeys(transfer for late in self.late for transfer in late.transfers)
            ReadBuffers(self.mover, list(loads), begin_ns, self.batch.step_ns())


class ReadBuffers:
    """The layers of one step as they are computed: each frees a read buffer of every load it needed."""

    def __init__(self, mover: Any, loads: list[Transfer], begin_ns: int, compute_ns: int) -> None:
        self._mover = mover
        self._loads = loads
        self._compute_ns = compute_ns
        self._computed = 0
        #: Since when, and from which layer on, the step has computed without a stall.
        self._since = (begin_ns, 0)
        self._computes = False
        for load in loads:
            at_layer(load).append(self._layer_came)
        self._compute_next()

    def _layer_came(self) -> None:
        if not self._computes:
            self._compute_next()

    def _compute_next(self) -> None:
        layer, layers = self._computed, self._mover.layers
        arrivals = []
        for load in self._loads:
            if load.sent is None or len(load.sent.arrivals_ns) <= layer:
                return
            arrivals.append(load.sent.arrivals_ns[layer])
        since, first = self._since
        if max(arrivals) > since - (-self._compute_ns * (layer - first) // layers):
            self._since = since, first = max(arrivals), layer
        end = since - (-self._compute_ns * (layer + 1 - first) // layers)
        self._computes = True
        self._mover.engine.schedule(end, TRANSFER, self._mover.machine, self._layer_computed)

    def _layer_computed(self, _: object) -> None:
        self._computes = False
        self._computed += 1
        for load in self._loads:
            if load.job is not None and isinstance(load.channel, BufferedChannel):
                load.channel.allow(load.job, self._computed + self._mover.read_buffer_layers)
        if self._computed < self._mover.layers:
            self._compute_next()
