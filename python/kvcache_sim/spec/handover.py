"""Hand-over: a prompt is computed on one machine, its answer on another (semantics 5).

A prefill machine hands over every request with more than one token to generate. When its prompt is computed
a router chooses a decode machine. It reserves a slot, and space for the blocks of the prompt that are not
ready on its own GPU, at a step boundary, first come, first served. The blocks then cross from GPU to GPU, or
over both machines' CPUs; ``at-end`` they leave whole, ``layer-by-layer`` each layer leaves when the step of
the prompt's last chunk has computed it. The source holds its blocks until its GPU has been read. Arrived
blocks are shared as if they had been computed there, and the request joins the batch. Messages between
machines arrive after all boundaries of an instant. The first token is the decode machine's, and waits for the
hand-over, or the prefill machine's. A request that is preempted later recomputes on its decode machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from kvcache_sim.base.tiers import COMPUTE, REMOTE, STAGING
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.engine import HANDOVER, Engine
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.spec.batch import Batch
from kvcache_sim.spec.block_store import BlockStore
from kvcache_sim.spec.channels import Channel, Channels, Transmission
from kvcache_sim.spec.mover import HOP, Mover, Transfer
from kvcache_sim.spec.records import Milestones
from kvcache_sim.spec.request import SequenceState, Status
from kvcache_sim.spec.routers import Router
from kvcache_sim.spec.scheduler import Scheduler


class Peer(Protocol):
    """The interface of a machine for hand-overs (``simulator.Machine``)."""

    number: int
    engine: Engine
    cache: CacheSettings
    store: BlockStore
    mover: Mover
    batch: Batch
    milestones: Milestones
    scheduler: Scheduler

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return True if its empty GPU can hold ``kv_tokens`` tokens."""

    def moved(self) -> None:
        """Resume: KV has arrived or blocks are free."""

    def wake(self) -> None:
        """Compose a step as soon as one is possible."""

    def share(self, lease: int, blocks: int, now: int) -> None:
        """Share the first ``blocks`` blocks of a lease, received from another machine."""


class Handover:
    """One prompt's KV between two machines.

    ``computed``: times at which the step of its last chunk has the first and the last layer (layer by layer).
    """

    def __init__(self, s: SequenceState, source: Peer, computed: Transmission | None) -> None:
        self.sequence, self.source, self.source_lease, self.computed = s, source, s.lease, computed
        self.prefilled = computed is None
        #: Times of its request for blocks on the decode machine, and of the reservation.
        self.requested_ns = self.reserved_ns = 0
        self.lease, self.total_blocks = -1, 0
        #: The decode machine, and the channel to it.
        self.target: HandOverTarget
        self.wire: Channel

    def release_source(self) -> None:
        """Release the source's blocks."""
        source = self.source
        source.scheduler.release(self.sequence, self.source_lease, source.engine.now_ns)
        source.moved()


def _deliver_later(machine: Peer, then: Callable[[], None]) -> None:
    """Call ``then`` on a machine after all boundaries of this instant."""
    engine = machine.engine
    engine.schedule(engine.now_ns, HANDOVER, machine.number, lambda _: then())


class Sender:
    """The side of a prefill machine; ``assign`` chooses the decode machine of a hand-over."""

    def __init__(
        self, machine: Peer, settings: HandoverSettings, by_layer: bool, assign: Callable[[Handover], None]
    ) -> None:
        self.machine, self.settings, self._by_layer, self._assign = machine, settings, by_layer, assign
        self._announced: dict[int, Handover] = {}

    def takes(self, s: SequenceState) -> bool:
        """Return True if a request is handed over after its prompt."""
        return s.output_tokens > 1

    def step_started(self, end_ns: int, compute_ns: int) -> None:
        """Announce the prompts that a step finishes: their layers are computed evenly up to its end."""
        machine, now = self.machine, self.machine.engine.now_ns
        if self.settings.transfer == "at-end":
            return
        layers, begin = machine.cache.num_layers, end_ns - compute_ns
        first = max(begin + compute_ns // layers, now)
        times = Transmission(begin, first, end_ns, compute_ns // layers)
        if self._by_layer:  # the channel reacts to each layer
            times.arrivals_ns += [max(begin + compute_ns * k // layers, now) for k in range(1, layers + 1)]
        for s in machine.batch.prefills_ending():
            if self.takes(s):
                self._announced[s.request] = self._send(s, times)

    def prompt_computed(self, s: SequenceState, now: int) -> None:
        """Hand over a request: the step that computed its prompt has ended."""
        milestones = self.machine.milestones
        milestones.prefilled(s, now)
        if self.settings.first_token == "prefill":
            milestones.first_token(s, now)
        milestones.load.requests -= 1
        s.status = Status.TRANSFERRING
        if s.request not in self._announced:
            self._send(s, None)
            return
        handover = self._announced.pop(s.request)
        handover.prefilled = True
        if handover.lease >= 0 and not s.handover_blocks:
            target = handover.target
            _deliver_later(target.machine, lambda: target.nothing_to_send(handover))

    def _send(self, s: SequenceState, computed: Transmission | None) -> Handover:
        handover = Handover(s, self.machine, computed)
        _deliver_later(self.machine, lambda: self._assign(handover))
        return handover


class HandOverTarget:
    """A decode machine's side: reserves blocks in order of arrival, then adds requests to its batch."""

    def __init__(self, machine: Peer, settings: HandoverSettings) -> None:
        self.machine, self.settings = machine, settings
        scheduler = machine.scheduler
        self.asking: deque[Handover] = deque()
        self.arrived: deque[Handover] = deque()
        scheduler.asking, scheduler.arrived, self.coming = self.asking, self.arrived, scheduler.coming
        scheduler.take_over, scheduler.join_arrived = self.take, self.join

    def ask(self, handover: Handover) -> None:
        """Queue a hand-over that needs blocks here."""
        machine = self.machine
        machine.milestones.taken_over(handover.sequence)
        handover.requested_ns = machine.engine.now_ns
        self.asking.append(handover)
        if not machine.scheduler.refused:
            machine.wake()

    def take(self, now: int) -> bool:
        """Reserve blocks for the first queued hand-over, and start its transfer; False if refused."""
        machine, store, handover = self.machine, self.machine.store, self.asking[0]
        s, block = handover.sequence, machine.cache.block_size_tokens
        total, full = -(-s.prompt_num_tokens // block), s.prompt_num_tokens // block
        here = store.peek(s.request, full)[1] if machine.cache.enabled else 0
        lease = store.acquire(s.request, here)
        freeing_moves = store.reserve(lease, total - here, now)
        if freeing_moves is None:
            store.abandon(lease)
            return False
        self.asking.popleft()
        self.coming.add(s.request)
        machine.mover.issue()
        handover.lease, handover.reserved_ns, handover.total_blocks = lease, now, total
        s.handover_blocks = total - here
        if s.handover_blocks:
            hops = self._hops(handover)
            if hops[0].mover is machine.mover:
                self._depart(handover, hops, freeing_moves)
            else:
                _deliver_later(handover.source, lambda: self._depart(handover, hops, freeing_moves))
        elif handover.prefilled:
            _deliver_later(handover.source, handover.release_source)
            self._received(handover)
            self.join()
        return True

    def _hops(self, handover: Handover) -> list[Transfer]:
        """Return the transfers of a prompt, each fed by the previous one."""
        here, there = handover.source.mover, self.machine.mover
        blocks = handover.sequence.handover_blocks
        wire = Transfer(there, HOP, REMOTE, COMPUTE, blocks)
        wire.channel = handover.wire
        hops = [wire]
        if self.settings.path == "via-cpu":
            down = Transfer(here, HOP, COMPUTE, STAGING, blocks)
            up = Transfer(there, HOP, STAGING, COMPUTE, blocks)
            for hop in (down, up):
                hop.channel = hop.mover.channel(hop.edge)
            hops = [down, wire, up]
        for before, after in pairwise(hops):
            after.wait_for(before)
        for hop in hops:
            hop.streams = self.settings.transfer == "layer-by-layer"
        return hops

    def _depart(self, handover: Handover, hops: Sequence[Transfer], freeing_moves: Sequence[int]) -> None:
        """Send the blocks once ``freeing_moves`` have freed their targets."""
        first, source, computed = hops[0], handover.source, handover.computed
        if computed is not None and source.engine.now_ns < computed.completion_ns:
            source.mover.computing(computed, first)

        def on_freed(transfer: Transfer, complete: bool) -> None:
            if complete:
                handover.reserved_ns = transfer.mover.engine.now_ns

        for move in freeing_moves:
            before = self.machine.mover.transfers.get(move)
            if before is not None:
                first.wait_for(before)
                before.watchers.append(on_freed)
        first.at_completion.append(handover.release_source)
        hops[-1].at_completion.append(lambda: self._received(handover))
        first.mover.launch(first)

    def nothing_to_send(self, handover: Handover) -> None:
        """End a hand-over whose blocks are all here already, its prompt being computed now."""
        handover.release_source()
        self._received(handover)
        self.machine.moved()

    def _received(self, handover: Handover) -> None:
        """Record that a request's KV is here."""
        s, machine, now = handover.sequence, self.machine, self.machine.engine.now_ns
        s.lease = handover.lease
        s.handover_room_ns = max(handover.reserved_ns - s.since_ns, 0)
        if machine.cache.enabled:
            machine.share(s.lease, s.prompt_num_tokens // machine.cache.block_size_tokens, now)
        delays_token = self.settings.first_token == "decode"
        machine.milestones.handed_over(s, now, delays_token)
        self.coming.remove(s.request)
        self.arrived.append(handover)

    def join(self) -> None:
        """Add arrived requests to the step while it has tokens for them."""
        scheduler = self.machine.scheduler
        while self.arrived and scheduler.batch.budget_left > 0:
            handover = self.arrived.popleft()
            s = handover.sequence
            s.computed_tokens = s.prompt_num_tokens
            s.last_token_ns = s.first_token_ns
            scheduler.into_batch(s, s.prompt_num_tokens, handover.total_blocks)


class DecodeChoice:
    """Chooses the decode machine of each hand-over: the router's choice, or the next machine that fits it."""

    def __init__(
        self, machines: Sequence[Peer], targets: Sequence[HandOverTarget], router: Router, channels: Channels
    ) -> None:
        self.machines, self.channels, self._targets, self._router = machines, channels, targets, router

    def assign(self, handover: Handover) -> None:
        """Choose the machine, and queue the hand-over there."""
        s = handover.sequence
        chosen = self._router.choose(s)
        while not self.machines[chosen].can_ever_hold(s.total_kv_tokens):
            chosen = (chosen + 1) % len(self.machines)
        source, target = handover.source.number, self.machines[chosen].number
        handover.wire = self.channels.handed_over(source, target)
        handover.target = self._targets[chosen]
        handover.target.ask(handover)
