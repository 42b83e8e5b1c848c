"""What copies to and from the GPU cost the steps: the CPU submits them, and some take a share of the GPU."""

from __future__ import annotations

from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.channel import layer_ns
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.tiers import COMPUTE


class CopyCost:
    """Time that the copies of one machine take from its steps.

    The engine's thread submits each piece (a layer of a block) when the copy goes, and launches no step
    meanwhile. A copy made by a kernel takes a share of the GPU for as long as it occupies the link; the step
    that starts next pays for it, unless the copy ended while no step ran. Copies below the CPU cost nothing.
    """

    def __init__(self, settings: ReplicaSettings) -> None:
        self._submit_ns = settings.copy_submit_ns
        self._gpu_share = settings.copy_gpu_share
        #: Until then the CPU submits.
        self._submits_until_ns = 0
        #: Of the GPU's time: what is owed in any case, and what is unless nothing runs until a time.
        self._owed_ns = 0
        self._idle_owed_ns = 0
        self._idle_until_ns = 0
        self._step_end_ns = 0

    def sent(self, transfer: Transfer, size: tuple[int, int, int]) -> None:
        """Note a copy of (bytes, pieces, layers) that goes on its channel now."""
        if COMPUTE not in (transfer.from_tier, transfer.to_tier):
            return
        channel, (_, pieces, layers), now = transfer.channel, size, transfer.mover.engine.now_ns
        assert channel is not None
        self._submits_until_ns = max(self._submits_until_ns, now) + pieces * self._submit_ns
        if not self._gpu_share:
            return
        on_link_ns = layers * layer_ns(channel.settings, *size)
        cost = round(self._gpu_share * on_link_ns)
        if now < self._step_end_ns:
            self._owed_ns += cost
        else:
            self._idle_owed_ns += cost
            self._idle_until_ns = max(self._idle_until_ns, now) + on_link_ns

    def take(self, begin_ns: int) -> int:
        """Return how much longer a step takes that begins now, in ns; the GPU's part is paid then."""
        owed = self._owed_ns + (self._idle_owed_ns if begin_ns < self._idle_until_ns else 0)
        self._owed_ns = self._idle_owed_ns = 0
        return max(self._submits_until_ns - begin_ns, 0) + owed

    def step_started(self, end_ns: int) -> None:
        """Note until when the step takes that has just started."""
        self._step_end_ns = end_ns
