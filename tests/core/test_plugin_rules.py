"""Rules of plug-ins by hand: what a broken contract says, calls that are counted, and other projects' names."""

import signal
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.plugins import uses, watchdog
from kvcache_sim.policies.plugins.adapters import LibCacheSimHooks, NodeView, VllmPolicy, hooks_of
from kvcache_sim.policies.plugins.choice import Guarded, whole_number
from kvcache_sim.policies.plugins.contract import PolicyViolation, violation
from kvcache_sim.policies.plugins.host import PolicyTier
from kvcache_sim.policies.plugins.hosted import HostedOrder, HostedPriority, function_alone
from kvcache_sim.policies.plugins.load import load_plugin
from kvcache_sim.policies.plugins.priority import PriorityPolicy, reads_second_argument
from kvcache_sim.policies.plugins.stand_ins import BlockStatus, stand_ins
from kvcache_sim.policies.plugins.template import skeleton
from kvcache_sim.policies.plugins.uses import PluginUse, WatchedCalls, begin_uses, note_use, summed
from kvcache_sim.policies.plugins.views import BlockRecord, TierView
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.serving.router.registry import ROUTER


def test_a_broken_contract_names_policy_block_and_time():
    plain = violation("mine", "refused", 7)
    assert (plain.where, plain.what, plain.got, plain.exit_code) == (
        "policy mine", "refused", "at 7 ns of simulated time", 1,
    )  # fmt: skip
    assert violation("mine", "refused", 7, block=0).got == "block 0 at 7 ns of simulated time"


def raising(error):
    raise error


def test_calls_are_counted_and_timed_by_kind_and_name(monkeypatch):
    """Each takes 30 ns more than the one before; a call that raises is counted too."""
    clock = iter([0, 30, 100, 160, 200, 290, 300, 420])
    monkeypatch.setattr(uses, "perf_counter_ns", lambda: next(clock))
    begun = begin_uses()
    dog = SimpleNamespace(asked="outer", calls=5)
    calls = WatchedCalls("router", "mine", dog)
    assert calls(lambda a, b: (a, b, dog.asked, dog.calls), 9, 1, 2) == (1, 2, "mine", 6)
    broken = PolicyViolation("own", where="w")
    for error, kept in ((broken, True), (UsageError("not a name"), True), (SystemExit(2), False)):
        with pytest.raises(type(error) if kept else PolicyViolation) as raised:
            calls(raising, 9, error)
        assert (raised.value is error) is kept
    assert (raised.value.what, raised.value.where) == ("raised SystemExit: 2", "policy mine")
    assert raised.value.got == "at 9 ns of simulated time"
    assert (dog.asked, dog.calls) == ("outer", 9)

    def as_tuple(use):
        return use.kind, use.name, use.calls, use.ns

    assert [as_tuple(use) for use in begun] == [("router", "mine", 4, 300)]
    other = note_use("fetch", "mine")
    other.calls, other.ns = 1, 2
    again = note_use("router", "mine")
    again.calls, again.ns = 3, 5
    assert begun[1:] == [other, again]
    assert [as_tuple(use) for use in summed(begun)] == [("router", "mine", 7, 305), ("fetch", "mine", 1, 2)]
    assert as_tuple(begun[0]) == ("router", "mine", 4, 300)
    assert begin_uses() == []
    assert PluginUse("a", "b").calls == 0


def test_a_call_that_does_not_end_is_interrupted_at_the_second_tick(monkeypatch):
    set_to = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: set_to.append(handler) or "before")
    monkeypatch.setattr(signal, "setitimer", lambda _, *after: set_to.append(after) or (3.0, 4.0))
    with watchdog.watched("mine", 2.5) as dog:
        assert set_to == [dog.tick, (2.5, 2.5)]
        with watchdog.watching(dog):
            assert watchdog.duty.dog is dog
        assert len(set_to) == 2
        dog.calls += 1
        dog.tick(0, None)
        dog.calls += 1
        dog.tick(0, None)
        with pytest.raises(PolicyViolation) as raised:
            dog.tick(0, None)
        assert (raised.value.where, raised.value.got) == ("policy mine", "no answer within 10 s at hook call 2")  # fmt: skip
        dog.asked = ""
        dog.tick(0, None)
        del set_to[:]
    assert set_to == [(0,), "before", (3.0, 4.0)]
    assert watchdog.duty.dog is None
    lazy = watchdog.Watchdog(watches=False)
    with watchdog.watching(lazy):
        assert len(set_to) == 3
        lazy.start()
        lazy.start()
        assert set_to[3:] == [lazy.tick, (10.0, 10.0)]
        assert lazy.watches
        lazy.tick(0, None)
    watchdog.Watchdog().start()
    assert set_to[5:] == [(0,), "before", (3.0, 4.0)]


def test_names_of_packages_that_are_missing_are_there_for_an_import_alone(monkeypatch):
    """Each module and the packages above it; those of a package that is there are its own."""
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    before = set(sys.modules)
    with stand_ins():
        added = set(sys.modules) - before
        assert sys.modules["vllm.v1.kv_offload.base"].CachePolicy(3).cache_capacity == 3
        assert sys.modules["libcachesim"].PluginCache is object
    kv_offload = ("", ".abstract", ".base", ".cpu", ".cpu.policies", ".cpu.policies.abstract", ".cpu.policies.base")  # fmt: skip
    above = ("", ".logger", ".v1", ".v1.core", ".v1.core.kv_cache_utils")
    own = {*(f"vllm{name}" for name in above), *(f"vllm.v1.kv_offload{name}" for name in kv_offload)}
    assert added == {*own, "libcachesim"}
    assert set(sys.modules) == before


def a_block(number, depth=0, parent=-1):
    return BlockRecord(number, depth, parent, 4, 40)


def test_a_block_has_the_names_of_sglang_and_cannot_be_changed():
    record = a_block(7, 2, 6)
    record.hits, record.last_use, record.last_use_ns = 3, 9, 90
    node, view = NodeView(record.view), record.view
    assert (node.last_access_time, node.creation_time, node.hit_count, node.priority, node.id) == (9, 4, 3, 0, 7)  # fmt: skip
    assert (view.depth, view.parent, view.hits, view.last_use, view.last_use_ns) == (2, 6, 3, 9, 90)
    tier = TierView("gpu", 1, 2)
    assert (tier.name, tier.capacity_blocks, tier.block_size_tokens) == ("gpu", 1, 2)
    for own in (view, tier):
        with pytest.raises(AttributeError, match="read-only: id"):
            own.id = 1


@pytest.mark.parametrize("context", [(), (None,)])
def test_a_policy_of_vllm_stores_blocks_that_are_readable_once_touched(context):
    """Blocks are touched before they are stored and at the end; ``get`` knows only the first new one."""
    log, kept = [], {}

    class Policy:
        def touch(self, keys):
            log.append(("touch", keys))

        def evict(self, n, pinned):
            return None if n > 2 else [(key, "block") for key in range(n)]

        def insert(self, key, status):
            log.append(("insert", key, status.block_id, status.is_ready))
            kept.setdefault("status", status)

        def get(self, key):
            return kept["status"] if key == 8 else None

        def mark_evictable(self, key):
            log.append(("evictable", key))

    class InContext(Policy):
        def touch(self, keys, req_context):
            log.append(("touch", keys, req_context))

    own = VllmPolicy(InContext() if context else Policy())
    own.begin((8, 9), 1)
    own.on_insert(a_block(8).view, 1)
    own.on_insert(a_block(9).view, 1)
    own.end((7, 8, 9), (8, 9), 1)
    assert log == [
        ("touch", [8, 9], *context),
        ("insert", 8, 8, False),
        ("insert", 9, 9, False),
        ("touch", [7, 8, 9], *context),
        ("evictable", 8),
        ("evictable", 9),
    ]
    assert (kept["status"].ref_cnt, kept["status"].is_ready, BlockStatus(1).ref_cnt) == (0, True, -1)
    assert [own.victims(n, 1, ()) for n in (2, 3)] == [[0, 1], None]


def test_hooks_of_libcachesim_get_victims_back_that_are_pinned():
    """A queue of objects: the eviction hook takes the first, the miss hook adds at the end."""
    asked, inits = [], []
    hooks = {
        "init": lambda parameters: inits.append(vars(parameters)) or [parameters.cache_size],
        "miss": lambda data, request: data.append(request.obj_id),
        "hit": lambda data, request: data.append(-request.obj_id),
        "eviction": lambda data, request: asked.append((request.obj_id, request.clock_time)) or data.pop(1),
    }
    own = LibCacheSimHooks(hooks, TierView("gpu", 9, 16))
    assert own.data == [9]
    assert inits == [{"cache_size": 9, "default_ttl": 0, "hashpower": 0, "consider_obj_metadata": False}]
    for block in (3, 4, 5, 6):
        own.on_insert(a_block(block).view, 1)
    own.begin((12, 13), 2)
    assert own.victims(2, 2, {3, 5}) == [4, 6]
    assert asked == [(12, 2)] * 4
    assert own.data == [9, 3, 5]
    own.on_remove(a_block(4).view, 2)
    own.on_remove(a_block(6).view, 2)
    own.begin((), 3)
    assert own.victims(1, 3, {3, 5}) is None
    assert asked[4:] == [(0, 3)] * 2, "each resident block is asked for once"
    own.on_hit(a_block(5).view, 3)
    assert own.data == [9, 3, 5, -5]


def test_hooks_are_found_by_either_name():
    def named(**more):
        return SimpleNamespace(
            **dict.fromkeys(("init_hook", "hit_hook", "miss_hook", "eviction_hook"), len) | more
        )

    hooks = hooks_of(named(cache_hit_hook=abs, remove_hook=max), "f.py")
    assert hooks == {"init": len, "hit": abs, "miss": len, "eviction": len, "remove": max}
    with pytest.raises(UsageError) as refused:
        hooks_of(named(hit_hook=5), "f.py")
    assert (refused.value.where, refused.value.got) == ("f.py", "no cache_hit_hook, no cache_remove_hook")


@pytest.mark.parametrize(("leaves", "mode"), [(False, "redirect"), (True, "leaves")])
def test_a_hosted_order_reports_joins_uses_departures_and_new_leaves(leaves, mode):
    log = []

    class Policy:
        def victims(self, n, now, pinned):
            log.append(("victims", n, now))
            return [3, 1][:n]

    for name in ("on_insert", "on_hit", "on_remove", "on_leaf"):
        setattr(Policy, name, lambda self, b, now, name=name: log.append((name, b.id, b.hits, now)))
    dog = SimpleNamespace(asked="", calls=0)
    own = HostedOrder(Policy(), "mine", 8, dog, leaves)
    assert own.mode == mode
    own.join(1, 0, None, 5, 50)
    own.join(2, 1, 1, 4, 60)
    own.join(3, 1, 1, 6, 70)
    own.used(3, 7, 80)
    own.leave(2)
    own.leave(3)
    assert log == [
        ("on_insert", 1, 1, 5), ("on_insert", 2, 1, 5), ("on_insert", 3, 1, 6), ("on_hit", 3, 2, 7),
        ("on_remove", 2, 1, 7), ("on_remove", 3, 2, 7), ("on_leaf", 1, 1, 7),
    ]  # fmt: skip
    assert (own.records.keys(), own.children, own.below) == ({1}, {-1: 1, 1: 0}, {-1: {1}, 1: set()})
    own.join(3, 1, 1, 8, 90)
    del log[:]
    assert own.victims(2, 95, ()) == ([3] if leaves else [3, 1])
    assert log == [("victims", 1 if leaves else 2, 8)]
    assert own.redirects == 0


def test_a_function_that_cannot_be_compared_is_a_broken_contract():
    own = HostedPriority(lambda b, now: b + now, "mine", SimpleNamespace(asked="", calls=0))
    assert own.rank(3, 4, 5) == 7
    kept = UsageError("own")
    assert own.worded(kept, 3) is kept
    worded = own.worded(TypeError("a < b"), 3)
    assert (worded.where, worded.what) == ("policy mine", "raised TypeError: a < b")
    plain, timed = (lambda b, now: b.hits), (lambda b, now: now)
    assert function_alone(PriorityPolicy(plain)) is plain
    assert function_alone(PriorityPolicy(timed)) is None
    assert function_alone(SimpleNamespace(uses_now=False)) is None
    cases = {plain: False, timed: True, len: True, (lambda b: b): False}
    assert {own: reads_second_argument(own) for own in cases} == cases
    assert reads_second_argument(lambda b, now: [now for _ in b])


@pytest.mark.parametrize("name", ["", "1x", "-a", "_a", "a b", "a.b", "x" * 41])
def test_a_new_policy_has_a_plain_name(name):
    with pytest.raises(UsageError, match="not a name for a policy"):
        skeleton(name)
    assert skeleton("My_own-2").class_name == "MyOwn2"


WHOLE = [2, 5, np.int64(3), np.uint8(5)]
OTHER = [1, 6, np.int64(6), True, False, np.bool_(True), 3.0, "3", None]


@pytest.mark.parametrize("given", [*WHOLE, *OTHER], ids=repr)
def test_an_answer_is_a_whole_number_of_any_kind_within_its_range(given):
    if any(given is one for one in WHOLE):
        found = whole_number(given, 2, 5)
        assert (type(found), found) == (int, given)
    else:
        with pytest.raises(ValueError, match="a whole number from 2 to 5"):
            whole_number(given, 2, 5)
    for flag in (True, False):
        with pytest.raises(ValueError, match="a whole number"):
            whole_number(flag, 0, 5)


def test_answers_of_a_plug_in_are_checked_and_counted():
    """Whole numbers up to the last machine; an error or another answer names the router and its method."""
    answers = iter([1, np.int64(0), ValueError("x"), 2, True, "1" * 58, "1" * 59])

    class Rule:
        def choose(self, arrival):
            given = next(answers)
            return raising(given) if isinstance(given, Exception) else given

    dog = watchdog.Watchdog(watches=False)
    own = Guarded(ROUTER, "mine", Rule(), (SimpleNamespace(replicas=[0, 1]),))
    with watchdog.watching(dog):
        assert [own.choose(None), own.choose(None)] == [1, 0]
        line = f"{__file__}:{raising.__code__.co_firstlineno + 1}"
        for said, got in (
            ("choose raised ValueError: x", line),
            *(
                ("choose gave no usable answer", got)
                for got in ("2", "True", f"'{'1' * 58}'", f"'{'1' * 56}...")
            ),
        ):
            with pytest.raises(PolicyViolation) as broken:
                own.choose(None)
            assert (broken.value.what, broken.value.where, broken.value.got) == (said, "router mine", got)
    assert (own._use.calls, dog.calls, dog.asked) == (7, 7, "")
    assert own._use.ns > 0


@pytest.mark.parametrize(
    ("mode", "after", "evicted"),
    [
        ("closed", [(1, 2), (1, 4)], [3]),
        ("redirect", [(1, 2), (1, 4)], [3]),
        ("leaves", [(0, 0), (0, 2)], [3, 2, 1, 6]),
    ],
)
def test_each_call_of_a_hook_and_each_refusal_is_counted(mode, after, evicted):
    """A policy that refuses two victims at once, on a tier of three blocks.

    The last request holds three resident blocks, or two where leaves are asked for one by one; blocks that
    then do not fit are not admitted.
    """
    log, there = [], []

    class Policy:
        def victims(self, n, now, pinned):
            log.append("victims")
            return None if n > 1 else [[b for b in there if b not in pinned][-1]]

        def on_insert(self, b, now):
            log.append("on_insert")
            there.insert(0, b.id)  # the deepest comes first: a parent stands before its children

        def on_remove(self, b, now):
            log.append("on_remove")
            there.remove(b.id)

        def on_hit(self, b, now):
            log.append("on_hit")

        def end(self, path, new, now):
            log.append("end")

    policy, dog = Policy(), SimpleNamespace(calls=0)
    policy.mode = mode
    tier = PolicyTier(policy, "mine", 3, dog)
    counts = []
    for number, path in enumerate([(1, 2, 3), (1, 2, 3), (4,), (5, 6), (1, 2, 3, 4, 5)]):
        tier.request(path, 10 * number)
        assert dog.calls == len(log)
        counts.append((tier.refusals, tier.not_admitted))
    assert (counts, tier.evictions) == ([(0, 0)] * 3 + after, evicted)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("lru", "prefix"), ("ttl:300s", "prefix"), ("sglang:lru", "sglang lru"), ("vllm", "vllm "),
        ("sglang-unified:tlru:4096:256", "sglang-unified tlru:4096:256"), ("a.py:B", "plugin"),
        ("vllm:a.py:B", "plugin"), ("vllm:m:N", "plugin"), ("m:N", "plugin"), ("p.m:N(a=1)", "plugin"),
        ("libcachesim:f.py", "plugin"), ("vllm:lru", ""), ("lru2", ""), ("1m:N", ""), ("m:1", ""),
    ],
)  # fmt: skip
def test_a_name_is_a_row_a_row_with_a_setting_or_a_plug_in(text, family):
    if not family:
        with pytest.raises(UsageError, match="unknown policy"):
            resolve_policy(text)
        return
    kind, _, variant = family.partition(" ")
    assert resolve_policy(text) == (kind, variant if " " in family else text)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [("", {}), ("()", {}), ("( )", {}), ("(a=1, b='x)')", {"a": 1, "b": "x)"}), ("(1)", None), ("(a=b)", None), ("(a=)", None), ("(a=1)(b=2)", None), ("(**{'a': 1})", None), ("(a=1, a=2)", None)],
)  # fmt: skip
def test_arguments_of_a_plug_in_are_literals_by_name_each_once(arguments, read):
    if read is None:
        with pytest.raises(UsageError, match="arguments not understood"):
            load_plugin(f"collections:Counter{arguments}")
    else:
        assert load_plugin(f"collections:Counter{arguments}").arguments == read
