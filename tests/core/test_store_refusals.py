"""Calls that a store refuses change nothing.

Stale and foreign handles, second releases, numbers that name nothing, and calls that contradict the store's
state. No panic of the native core reaches Python: hypothesis calls everything with anything.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from key_arrays import arrays
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError, UsageError
from store_arguments import NUMBERS, arguments
from support.examples import examples


def make(capacities: tuple[int | None, ...] = (8, 6, 12)) -> _core.Store:
    """Return an empty store."""
    back = [True] * (len(capacities) - 1) + [False]
    return _core.Store(_core.Keys(*arrays()), list(capacities), back)


def state(store: Any, tiers: int = 3) -> tuple[object, ...]:
    """Return everything that a caller can see of a store."""
    store.check()
    capacities = [
        (store.occupancy(tier), store.eviction_counts(tier), store.duplicates(tier)) for tier in range(tiers)
    ]
    copies = [[*split(store.copies(r, 8))] for r in range(3)]
    uses = [[*split(store.uses(r, 8))] for r in range(3)]
    return capacities, copies, uses, store.digest, store.merged_blocks


def split(runs):
    """Return runs block by block: how blocks are grouped is the store's own business."""
    first = 0
    for end, *rest in runs:
        yield from ((block, *rest) for block in range(first, end))
        first = end


def empty(store: Any) -> None:
    """Prepare nothing."""


def reserved(store: Any, request: int = 0, blocks: int = 2) -> int:
    """Return a lease with a reservation."""
    lease: int = store.acquire(request, 0)
    store.reserve(lease, blocks, 0)
    return lease


def computed(store: Any, request: int = 0, blocks: int = 2) -> int:
    """Return a lease whose blocks are computed."""
    lease = reserved(store, request, blocks)
    store.commit(lease, blocks)
    return lease


def cached(store: Any, request: int = 0, blocks: int = 4) -> int:
    """Let a request compute its first blocks and end; return the lease that it had."""
    lease = computed(store, request, blocks)
    store.release(lease, 1)
    return lease


def claimed(store: Any, tier: int = 1) -> int:
    """Return a claim of two blocks."""
    claim: int = store.claim(tier, 2, 0)[0]
    return claim


def filled(store: Any, tier: int = 1) -> int:
    """Return a claim that is being filled with blocks 0 and 1 of request 0."""
    claim = claimed(store, tier)
    assert store.fill_claim(claim, 0, (0, 2), None)
    return claim


def on_the_cpu(store: Any) -> None:
    """Put blocks 0 and 1 of request 0 on the cpu alone."""
    store.finish_move(filled(store))


def loading(store: Any, blocks: int = 2) -> int:
    """Return a lease with a reservation for blocks on the cpu."""
    on_the_cpu(store)
    return reserved(store, 0, blocks)


def with_a_reused_slot(store: Any) -> int:
    lease = cached(store)
    store.acquire(1, 2)
    return lease


def of_another_machine(store: Any) -> int:
    store.acquire(0, 0)
    return int(make().acquire(0, 0))


def abandoned(store: Any) -> int:
    lease: int = store.acquire(0, 0)
    store.abandon(lease)
    return lease


def written(store: Any) -> int:
    """Return the move that writes computed blocks down."""
    move: int = store.write_through(computed(store), 0, 2, 0)
    return move


def ended(store: Any) -> int:
    move = filled(store)
    store.finish_move(move)
    return move


def claim_that_evicts(store: Any) -> int:
    cached(store, 2, 6)
    claim, waits = store.claim(0, 8, 3)
    assert waits
    return int(claim)


def loaded(store: Any) -> int:
    lease = loading(store)
    store.load(lease, 2, [])
    return lease


def after_a_move_that_ended(store: Any) -> tuple[int, int]:
    lease = loading(store)
    claim = claimed(store)
    store.release_claim(claim)
    return lease, claim


def found_half(store: Any) -> int:
    cached(store)
    lease: int = store.acquire(0, 2)
    store.reserve(lease, 2, 0)
    return lease


def protected(store: Any) -> int:
    cached(store)
    hold: int = store.protect(0, 4, 0)
    return hold


def unprotected(store: Any) -> int:
    hold = protected(store)
    store.unprotect(0, hold)
    return hold


def staged(store: Any) -> None:
    store.finish_move(filled(store, 2))
    store.finish_move(store.stage(0, (0, 2), 1, None, 0))


#: By what is wrong: how the store comes into its state, and the call, with the handle that the former returns.
MISTAKES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "a second release": (cached, lambda s, lease: s.release(lease, 2)),
    "a stale lease whose slot was reused": (with_a_reused_slot, lambda s, lease: s.release(lease, 2)),
    "a lease of another machine": (of_another_machine, lambda s, lease: s.commit(lease, 1)),
    "a claim is no lease": (claimed, lambda s, claim: s.release(claim, 0)),
    "a lease that was abandoned": (abandoned, lambda s, lease: s.reserve(lease, 1, 0)),
    "abandoned with a reservation": (reserved, lambda s, lease: s.abandon(lease)),
    "committed with the last layer first": (reserved, lambda s, lease: s.commit(lease, 2, (8, 7))),
    "a move with the last layer first": (written, lambda s, move: s.set_times(move, 8, 7)),
    "times of a move that ended": (ended, lambda s, move: s.set_times(move, 7, 8)),
    "committed more than reserved": (reserved, lambda s, lease: s.commit(lease, 3)),
    "acquired what is not there": (lambda s: cached(s, 0, 2), lambda s, _: s.acquire(0, 3)),
    "acquired what another request has": (cached, lambda s, _: s.acquire(1, 3)),
    "acquired what is on the cpu alone": (on_the_cpu, lambda s, _: s.acquire(0, 2)),
    "loaded more than reserved": (lambda s: loading(s, 1), lambda s, lease: s.load(lease, 2, [])),
    "loaded what is on the gpu": (found_half, lambda s, lease: s.load(lease, 4, [])),
    "loaded after a move that ended": (after_a_move_that_ended, lambda s, of: s.load(of[0], 2, [of[1]])),
    "released while it loads": (loaded, lambda s, lease: s.release(lease, 0)),
    "joined backwards": (found_half, lambda s, lease: s.join(lease, 2)),
    "a move ended twice": (ended, lambda s, move: s.finish_move(move)),
    "an empty claim ended": (claimed, lambda s, claim: s.finish_move(claim)),
    "a release of a claim with blocks": (filled, lambda s, claim: s.release_claim(claim)),
    "a claim filled twice": (filled, lambda s, claim: s.fill_claim(claim, 1, (0, 2), None)),
    "a claim filled in part": (claimed, lambda s, claim: s.fill_claim(claim, 0, (0, 1), None)),
    "a claim released before it is free": (claim_that_evicts, lambda s, claim: s.release_claim(claim)),
    "a hold ended twice": (unprotected, lambda s, hold: s.unprotect(0, hold)),
    "a hold of another tier": (protected, lambda s, hold: s.unprotect(1, hold)),
    "a hold of what is not there": (cached, lambda s, _: s.protect(0, 4, 1)),
    "lent from no tier": (cached, lambda s, _: s.lend(0, 4, 3)),
    "staged onto the gpu": (on_the_cpu, lambda s, _: s.stage(0, (0, 2), 0, None, 0)),
    "staged from below the last": (on_the_cpu, lambda s, _: s.stage(0, (0, 2), 2, None, 0)),
    "staged no blocks": (on_the_cpu, lambda s, _: s.stage(0, (2, 2), 1, None, 0)),
    "staged what is there": (staged, lambda s, _: s.stage(0, (0, 2), 1, None, 0)),
    "wrote more than it holds": (computed, lambda s, lease: s.write_through(lease, 0, 3, 0)),
    "wrote below the last tier": (computed, lambda s, lease: s.write_selected(lease, 2, 1, 0)),
    "touched what is not there": (empty, lambda s, _: s.touch(0, 1)),
    "discarded what is not there": (empty, lambda s, _: s.discard(0, 0, 1)),
    "no such request": (empty, lambda s, _: s.peek(3, 8)),
    "no such tier": (empty, lambda s, _: s.occupancy(3)),
    "a negative number": (empty, lambda s, _: s.claim(1, -1, 0)),
    "a number beyond all": (empty, lambda s, _: s.depth(1 << 64)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(mistake: str) -> None:
    prepare, call = MISTAKES[mistake]
    store = make()
    handle = prepare(store)
    store.take_orders()
    before = state(store)
    with pytest.raises(StoreError) as refused:
        call(store, handle)
    assert isinstance(refused.value, UsageError), "exit code 2"
    assert "\n" not in str(refused.value)
    assert state(store) == before
    assert store.take_orders() == []


#: Calls left out: times that a caller set for a move that is then late are no fault of the store, but its
#: check names them.
NOT_CALLED = {"note", "log_evictions", "take_evictions", "take_keys", "set_times"}
CALLS = sorted(name for name, _ in inspect.getmembers(_core.Store, callable) if not name.startswith("_"))
RETURNS_A_HANDLE = {"acquire", "load", "stage", "receive", "lend", "protect", "write_through"}


@examples(150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_called_with_whatever_numbers_the_store_stays_whole(data: Any) -> None:
    """A refused call leaves the store as it was."""
    store = make((6, 4, 5))
    handles: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        name = data.draw(st.sampled_from([name for name in CALLS if name not in NOT_CALLED]))
        given_to = arguments(_core.Store, name, lambda: data.draw(NUMBERS), handles)
        before = state(store)
        try:
            answer = getattr(store, name)(*given_to)
        except StoreError:
            assert state(store) == before
            assert store.take_orders() == []
            continue
        if name in RETURNS_A_HANDLE and answer:
            handles.append(answer)
        if name == "claim" and answer:
            handles.append(answer[0])
        handles += [order[0] for order in store.take_orders()]
        store.check()
