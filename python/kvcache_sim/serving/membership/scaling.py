"""A fleet that grows and shrinks: a policy returns the wanted number of machines at intervals.

A machine that is added may first copy blocks of a peer: the prompts most recently requested there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from kvcache_sim.cache.store import GpuStore, Times
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Engine, Event
from kvcache_sim.serving.membership.losses import empty_caches
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.membership.scaling_policy.contract import FleetState, ScalingPolicy
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.report import published_by
from kvcache_sim.workload.trace import Trace


class Copied(NamedTuple):
    """The blocks of one prompt that a machine copies."""

    request: int
    blocks: int


class Starting(NamedTuple):
    """A machine that is to serve, and what it copies first."""

    machine: int
    copies: list[Copied]


def worth_copying(
    peer: GpuStore, requests: Iterable[int], prompt_blocks: Sequence[int], most_blocks: int
) -> list[Copied]:
    """Return the prompts to copy, the most recently requested first, as far as the peer has them.

    A block that prompts share counts once per prompt; at most ``most_blocks`` are copied. Cost: one lookup
    per prompt.
    """
    found, left = [], most_blocks
    for request in requests:
        blocks = min(peer.peek(request, prompt_blocks[request])[0], left)
        if blocks:
            found.append(Copied(request, blocks))
            left -= blocks
        if not left:
            break
    return found


def insert_copies(store: GpuStore, copies: Sequence[Copied], now_ns: int) -> int:
    """Insert copies on an idle machine, the last requested prompt most recent; return the number of blocks.

    Prompts that do not fit are left out. Cost: a few calls per prompt.
    """
    placed = 0
    for request, blocks in reversed(copies):
        here = store.peek(request, blocks)[1]
        lease = store.acquire(request, here)
        missing = blocks - here
        if (
            missing
            and missing <= store.occupancy(0).free_blocks
            and store.reserve(lease, missing, now_ns) == []
        ):
            store.commit(lease, blocks, Times(now_ns, now_ns))
            placed += missing
        store.release(lease, now_ns)
    return placed


#: State of a machine in a fleet that scales.
_Standing = Literal["off", "starting", "serving", "draining"]
#: Most prompts that a new machine copies from a peer.
_REMEMBERED = 4096


class FleetChange(NamedTuple):
    """One step of a machine's life: ordered, serves, drains, off."""

    at_ns: int
    change: str
    machine: int


class Scaling:
    """Orders and releases machines at multiples of an interval, until every request is finished.

    Machines that are still starting are released first, the last ordered before others; then those with the
    fewest requests, of these the highest number. A released machine finishes its requests (it drains) and is
    paid for until then. A machine that joins again is empty. Cost: one pass over all machines per decision.
    """

    def __init__(
        self,
        settings: ScalingSettings,
        membership: Membership,
        replicas: Sequence[NativeReplica],
        trees: Sequence[MarkingStore | None],
        trace: Trace,
        engine: Engine,
    ) -> None:
        self._settings, self._membership, self._engine = settings, membership, engine
        self._replicas, self._trees = replicas, trees
        self._published = published_by(replicas)
        self._policy: ScalingPolicy = SCALING.make(settings.policy, settings)
        block = self._replicas[0].cache.block_size_tokens
        self._prompt_blocks = (trace.input_tokens // block).tolist()
        self._standing: list[_Standing] = ["off"] * len(self._replicas)
        for machine in range(settings.first):
            self._standing[machine] = "serving"
        #: By ordered machine: the event of its start; canceled if the machine is released before.
        self._coming: dict[int, Event] = {}
        self._tick: Event | None = None
        #: Wanted machines at the decisions within ``hold_ns``, with their times.
        self._wanted: deque[tuple[int, int]] = deque()
        self._last_prompts: list[deque[int]] = [deque(maxlen=_REMEMBERED) for _ in self._replicas]
        self._seen = 0
        self._used_before = [False] * len(self._replicas)
        #: Order time of each machine that is paid for, and the total time of released machines.
        self._paid_from = dict.fromkeys(range(settings.first), 0)
        self._paid_ns = 0
        #: End of the last request.
        self._end_ns: int | None = None
        self.changes: list[FleetChange] = []
        self._counts = dict.fromkeys(("ordered", "released", "warmed_blocks"), 0)
        membership.when_left(self._left)

    # -- events

    def start(self) -> None:
        """Queue the first decision."""
        self._queue_tick()

    def over(self) -> None:
        """Stop deciding: every request is finished."""
        for event in (*self._coming.values(), *([self._tick] if self._tick is not None else [])):
            self._engine.cancel(event)
        self._coming, self._tick, self._end_ns = {}, None, self._engine.now_ns

    def _queue_tick(self) -> None:
        interval = self._settings.interval_ns
        at_ns = (self._engine.now_ns // interval + 1) * interval
        self._tick = self._engine.schedule(at_ns, MEMBERSHIP, NO_MACHINE, self._decide)

    def _decide(self, _: object) -> None:
        self._tick = None
        self._queue_tick()
        state = self._state()
        wanted = max(self._settings.least, min(self._policy.wanted(state), self._settings.most))
        now = self._engine.now_ns
        while self._wanted and self._wanted[0][0] < now - self._settings.hold_ns:
            self._wanted.popleft()
        self._wanted.append((now, wanted))
        if wanted > state.machines:
            self._order(wanted - state.machines)
        else:
            held = max(most for _, most in self._wanted)
            if held < state.machines:
                self._remove(state.machines - held)
        self._seen = self._membership.chosen

    def _state(self) -> FleetState:
        serving = self._membership.serving
        report = self._published()
        return FleetState(
            self._engine.now_ns,
            len(serving),
            self._standing.count("starting"),
            sum(report.waiting[machine] for machine in serving),
            sum(report.running[machine] for machine in serving),
            sum(report.kv_use[machine] for machine in serving) / len(serving),
            self._membership.chosen - self._seen,
        )

    # -- machines that join

    def _order(self, count: int) -> None:
        """Order machines, up to the fleet's size including those that still drain."""
        now = self._engine.now_ns
        for machine in [m for m, state in enumerate(self._standing) if state == "off"][:count]:
            self._change("ordered", machine)
            self._standing[machine] = "starting"
            self._counts["ordered"] += 1
            self._paid_from[machine] = now
            at_ns = now + self._settings.startup_ns
            self._coming[machine] = self._engine.schedule(
                at_ns, MEMBERSHIP, NO_MACHINE, self._booted, machine
            )

    def _booted(self, machine: int) -> None:
        """Start serving, or first copy blocks of a peer."""
        replica = self._replicas[machine]
        if self._used_before[machine]:
            empty_caches(replica, self._trees[machine], len(self._prompt_blocks))
        copies = self._of_peer() if self._settings.warm_blocks else []
        blocks = sum(copy.blocks for copy in copies)
        if not blocks:
            self._serve(Starting(machine, []))
            return
        at_ns = self._engine.now_ns + blocks * self._settings.warm_block_ns
        self._coming[machine] = self._engine.schedule(
            at_ns, MEMBERSHIP, NO_MACHINE, self._serve, Starting(machine, copies)
        )

    def _of_peer(self) -> list[Copied]:
        """Return the prompts a new machine copies: from the machine with most requests since it joined."""
        peer = max(self._membership.serving, key=lambda machine: (len(self._last_prompts[machine]), -machine))
        replica = self._replicas[peer]
        replica.catch_up(self._engine.now_ns)
        latest = dict.fromkeys(reversed(self._last_prompts[peer]))
        return worth_copying(replica.store, latest, self._prompt_blocks, self._settings.warm_blocks)

    def _serve(self, coming: Starting) -> None:
        machine, copies = coming
        self._coming.pop(machine, None)
        self._standing[machine] = "serving"
        self._used_before[machine] = True
        if copies:
            store = self._replicas[machine].store
            self._counts["warmed_blocks"] += insert_copies(store, copies, self._engine.now_ns)
        self._change("serves", machine)
        self._membership.join(machine)

    # -- machines that leave

    def _remove(self, count: int) -> None:
        ordered = sorted(self._coming, key=lambda machine: (self._paid_from[machine], machine))
        for machine in reversed(ordered[-count:]):
            self._engine.cancel(self._coming.pop(machine))
            self._off(machine)
            count -= 1
        here = self._membership.requests_by_machine
        for machine in sorted(self._membership.serving, key=lambda m: (here[m], -m))[:count]:
            self._used_before[machine] = True
            self._standing[machine] = "draining"
            self._last_prompts[machine].clear()
            self._change("drains", machine)
            self._membership.drain(machine)
            if not here[machine]:
                self._off(machine)

    def _left(self, machine: int, request: int, here: int) -> None:
        """Switch off a draining machine after its last request; ``here``: requests left there."""
        if self._standing[machine] == "serving":
            self._last_prompts[machine].append(request)
        elif not here:
            self._off(machine)

    def _off(self, machine: int) -> None:
        self._standing[machine] = "off"
        self._counts["released"] += 1
        self._change("off", machine)
        self._paid_ns += self._since(self._paid_from.pop(machine))

    def _since(self, time_ns: int) -> int:
        """Return the time since ``time_ns``, without time before the first or after the last request."""
        first_ns = self._membership.first_ns
        now = self._engine.now_ns if self._end_ns is None else self._end_ns
        return 0 if first_ns is None else now - max(time_ns, first_ns)

    def _change(self, change: str, machine: int) -> None:
        self.changes.append(FleetChange(self._engine.now_ns, change, machine))

    @property
    def counts(self) -> dict[str, int]:
        """Counts so far; ``machine_ns``: time of machines from their order until they are off.

        Time before the first arrival is not counted.
        """
        paid_ns = self._paid_ns + sum(map(self._since, self._paid_from.values()))
        return {**self._counts, "machine_ns": paid_ns}
