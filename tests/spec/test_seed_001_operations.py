"""Seed 001 read aloud: its tries and basic operations, to the nanosecond (rates: ``seed_001_machines``)."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.operations import BlockCopy
from seed_001_machines import ROWS, A, B, C, computed, machines, on_disk, where
from support.product.traces import BlockTokens
from support.small_traces import trace_of

# -- Hierarchy of cache


def test_every_machine_has_its_own_trie_and_a_block_tells_content_and_devices():
    """A KV cache block can tell its content (tokens) and which devices it is on."""
    zero, one = machines()
    computed(zero, A, 3)
    tokens = BlockTokens(trace_of(ROWS), 4, lambda request: [100 * request + k for k in range(12)])
    listed = zero.match_prefix(A, 3, tokens)
    assert [block.hash_id for block in listed] == [0, 1, 2], "the trace's ids, in order of first appearance"
    assert listed[1].tokens == (4, 5, 6, 7), "the second four tokens of A's prompt"
    assert listed[1].copies == (BlockCopy(0, "gpu", 0, 0),)
    assert [block.key for block in zero.match_prefix(B, 3)] == [block.key for block in listed[:2]]
    assert one.match_prefix(A, 3) == (), "the GPU of another machine is no remote storage"


# -- Basic operations


def test_mark_a_block_on_one_device():
    """Destination, timestamps for when it is ready, and whether it is present or not."""
    zero, _ = machines()
    space = zero.acquire_space("cpu", 2)
    sent = zero.transmit("gpu->cpu", 8)
    zero.mark(space, A, 0, sent)
    # 8 tokens are 8,000 bytes at 2 bytes a ns: 1,000 ns for each of the 4 layers, 100 ns of latency.
    copy = BlockCopy(0, "cpu", first_layer_ready_at_ns=1_100, ready_at_ns=4_100)
    assert [block.copies for block in zero.match_prefix(A, 3)] == [(copy,), (copy,)]
    zero.run_until(4_099)
    assert zero.store.occupancy(1) == (2, 0, 0, 2, 0), "found, in flight, not ready"
    zero.run_until(4_100)
    assert zero.store.occupancy(1) == (2, 0, 2, 0, 0), "ready"
    assert zero.match_prefix(A, 3)[1].copies == (copy,), "and it remembers since when"
    assert zero.mark_absent(A, (1, 2), "cpu") == 1
    assert where(zero, A) == [["cpu 0"]]
    assert zero.mark_absent(A, (0, 1), "cpu") == 1
    assert where(zero, A) == [], "without a copy it is not found any more"


def test_a_block_is_not_marked_twice_nor_before_its_space_is_free():
    zero, _ = machines()
    computed(zero, A, 3)
    space = zero.acquire_space("gpu", 1)
    assert zero.mark(space, A, 2, zero.transmit("cpu->gpu", 4)) is None, "not necessary: present before"
    zero.release_space(space)
    evicting = zero.acquire_space("gpu", 2)  # one is free, the other's victim is written down first
    assert evicting.ready_at_ns == 2_100
    with pytest.raises(UsageError, match="before the space is free"):
        zero.mark(evicting, C, 0, zero.transmit("disk->cpu", 8))


def test_transmit_returns_three_timestamps_and_later_jobs_wait():
    """The later jobs are blocked by previous ones until previous ones complete."""
    zero, one = machines()
    first = zero.transmit("cpu->gpu", 8)
    # 8,000 bytes at 4 bytes a ns: 2,000 ns, a layer 500 ns; then 100 ns of latency.
    assert (first.completion_ns, first.first_layer_ns, first.per_layer_ns) == (2_100, 600, 500)
    second = zero.transmit("cpu->gpu", 4)
    assert (second.start_ns, second.first_layer_ns, second.completion_ns) == (2_000, 2_350, 3_100)
    assert one.transmit("cpu->gpu", 4).completion_ns == 1_100, "another machine's channel is its own"


def test_transmit_takes_tokens_a_time_and_layers():
    """Input: token_number, current_time, num_layers; output: completion, the first layer's, per layer."""
    zero, _ = machines()
    # 8,000 bytes at 4 bytes a ns from 300 ns on, in two layers of 1,000 ns; then 100 ns of latency
    assert zero.transmit("cpu->gpu", 8, 300, 2).times == (2_400, 1_400, 1_000)
    assert zero.now_ns == 300
    # behind it from 2,300 ns on: 4,000 bytes in one layer
    assert zero.transmit("cpu->gpu", 4, 400, 1).times == (3_400, 3_400, 1_000)
    for wrong, line in (((4, 399), "a time that has passed"), ((4, None, 0), "no layer to send")):
        with pytest.raises(UsageError, match=line):
            zero.transmit("cpu->gpu", *wrong)


def test_lookup_is_given_blocks_and_a_time_and_answers_as_of_then():
    """A list of blocks, including their content and which devices they are on."""
    zero, _ = machines()
    on_disk(zero, A, 3)
    fetched = zero.fetch_to_memory(A, (0, 2))
    assert where(zero, A) == [["cpu 0", "disk 0"], ["cpu 0", "disk 0"], ["disk 0"]], "found at once"
    assert zero.match_prefix(A, 3)[0].copies[0].ready_at_ns == fetched.ready_at_ns == 8_500
    before = zero.store.digest
    zero.match_prefix(B, 3)
    assert zero.store.digest == before, "looking changes nothing"


def test_lookup_takes_a_request_keys_or_tokens_and_a_time():
    """Input: a list of tokens (divided into blocks), a timestamp."""
    zero, one = machines()
    contents = BlockTokens(
        trace_of(ROWS), 4, lambda request: [100 * len(ROWS[request][k // 4]) + k for k in range(12)]
    )
    on_disk(zero, A, 3)
    fetched = zero.fetch_to_memory(A, (0, 2))
    by_request = zero.match_prefix(A, 3, contents)
    keys = [block.key for block in by_request]
    words = [token for block in by_request for token in block.tokens]
    assert zero.match_prefix(keys=keys) == zero.match_prefix(A, 3)
    assert zero.match_prefix(keys=keys, limit=1) == zero.match_prefix(A, 1)
    assert zero.match_prefix(contents=contents, tokens=words) == by_request
    assert zero.match_prefix(contents=contents, tokens=words[:-1]) == by_request[:2], "full blocks alone"
    # B begins as A does: two blocks, then its own, which nobody has
    longer = [*keys[:2], keys[2] + 1_000]
    assert [block.key for block in zero.match_prefix(keys=longer)] == keys[:2]
    assert zero.match_prefix(keys=[keys[1]]) == (), "a key names its place too: none begins so"
    assert zero.match_prefix(contents=contents, tokens=[5, 6, 7, 8]) == ()
    # … a timestamp: what is whole by then, as far as it is known now
    tiers = [[copy.tier for copy in block.copies] for block in zero.match_prefix(A, 3, at_ns=8_499)]
    assert tiers == [["disk"]] * 3
    tiers = [[copy.tier for copy in block.copies] for block in zero.match_prefix(A, 3, at_ns=8_500)]
    assert tiers == [["cpu", "disk"], ["cpu", "disk"], ["disk"]]
    assert fetched.ready_at_ns == 8_500
    one.fetch_from_remote(A, 3)
    assert {copy.machine for block in one.match_prefix(A, 3) for copy in block.copies} == {0, 1}
    within_reach = one.match_prefix(A, 3, at_ns=8_500)
    assert [{copy.machine for copy in block.copies} for block in within_reach] == [{0}] * 3
    [alone, other] = machines(lookup="local")
    space = alone.acquire_space("cpu", 1)
    sent = alone.transmit("disk->cpu", 4)
    alone.mark(space, C, 0, sent)
    assert len(alone.match_prefix(C, 3)) == 1
    assert other.match_prefix(C, 3) == ()
    assert alone.match_prefix(C, 3, at_ns=sent.completion_ns - 1) == ()
    alone.run_until(sent.completion_ns)
    assert alone.match_prefix(C, 3, at_ns=alone.now_ns) == alone.match_prefix(C, 3) != ()


def test_a_lookup_of_nothing_or_of_the_past_is_refused():
    zero, _ = machines()
    on_disk(zero, A, 1)
    zero.run_until(10)
    contents = BlockTokens(trace_of(ROWS), 4, lambda request: [])
    for said, given in (
        ("a request, keys or tokens", {}),
        ("what to look up", {"request": A, "keys": [1]}),
        ("contents with tokens", {"tokens": [1, 2, 3, 4]}),
        ("10 or later", {"request": A, "at_ns": 9}),
        ("no such request", {"request": 3}),
    ):
        with pytest.raises(UsageError, match=said):
            zero.match_prefix(**given)
    assert zero.match_prefix(tokens=[], contents=contents) == zero.match_prefix(keys=[]) == ()
