"""vLLM's offloading and LMCache natively: the core tells the same story as the classes in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from examples import NEW_EXAMPLES, examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from kvcache_sim import _core
from kvcache_sim.backends import reference
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.tiers import COMPUTE
from support.clusters import cluster
from support.drawn_settings import NATIVE, kinds, replicas
from support.second_path import agree, three_ways, told_alike
from support.traces import turns, with_aborts
from test_store_machine import thicket
from told import told

#: By engine the policies of its tiers.
POLICIES = {"vllm-offload": ("lru", "arc"), "lmcache": ("lru", "lfu", "fifo", "mru")}
engines = st.sampled_from([(engine, policy) for engine, known in POLICIES.items() for policy in known])
ROOMS = [(60, 40, 0), (60, 300, 0), (110, 60, 0), (60, 40, 60), (60, 40, 900), (200, 30, 90)]


def below_a_pool(engine: tuple[str, str], room: tuple[int, int, int], machines: int = 1, **channel):
    """Machines of vLLM's pool with an engine's tiers below; vLLM's own offloading has no disk."""
    name, policy = engine
    gpu, cpu, disk = room if name == "lmcache" else (*room[:2], 0)
    capacities = (gpu, cpu, disk) if disk else (gpu, cpu)
    settings = cluster(capacities, machines, latency_occupies=channel.pop("latency_occupies", False))
    channels = {key: replace(one, **channel) for key, one in settings.channels.items()}
    tiers = (TierSettings("gpu", gpu), TierSettings("cpu", cpu, policy), TierSettings("disk", disk))
    cache = replace(settings.cache, semantics="vllm", lower_semantics=name)
    built = tuple(replace(machine, tiers=tiers[: len(capacities)]) for machine in settings.machines)
    return replace(settings, cache=cache, machines=built, channels=channels)


@examples(40)
@given(
    engine=engines,
    room=st.sampled_from(ROOMS),
    replica=replicas,
    machines=st.sampled_from([1, 1, 2]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
    cache_output=st.booleans(),
    pipelined=st.booleans(),
    duplicates=st.sampled_from(["recompute", "recompute", "wait"]),
    kind=st.one_of(st.just({}), st.just({}), kinds),
    closed_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_an_engines_tiers_tell_one_story(
    engine,
    room,
    replica,
    machines,
    lookup_ns,
    cache_output,
    pipelined,
    duplicates,
    kind,
    closed_loop,
    seed,
):
    settings = below_a_pool(engine, room, machines, **kind)
    replica = replace(replica, duplicate_prefill=duplicates)
    settings = replace(
        settings,
        cache=replace(settings.cache, lookup_ns=lookup_ns, cache_output=cache_output),
        movement=replace(settings.movement, layer_pipelining=pipelined),
        machines=tuple(replace(machine, replica=replica) for machine in settings.machines),
    )
    three_ways(settings, turns(seed, closed_loop))


@examples(15)
@given(engine=engines, room=st.sampled_from(ROOMS), closed_loop=st.booleans(), seed=st.integers(1, 99))
def test_who_gives_up_leaves_the_tiers_alike(engine, room, closed_loop, seed):
    told_alike(below_a_pool(engine, room, 2), with_aborts(seed, closed_loop=closed_loop))


@examples(15)
@given(
    engine=engines,
    room=st.sampled_from(ROOMS),
    router=st.sampled_from(NATIVE),
    machines=st.integers(2, 4),
    seed=st.integers(1, 10**6),
)
def test_who_comes_natively_finds_the_tiers(engine, room, router, machines, seed):
    settings = replace(below_a_pool(engine, room, machines), router=RouterSettings(router))
    agree(settings, turns(seed, closed_loop=False))


#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
NUMBERS = [0, 1, 2, 3, 4, 6, 9, 12]
REQUESTS = st.sampled_from(NUMBERS)
#: Tokens of a block, and of what a prompt has beyond its last full one.
BLOCK, OVER = 4, 2


class TieredStores(RuleBasedStateMachine):
    """Both stores through whatever a replica may do: look up, load, join, compute, offer, end, in any order."""

    engine = ("vllm-offload", "lru")
    room = (40, 30, 0)

    @initialize()
    def build(self) -> None:
        rows, following = thicket()
        flat: dict[int, int] = {}
        ids = np.array([flat.setdefault(i, len(flat)) for row in rows for i in row], np.uint32)
        offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        self.full = [2 * len(row) for row in rows]
        keyed = (offsets, ids, 2, np.array(self.full, np.uint32), np.array(following, np.uint32))
        prompts = [blocks * BLOCK + (request % 2) * OVER for request, blocks in enumerate(self.full)]
        self.stores = self.made(keyed, prompts)
        self.now = 0
        #: request → lease of each store, blocks that have room.
        self.running: dict[int, tuple[list[int], int]] = {}
        #: Moves under way by their numbers in each store, in their order, and the request that each loads for.
        self.moves: list[tuple[int, int]] = []
        self.loads: dict[tuple[int, int], int] = {}

    def made(self, keyed, prompts):
        (name, policy), (gpu, cpu, disk) = self.engine, self.room
        keys, slow = _core.Keys(*keyed), ReferenceKeys(*keyed)
        if name == "lmcache":
            tiers = reference("tiers.lmcache")(policy, cpu, disk)
            other = reference("store.lmcache")(slow, gpu, tiers, prompts, BLOCK)
            return _core.TieredPoolStore.with_lmcache(keys, gpu, (cpu, disk), policy, (prompts, BLOCK)), other
        other = reference("store.vllm-offload")(
            slow, gpu, reference("tier.vllm-offload")(policy, cpu), prompts, BLOCK
        )
        return _core.TieredPoolStore.with_offload(keys, gpu, cpu, policy, (prompts, BLOCK)), other

    def both(self, name: str, *arguments):
        """Ask both the same; a pair stands for what is numbered otherwise in each. Refusals are equal lines."""
        said = []
        for at, store in enumerate(self.stores):
            own = tuple(given[at] if isinstance(given, tuple) else given for given in arguments)
            said.append(told(store, name, own))
        assert isinstance(said[0], str) == isinstance(said[1], str), said
        return said

    def alike(self, name: str, *arguments):
        said = self.both(name, *arguments)
        assert said[0] == said[1], (name, arguments, said)
        return said[0]

    def paired(self, moves) -> list[tuple[int, int]]:
        """Pairs of moves, which both stores know under their own numbers."""
        known = dict(self.moves)
        mine, theirs = moves
        assert [known[move] for move in mine] == list(theirs), moves
        return list(zip(mine, theirs, strict=True))

    def take_orders(self) -> None:
        mine, theirs = self.both("take_orders")
        assert [order[1:4] for order in mine] == [order[1:4] for order in theirs]
        for one, other in zip(mine, theirs, strict=True):
            self.moves.append((one[0], other[0]))
            self.paired((sorted(one[4]), sorted(other[4])))

    def parts(self, request: int, found: int):
        mine, theirs = self.both("match_prefix", request, found)
        assert [part[:3] for part in mine] == [part[:3] for part in theirs]
        known = dict(self.moves) | {NO_MOVE: NO_MOVE}
        assert [known[part[3]] for part in mine] == [part[3] for part in theirs]
        return list(zip(mine, theirs, strict=True))

    @rule(request=REQUESTS)
    def admit(self, request: int) -> None:
        """As a replica does: look up, reserve, join or load part by part."""
        self.now += 1
        limit = self.full[request] - (request % 2 == 0)
        found, ready = self.alike("peek", request, limit)
        if request in self.running:
            return
        parts = self.parts(request, found)
        below = [(part, other) for part, other in parts if part[0] > COMPUTE]
        held = [self.both("protect", request, part[2], part[0]) for part, _ in below]
        lease = self.both("acquire", request, ready)
        joined = sum(part[2] - part[1] for part, _ in parts if part[0] == COMPUTE and part[3] != NO_MOVE)
        total = self.full[request] + 1
        room = self.both("reserve", tuple(lease), total - ready - joined, self.now)
        assert (room[0] is None) == (room[1] is None)
        if room[0] is None:
            SEEN["refusal"] += 1
            self.both("abandon", tuple(lease))
        else:
            after = self.paired(room)
            SEEN["room waits for a write"] += bool(after)
            for part, other in parts:
                if part[2] <= ready:
                    continue
                if part[0] == COMPUTE:
                    SEEN["joined"] += 1
                    self.both("join", tuple(lease), part[2])
                    continue
                by = [(part[3], other[3])] if part[3] != NO_MOVE else []
                waits = tuple([pair[at] for pair in [*after, *by]] for at in (0, 1))
                SEEN[f"loaded from {part[0]}"] += 1
                move = self.both("load", tuple(lease), part[2], waits)
                self.take_orders()
                assert tuple(move) in self.moves
                self.loads[tuple(move)] = request
            self.running[request] = (lease, total)
        for (part, _), hold in zip(below, held, strict=True):
            self.both("unprotect", part[0], tuple(hold))

    @rule(request=REQUESTS, blocks=st.sampled_from([1, 2, 5, 40]))
    def compute(self, request: int, blocks: int) -> None:
        """A step computes some of a prompt and offers it; loads come first."""
        if request not in self.running:
            return
        self.land(request)
        self.now += 1
        lease, held = self.running[request]
        to = min(self.alike("depth", tuple(lease)) + blocks, held - 1)
        self.alike("commit", tuple(lease), to)
        self.offer(request)

    def land(self, request: int) -> None:
        """End all copies that a request waits for."""
        if request in self.loads.values():
            for move in list(self.moves):
                self.end(move)

    def offer(self, *requests: int) -> None:
        leases = [self.running[request][0] for request in requests]
        self.both("step_computed", tuple([lease[at] for lease in leases] for at in (0, 1)), self.now)
        self.take_orders()

    @rule()
    def step_of_all(self) -> None:
        self.now += 1
        self.offer(*(request for request in self.running if request not in self.loads.values()))

    @rule(request=REQUESTS, blocks=st.integers(0, 3))
    def grow(self, request: int, blocks: int) -> None:
        if request in self.running:
            self.now += 1
            lease, held = self.running[request]
            room = self.both("reserve", tuple(lease), blocks, self.now)
            assert (room[0] is None) == (room[1] is None)
            if room[0] is not None:
                self.paired(room)
                self.running[request] = (lease, held + blocks)

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4), lands=st.booleans())
    def run_whole(self, requests: list[int], lands: bool) -> None:
        for request in requests:
            if request not in self.running:
                self.admit(request)
                self.compute(request, 40)
                self.leave(request)
        for move in list(self.moves) if lands else ():
            self.end(move)

    @rule(requests=st.permutations(NUMBERS), number=st.integers(2, 4))
    def admit_together(self, requests: list[int], number: int) -> None:
        """Those that come later find what the first ones load."""
        for request in requests[:number]:
            self.leave(request)
        for request in requests[:number]:
            self.admit(request)

    @rule(which=st.integers(0, 99))
    def end_a_copy(self, which: int) -> None:
        """Copies of a tier end in any order, but what waits for another after it."""
        if self.moves:
            self.end(self.moves[0 if which % 3 else which % len(self.moves)])

    def end(self, move: tuple[int, int]) -> None:
        self.moves.remove(move)
        self.loads.pop(move, None)
        self.alike("finish_move", move)

    @rule(request=REQUESTS)
    def leave(self, request: int) -> None:
        if request in self.running:
            self.land(request)
            self.now += 1
            lease, _ = self.running.pop(request)
            self.alike("release", tuple(lease), self.now)

    @rule(name=st.sampled_from(["release", "commit", "load", "join", "depth"]))
    def call_with_no_lease(self, name: str) -> None:
        rest = {"release": (1,), "commit": (2,), "load": (2, []), "join": (2,)}
        assert self.alike(name, NO_MOVE, *rest.get(name, ())).endswith("one that is held")

    @invariant()
    def both_stores_agree(self) -> None:
        if not hasattr(self, "stores"):
            return
        assert self.stores[0].digest == self.stores[1].digest
        for tier in range(3 if self.room[2] else 2):
            for name in ("room", "losses"):
                self.alike(name, tier)
            if tier:
                self.alike("duplicates", tier)
            SEEN[f"evicted from {tier}"] += self.stores[0].losses(tier).evicted_blocks > 0
        for request in NUMBERS:
            self.alike("peek", request, self.full[request])
        for store in self.stores:
            store.check()


SESSION = examples(40, stateful_step_count=50, suppress_health_check=list(HealthCheck))
SHAPES = {
    "vllm-offload, lru": {},
    "vllm-offload, arc": {"engine": ("vllm-offload", "arc"), "room": (30, 20, 0)},
    "vllm-offload, little room": {"room": (32, 8, 0)},
    "lmcache, lru": {"engine": ("lmcache", "lru")},
    "lmcache, lfu, disk": {"engine": ("lmcache", "lfu"), "room": (30, 14, 24)},
    "lmcache, mru, disk": {"engine": ("lmcache", "mru"), "room": (30, 12, 30)},
    "lmcache, fifo, disk": {"engine": ("lmcache", "fifo"), "room": (30, 12, 24)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_native_store_is_the_reference(shape: str) -> None:
    SEEN.clear()
    run_state_machine_as_test(type("Machine", (TieredStores,), SHAPES[shape]), settings=SESSION)
    wanted = {
        "refusal",
        "joined",
        "loaded from 1",
        "room waits for a write",
        "evicted from 0",
        "evicted from 1",
    }
    if "disk" in shape:
        wanted |= {"loaded from 2", "evicted from 2"}
    missing = {case for case in wanted if not SEEN[case]}
    assert not missing or (NEW_EXAMPLES and NEW_EXAMPLES < 40), f"the session never saw: {sorted(missing)}"
