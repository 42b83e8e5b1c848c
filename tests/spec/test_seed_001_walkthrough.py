"""Seed 001 read aloud: moves, generation and deletion, to the nanosecond (rates: ``seed_001_machines``)."""

import re
from pathlib import Path

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.operations import BlockCopy
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from seed_001_machines import BYTES_PER_S, ROWS, A, B, C, computed, in_memory, machines, on_disk, where
from support.product.machines import ClusterChannels, MachineTiers, open_machines
from support.small_traces import trace_of

# -- Movements of KV cache across storage


def test_disk_to_memory_as_the_seed_walks_through_it():
    """Prepare the space, transmit on the read channel, mark present: by hand, and in one operation."""
    by_hand, in_one = (machines()[0] for _ in range(2))
    for cache in (by_hand, in_one):
        computed(cache, C, 3)
        on_disk(cache, A, 2)
        assert cache.evict("gpu", 3).ready_at_ns == 6_100, "C goes down: 12,000 bytes at 2 a ns"
        cache.run_until(6_100)
        assert cache.store.occupancy(1)[:3] == (1, 0, 3), "one block of four is free in memory"
    # First, it prepares the space by calling synced_acquire_space. One of C's blocks must go: it is written
    # to the disk, one block at 0.5 bytes a ns and 500 ns of latency.
    space = by_hand.acquire_space("cpu", 2)
    assert space.evicted_blocks == {"gpu": 0, "cpu": 1, "disk": 0}
    assert space.ready_at_ns == 6_100 + 8_000 + 500
    by_hand.run_until(space.ready_at_ns)
    # Then it calls transmit on the read channel from disk to CPU: two blocks at 1 byte a ns.
    sent = by_hand.transmit("disk->cpu", 8)
    assert sent.start_ns == 14_600
    assert sent.first_layer_ns == 14_600 + 2_000 + 500
    assert sent.completion_ns == 14_600 + 8_000 + 500
    # Then fetch_to_higher_location marks its presence in the CPU layer.
    by_hand.mark(space, A, 0, sent, source="disk")
    # In one operation the same happens: the read leaves when the write that makes room has ended.
    fetched = in_one.fetch_to_memory(A, (0, 2))
    in_one.run_until(14_600)
    assert (fetched.first_layer_ready_at_ns, fetched.ready_at_ns) == (17_100, 23_100)
    assert by_hand.match_prefix(A, 3) == in_one.match_prefix(A, 3)
    for cache in (by_hand, in_one):
        assert cache.mark_absent(A, (0, 2), "disk") == 0, "the source is held until it is read"
        cache.run_until(23_100)
        assert where(cache, A) == [["cpu 0", "disk 0"]] * 2, "a copy, never a move"
        assert cache.mark_absent(A, (0, 2), "disk") == 2
        cache.store.check()
    assert [by_hand.store.occupancy(tier) for tier in range(3)] == [
        in_one.store.occupancy(tier) for tier in range(3)
    ]


def test_from_disk_to_gpu_it_goes_through_the_cpu():
    """If you want to move a block from DISK to GPU, you need to fetch to CPU first, then GPU."""
    zero, _ = machines()
    on_disk(zero, A, 2)
    active = zero.allocate_active(A, reuse=2, active=1)
    assert where(zero, A) == [["gpu 0", "cpu 0", "disk 0"]] * 2
    zero.run_until(8_500)
    # Layer by layer: the disk brings layer k at 500 + k * 2,000; the next hop takes 500 a layer and 100.
    assert (active.first_layer_ready_at_ns, active.ready_at_ns) == (3_100, 9_100)
    assert active.reused_blocks == {"gpu": 0, "cpu": 0, "disk": 2}


@pytest.mark.parametrize(("tier", "first_layer", "ready"), [("cpu", 1_300, 4_300), ("disk", 2_800, 5_800)])
def test_remote_cpu_and_remote_disk_come_to_the_local_cpu(tier, first_layer, ready):
    """It will fetch to the CPU of this machine first. From a remote disk: one move over two channels."""
    zero, one = machines()
    space = one.acquire_space(tier, 1)
    one.mark(space, A, 0, one.transmit("gpu->cpu", 0))
    one.run_until(0)
    assert where(zero, A) == [[f"{tier} 1"]], "found in the cluster"
    [fetched] = zero.fetch_from_remote(A, 3)
    assert one.mark_absent(A, (0, 1), tier) == 0, "held until it is read"
    # The network: 300 + k * 1,000. The disk feeds it: layer k leaves there at 500 + k * 1,000.
    for until in (0, 10_000):
        assert (fetched.first_layer_ready_at_ns, fetched.ready_at_ns) == (first_layer, ready), "known at once"
        zero.run_until(until)
    assert where(zero, A) == [["cpu 0", f"{tier} 1"]], "no block was taken on the owner's other tiers"
    assert one.mark_absent(A, (0, 1), tier) == 1


def test_what_follows_the_own_run_is_fetched_wherever_the_run_is():
    """The own disk has the first block: the remote run is read from the second on."""
    zero, one = machines()
    on_disk(zero, A, 1)
    on_disk(one, A, 3)
    assert [fetched.blocks for fetched in zero.fetch_from_remote(A, 3)] == [2]
    assert where(zero, A) == [["disk 0", "disk 1"], ["cpu 0", "disk 1"], ["cpu 0", "disk 1"]]
    assert zero.fetch_from_remote(A, 3) == []


def test_two_hops_behind_other_jobs_are_known_at_once_by_the_closed_form():
    """last = latency + max(f1 + L p2, f1 + (L - 1) p1 + p2, s2 + L p2) of the ``semantics.md``, section 4."""
    zero, one = machines()
    on_disk(one, A, 1)
    layers, f1, p1, p2 = 4, 2_000 + 1_000 + 500, 1_000, 1_000
    one.transmit("disk->cpu", 2)  # half a block: the disk is busy for 2,000 ns
    [fetched] = zero.fetch_from_remote(A, 1)
    assert fetched.sent is None, "not on the network yet"
    closed = 300 + max(f1 + layers * p2, f1 + (layers - 1) * p1 + p2)
    assert (fetched.first_layer_ready_at_ns, fetched.ready_at_ns) == (f1 + p2 + 300, closed) == (4_800, 7_800)
    [copy] = [copy for copy in zero.match_prefix(A, 1)[0].copies if copy.machine == 0]
    assert (copy.first_layer_ready_at_ns, copy.ready_at_ns) == (4_800, 7_800)
    assert zero.match_prefix(A, 1, at_ns=7_800)[0].copies[0] == copy, "a later look-up finds it"
    zero.run_until(7_800)
    assert fetched.sent is not None
    assert fetched.ready_at_ns == 7_800 == copy.ready_at_ns


def test_a_block_is_not_marked_in_space_whose_time_may_still_change():
    zero, _ = machines(capacities=(1, 1, 8))
    computed(zero, A, 1)
    zero.evict("gpu", 1)
    zero.run_until(10_000)
    computed(zero, C, 1)
    space = zero.acquire_space("gpu", 1)
    # From the cpu to the disk: 8,000 ns and 500, layer by layer no faster; then from the GPU: 2,000 and 100.
    assert space.ready_at_ns == 10_000 + 8_500 + 2_100
    assert not space.is_final
    with pytest.raises(UsageError, match="a time that is not known yet"):
        zero.mark(space, C, 0, Transmission(30_000, 31_000, 34_000, 1_000))
    zero.run_until(18_500)
    assert space.is_final
    assert space.ready_at_ns == 20_600


def test_staging_a_remote_disk_may_push_out_what_was_to_be_read_next():
    """The owner's memory has one place: block 0 comes up into it from the disk, and block 1 has to go."""
    zero, one = machines(capacities=(4, 1, 1), remote_disk="staged")
    on_disk(one, A, 1)
    space = one.acquire_space("cpu", 1)
    one.mark(space, A, 1, one.transmit("gpu->cpu", 0))
    one.run_until(0)
    assert where(zero, A) == [["disk 1"], ["cpu 1"]]
    [fetched] = zero.fetch_from_remote(A, 3)
    assert where(zero, A) == [["cpu 0", "cpu 1", "disk 1"]], "block 1 is computed again"
    zero.run_until(20_000)
    # The disk first, 4,000 ns and 500; then the network, 4,000 and 300.
    assert fetched.ready_at_ns == 8_800
    for cache in (zero, one):
        cache.store.check()


# -- Generation of KV cache


def test_active_blocks_are_allocated_beside_the_reused_ones_and_evict_for_both():
    """GPU must make sure that it has space for extra active blocks and loaded (reused) blocks."""
    zero, _ = machines()
    computed(zero, C, 3)
    # One block is free; three more must go, all of C, which the CPU does not have yet.
    active = zero.allocate_active(A, reuse=0, active=4)
    assert where(zero, C) == [["cpu 0"]] * 3, "evict_to_lower_location"
    assert active.reserved_at_ns == 6_100
    assert zero.store.occupancy(0) == (0, 1, 0, 3, 1), "one active, three in flight until C has gone"
    assert zero.allocate_active(B, reuse=0, active=1) is None, "a refusal, never a crash"
    zero.run_until(6_100)
    assert zero.store.occupancy(0) == (0, 4, 0, 0, 4)


def test_full_active_blocks_are_switched_into_the_cache_and_duplicates_freed():
    """After computation these blocks are inserted into GPU. Two requests may compute the same block."""
    zero, _ = machines(capacities=(8, 8, 8))
    of_a, of_b = zero.allocate_active(A, 0, 3), zero.allocate_active(B, 0, 3)
    zero.run_until(5_000)
    switched = zero.switch_active_into_cache(of_a, 3, first_layer_ns=2_000)
    assert (switched.cached_blocks, switched.duplicate_blocks) == (3, 0)
    assert zero.match_prefix(A, 3)[2].copies == (BlockCopy(0, "gpu", 2_000, 5_000),)
    zero.run_until(9_000)
    switched = zero.switch_active_into_cache(of_b, 3, first_layer_ns=6_000)
    assert (switched.cached_blocks, switched.duplicate_blocks) == (1, 2), "system and manual were there"
    ready = [block.copies[0].ready_at_ns for block in zero.match_prefix(B, 3)]
    assert ready == [5_000, 5_000, 9_000], "the first copies stay, the later ones are freed"
    assert zero.store.occupancy(0) == (4, 4, 0, 0, 0), "four blocks shared, all held"
    zero.release(of_a)
    assert zero.store.occupancy(0).cached_blocks == 1, "B holds the first copies of what it shares with A"
    zero.release(of_b)
    assert zero.store.occupancy(0).cached_blocks == 4, "no reference is left"
    with pytest.raises(UsageError, match="not that many active blocks"):
        zero.switch_active_into_cache(of_b, 1, 0)


def test_an_insert_can_launch_the_transmission_at_once():
    """An insert can immediately launch transmission and mark present on CPU: write through."""
    zero, _ = machines(write={"gpu": "through", "cpu": "through"})
    active = zero.allocate_active(A, 0, 3)
    switched = zero.switch_active_into_cache(active, 3, 0)
    assert where(zero, A) == [["gpu 0", "cpu 0"]] * 3
    assert (switched.written.first_layer_ready_at_ns, switched.written.ready_at_ns) == (1_600, 6_100)
    zero.run_until(6_100)
    assert where(zero, A) == [["gpu 0", "cpu 0", "disk 0"]] * 3, "and on, from CPU to disk"
    zero.release(active)
    evicted = zero.evict("gpu", 3)
    assert (evicted.ready_at_ns, evicted.written) == (6_100, ()), "already there: nothing to write"


# -- Deletion


def test_evict_writes_to_the_lower_layer_if_absent_there_and_always_deletes():
    """_evict_blocks will always delete the block from the original device."""
    zero, _ = machines()
    computed(zero, A, 3)
    evicted = zero.evict("gpu", 1)
    assert where(zero, A) == [["gpu 0"], ["gpu 0"], ["cpu 0"]], "the deepest first: only leaves go"
    [write] = evicted.written
    assert (write.edge, write.blocks, write.ready_at_ns) == ("gpu->cpu", 1, 2_100)
    zero.run_until(2_100)
    zero.allocate_active(A, 3, 0)
    zero.run_until(3_200)
    assert where(zero, A)[2] == ["gpu 0", "cpu 0"]


def test_on_the_lowest_layer_it_is_discarded_and_cannot_be_found_anymore():
    """evict_to_discard will delete itself from the lookup structure."""
    [zero] = machines(capacities=(4,), count=1)
    computed(zero, A, 3)
    evicted = zero.evict("gpu", 2)
    assert (evicted.written, evicted.evicted_blocks) == ((), {"gpu": 2})
    assert len(zero.match_prefix(A, 3)) == 1
    assert zero.discard(A, 3) == 1
    assert zero.match_prefix(A, 3) == ()
    assert zero.store.occupancy(0) == (4, 0, 0, 0, 0)
    [zero] = machines(count=1)
    on_disk(zero, A, 3)
    assert (zero.discard(A, 2), zero.discard(A, 3), zero.match_prefix(A, 3)) == (0, 3, ())


# -- Contention


def test_machine_0_reads_from_1_while_1_reads_from_0():
    """They should contend: the same channel. They should not contend: two different channels."""
    ready = []
    for pairs in ({(0, 1): "wire", (1, 0): "wire"}, {(0, 1): "there", (1, 0): "back"}):
        wires = {name: ChannelSettings(name, 10**9, 300) for name in set(pairs.values())}
        built = [MachineTiers((TierSettings("gpu", 4), TierSettings("cpu", 4)), {}) for _ in range(2)]
        local = {edge: ChannelSettings(edge, 10**9) for edge in ("gpu->cpu", "cpu->gpu")}
        built = [MachineTiers(one.tiers, {edge: edge for edge in local}) for one in built]
        settings = (
            CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4),
            MovementSettings(lookup="cluster"),
        )
        caches = open_machines(
            trace_of(ROWS), built, ClusterChannels(wires | local, NetworkSettings(pairs)), *settings
        )
        for cache, request in zip(caches, (A, C), strict=True):
            cache.mark(cache.acquire_space("cpu", 1), request, 0, cache.transmit("gpu->cpu", 0))
        caches[0].run_until(0)
        moves = [caches[0].fetch_from_remote(C, 1)[0], caches[1].fetch_from_remote(A, 1)[0]]
        ready.append([move.ready_at_ns for move in moves])
    assert ready == [[4_300, 8_300], [4_300, 4_300]]


def test_on_a_shared_channel_times_are_known_when_they_come():
    zero, _ = machines(sharing="fair")
    space = zero.acquire_space("disk", 2)
    zero.mark(space, A, 0, Transmission(0, 0, 0, 0))
    zero.run_until(0)
    fetched = [zero.fetch_to_memory(A, (block, block + 1)) for block in range(2)]
    assert [(one.first_layer_ready_at_ns, one.ready_at_ns) for one in fetched] == [(None, None)] * 2
    assert zero.match_prefix(A, 1)[0].copies[0].ready_at_ns is None
    zero.run_until(20_000)
    # Each of the two gets half of 1 byte a ns.
    assert [one.ready_at_ns for one in fetched] == [8_500, 8_500]
    assert zero.match_prefix(A, 1)[0].copies[0] == BlockCopy(0, "cpu", 2_500, 8_500)
    with pytest.raises(UsageError, match="not final"):
        zero.transmit("cpu->gpu", 4)


@pytest.mark.parametrize("priority", ["in-order", "loads-first"])
@pytest.mark.parametrize("sharing", ["fifo", "fair"])
@pytest.mark.parametrize("latency_occupies", [False, True])
def test_no_time_told_by_hand_is_made_up(sharing, priority, latency_occupies):
    """A time is the one at which it happens, or None while that is not known; transmit refuses instead."""
    kind = {"sharing": sharing, "priority": priority, "latency_occupies": latency_occupies}
    final = kind["sharing"] == "fifo" and priority == "in-order"
    zero, one = machines(write={"gpu": "through", "cpu": "through"}, **kind)
    for edge in BYTES_PER_S:
        if final:
            for tokens in (0, 1, 4, 10**6):
                sent = zero.transmit(edge, tokens)
                assert 0 <= sent.start_ns <= sent.first_layer_ns <= sent.completion_ns < 10**11
        else:
            with pytest.raises(UsageError, match="times are not final when a job is queued"):
                zero.transmit(edge, 4)
        with pytest.raises(UsageError, match="no" if not final else "fewer than no tokens"):
            zero.transmit(edge, -1)
    space = one.acquire_space("disk", 1)
    one.mark(space, C, 0, Transmission(0, 0, 0, 0))
    zero.run_until(0)
    active = zero.allocate_active(A, reuse=0, active=3)
    written = zero.switch_active_into_cache(active, 3, 0).written
    zero.release(active)
    space = zero.evict("gpu", 4)
    things = [active, space, written, *zero.fetch_from_remote(C, 1)]
    assert len(things) == 4

    def reported():
        names = ("first_layer_ready_at_ns", "ready_at_ns", "reserved_at_ns")
        return [getattr(thing, name, 0) for thing in things for name in names]

    assert all(time is None or 0 <= time < 10**11 for time in reported())
    assert final or None in reported()
    zero.run_until(10**11)
    assert all(0 <= time < 10**11 for time in reported()), "all has come"


# -- Caching policy: how the operations are built upon, and who calls them


def test_a_lookup_covers_the_local_structure_only_or_all_serving_instances():
    for lookup, found in (("local", 1), ("cluster", 3)):
        zero, one = machines(lookup=lookup)
        in_memory(zero, A, 1)
        in_memory(one, A, 3)
        assert len(zero.match_prefix(A, 3)) == found
        assert where(zero, A)[0] == ["cpu 0", "cpu 1"], "a copy is listed wherever it is"


def test_computation_is_pipelined_layer_by_layer_with_the_move_from_cpu_to_gpu():
    zero, _ = machines()
    in_memory(zero, A, 2)
    active = zero.allocate_active(A, reuse=2, active=1)
    # Two blocks at 4 bytes a ns: 500 ns a layer. A layer of the missed block takes 300 ns to compute.
    assert (active.first_layer_ready_at_ns, active.ready_at_ns) == (600, 2_100)
    computed_by = active.first_layer_ready_at_ns
    for layer in range(4):
        arrival = active.first_layer_ready_at_ns + layer * active.loads[0].sent.per_layer_ns
        computed_by = max(computed_by, arrival) + 300
    assert computed_by == 2_400 < active.ready_at_ns + 4 * 300, "only the last layer comes after the load"


def test_the_scheduler_looks_up_which_machine_has_more_and_goes_there():
    zero, one = machines(lookup="local")
    in_memory(zero, A, 1)
    in_memory(one, A, 3)
    hits = {cache.mover.machine: len(cache.match_prefix(B, 3)) for cache in (zero, one)}
    assert hits == {0: 1, 1: 2}
    assert max(hits, key=hits.get) == 1


def test_the_page_on_operations_runs_as_it_stands():
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "cache-operations.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(example, {"trace": trace_of(ROWS)})
