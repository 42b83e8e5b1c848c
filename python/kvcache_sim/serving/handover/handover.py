"""One hand-over: a prompt's KV on its way from the machine that computed it to the one that decodes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from kvcache_sim.cache.transfer import HOP, Transfer
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.engine import HANDOVER
from kvcache_sim.serving.replica.replica import Replica
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.tiers import COMPUTE, REMOTE, STAGING


class Handover:
    """The KV of one prompt between two machines.

    ``at-end`` it leaves whole when the prompt is computed and crosses hop by hop; ``layer-by-layer`` each
    layer leaves when the step that computes the prompt's last chunk is done with it (``computed``: when that
    step has its first and its last layer), and crosses all hops so. What the target has on its GPU stays
    home. The source is held until its GPU has been read.
    """

    __slots__ = (
        "_channel",
        "asked_ns",
        "complete",
        "computed",
        "expected_tokens",
        "lease",
        "prefilled",
        "reserved_ns",
        "sequence",
        "settings",
        "source",
        "source_lease",
        "target",
        "total_blocks",
    )

    def __init__(
        self,
        sequence: SequenceState,
        source: Replica,
        settings: HandoverSettings,
        computed: Transmission | None,
    ) -> None:
        self.sequence = sequence
        self.source = source
        self.source_lease = sequence.lease
        self.settings = settings
        self.computed = computed
        #: Whether the prompt is computed to its end.
        self.prefilled = computed is None
        #: Whether the decode machine may go on with it.
        self.complete = False
        #: When the decode machine heard of it, and when room was free for it there; 0 while it is not.
        self.asked_ns = self.reserved_ns = 0
        self.lease = -1
        self.total_blocks = 0
        #: Blocks that the decode router expected to be sent, in tokens.
        self.expected_tokens = 0

    def to(self, target: Replica, channel: AnyChannel, expected_tokens: int) -> None:
        """Name the decode machine, the channel between the two, and the tokens expected to cross it."""
        self.target = target
        self._channel = channel
        self.expected_tokens = expected_tokens

    def asked(self, now_ns: int) -> None:
        """Note when the decode machine heard of it."""
        self.asked_ns = now_ns

    def reserved(self, lease: int, blocks: tuple[int, int], room: list[int], now_ns: int) -> None:
        """Send what the target lacks, of (total, lacking) blocks, when the moves ``room`` have freed it."""
        self.lease = lease
        self.reserved_ns = now_ns
        self.total_blocks, lacking = blocks
        self.sequence.handover_blocks = lacking
        if lacking:
            hops = self._hops(lacking)
            if hops[0].mover is self.target.mover:
                self._depart(hops, room)
            else:
                self._when_heard(self.source, lambda: self._depart(hops, room))
        elif self.prefilled:
            self.complete = True
            self._when_heard(self.source, lambda: self._release_source(heard=True))

    def _depart(self, hops: list[Transfer], room: list[int]) -> None:
        first = hops[0]
        if self.computed is not None and self.source.engine.now_ns < self.computed.completion_ns:
            self.source.mover.computing(self.computed, first)
        for move in room:
            before = self.target.mover.transfers.get(move)
            if before is not None:
                first.wait_for(before)
                before.watchers.append(self._room_came)
        first.at_completion.append(lambda: self._release_source(heard=False))
        hops[-1].at_completion.append(self._arrived)
        first.mover.launch(first)

    def _hops(self, blocks: int) -> list[Transfer]:
        here, there = self.source.mover, self.target.mover
        wire = Transfer(there, HOP, REMOTE, COMPUTE, blocks)
        wire.take(self._channel)
        if self.settings.path == "gpu-direct":
            hops = [wire]
        else:
            down = Transfer(here, HOP, COMPUTE, STAGING, blocks)
            up = Transfer(there, HOP, STAGING, COMPUTE, blocks)
            down.take(here.channel_of(down))
            up.take(there.channel_of(up))
            hops = [down, wire, up]
        for before, after in pairwise(hops):
            after.wait_for(before)
        for hop in hops:
            hop.stream(self.settings.transfer == "layer-by-layer")
        return hops

    def _room_came(self, transfer: Transfer, complete: bool) -> None:
        if complete:
            self.reserved_ns = transfer.mover.engine.now_ns

    def prompt_computed(self) -> None:
        """Note that the step with the prompt's last chunk has ended."""
        self.prefilled = True
        if self.lease >= 0 and not self.sequence.handover_blocks:
            self._when_heard(self.target, self._nothing_to_send)

    def _nothing_to_send(self) -> None:
        self._release_source(heard=True)
        self._arrived()
        self.target.go_on(self.target.engine.now_ns + 1)

    def _arrived(self) -> None:
        self.complete = True
        reception = self.target.scheduler.reception
        assert reception is not None
        reception.received(self)

    def _release_source(self, heard: bool) -> None:
        """Give the source's blocks back; ``heard``: when all boundaries of this instant are over."""
        self.source.release(self.sequence, self.source_lease, self.source.engine.now_ns + heard)

    def _when_heard(self, machine: Replica, then: Callable[[], None]) -> None:
        """Let a machine hear of it once all boundaries of this instant are over."""
        engine = machine.engine

        def hear(_: object) -> None:
            machine.catch_up(engine.now_ns + 1)
            then()

        engine.schedule(engine.now_ns, HANDOVER, machine.machine, hear)
