"""The specification's sessions and shared prefixes by themselves: small examples, and against a plain
list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.spec.lookups import SessionCacheInfo, Sessions
from kvcache_sim.spec.prefix_store import GlobalPrefixStore, PrefixCriteria


def turn(session, at_ns, prompt=100, response=20):
    return SessionCacheInfo(session, prompt, response, f"{session}-{at_ns}", [1, 2], at_ns)


def test_a_session_holds_what_its_last_turn_left():
    view = Sessions(None, None)
    assert view.known("a", 0) is None
    view.complete_turn(turn("a", 5))
    view.complete_turn(turn("a", 2_500_000_000, prompt=300, response=7))
    info = view.known("a", 3_000_000_000)
    assert info is not None
    assert (info.total_tokens_in_cache, info.prompt_part_length, info.response_part_length) == (307, 300, 7)
    assert info.associated_sequence_id == "a-2500000000"
    assert info.last_update_time == 2.5
    assert list(view.active_sessions_kv_state) == ["a"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SessionViewSettings(max_sessions=0), "session_view.max_sessions"),
        (lambda: SessionViewSettings(ttl_ns=0), "session_view.ttl"),
        (lambda: PrefixViewSettings(min_tokens=0), "prefix_view.min_tokens"),
        (lambda: PrefixViewSettings(min_seen=0), "prefix_view.min_seen"),
        (lambda: PrefixViewSettings(max_tokens=-4), "prefix_view.max_tokens"),
    ],
)
def test_bounds_are_refused_by_name(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_admission_by_length_and_by_how_often_a_prefix_was_seen():
    assert PrefixCriteria(1, 1).admitted_blocks([7]) == 1
    long = PrefixCriteria(3, 1)
    assert [long.admitted_blocks(list(range(n))) for n in range(5)] == [0, 0, 0, 3, 4]
    twice = PrefixCriteria(1, 2)
    twice.observe([1, 2, 3])
    assert twice.admitted_blocks([1, 2, 3]) == 0
    twice.observe([1, 2, 9])
    assert twice.admitted_blocks([1, 2, 3]) == 2
    assert twice.admitted_blocks([1, 2, 9]) == 2
    assert [twice.admits(prefix) for prefix in (1, 2, 3, 9)] == [True, True, False, False]


def filled(*chains):
    store = GlobalPrefixStore(16)
    for at, chain in enumerate(chains):
        for parent, block in zip([None, *chain], chain, strict=False):
            if block not in store.global_prefix_store:
                store.add(block, parent)
        store.acquire(chain[-1])
        store.touch(chain[-1], at + 1, at * 1_000_000_000)
        store.release(chain[-1])
    return store


def test_the_longest_prefix_is_found_first_and_not_below_the_minimum():
    store = filled((1, 2, 3), (1, 2, 4))
    assert store.longest([1, 2, 3, 8], 1) == 3
    assert store.longest([1, 2, 5], 1) == 2
    assert store.longest([1, 2, 5], 3) == 0
    assert store.longest([6], 1) == 0
    info = store.global_prefix_store[4]
    assert (info.length, info.kv_block_ids, info.reference_count, info.last_access_time) == (
        48,
        [1, 2, 4],
        0,
        1.0,
    )
    assert store.tokens == 4 * 16


def test_an_unused_prefix_is_evictable_not_gone_and_leaves_oldest_first_longest_first():
    store = filled((1, 2, 3), (1, 2, 4), (5,))
    store.acquire(4)
    left = []
    while (entry := store.oldest_unused()) is not None:
        left.append(entry.prefix_hash)
        store.evict(entry)
    assert left == [3, 5]  # 4 is in use, and 1 and 2 are on its path
    store.touch(4, 9, 9)
    store.release(4)
    while (entry := store.oldest_unused()) is not None:
        left.append(entry.prefix_hash)
        store.evict(entry)
    assert left == [3, 5, 4, 2, 1]
    assert store.tokens == 0


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.booleans(), st.booleans()),
        max_size=30,
    )
)
def test_eviction_is_that_of_a_plain_list(steps):
    """The heap against a scan: of all unused entries without a longer one the smallest (access, -length).

    Some paths are released some steps later, some at once.
    """
    store = GlobalPrefixStore(1)
    plain: dict[tuple[int, ...], int] = {}
    names: dict[tuple[int, ...], int] = {}
    held: list[tuple[int, ...]] = []

    def release(prefix, access):
        store.touch(names[prefix], access, access)
        store.release(names[prefix])
        plain.update(dict.fromkeys((prefix[: k + 1] for k in range(len(prefix))), access))

    for access, (digits, evict, holds) in enumerate(steps):
        chain = [tuple(digits[: k + 1]) for k in range(len(digits))]
        ids = [names.setdefault(prefix, len(names)) for prefix in chain]
        known = [prefix for prefix in chain if prefix in plain]
        assert store.longest(ids) == len(known)
        for parent, prefix in zip([None, *ids], chain, strict=False):
            if prefix not in plain:
                store.add(names[prefix], parent)
                plain[prefix] = -1
        store.acquire(ids[-1])
        held.append(chain[-1])
        if not holds:
            release(held.pop(), access)
        if holds and len(held) > 2:
            release(held.pop(0), access)
        leaves = [p for p in plain if not any(q[: len(p)] == p and q != p for q in plain)]
        unused = [p for p in leaves if p not in held]
        entry = store.oldest_unused()
        if not unused:
            assert entry is None
        else:
            first = min(unused, key=lambda p: (plain[p], -len(p), names[p]))
            assert entry is not None
            assert entry.prefix_hash == names[first]
            assert entry.kv_block_ids == [names[first[: k + 1]] for k in range(len(first))]
            if evict:
                store.evict(entry)
                del plain[first]
        assert store.global_prefix_store.keys() == {names[p] for p in plain}
        assert store.tokens == len(plain)
