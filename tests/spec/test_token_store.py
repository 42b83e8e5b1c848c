"""Simplified accounting in the core and in the specification, on small examples (blocks of 16 tokens)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from support.examples import examples
from token_stores import BLOCK, STORES, arrays_of

both = pytest.mark.parametrize("kind", STORES)


class Machine:
    """A store that serves one request after another."""

    def __init__(self, kind, rows, capacity=None, view=None, session_view=None):
        # rows: (session or None, prompt tokens, output tokens, text of prompt and answer, a character per
        # block)
        self.rows = rows
        self.now = 0
        sessions = np.array([-1 if r[0] is None else ord(r[0][0]) for r in rows], np.int64)
        prompts = sessions, np.array([r[1] for r in rows], np.int64), np.full(len(rows), -1)
        views = session_view or SessionViewSettings(), view or PrefixViewSettings()
        self.store = STORES[kind](arrays_of([r[3] for r in rows]), prompts, capacity, *views)

    def admit(self, request):
        _, prompt, output, _ = self.rows[request]
        found = self.store.find(request, prompt - 1, self.now)
        lease = self.store.acquire(request, found)
        if self.store.reserve(lease, prompt + output - 1 - found, self.now) is None:
            self.store.abandon(lease)
            return found, None
        self.store.observe(request, prompt)
        return found, lease

    def finish(self, request, lease):
        session, prompt, output, _ = self.rows[request]
        self.now += 1
        self.store.commit(lease, prompt + output - 1)
        self.store.release(lease, self.now)
        if session is not None:
            self.store.complete_turn(request, ord(session[0]), prompt + output, self.now)
        self.store.check()

    def serve(self, request):
        found, lease = self.admit(request)
        assert lease is not None
        self.finish(request, lease)
        return found

    def knows(self, session):
        return self.store.session_tokens(ord(session), self.now) is not None


@both
def test_a_conversation_is_held_once_and_hit_by_its_total(kind):
    machine = Machine(kind, [("s", 40, 10, "abc"), ("s", 70, 10, "abcde"), ("s", 60, 1, "abcd")])
    assert machine.serve(0) == 0
    assert machine.store.used == 50
    assert machine.serve(1) == 50  # all of prompt and answer
    assert machine.store.used == 80
    # A prompt not above the total is unrelated to it, but its whole blocks are shared prefixes.
    assert machine.serve(2) == 48
    assert machine.store.used == 64  # a to d: the 61 tokens of the session are among them


@both
def test_n_turns_of_t_tokens_hold_n_times_t(kind):
    """Turn k has a prompt of 16 (2 k + 1) tokens and an answer of 16: each turn adds 32, whatever it reuses."""
    text = "abcdefghijklmnopqrst"
    machine = Machine(kind, [("s", 16 * (2 * k + 1), 16, text[: 2 * k + 2]) for k in range(10)])
    for k in range(10):
        assert machine.serve(k) == 32 * k
        assert machine.store.used == 32 * (k + 1)


@both
def test_a_session_and_its_tokens_are_dropped_when_it_expires_or_another_replaces_it(kind):
    rows = [("s", 40, 10, "abc"), ("t", 20, 4, "x"), ("s", 70, 2, "abcde")]
    machine = Machine(kind, rows, session_view=SessionViewSettings(ttl_ns=5))
    machine.serve(0)  # a and b stay as prefixes; c's 16 tokens and 2 of the answer are the session's
    done = machine.now
    assert machine.store.find(2, 69, done + 4) == 50
    assert machine.store.find(2, 69, done + 5) == 48
    assert machine.store.used == 48
    machine = Machine(kind, rows, session_view=SessionViewSettings(max_sessions=1))
    machine.serve(0)
    machine.serve(1)
    assert not machine.knows("s")
    assert machine.knows("t")
    machine.store.check()


@both
def test_a_lease_that_has_ended_is_refused_and_nothing_changes(kind):
    machine = Machine(kind, [(None, 32, 1, "ab")], capacity=64)
    store = machine.store
    lease = store.acquire(0, 0)
    store.reserve(lease, 32, 0)
    store.release(lease, 0)
    before = store.used
    for call in (
        lambda: store.release(lease, 0),
        lambda: store.abandon(lease),
        lambda: store.commit(lease, 16),
        lambda: store.reserve(lease, 1, 0),
        lambda: store.depth(lease),
    ):
        with pytest.raises(StoreError, match="no such lease; expected one that is held"):
            call()
    assert store.used == before
    store.check()


@both
def test_a_shared_prefix_counts_once(kind):
    machine = Machine(kind, [(None, 40, 1, "ab"), (None, 50, 1, "abx"), (None, 33, 1, "ab")])
    assert [machine.serve(k) for k in range(3)] == [0, 32, 32]
    assert machine.store.used == 48  # a, b and x: what was after the whole blocks is gone


@both
def test_a_prefix_in_use_twice_counts_once_and_leaves_with_neither(kind):
    machine = Machine(kind, [(None, 40, 1, "ab"), (None, 40, 1, "ab"), (None, 40, 1, "cd")], capacity=80)
    machine.serve(0)
    (found, first), (again, second) = machine.admit(0), machine.admit(1)
    assert found == again == 32
    assert machine.store.used == 32 + 8 + 8
    assert machine.admit(2) == (0, None)  # 40 more do not fit, and nothing is unused
    machine.store.check()
    machine.finish(0, first)
    assert machine.admit(2)[1] is not None
    machine.finish(1, second)


@both
def test_the_oldest_unused_entry_goes_session_or_prefix(kind):
    rows = [
        (None, 33, 1, "ab"),
        ("s", 33, 7, "cd"),
        (None, 33, 1, "ab"),
        (None, 60, 1, "efg"),
        ("s", 60, 1, "cde"),
    ]
    machine = Machine(kind, rows, capacity=100)
    for request in range(3):
        machine.serve(request)
    assert machine.store.used == 32 + 40
    machine.serve(3)  # 60 more: the session (40) is older than a and b
    assert not machine.knows("s")
    assert machine.store.peek(2, 32) == (32, 32)
    assert machine.store.eviction_counts(0)[0] == 40
    # c and d went with it: the follow-up finds nothing
    assert machine.store.peek(4, 59) == (0, 0)


@both
def test_a_preempted_turn_gives_its_session_back_what_it_took(kind):
    machine = Machine(kind, [("s", 40, 10, "abc"), ("s", 80, 10, "abcde")])
    machine.serve(0)
    found, lease = machine.admit(1)
    assert found == 50
    machine.store.commit(lease, 66)
    machine.store.release(lease, 0)
    machine.store.check()
    assert machine.store.used == 64  # a to d; the session's fifty tokens are among them
    assert machine.serve(1) == 64
    assert machine.store.used == 90


@both
def test_a_session_in_use_stays_however_few_blocks_are_free(kind):
    rows = [("s", 40, 10, "abc"), (None, 33, 1, "mn"), ("s", 60, 5, "abcd"), (None, 30, 1, "tu")]
    machine = Machine(kind, rows, capacity=100)
    machine.serve(0)
    machine.serve(1)
    found, lease = machine.admit(2)
    assert found == 50
    assert machine.store.used == 50 + 32 + 14
    assert machine.admit(3)[1] is not None  # m and n make room, not the older session, whose next turn runs
    assert machine.knows("s")
    assert machine.store.peek(1, 32) == (0, 0)
    machine.store.release(lease, 0)  # preempted before anything was computed
    machine.store.check()
    assert machine.store.used == 50 + 30


@both
@pytest.mark.parametrize(("capacity", "other"), [(80, False), (95, False), (110, True)])
def test_a_lone_turn_replaces_its_session_where_both_do_not_fit(kind, capacity, other):
    """The session keeps the block c, instead of which its next turn has x: both would take 95 tokens."""
    rows = [("s", 40, 10, "abc"), ("s", 70, 10, "abxyz"), (None, 16, 1, "m")]
    machine = Machine(kind, rows, capacity)
    machine.serve(0)
    if other:
        running = machine.admit(2)[1]
        assert machine.admit(1) == (50, None)
        assert machine.knows("s")
        machine.store.release(running, 0)
    found, lease = machine.admit(1)
    both_fit = capacity >= 95
    assert (found, machine.knows("s"), machine.store.used) == (50, both_fit, 95 if both_fit else 79)
    machine.finish(1, lease)
    assert machine.knows("s")


@both
def test_prefixes_enter_by_how_often_they_were_seen_and_within_their_limit(kind):
    rows = [(None, 40, 1, "ab"), (None, 40, 1, "ab"), (None, 40, 1, "ab")]
    seen = Machine(kind, rows, view=PrefixViewSettings(min_seen=2))
    assert [seen.serve(k) for k in range(3)] == [0, 0, 32]
    bounded = Machine(kind, rows, view=PrefixViewSettings(max_tokens=16))
    assert [bounded.serve(k) for k in range(3)] == [0, 16, 16]
    long = Machine(kind, [*rows, (None, 40, 1, "ac")], view=PrefixViewSettings(min_tokens=20))
    assert [long.serve(k) for k in range(4)] == [0, 32, 32, 0]


@both
@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.text("ab", min_size=1, max_size=5), st.integers(1, 40)), max_size=25
    ),
    st.none() | st.integers(100, 400),
    st.booleans(),
)
def test_counts_always_add_up(kind, turns, capacity, overlapped):
    said: dict[int, str] = {}
    rows = []
    for session, text, output in turns:
        grown = said.get(session, "") + text if session else text
        said[session] = grown[:5]
        rows.append(("xyz"[session] if session else None, BLOCK * len(grown) + 3, output, grown + "z" * 3))
    machine = Machine(kind, rows, capacity)
    running = []
    for request in range(len(rows)):
        found, lease = machine.admit(request)
        assert 0 <= found < rows[request][1]
        machine.store.check()
        if lease is not None:
            running.append((request, lease))
        while len(running) > (2 if overlapped else 0):
            machine.finish(*running.pop(0))
    for request, lease in running:
        machine.finish(request, lease)
    free, held, cached, in_flight, private = machine.store.occupancy(0)
    assert (held, in_flight, private) == (0, 0, 0)
    assert capacity is None or free + cached == capacity
