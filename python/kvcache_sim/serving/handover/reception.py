"""The receiving side: a decode machine reserves room, first come first served, and takes into its batch."""

from __future__ import annotations

from kvcache_sim.serving.replica.handing_over import HandedOver
from kvcache_sim.serving.replica.replica import Replica


class Reception:
    """Handed-over requests on their decode machine: queued for room, on their way, arrived.

    Room is reserved at a step boundary, for the blocks of the prompt that are not ready on the own GPU; the
    own lower tiers are not asked. Preempted requests come first, new ones (on a machine with role ``both``)
    last. What has arrived is shared as if it had been computed here.
    """

    def __init__(self, replica: Replica, delays_first_token: bool) -> None:
        self.replica = replica
        self.delays_first_token = delays_first_token

    def ask(self, handover: HandedOver) -> None:
        """Queue a request for room."""
        self.replica.milestones.taken_over(handover.sequence, handover.expected_tokens)
        handover.asked(self.replica.engine.now_ns)
        self.replica.scheduler.asking.append(handover)
        if not self.replica.scheduler.refused:
            self.replica.wake(self.replica.engine.now_ns + 1)

    def take(self, now: int) -> bool:
        """Reserve room for the first of the queue and let its KV come; False when that is refused."""
        replica, scheduler, store = self.replica, self.replica.scheduler, self.replica.store
        handover = scheduler.asking[0]
        s, block = handover.sequence, self.replica.cache.block_size_tokens
        total, full = -(-s.prompt_num_tokens // block), s.prompt_num_tokens // block
        here = store.peek(s.request, full)[1] if replica.cache.enabled else 0
        lease = store.acquire(s.request, here)
        room = store.reserve(lease, total - here, now)
        if room is None:
            store.abandon(lease)
            return False
        scheduler.asking.popleft()
        scheduler.arriving.add(s.request)
        replica.mover.issue()
        handover.reserved(lease, (total, total - here), room, now)
        if handover.complete:
            self.received(handover)
            self.join()
        return True

    def received(self, handover: HandedOver) -> None:
        """Note that a request's KV is here."""
        s, replica, now = handover.sequence, self.replica, self.replica.engine.now_ns
        s.lease = handover.lease
        s.handover_room_ns = max(handover.reserved_ns - s.since_ns, 0)
        if replica.cache.enabled:
            replica.share(s, s.prompt_num_tokens // replica.cache.block_size_tokens, now)
        replica.milestones.handed_over(s, now, handover.expected_tokens, self.delays_first_token)
        replica.scheduler.arriving.remove(s.request)
        replica.scheduler.arrived.append(handover)

    def join(self) -> None:
        """Let what has arrived into the step while it has tokens for it."""
        scheduler = self.replica.scheduler
        while scheduler.arrived and scheduler.batch.budget_left > 0:
            handover = scheduler.arrived.popleft()
            s = handover.sequence
            prompt = s.prompt_num_tokens
            scheduler.into_batch(s, prompt, prompt, handover.total_blocks, s.first_token_ns)
