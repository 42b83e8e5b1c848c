"""Calls that a store refuses: one line, and nothing is changed.

Stale and foreign handles, second releases, numbers that name nothing, and calls that contradict the store's
state. No panic of the native core reaches Python: hypothesis calls everything with anything.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from key_arrays import arrays
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError, UsageError


def make(capacities: tuple[int | None, ...] = (8, 6, 12)) -> _core.Store:
    """Return an empty store."""
    back = [True] * (len(capacities) - 1) + [False]
    return _core.Store(_core.Keys(*arrays()), list(capacities), back)


def state(store: Any, tiers: int = 3) -> tuple[object, ...]:
    """Return everything that a caller can see of a store; in-flight moves by their position only."""
    store.check()
    capacities = [
        (store.occupancy(tier), store.eviction_counts(tier), store.duplicates(tier)) for tier in range(tiers)
    ]
    copies = [[(end, tuple(map(str, by))) for end, by in split(store.copies(r, 8))] for r in range(3)]
    uses = [[(end, *rest) for end, *rest in split(store.uses(r, 8))] for r in range(3)]
    return capacities, copies, uses, store.digest, store.merged_blocks


def split(runs):
    """Return runs block by block: how blocks are grouped is the store's own business."""
    first = 0
    for end, *rest in runs:
        yield from ((block, *rest) for block in range(first, end))
        first = end


def cached(store: Any, request: int = 0, blocks: int = 4) -> None:
    """Let a request compute its first blocks and end."""
    lease = store.acquire(request, 0)
    assert store.reserve(lease, blocks, 1) == []
    store.commit(lease, blocks)
    store.release(lease, 2)


Case = Callable[[Any], Callable[[], object]]


def released(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 4, 0)
    store.commit(lease, 4)
    store.release(lease, 1)
    return lease


def on_the_cpu(store):
    """Blocks 0 and 1 of request 0 on the cpu alone."""
    claim, _ = store.claim(1, 2, 0)
    assert store.fill_claim(claim, 0, (0, 2), None)
    store.finish_move(claim)


def second_release(store):
    lease = released(store)
    return lambda: store.release(lease, 2)


def a_stale_lease_whose_slot_was_reused(store):
    lease = released(store)
    store.acquire(1, 2)
    return lambda: store.release(lease, 2)


def a_lease_of_another_machine(store):
    other = make()
    foreign = other.acquire(0, 0)
    store.acquire(0, 0)
    return lambda: store.commit(foreign, 1)


def a_move_is_no_lease(store):
    claim, _ = store.claim(1, 2, 0)
    return lambda: store.release(claim, 0)


def a_lease_that_was_abandoned(store):
    lease = store.acquire(0, 0)
    store.abandon(lease)
    return lambda: store.reserve(lease, 1, 0)


def abandoned_with_a_reservation(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 1, 0)
    return lambda: store.abandon(lease)


def committed_with_the_last_layer_first(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    return lambda: store.commit(lease, 2, (8, 7))


def a_move_with_the_last_layer_first(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    store.commit(lease, 2)
    move = store.write_through(lease, 0, 2, 0)
    return lambda: store.set_times(move, 8, 7)


def times_of_a_move_that_ended(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    store.commit(lease, 2)
    move = store.write_through(lease, 0, 2, 0)
    store.finish_move(move)
    return lambda: store.set_times(move, 7, 8)


def committed_without_a_reservation(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 1, 0)
    return lambda: store.commit(lease, 2)


def acquired_what_is_not_there(store):
    cached(store, 0, 2)
    return lambda: store.acquire(0, 3)


def acquired_what_another_request_has(store):
    cached(store, 0, 4)
    return lambda: store.acquire(1, 3)


def acquired_what_is_on_the_cpu_alone(store):
    on_the_cpu(store)
    return lambda: store.acquire(0, 2)


def loaded_more_than_reserved(store):
    on_the_cpu(store)
    lease = store.acquire(0, 0)
    store.reserve(lease, 1, 0)
    return lambda: store.load(lease, 2, [])


def loaded_what_is_on_the_gpu(store):
    cached(store)
    lease = store.acquire(0, 2)
    store.reserve(lease, 2, 0)
    return lambda: store.load(lease, 4, [])


def loaded_after_a_move_that_has_ended(store):
    on_the_cpu(store)
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    claim, _ = store.claim(1, 1, 0)
    store.release_claim(claim)
    return lambda: store.load(lease, 2, [claim])


def released_while_it_loads(store):
    on_the_cpu(store)
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    store.load(lease, 2, [])
    return lambda: store.release(lease, 0)


def joined_backwards(store):
    cached(store)
    lease = store.acquire(0, 2)
    return lambda: store.join(lease, 2)


def a_move_ended_twice(store):
    claim, _ = store.claim(1, 2, 0)
    store.fill_claim(claim, 0, (0, 2), None)
    store.finish_move(claim)
    return lambda: store.finish_move(claim)


def an_empty_claim_ended(store):
    claim, _ = store.claim(1, 2, 0)
    return lambda: store.finish_move(claim)


def a_release_of_a_claim_with_blocks(store):
    claim, _ = store.claim(1, 2, 0)
    store.fill_claim(claim, 0, (0, 2), None)
    return lambda: store.release_claim(claim)


def a_claim_placed_twice(store):
    claim, _ = store.claim(1, 2, 0)
    store.fill_claim(claim, 0, (0, 2), None)
    return lambda: store.fill_claim(claim, 1, (0, 2), None)


def a_claim_placed_in_part(store):
    claim, _ = store.claim(1, 2, 0)
    return lambda: store.fill_claim(claim, 0, (0, 1), None)


def a_claim_released_before_it_is_free(store):
    cached(store, 2, 6)
    claim, waits = store.claim(0, 8, 3)
    assert waits
    return lambda: store.release_claim(claim)


def a_hold_ended_twice(store):
    cached(store)
    hold = store.protect(0, 4, 0)
    store.unprotect(0, hold)
    return lambda: store.unprotect(0, hold)


def a_hold_of_another_tier(store):
    cached(store)
    hold = store.protect(0, 4, 0)
    return lambda: store.unprotect(1, hold)


def a_hold_of_what_is_not_there(store):
    cached(store)
    return lambda: store.protect(0, 4, 1)


def lent_from_no_tier(store):
    cached(store)
    return lambda: store.lend(0, 4, 3)


def staged_onto_the_gpu(store):
    on_the_cpu(store)
    return lambda: store.stage(0, (0, 2), 0, None, 0)


def staged_from_below_the_last(store):
    on_the_cpu(store)
    return lambda: store.stage(0, (0, 2), 2, None, 0)


def staged_no_blocks(store):
    on_the_cpu(store)
    return lambda: store.stage(0, (2, 2), 1, None, 0)


def staged_what_is_there(store):
    claim, _ = store.claim(2, 2, 0)
    store.fill_claim(claim, 0, (0, 2), None)
    store.finish_move(claim)
    move = store.stage(0, (0, 2), 1, None, 0)
    store.finish_move(move)
    return lambda: store.stage(0, (0, 2), 1, None, 0)


def wrote_more_than_it_holds(store):
    lease = store.acquire(0, 0)
    store.reserve(lease, 2, 0)
    store.commit(lease, 2)
    return lambda: store.write_through(lease, 0, 3, 0)


def wrote_below_the_last_tier(store):
    lease = store.acquire(0, 0)
    return lambda: store.write_selected(lease, 2, 1, 0)


def touched_what_is_not_there(store):
    return lambda: store.touch(0, 1)


def discarded_what_is_not_there(store):
    return lambda: store.discard(0, 0, 1)


def no_such_request(store):
    return lambda: store.peek(3, 8)


def no_such_tier(store):
    return lambda: store.occupancy(3)


def a_negative_number(store):
    return lambda: store.claim(1, -1, 0)


def a_number_beyond_all(store):
    return lambda: store.depth(1 << 64)


CASES: dict[Case, str] = {
    second_release: "no such lease; expected one that is held",
    a_stale_lease_whose_slot_was_reused: "no such lease; expected one that is held",
    a_lease_of_another_machine: "no such lease; expected one that is held",
    a_move_is_no_lease: "no such lease; expected one that is held",
    a_lease_that_was_abandoned: "no such lease; expected one that is held",
    abandoned_with_a_reservation: "blocks are reserved; expected a lease without a reservation; release it",
    committed_with_the_last_layer_first: "ready before its first layer; expected a first layer no later than the whole",
    a_move_with_the_last_layer_first: "ready before its first layer; expected a first layer no later than the whole",
    times_of_a_move_that_ended: "no such move; expected one that is in flight",
    committed_without_a_reservation: "more blocks than are reserved and free; expected a reservation first",
    acquired_what_is_not_there: "blocks are not found; expected a path of which every block is in the trie",
    acquired_what_another_request_has: "blocks are not found; expected a path of which every block is in the trie",
    acquired_what_is_on_the_cpu_alone: "a block is not on the tier; expected a copy of every block there",
    loaded_more_than_reserved: "more blocks than are reserved and free; expected a reservation first",
    loaded_what_is_on_the_gpu: "a block is not on the tier; expected a copy of every block there",
    loaded_after_a_move_that_has_ended: "no such move; expected one that is in flight",
    released_while_it_loads: "blocks are still being loaded; expected its loads to have ended",
    joined_backwards: "no blocks; expected a first block before the end",
    a_move_ended_twice: "no such move; expected one that is in flight",
    an_empty_claim_ended: "no blocks were placed in the claim; expected placed blocks; release the claim",
    a_release_of_a_claim_with_blocks: "no claimed capacity; expected a claim without blocks",
    a_claim_placed_twice: "no claimed capacity; expected a claim without blocks",
    a_claim_placed_in_part: "not the size of the claim; expected 2 blocks",
    a_claim_released_before_it_is_free: "the capacity is not free yet; expected the writes that it waits for to have ended",
    a_hold_ended_twice: "no such hold; expected one that is held on this tier",
    a_hold_of_another_tier: "no such hold; expected one that is held on this tier",
    a_hold_of_what_is_not_there: "a block is not on the tier; expected a copy of every block there",
    lent_from_no_tier: "no such tier; expected 0 to 2",
    staged_onto_the_gpu: "not on this tier; expected a tier below the gpu, with one below it where blocks are read from there",
    staged_from_below_the_last: "not on this tier; expected a tier below the gpu, with one below it where blocks are read from there",
    staged_no_blocks: "no blocks; expected a first block before the end",
    staged_what_is_there: "a block is on the tier already; expected no copy of any block there",
    wrote_more_than_it_holds: "more blocks than the lease holds; expected blocks of its path",
    wrote_below_the_last_tier: "not on this tier; expected a tier below the gpu, with one below it where blocks are read from there",
    touched_what_is_not_there: "blocks are not found; expected a path of which every block is in the trie",
    discarded_what_is_not_there: "blocks are not found; expected a path of which every block is in the trie",
    no_such_request: "no such request; expected 0 to 2",
    no_such_tier: "no such tier; expected 0 to 2",
    a_negative_number: "a number is out of range; expected 0 to 2^64 - 1",
    a_number_beyond_all: "a number is out of range; expected 0 to 2^64 - 1",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_mistake_is_one_line_and_changes_nothing(case: Case) -> None:
    store = make()
    mistake = case(store)
    store.take_orders()
    before = state(store)
    with pytest.raises(StoreError) as refused:
        mistake()
    assert str(refused.value) == f"store: {CASES[case]}"
    assert isinstance(refused.value, UsageError), "exit code 2"
    assert state(store) == before
    assert store.take_orders() == []


NUMBERS = st.integers(-2, 9) | st.sampled_from([1 << 32, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, 1 << 64])
#: Calls left out: times that a caller set for a move that is then late are no fault of the store, but its
#: check names them.
NOT_CALLED = {"note", "log_evictions", "take_evictions", "take_keys", "set_times"}
CALLS = [name for name, call in inspect.getmembers(_core.Store, callable) if not name.startswith("_")]


def arguments(name: str, draw: Callable[[], int], handles: list[int]) -> list[object]:
    """Draw what a call takes, by the names of its parameters."""
    made: list[object] = []
    for parameter in list(inspect.signature(getattr(_core.Store, name)).parameters)[1:]:
        one = draw()
        if parameter in ("lease", "move", "claim", "hold") and handles and one >= 0:
            made.append(handles[one % len(handles)])
        elif parameter == "part":
            made.append((one, draw()))
        elif parameter == "wanted":
            made.append([(handles[one % len(handles)] if handles else one, draw())])
        elif parameter == "leases":
            made.append([handles[one % len(handles)] if handles else one])
        elif parameter == "after":
            made.append([one])
        elif parameter == "ready" and name == "commit":
            made.append(None if one == 0 else (one, draw()))
        elif parameter in ("source", "ready"):
            made.append(None if one == 0 else one)
        else:
            made.append(one)
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_called_with_whatever_numbers_the_store_stays_whole(data: Any) -> None:
    store = make((6, 4, 5))
    handles: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        name = data.draw(st.sampled_from(sorted(set(CALLS) - NOT_CALLED)))
        try:
            answer = getattr(store, name)(*arguments(name, lambda: data.draw(NUMBERS), handles))
        except StoreError:
            answer = None
        if name in ("acquire", "load", "stage", "receive", "lend", "protect", "write_through") and answer:
            handles.append(answer)
        if name == "claim" and answer:
            handles.append(answer[0])
        handles += [order[0] for order in store.take_orders()]
        store.check()
