"""Listing a hit: each block's key, id, tokens, and every copy on every machine with its ready times."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.store import ALL_BLOCKS, NO_MOVE
from kvcache_sim.channels.channel import NOT_YET
from kvcache_sim.engine import SAMPLE
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.workload.tokens import PromptConfig, row_tokens
from support.clusters import BLOCK, cluster, reading_each_other
from support.product.traces import BlockTokens, continuations, token_batches
from support.spec_store import WholeStoreSimulation
from support.traces import random_trace

TRACE = random_trace(8)


def by_block(runs, block):
    """Return the part of a listing by runs that a block is in."""
    return next(rest for end, rest in runs if block < end)


def listings(moments=40, peek=True):
    """Run two machines that read from each other and list hits during the run; return them and the digest."""
    simulation = Simulation(reading_each_other((90, 60, 400), machines=2), TRACE, RunOptions())
    listed = []

    def look(request):
        for machine in (0, 1):
            parts = simulation.replicas[machine].store.match_prefix(request, 1 << 20)
            blocks = simulation.match_prefix(machine, request)
            listed.append((simulation.engine.now_ns, machine, request, parts, blocks))
            arrived = [replica.store.copies(request, len(blocks)) for replica in simulation.replicas]
            for copy, by in (
                (copy, by_block(arrived[copy.machine], b.index)) for b in blocks for copy in b.copies
            ):
                is_there = by[TIERS.index(copy.tier)] == NO_MOVE
                assert copy.is_ready(simulation.engine.now_ns) or not is_there, "a time that is unknown"

    for moment in range(moments if peek else 0):
        simulation.engine.schedule(moment * 77_777_777, SAMPLE, -1, look, (moment * 7) % len(TRACE))
    return listed, simulation.run().digest_events


def test_what_is_listed_are_the_copies_of_the_plain_store_and_listing_changes_nothing():
    """The specification runs over its own store; at each moment it has the listed copies and no others."""
    listed, digest = listings()
    settings = reading_each_other((90, 60, 400), machines=2)
    plain = WholeStoreSimulation(settings, TRACE, RunOptions(engine="spec-plain"))
    engine, checked = plain.simulator.engine, Counter()

    def compare(request):
        for now, machine, asked, _, blocks in listed:
            if (now, asked) != (engine.now_ns, request):
                continue
            reached = _longest_of_all(plain.simulator.machines, machine, request)
            assert len(blocks) == min(
                reached, settings.cache.matchable_blocks(int(TRACE.input_tokens[request]))
            )
            for block in blocks:
                copies = {(copy.machine, copy.tier) for copy in block.copies}
                theirs = _copies(plain.simulator.machines, request, block.index)
                assert copies == theirs
                checked.update(copies)

    for moment in range(40):
        engine.schedule(moment * 77_777_777, SAMPLE, -1, compare, (moment * 7) % len(TRACE))
    assert plain.run().digest_events == digest == listings(peek=False)[1]
    assert {machine for machine, _ in checked} == {0, 1}
    assert {tier for _, tier in checked} == set(TIERS[:3])


def _copies(machines, request, block):
    """Return (machine, tier) of each copy of a block in the stores of the specification."""
    stores = [(machine.number, machine.store.residency(request, block + 1)) for machine in machines]
    there = [(number, runs) for number, runs in stores if runs and runs[-1][0] > block]
    return {(number, TIERS[tier]) for number, runs in there for tier, *_ in by_block(runs, block)}


def _longest_of_all(machines, machine, request):
    """Return the blocks found on a machine, and on behind them below the GPU of one other machine."""
    own = machines[machine].store.peek(request, ALL_BLOCKS)[0]
    runs = [
        other.store.match_below(request, own, ALL_BLOCKS) for other in machines if other.number != machine
    ]
    return max([own, *(parts[-1][2] for parts in runs if parts)])


@pytest.mark.parametrize("settings", [reading_each_other((90, 60, 400), machines=2), cluster((60, 40, 400))])
def test_a_load_that_waits_has_the_times_at_which_it_arrives(settings):
    """Requests one at a time: nothing else is queued while one loads, so each stated time comes true."""
    trace = random_trace(8, requests=40, sessions=6)
    trace = replace(trace, arrival_ns=np.arange(len(trace)) * 60 * 10**9)
    simulation = Simulation(settings, trace, RunOptions())
    engine, seen = simulation.engine, Counter()

    def copies(request):
        for machine in range(len(simulation.replicas)):
            for block in simulation.match_prefix(machine, request):
                for copy in block.copies:
                    yield (block.index, copy.machine, copy.tier), copy

    def waiting(request):
        """Return the indices of the copies whose transmission is not queued."""
        found = set()
        for replica in simulation.replicas:
            first = 0
            for end, run in replica.store.residency(request, ALL_BLOCKS):
                unsent = {tier for tier, _, _, ready_ns, _ in run if ready_ns >= NOT_YET}
                found |= {(b, replica.machine, TIERS[tier]) for b in range(first, end) for tier in unsent}
                first = end
        return found

    def look(request):
        waits = waiting(request)
        for at, copy in copies(request):
            if not copy.is_ready(engine.now_ns):
                if copy.ready_at_ns is None:  # it waits for space, or for a copy that does
                    assert at in waits
                    seen["unknown"] += 1
                    continue
                seen[copy.tier] += at in waits
                for time_ns in (copy.ready_at_ns - 1, copy.ready_at_ns):
                    engine.schedule(time_ns, SAMPLE, -1, check, (request, at, copy))

    def check(of):
        request, at, stated = of
        assert dict(copies(request))[at] == stated
        block, machine, tier = at
        by = by_block(simulation.replicas[machine].store.copies(request, ALL_BLOCKS), block)
        assert (by[TIERS.index(tier)] == NO_MOVE) == (engine.now_ns == stated.ready_at_ns)

    for request in range(len(trace)):
        for delay_ns in (0, 50_000, 150_000, 300_000):
            engine.schedule(request * 60 * 10**9 + delay_ns, SAMPLE, -1, look, request)
    simulation.run()
    assert min(seen["gpu"], seen["cpu"], seen["unknown"]) > 5


@pytest.mark.parametrize("machine_and_request", [(2, 0), (-1, 0), (0, len(TRACE)), (0, -1)])
def test_a_machine_or_a_request_that_there_is_not_is_refused(machine_and_request):
    simulation = Simulation(reading_each_other((90, 60, 400), machines=2), TRACE, RunOptions())
    with pytest.raises(UsageError, match="no such"):
        simulation.match_prefix(*machine_and_request)


def test_tokens_are_those_of_the_prompt_and_an_answer_has_those_of_the_next_turn():
    config = PromptConfig(10_000, block_size=TRACE.block_size)
    prompts = [np.array(batch.tokens) for batch in token_batches(TRACE, config, 7, batch_tokens=1)]
    of_row = row_tokens(TRACE, config, 7)
    assert all((of_row(row) == prompts[row]).all() for row in (5, 0, 119, 5))
    tokens = BlockTokens(TRACE, BLOCK, of_row)
    simulation = Simulation(cluster((4_000,)), TRACE, RunOptions())
    simulation.run()
    for request in range(0, len(TRACE), 9):
        for block in simulation.match_prefix(0, request, tokens):
            first = block.index * BLOCK
            assert block.tokens == tuple(prompts[request][first : first + BLOCK].tolist())
            assert block.hash_id == TRACE.block_ids[TRACE.id_offsets[request] + first // TRACE.block_size]
    following = continuations(TRACE).tolist()
    past = [int(n) // BLOCK + 1 for n in TRACE.input_tokens]  # the block after the one that prompt ends in
    shown = [r for r, n in enumerate(following) if n >= 0 and (past[r] + 1) * BLOCK <= TRACE.input_tokens[n]]
    for request in shown[:5]:
        first = past[request] * BLOCK
        assert tokens.of(request, past[request]) == tuple(prompts[following[request]][first : first + BLOCK])
    assert shown
    assert tokens.of(0, 10_000) == (), "what no prompt shows has no tokens"
