"""Listing a hit: each block's key, id, tokens, and every copy on every machine with its ready times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.cache.operations import BlockTokens
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.engine import SAMPLE
from kvcache_sim.errors import UsageError
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.tiers import TIERS
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.tokens import PromptConfig, row_tokens, token_batches
from support.clusters import BLOCK, cluster, reading_each_other
from support.traces import random_trace

TRACE = random_trace(8)


def listings(backend, moments=40, peek=True):
    """Run two machines that read from each other and list hits on the way; return them and the digest."""
    simulation = Simulation(reading_each_other((90, 60, 400), machines=2), TRACE, RunOptions(backend=backend))
    listed = []

    def look(request):
        for machine in (0, 1):
            parts = simulation.replicas[machine].store.match_prefix(request, 1 << 20)
            blocks = simulation.match_prefix(machine, request)
            listed.append((simulation.engine.now_ns, machine, request, parts, blocks))

    for moment in range(moments if peek else 0):
        simulation.engine.schedule(moment * 77_777_777, SAMPLE, -1, look, (moment * 7) % len(TRACE))
    return listed, simulation.run().digest_events


def test_what_is_listed_is_what_the_store_finds_with_every_copy_and_its_times():
    listed, _ = listings("native")
    seen = set()
    for now, machine, _, parts, blocks in listed:
        assert [block.index for block in blocks] == list(range(len(blocks)))
        for tier, start, end, _ in parts:
            for block in blocks[start:end]:
                own = [copy for copy in block.copies if copy.machine == machine]
                assert own[0].tier == TIERS[tier], "the fastest first"
        for block in blocks:
            assert block.copies
            for copy in block.copies:
                if copy.ready_at_ns is not None:  # its transmission has been queued
                    assert copy.first_layer_ready_at_ns <= copy.ready_at_ns
                seen.add((copy.tier, copy.machine == machine, copy.is_ready(now)))
    for expected in (("gpu", True, True), ("cpu", False, True), ("disk", True, True), ("cpu", True, False)):
        assert expected in seen, "the run has ready and unready copies here and there"


def test_both_stores_list_the_same_and_listing_changes_nothing():
    native, digest = listings("native")
    reference, references = listings("python")
    assert [entry[4] for entry in native] == [entry[4] for entry in reference]
    assert digest == references == listings("native", peek=False)[1]


@pytest.mark.parametrize("backend", ["native", "python"])
def test_no_copy_that_has_arrived_has_an_unknown_time(backend):
    simulation = Simulation(reading_each_other((90, 60, 400), machines=2), TRACE, RunOptions(backend=backend))
    seen = Counter()

    def look(request):
        now = simulation.engine.now_ns
        for machine in (0, 1):
            blocks = simulation.match_prefix(machine, request)
            arrived = [{} for _ in blocks]
            for replica in simulation.replicas:
                first = 0
                for end, by in replica.store.copies(request, len(blocks)):
                    for block in range(first, min(end, len(blocks))):
                        for tier, move in enumerate(by):
                            arrived[block][replica.machine, TIERS[tier]] = move == NO_MOVE
                    first = end
            for block in blocks:
                for copy in block.copies:
                    is_there = arrived[block.index][copy.machine, copy.tier]
                    assert copy.is_ready(now) or not is_there
                    seen[copy.tier, is_there] += 1

    for moment in range(40):
        simulation.engine.schedule(moment * 77_777_777, SAMPLE, -1, look, (moment * 7) % len(TRACE))
    simulation.run()
    assert all(seen[tier, True] for tier in TIERS[:3])


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize(
    ("place", "line"),
    [
        ((2, 0), "no such machine; got 2; expected 0 to 1"),
        ((-1, 0), "no such machine; got -1"),
        ((0, len(TRACE)), "no such request"),
        ((0, -1), "no such request; got -1"),
    ],
)
def test_a_machine_or_a_request_that_there_is_not_is_one_line(backend, place, line):
    simulation = Simulation(reading_each_other((90, 60, 400), machines=2), TRACE, RunOptions(backend=backend))
    with pytest.raises(UsageError, match=line):
        simulation.match_prefix(*place)


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


def test_stores_of_other_rules_are_refused_with_the_reason():
    settings = cluster((160,))
    settings = replace(settings, cache=replace(settings.cache, semantics="vllm"))
    simulation = Simulation(settings, TRACE, RunOptions())
    simulation.run()
    with pytest.raises(UsageError, match="only blocks of the tree"):
        simulation.match_prefix(0, 5)
