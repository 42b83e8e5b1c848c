"""Rules of the scheduler that hardly change a total, each against a closed form or a count of its own."""

from __future__ import annotations

import pytest
from kvcache_sim.serving.duplicates import Duplicates
from kvcache_sim.simulation import RunOptions, simulate
from pools import MS, pools, requests
from small_traces import trace_of
from support.clusters import cluster
from support.traces import random_trace

WINDOW = (0, 2**62)
#: The native scheduler runs in stretches; step by step the one in Python does, which serves what the core does not.
both = pytest.mark.parametrize("by_step", [False, True], ids=["native", "python"])


@both
def test_a_request_that_loads_has_its_place(by_step):
    # the second prompt drives the first one's tail to the cpu; the third reads it back, a millisecond a block,
    # and the fourth, which needs nothing but a place, waits until the third has ended
    rows = [list("abcd"), list("efghijkl"), list("abcdx"), list("y")]
    trace = trace_of(rows, block_size=16, arrival_ns=[0, 20 * MS, 60 * MS, 61 * MS])
    settings = pools("b", tiers=(9, 50), max_num_seqs=1)
    done = simulate(settings, trace, options=RunOptions(check="full", step_every_iteration=by_step)).requests
    assert done["cached_cpu_tokens"][2] == 3 * 16
    assert done["fetch_cpu_ns"][2] > MS
    assert done["queue_ns"][3] == done["finish_ns"][2] - 61 * MS


def test_blocks_of_an_id_stand_at_their_ids_place():
    """Ids of two blocks: what the third and fourth block are is told by the second id."""
    duplicates = Duplicates(trace_of(["ab", "ac", "xb"], block_size=8), 4)

    class Of:
        def __init__(self, request):
            self.request = request

    for found, others in [(0, (1,)), (1, (1,)), (2, ()), (3, ()), (4, ())]:
        assert tuple(o for o in (1, 2) if duplicates.computed_by_any(Of(0), found, [Of(o)])) == (
            others if found < 2 else (2,) if found < 4 else ()
        )


@both
def test_a_wait_is_the_cpus_until_its_kv_is_here_and_the_disks_only_then(by_step):
    options = RunOptions(step_every_iteration=by_step)
    run = simulate(cluster((90, 60, 400), pipelined=False), random_trace(5), options=options)
    rows = run.requests
    from_both = (rows["cached_cpu_tokens"] > 0) & (rows["cached_disk_tokens"] > 0)
    assert from_both.any()
    assert (rows["fetch_cpu_ns"][from_both] > 0).any()


@both
def test_tokens_computed_again_are_those_of_the_steps_beyond_the_prompts(by_step):
    run = simulate(
        pools("b", tiers=(20,)),
        requests(*[(0, 64, 60)] * 4),
        options=RunOptions(record_window_ns=WINDOW, check="full", step_every_iteration=by_step),
    )
    rows = run.requests
    assert rows["preemptions"].any()
    kinds = run.events["kind"]
    step = kinds.codes == kinds.words.index("step")
    computed = int(run.events["tokens"][step].sum())
    first = int((rows["input_tokens"] - rows["cached_prefix_length_used"]).sum())
    # a prefill after a preemption computes what had KV and is no longer cached, and the last token shown
    assert computed == first + int(rows["recomputed_tokens"].sum() + rows["preemptions"].sum())
