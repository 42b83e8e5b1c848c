"""The specification with copies that cost the steps, which no seed asks for: a model of the core's rules.

The engine's thread submits each piece (a layer of a block) as a copy leaves, and starts no step meanwhile. A
copy made by a kernel takes a share of the GPU for as long as it occupies the link; the step that starts next
pays for it, unless the copy ended while no step ran. Copies below the CPU cost nothing.
"""

from typing import Any

from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.spec.channels import layer_ns
from kvcache_sim.spec.simulator import Machine, Simulator

from support.product.spec import Transfer

BEYOND_TIME = 1 << 64


def charge_copies(simulator: Simulator) -> None:
    """Let the copies of each machine cost its steps what its settings say."""
    for machine, own in zip(simulator.machines, simulator.settings.machines, strict=True):
        _CopyCost(machine, own.replica)


class _CopyCost:
    """Time that the copies of one machine take from its steps."""

    def __init__(self, machine: Machine, settings: ReplicaSettings) -> None:
        self._machine, self._settings = machine, settings
        self._submits_until_ns = self._step_end_ns = 0
        #: Copy time that the GPU owes in any case, and copy time it owes a step that starts before a time.
        self._owed_ns = self._owed_if_soon_ns = self._soon_ns = 0
        hooked: Any = machine
        hooked.mover._send = self._send
        hooked._next._settle, hooked._next._begin, hooked._next._start = (
            self._settle,
            self._begin,
            self._start,
        )
        self._copies_ns = 0

    def _send(self, transfer: Transfer, feed: Transfer | None) -> None:
        mover, settings = self._machine.mover, self._settings
        if COMPUTE in (transfer.from_tier, transfer.to_tier):
            now, pieces = mover.engine.now_ns, transfer.blocks * mover.layers
            self._submits_until_ns = max(self._submits_until_ns, now) + pieces * settings.copy_submit_ns
            size = (transfer.size_bytes, pieces, mover.layers)
            on_link_ns = mover.layers * layer_ns(transfer.channel.settings, size)
            cost_ns = round(settings.copy_gpu_share * on_link_ns)
            if now < self._step_end_ns:
                self._owed_ns += cost_ns
            else:
                self._owed_if_soon_ns += cost_ns
                self._soon_ns = max(self._soon_ns, now) + on_link_ns
        type(mover)._send(mover, transfer, feed)

    def _settle(self, begin_ns: int) -> None:
        owed_ns = self._owed_ns + (self._owed_if_soon_ns if begin_ns < self._soon_ns else 0)
        self._owed_ns = self._owed_if_soon_ns = 0
        self._copies_ns = max(self._submits_until_ns - begin_ns, 0) + owed_ns
        self._step_end_ns = BEYOND_TIME  # not known yet
        step = self._machine._next
        type(step)._settle(step, begin_ns)

    def _begin(self, begin_ns: int) -> None:
        step = self._machine._next
        type(step)._begin(step, begin_ns + self._copies_ns)

    def _start(self, begin_ns: int, stall_ns: int) -> None:
        machine, copies_ns = self._machine, self._copies_ns
        machine._start_step(begin_ns - copies_ns, stall_ns + copies_ns)
        self._step_end_ns = begin_ns + stall_ns + machine._compute_ns
