"""The stores of engines, native and reference, side by side through whatever requests may do to them.

Requests are looked up, admitted, grow alone and together, share what they computed and end in any order. After
every step both stores give the same answers, and each passes its own check. The strategies, pages and sizes
are those of `SHAPES`; a session counts as a test only if the hard cases occurred in some run of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kvcache_sim import _core
from kvcache_sim.reference.engines.pool_store import ReferencePoolStore
from kvcache_sim.reference.engines.radix_store import ReferenceRadixStore
from kvcache_sim.reference.store import ReferenceKeys
from test_store_machine import thicket
from told import told

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
NUMBERS = [0, 1, 2, 3, 4, 6, 9, 12]
REQUESTS = st.sampled_from(NUMBERS)
#: Blocks fewer than are found; all of them now and then, as two requests have that compute the same at once.
LESS = st.sampled_from([0, 0, 0, 1, 99])


class EngineStores(RuleBasedStateMachine):
    #: SGLang's strategy and the tokens of a page; None: vLLM's pool.
    strategy: ClassVar[tuple[str, int] | None] = None
    capacity = 40

    @initialize()
    def build(self) -> None:
        rows, following = thicket()
        flat: dict[int, int] = {}
        ids = np.array([flat.setdefault(i, len(flat)) for row in rows for i in row], np.uint32)
        offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        full = np.array([2 * len(row) for row in rows], np.uint32)
        arguments = (offsets, ids, 2, full, np.array(following, np.uint32))
        self.native, self.reference = self.stores(arguments, full.tolist())
        self.full = full.tolist()
        self.now = 0
        #: request → native lease, reference lease, blocks that have room.
        self.running: dict[int, tuple[int, int, int]] = {}
        self.ended: list[tuple[int, int]] = []

    def stores(self, arguments: tuple[Any, ...], full: list[int]) -> tuple[Any, Any]:
        keys, slow = _core.Keys(*arguments), ReferenceKeys(*arguments)
        if self.strategy is None:
            return _core.PoolStore(keys, self.capacity), ReferencePoolStore(slow, self.capacity)
        name, page = self.strategy
        prompts = [blocks * page + r % page for r, blocks in enumerate(full)]
        wholes = [prompt + 3 * page for prompt in prompts]
        native = _core.RadixStore(keys, name, page, self.capacity, prompts, wholes)
        return native, ReferenceRadixStore(slow, name, page, self.capacity, (prompts, wholes))

    def both(self, name: str, mine: tuple[Any, ...], theirs: tuple[Any, ...] | None = None) -> Any:
        """Ask both the same; they answer alike, or refuse in the same line."""
        other = mine if theirs is None else theirs
        answers = [told(self.native, name, mine), told(self.reference, name, other)]
        if name != "acquire" or isinstance(answers[0], str) or isinstance(answers[1], str):
            assert answers[0] == answers[1], (name, mine)
        return answers

    @rule(request=REQUESTS, less=LESS, more=st.integers(0, 2))
    def admit(self, request: int, less: int, more: int) -> None:
        self.now += 1
        found = self.both("peek", (request, self.full[request]))[0][0]
        hits = max(min(found, self.full[request] - 1) - less, 0)
        mine, theirs = self.both("acquire", (request, hits))
        if isinstance(mine, str):
            assert request in self.running
            return
        assert self.both("depth", (mine,), (theirs,)) == [hits, hits]
        blocks = self.full[request] - hits + (more if self.strategy is None else 0)
        room = self.both("reserve", (mine, blocks, self.now), (theirs, blocks, self.now))[0]
        SEEN["hit"] += hits > 0
        if room is None:
            SEEN["refusal"] += 1
            self.both("abandon", (mine,), (theirs,))
            self.ended.append((mine, theirs))
            return
        self.running[request] = (mine, theirs, hits + blocks)

    @rule(request=REQUESTS, less=LESS)
    def run_whole(self, request: int, less: int) -> None:
        if request not in self.running:
            self.admit(request, less, 1)
            self.share(request, 40)
            self.end(request)

    @rule(request=REQUESTS, blocks=st.integers(0, 3))
    def grow(self, request: int, blocks: int) -> None:
        if request in self.running:
            self.now += 1
            mine, theirs, held = self.running[request]
            if self.both("reserve", (mine, blocks, self.now), (theirs, blocks, self.now))[0] is not None:
                self.running[request] = (mine, theirs, held + blocks)

    @rule(blocks=st.lists(st.integers(0, 1), min_size=8, max_size=8))
    def grow_together(self, blocks: list[int]) -> None:
        """As decoding does: all or nothing."""
        self.now += 1
        each = list(zip(sorted(self.running), blocks, strict=False))
        mine = [(self.running[r][0], n) for r, n in each]
        theirs = [(self.running[r][1], n) for r, n in each]
        room = self.both("reserve_many", (mine, self.now), (theirs, self.now))[0]
        SEEN["refused together"] += room is None
        for request, n in each if room is not None else ():
            native, reference, held = self.running[request]
            self.running[request] = (native, reference, held + n)

    @rule(request=REQUESTS, blocks=st.sampled_from([1, 2, 5, 40]))
    def share(self, request: int, blocks: int) -> None:
        if request in self.running:
            mine, theirs, held = self.running[request]
            merged = self.native.merged_blocks
            to = min(self.native.depth(mine) + blocks, held)
            self.both("commit", (mine, to), (theirs, to))
            SEEN["merged"] += self.native.merged_blocks > merged

    @rule(request=REQUESTS)
    def end(self, request: int) -> None:
        if request in self.running:
            self.now += 1
            mine, theirs, _ = self.running.pop(request)
            self.both("release", (mine, self.now), (theirs, self.now))
            self.ended.append((mine, theirs))

    @rule(
        name=st.sampled_from(["release", "commit", "reserve", "abandon", "depth"]), which=st.integers(0, 99)
    )
    def call_with_an_ended_lease(self, name: str, which: int) -> None:
        if self.ended:
            mine, theirs = self.ended[which % len(self.ended)]
            rest = {"release": (1,), "commit": (2,), "reserve": (1, 1)}.get(name, ())
            said = self.both(name, (mine, *rest), (theirs, *rest))[0]
            assert said == "store: no such lease; expected one that is held"

    @rule(request=REQUESTS, name=st.sampled_from(["commit", "abandon"]))
    def ask_too_much(self, request: int, name: str) -> None:
        if request in self.running:
            mine, theirs, held = self.running[request]
            rest = (held + 1,) if name == "commit" else ()
            assert isinstance(self.both(name, (mine, *rest), (theirs, *rest))[0], str), "refused"

    @invariant()
    def both_stores_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        for name in ("digest", "merged_blocks"):
            assert getattr(self.native, name) == getattr(self.reference, name), name
        for name in ("room", "losses"):
            self.both(name, (0,))
        for request in NUMBERS:
            self.both("peek", (request, 40))
        for mine, theirs, _ in self.running.values():
            self.both("depth", (mine,), (theirs,))
        SEEN["eviction"] += self.native.losses(0).evicted_blocks > 0
        self.native.check()
        self.reference.check()

    def teardown(self) -> None:
        for request in sorted(getattr(self, "running", {})):
            mine, theirs, _ = self.running[request]
            self.both("release", (mine, 0), (theirs, 0))
        if hasattr(self, "native"):
            self.both_stores_agree()
            assert self.native.room(0).active_blocks == 0


SESSION = examples(60, stateful_step_count=60, suppress_health_check=list(HealthCheck))
SHAPES: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm, little room": {"capacity": 18},
    "sglang lru": {"strategy": ("lru", 1), "capacity": 48},
    "sglang lfu, pages of 4": {"strategy": ("lfu", 4), "capacity": 40},
    "sglang slru, pages of 16": {"strategy": ("slru", 16), "capacity": 40},
    "sglang fifo": {"strategy": ("fifo", 4), "capacity": 30},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_native_store_is_the_reference(shape: str) -> None:
    SEEN.clear()
    run_state_machine_as_test(type("Machine", (EngineStores,), SHAPES[shape]), settings=SESSION)
    seldom = {"refused together"} if "strategy" in SHAPES[shape] else {"merged", "refused together"}
    missing = {case for case in ("hit", "refusal", "eviction", "merged") if not SEEN[case]} - seldom
    assert not missing or SESSION.max_examples < 60, f"the session never saw: {sorted(missing)}"


class KeepsWhatItReleases(ReferencePoolStore):
    def release(self, lease: int, now_ns: int) -> None:
        self.pool.free.reverse()
        super().release(lease, now_ns)


class ForgetsDuplicates(ReferenceRadixStore):
    def _check_in(self, request: int, pages: int) -> None:
        super()._check_in(request, pages)
        self.merged_blocks = 0


@pytest.mark.parametrize(
    ("fault", "shape"), [(KeepsWhatItReleases, "vllm"), (ForgetsDuplicates, "sglang lru")]
)
def test_a_planted_fault_is_caught(fault: type[Any], shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), fault.__mro__[1].__name__, fault)
    machine = type("Machine", (EngineStores,), SHAPES[shape])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            machine, settings=settings(SESSION, max_examples=60, phases=[Phase.generate], print_blob=False)
        )
