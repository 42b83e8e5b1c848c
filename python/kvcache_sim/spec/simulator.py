"""The simulator: machines, and the events that drive them (seed 001, "The serving system").

The clock is ``engine.py``'s heap of events, ordered by time, then by what happens at one instant: transfers
arrive, requests arrive, machines reach step boundaries, hand-overs are announced. A request arrives at
its time, or, in a closed loop, its think time after the request it waits for has finished; in an instant
run when the previous request has left. A router sends it to a machine; a request that the machine could never
hold, or whose prompt fills the model's context, is rejected (seed 000, 4.5). The scheduler receives it after
the client's time, and the lookup takes time. At a step boundary a machine ends its step, commits the computed
blocks and composes the next step. It starts when its blocks are free and its KV is there. A boundary occurs
when a step ends, or as soon as an idle machine could compose a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np

from kvcache_sim.base.rng import derive_seed
from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import BlockRange, Times
from kvcache_sim.engine import ARRIVAL, BOUNDARY, NO_MACHINE, Engine, Event
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.spec.admission import Parts
from kvcache_sim.spec.batch import Batch, NextStep
from kvcache_sim.spec.block_store import BlockStore
from kvcache_sim.spec.channels import Channels
from kvcache_sim.spec.handover import DecodeChoice, HandOverTarget, Sender
from kvcache_sim.spec.lookups import LookUps
from kvcache_sim.spec.movement_policies import WritePolicies
from kvcache_sim.spec.mover import Mover
from kvcache_sim.spec.prefix_store import LimitedStore
from kvcache_sim.spec.records import ARRIVE, Milestones, Records, RollingDigest
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.spec.request import Load, SequenceState, Status
from kvcache_sim.spec.routers import Router
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.trace import NO_REQUEST, OPEN_LOOP, Trace

#: Makes an empty store from a machine's tiers and its lookups.
MakeStore = Callable[[Sequence[TierSettings], LookUps], BlockStore]


class Machine:
    """One engine instance on the cache of one machine, and its events."""

    #: A model of a rule that no seed requires replaces these by subclasses, here and elsewhere.
    scheduler_class = Scheduler
    next_step_class = NextStep

    def __init__(
        self, number: int, tiers: int, replica: ReplicaSettings, settings: ClusterSettings, parts: Parts
    ) -> None:
        self.number, self.engine = number, parts.mover.engine
        self.cache, self.replica = settings.cache, replica
        #: Number of tiers.
        self.tiers = tiers
        self.store, self.mover, self.batch = parts.store, parts.mover, parts.batch
        self.milestones, self.writes = parts.milestones, parts.writes
        self.scheduler = self.scheduler_class(parts, replica, settings.cache, settings.movement)
        self._next = self.next_step_class(self.mover, self.batch, self.scheduler.late, self._start_step)
        self.sender: Sender | None = None
        self.mover.moved = self.moved
        self._boundary: Event | None = None
        self._stepping, self._compute_ns = False, 0
        #: Time at which the last request that was sent here reaches the scheduler.
        self._reached_ns = 0
        self._capacity_blocks = self.store.occupancy(COMPUTE).capacity_blocks

    @property
    def load(self) -> Load:
        """The unfinished work that was sent here."""
        return self.milestones.load

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return True if an empty GPU can hold ``kv_tokens`` tokens."""
        return -(-kv_tokens // self.cache.block_size_tokens) <= self._capacity_blocks

    # -- from arrival to the queue

    def arrive(self, s: SequenceState) -> None:
        """Accept a request from its client."""
        now, replica = self.engine.now_ns, self.replica
        self.milestones.arrived(s, now)
        offset = replica.client_offset_ns + replica.client_offset_per_token_ns * s.prompt_num_tokens
        self._reached_ns = max(self._reached_ns, now + offset)  # requests keep their order in transit
        self._after(self._reached_ns - now, self._received, s)

    def _after(self, ns: int, then: Callable[[SequenceState], None], s: SequenceState) -> None:
        if ns:
            self.engine.schedule(self.engine.now_ns + ns, ARRIVAL, self.number, then, s)
        else:
            then(s)

    def _received(self, s: SequenceState) -> None:
        self.milestones.received(s, self.engine.now_ns)
        self._after(self.cache.lookup_ns if self.cache.enabled else 0, self._looked_up, s)

    def _looked_up(self, s: SequenceState) -> None:
        self.milestones.looked_up(s, self.engine.now_ns)
        self.scheduler.enqueue(s)
        if not self.scheduler.refused:
            self.wake()

    # -- step boundaries

    def wake(self) -> None:
        """Compose a step now, unless a step is composed or runs: then the scheduler decides at its end."""
        if self._boundary is None and not self._next.waits:
            now = self.engine.now_ns
            self._boundary = self.engine.schedule(now, BOUNDARY, self.number, self._at_boundary)

    def moved(self) -> None:
        """Send transfers that are ready after an arrival or release, and compose a step if possible."""
        self.mover.issue()
        self.scheduler.load_rests(self.engine.now_ns)
        if self.scheduler.try_again():
            self.wake()

    def _at_boundary(self, _: object) -> None:
        self._boundary = None
        now = self.engine.now_ns
        if self._stepping:
            self._stepping = False
            self._end_step(now)
        freeing_moves = self.scheduler.compose(now)
        if self.batch.running:
            self._next.prepare(freeing_moves, now)

    def _start_step(self, begin_ns: int, stall_ns: int) -> None:
        self.batch.begin_ns = begin_ns
        self._compute_ns = self.batch.step_ns()
        self._stepping = True
        end = begin_ns + self._compute_ns + stall_ns
        if self.sender is not None:
            self.sender.step_started(end, self._compute_ns)
        self._boundary = self.engine.schedule(end, BOUNDARY, self.number, self._at_boundary)

    def _end_step(self, now: int) -> None:
        compute = self._compute_ns
        ended = self.batch.end(now, compute)
        if self.writes is not None and self.writes.at_commit and ended.committed:
            for shared in ended.committed:
                self.writes.committed(shared.sequence.lease, shared.blocks, now)
            self.mover.issue(Times(now - compute + compute // self.cache.num_layers, now))
        for s in ended.first_tokens:
            if self.sender is not None and self.sender.takes(s):
                self.sender.prompt_computed(s, now)
            else:
                self.milestones.prefilled(s, now)
                self.milestones.first_token(s, now)
        self.scheduler.step_ended(ended.finished, now)

    def share(self, lease: int, blocks: int, now: int) -> None:
        """Share the first ``blocks`` blocks of a lease, received from another machine."""
        first = self.store.depth(lease)
        if blocks > first:
            self.store.commit(lease, blocks, Times(now, now))
            if self.writes is not None and self.writes.at_commit:
                self.writes.committed(lease, BlockRange(first, blocks), now)
                self.mover.issue()


class Simulator:
    """A cluster about to serve a trace: builds its machines, schedules arrivals, and closes requests."""

    machine_class, batch_class, mover_class, channels_class = Machine, Batch, Mover, Channels
    writes_class, milestones_class, router_class = WritePolicies, Milestones, Router
    reads_class = RemoteReads

    def __init__(
        self, settings: ClusterSettings, trace: Trace, make_store: MakeStore, records: Records
    ) -> None:
        #: Tokens of the blocks that requests share; simplified accounting counts in blocks of one token.
        self._shared_block_tokens = settings.cache.block_size_tokens
        if settings.cache.accounting == "simplified":
            settings = settings.in_tokens()
        self.settings, self.trace, self.records = settings, trace, records
        self.engine = Engine(len(settings.machines))
        reads, handovers = settings.network, settings.handover.network
        self.channels = self.channels_class(settings.channels, reads, handovers, self.engine)
        self._make_store = make_store
        #: Movers by number, of machines whose lower tiers others read.
        self._read: dict[int, Mover] = {}
        self.lookups: list[LookUps] = []
        self.machines = self._build_machines()
        #: Hashes of the arrivals at each machine.
        self.arrivals = [RollingDigest() for _ in self.machines]
        self.routed = [
            m for m, one in zip(self.machines, settings.machines, strict=True) if one.role != "decode"
        ]
        router = settings.router
        self.router = self.router_class(router.policy, self.routed, router, settings.cache, settings.seed)
        self._decoding: list[Machine] = []
        self._connect_pools()
        self.closed = 0
        self._instant = any(machine.replica.instant for machine in settings.machines)
        #: By request: the requests that wait for it; and the number of requests that it still waits for.
        self._waiting: dict[int, list[int]] = {}
        self._missing: dict[int, int] = {}
        self._order = self._arrival_order()

    # -- building

    def _build_machines(self) -> list[Machine]:
        return [self._build(number, machine) for number, machine in enumerate(self.settings.machines)]

    def _build(self, number: int, machine: MachineSettings) -> Machine:
        settings, records = self.settings, self.records
        cache, movement, replica = settings.cache, settings.movement, machine.replica
        policies = [movement.write.get(tier.name, "back") for tier in machine.tiers[:-1]]
        lookups = LookUps(number, cache, self._shared_block_tokens, records, self.trace, self.engine)
        self.lookups.append(lookups)
        store = self._make_store(machine.tiers, lookups)
        if cache.prefix_view.max_tokens is not None and cache.accounting == "detailed":
            store = cast(BlockStore, LimitedStore(store, lookups.prefixes, lookups.path))
        channels = {edge: self.channels[name] for edge, name in machine.edge_channels.items()}
        mover = self.mover_class(number, store, self.engine, channels, cache, movement)
        writes = self.writes_class(store, policies) if policies else None
        mover.written = writes.arrived if writes is not None else None
        remote = self._remote_reads(mover) if policies else None
        parts = Parts(
            store=store,
            mover=mover,
            batch=self.batch_class(store, replica, cache, machine.step_time),
            milestones=self.milestones_class(number, store, records, partial(self._finished, lookups)),
            lookups=lookups,
            remote=remote,
            writes=writes,
            expires=any(tier.policy.partition(":")[0] == "ttl" for tier in machine.tiers),
        )
        return self.machine_class(number, len(machine.tiers), replica, settings, parts)

    def _remote_reads(self, mover: Mover) -> RemoteReads | None:
        """Return a machine's reads from others, if its lookups cover the cluster."""
        if self.settings.movement.lookup != "cluster":
            return None
        self._read[mover.machine] = mover
        return self.reads_class(mover, self._read, self.channels)

    def _connect_pools(self) -> None:
        """Connect prefill machines, if any, to the machines that decode."""
        settings, roles = self.settings, [machine.role for machine in self.settings.machines]
        if "prefill" not in roles:
            return
        handover, targets = settings.handover, []
        self._decoding = [m for m, role in zip(self.machines, roles, strict=True) if role != "prefill"]
        for machine in self._decoding:
            targets.append(HandOverTarget(machine, handover))
        # A separate stream of random numbers from that of the prefill router.
        seed = derive_seed(settings.seed, "decode router")
        router = self.router_class(handover.router, self._decoding, settings.router, settings.cache, seed)
        choice = DecodeChoice(self._decoding, targets, router, self.channels)
        for machine, role in zip(self.machines, roles, strict=True):
            if role == "prefill":
                machine.sender = Sender(machine, handover, self.channels.by_layer, choice.assign)
                machine.scheduler.decodes = False

    # -- arrivals

    def _arrival_order(self) -> list[int]:
        """Return the requests that wait for none in the order in which they arrive."""
        trace = self.trace
        before = np.full(len(trace), NO_REQUEST) if self._instant else predecessors(trace)
        pairs = [(request, int(earlier)) for request, earlier in enumerate(before) if earlier != NO_REQUEST]
        if not self._instant:
            pairs += [(int(request), int(earlier)) for request, earlier in trace.also_after]
        for request, earlier in pairs:
            self._waiting.setdefault(earlier, []).append(request)
            self._missing[request] = self._missing.get(request, 0) + 1
        alone = [request for request in range(len(trace)) if before[request] == NO_REQUEST]
        return alone if self._instant else sorted(alone, key=self._planned_ns)

    def _planned_ns(self, request: int) -> int:
        """Return the arrival time (ns) of a request that waits for none; in a closed loop its think time."""
        think = int(self.trace.think_ns[request])
        return think if think != OPEN_LOOP else int(self.trace.arrival_ns[request])

    def start(self) -> None:
        """Schedule the first arrival; ``engine.run`` then serves the whole trace."""
        self._order.reverse()
        self._schedule_next()

    def _schedule_next(self) -> None:
        if self._order:
            request = self._order.pop()
            at = max(self._planned_ns(request), self.engine.now_ns)
            self.engine.schedule(at, ARRIVAL, NO_MACHINE, self._arrive_in_order, request)

    def _arrive_in_order(self, request: int) -> None:
        self._arrive(request)
        if not self._instant:
            self._schedule_next()

    def _arrive(self, request: int) -> None:
        """Route a request, and send it to its machine or reject it."""
        now = self.engine.now_ns
        s = SequenceState(self.trace, request, now)
        machine = self.routed[self.router.choose(s)]
        s.machine = machine.number
        self.arrivals[machine.number].record(ARRIVE, now, request, s.prompt_num_tokens)
        if self._can_serve(machine, s):
            machine.arrive(s)
        else:
            s.status = Status.REJECTED
            self.records.close(s)
            self._left(s)

    def _can_serve(self, machine: Machine, s: SequenceState) -> bool:
        """Return True if a request fits its context, its machine and a machine that decodes it."""
        context = self.settings.machines[machine.number].replica.max_model_len
        if context is not None and s.prompt_num_tokens >= context:
            return False
        if machine.sender is None:
            return machine.can_ever_hold(s.total_kv_tokens)
        if not machine.can_ever_hold(s.prompt_num_tokens):
            return False
        alone = s.total_kv_tokens <= s.prompt_num_tokens
        return alone or any(other.can_ever_hold(s.total_kv_tokens) for other in self._decoding)

    # -- end of a request

    def _finished(self, lookups: LookUps, s: SequenceState) -> None:
        """Add a finished turn to the sessions of its decode and prefill machines; close the request."""
        now = self.engine.now_ns
        lookups.turn_completed(s, s.output_tokens, now)
        self.records.close(s)
        if s.decode_machine >= 0:
            self.lookups[s.machine].turn_completed(s, 0, now)
        self._left(s)

    def _left(self, s: SequenceState) -> None:
        self.closed += 1
        if self._instant:
            self._schedule_next()
        for following in self._waiting.get(s.request, ()):
            self._missing[following] -= 1
            if not self._missing[following]:
                at = self.engine.now_ns + int(self.trace.think_ns[following])
                self.engine.schedule(at, ARRIVAL, NO_MACHINE, self._arrive, following)
