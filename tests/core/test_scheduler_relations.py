"""Relations that hold for every scheduler: later arrivals, slower steps, scaled time, machines apart.

Each turns settings that no recorded row has into settings that rows, closed forms and the engines' own
classes judge.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.group_runs import layouts_of
from support.schedule_book import plain_table
from support.traces import random_trace

MS = 1_000_000
#: Scheduler and cache by name; the last four share vLLM's pool or kvsim's scheduler with more.
KINDS = {
    "vllm": ({"scheduler": "vllm"}, {"semantics": "vllm"}),
    "sglang": ({"scheduler": "sglang", "enable_mixed_chunk": True}, {"semantics": "sglang"}),
    "groups": (
        {"scheduler": "vllm"},
        {"semantics": "vllm", "groups": replace(layouts_of("sliding", 48), max_num_batched_tokens=256)},
    ),
    "stages": ({"scheduler": "vllm", "stages": 2}, {"semantics": "vllm"}),
    "drafts": (
        {"speculation": SpeculationSettings((0.8, 0.5, 0.5), draft_ns=300_000)},
        {"semantics": "vllm"},
    ),
    "drafts in groups": (
        {"speculation": SpeculationSettings((0.8, 0.5), draft_ns=300_000)},
        {"semantics": "vllm", "groups": replace(layouts_of("linear", 0), max_num_batched_tokens=256)},
    ),
}
#: Stages and drafts are decided on one at a time.
ASYNCHRONOUS = ("vllm", "sglang", "groups")
every = pytest.mark.parametrize("kind", KINDS)
drawn = {"blocks": st.sampled_from([70, 110, 400]), "seed": st.integers(1, 99)}


def served(kind, blocks, trace, table, replica=None, **cache):
    """Return the rows of a run on one machine, but for where waiting was spent, and those of its arrivals."""
    scheduler, semantics = KINDS[kind]
    settings = cluster((blocks,))
    own = ReplicaSettings(
        **{"max_num_batched_tokens": 256, "max_num_seqs": 8, **scheduler, **(replica or {})}
    )
    machine = replace(settings.machines[0], replica=own, step_time=table)
    cache = CacheSettings(block_size_tokens=BLOCK, **semantics, **cache)
    rows = simulate(
        replace(settings, machines=(machine,), cache=cache), trace, options=RunOptions(check="full")
    ).requests
    times = rows["first_token_ns"], rows["finish_ns"]
    rest = (rows[name].tolist() for name in ("status", "cached_prefix_length_used", "preemptions"))
    return times, tuple(rest)


def small_trace(seed):
    trace = random_trace(seed, requests=40, sessions=7)
    return replace(trace, arrival_ns=trace.arrival_ns // (1 + seed % 4))


@every
@examples(8)
@given(**drawn, offset=st.sampled_from([0, 5 * MS]), lookup=st.sampled_from([0, 2 * MS, 30 * MS]))
def test_what_the_scheduler_gets_later_arrives_later(kind, blocks, seed, offset, lookup):
    trace = small_trace(seed)
    late = served(kind, blocks, trace, plain_table(), {"client_offset_ns": offset}, lookup_ns=lookup)
    moved = replace(trace, arrival_ns=trace.arrival_ns + offset + lookup)
    plain = served(kind, blocks, moved, plain_table())
    assert [times.tolist() for times in late[0]] == [times.tolist() for times in plain[0]]
    assert late[1] == plain[1]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind != "stages"]
)  # the engine's, before the stages
@examples(5)
@given(**drawn)
def test_the_overhead_between_steps_is_a_part_of_each(kind, blocks, seed):
    trace = small_trace(seed)
    alongside = served(kind, blocks, trace, plain_table(), {"step_overhead_ns": 3 * MS})
    inside = served(kind, blocks, trace, plain_table(overhead_ns=3 * MS))
    assert [times.tolist() for times in alongside[0]] == [times.tolist() for times in inside[0]]
    assert alongside[1] == inside[1]


@every
@examples(5)
@given(**drawn)
def test_time_has_no_unit(kind, blocks, seed):
    """Three times the arrivals and the steps' times are three times all times."""
    trace = small_trace(seed)
    drafts = KINDS[kind][0].get("speculation")
    slower = {"speculation": replace(drafts, draft_ns=3 * drafts.draft_ns)} if drafts else {}
    once = served(kind, blocks, trace, plain_table())
    thrice = served(kind, blocks, replace(trace, arrival_ns=3 * trace.arrival_ns), plain_table(3), slower)
    finished = np.array(once[1][0]) == 0
    for one, other in zip(once[0], thrice[0], strict=True):
        assert (3 * one[finished]).tolist() == other[finished].tolist()
    assert once[1] == thrice[1]


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
@examples(5)
@given(**drawn)
def test_an_async_scheduled_step_takes_at_least_the_host_overhead(kind, blocks, seed):
    """An overhead below every step's time is hidden; one above all of them is every step's time."""
    trace = small_trace(seed)
    lookahead = {"async_scheduling": "length"}
    hidden = served(kind, blocks, trace, plain_table(), {**lookahead, "step_overhead_ns": MS})
    plain = served(kind, blocks, trace, plain_table(), lookahead)
    assert [times.tolist() for times in hidden[0]] == [times.tolist() for times in plain[0]]
    bound = served(kind, blocks, trace, plain_table(), {**lookahead, "step_overhead_ns": 50 * MS})
    constant = replace(
        plain_table(),
        base_ns=plain_table().base_ns * 0 + 50 * MS,
        decode_base_ns=plain_table().decode_base_ns * 0 + 50 * MS,
    )
    even = served(kind, blocks, trace, constant, lookahead)
    assert [times.tolist() for times in bound[0]] == [times.tolist() for times in even[0]]
    assert bound[1] == even[1]


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_an_answer_that_ends_with_a_stop_token_stays_for_one_more_step(kind):
    """Alone, a request's end is unchanged; with one slot, the next request starts a step later."""
    trace = random_trace(1, requests=2)
    trace = replace(
        trace,
        arrival_ns=trace.arrival_ns * 0,
        input_tokens=trace.input_tokens * 0 + 64,
        output_tokens=trace.output_tokens * 0 + 5,
        id_offsets=np.array([0, 1, 2]),
        block_ids=np.array([0, 1], np.uint32),
    )
    one = {"max_num_seqs": 1}
    finish = {}
    for known in ("none", "length", "stop-token"):
        (_, ends), _ = served(kind, 400, trace, plain_table(), {**one, "async_scheduling": known})
        finish[known] = ends.tolist()
    table = plain_table()
    alone = int(table.base_ns[64] + 4 * table.decode_base_ns[1])
    assert finish["none"] == [alone, 2 * alone]
    assert finish["length"] == [alone, 2 * alone]
    assert finish["stop-token"] == [alone, 2 * alone + int(table.decode_base_ns[1])]
