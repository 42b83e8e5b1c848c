"""Hand-overs decided per request: hand-worked cases of each rule, and clusters that must come out the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import Fleet, Machine
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.handover.rules import RULES, Asked
from kvcache_sim.serving.router.contract import Promised
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from support.examples import examples
from support.pools import BLOCK, MS, TOKEN_NS, channel, pools, requests
from support.product.machines import BlockForm
from support.traces import random_trace

WIRE_NS, LATENCY_NS = MS, 100_000  # of a block; of a job


def run(cluster: ClusterSettings, trace: Trace) -> Run:
    return simulate(cluster, trace, options=RunOptions(check="full"))


#: Every prompt is handed over, over a wire that takes no time to speak of.
AT_ONCE = {
    "threshold_tokens": 0,
    "network": NetworkSettings(default=channel(bandwidth_bytes_per_s=10**14, latency_ns=0)),
}


def machines(cluster: ClusterSettings, trace: Trace) -> list[tuple[int, int]]:
    """By request the machine of its prompt, and the decode machine it was handed over to, −1 for none."""
    done = run(cluster, trace).requests
    return list(zip(done["machine"].tolist(), done["decode_machine"].tolist(), strict=True))


def results(done: Run) -> list[list[int]]:
    return [column.tolist() for column in done.requests.values()]


def decides(rule: str, **figures) -> HandoverSettings:
    return HandoverSettings(decide=rule, **figures)


# -- the rules, at their borders


@pytest.mark.parametrize(
    ("rule", "figures", "asked", "handed_over"),
    [
        # more than the threshold, whatever the prompt
        ("threshold", {"threshold_tokens": 60}, Asked(160, 100, 0), False),
        ("threshold", {"threshold_tokens": 59}, Asked(160, 100, 0), True),
        ("threshold", {}, Asked(2048, 0, 0), False),
        ("threshold", {}, Asked(2049, 0, 0), True),
        # llm-d: at least N; N = 0 never; both lengths of a prompt
        ("llm-d", {}, Asked(160, 144, 0), True),
        ("llm-d", {}, Asked(160, 145, 0), False),
        ("llm-d", {}, Asked(15, 0, 0), False),
        ("llm-d", {"threshold_tokens": 0}, Asked(9000, 0, 0), False),
        ("llm-d", {"min_prompt_tokens": 161}, Asked(160, 0, 0), False),
        ("llm-d", {"min_prompt_tokens": 160}, Asked(160, 0, 0), True),
        # Dynamo: both strict, so the border is handed over; nothing cached is a share of 1
        ("dynamo-isl-bounding", {}, Asked(10_000, 0, 7953), False),
        ("dynamo-isl-bounding", {}, Asked(10_000, 0, 7952), True),
        ("dynamo-isl-bounding", {}, Asked(1000, 0, 301), False),
        ("dynamo-isl-bounding", {}, Asked(1000, 0, 300), True),
        ("dynamo-isl-bounding", {}, Asked(100, 0, 0), True),
        ("dynamo-isl-bounding", {}, Asked(100, 0, 200), False),
        ("dynamo-prefill-load", {"prefill_busy": 2.0}, Asked(100, 0, 0, 1024, 512), True),
        ("dynamo-prefill-load", {"prefill_busy": 2.0}, Asked(100, 0, 0, 1025, 512), False),
        ("dynamo-isl-or-load", {"prefill_busy": 2.0}, Asked(100, 0, 0, 1024, 512), True),
        ("dynamo-isl-or-load", {"prefill_busy": 2.0}, Asked(100, 0, 0, 1025, 512), False),
        ("dynamo-isl-or-load", {"prefill_busy": 2.0}, Asked(100, 0, 90, 0, 512), False),
        ("shorter-wait", {}, Asked(100, 0, 0, 0, 1, 5, 5), False),
        ("shorter-wait", {}, Asked(100, 0, 0, 0, 1, 5, 4), True),
    ],
)
def test_a_rule_at_its_border(rule, figures, asked, handed_over):
    assert RULES[rule].hands_over(decides(rule, **figures), asked) is handed_over


# -- on paper: 10 µs per prompt token, 1 ms per block on the wire, 0.1 ms latency


def test_a_prompt_that_its_decode_machine_has_stays_there():
    # 100 tokens: 6 full blocks and 4 tokens. The second prompt finds the 6 blocks on machine 1.
    trace = requests((0, 100, 5), (200, 100, 5), shared=6)
    done = run(pools("pd", decides("llm-d", threshold_tokens=5)), trace).requests
    assert done["decode_machine"].tolist() == [1, -1]
    assert done["machine"].tolist() == [0, 1]
    ttft_ns = done["first_token_ns"] - done["arrival_ns"]
    assert ttft_ns.tolist() == [100 * TOKEN_NS + LATENCY_NS + 7 * WIRE_NS, 4 * TOKEN_NS]
    assert done["cached_prefix_length_used"].tolist() == [0, 96]
    # one token less is the border: handed over, with the part that machine 1 lacks
    done = run(pools("pd", decides("llm-d", threshold_tokens=4)), trace).requests
    assert done["decode_machine"].tolist() == [1, 1]
    assert done["handover_blocks"].tolist() == [7, 1]


def test_a_prompt_that_is_there_whole_counts_as_cached_whole():
    # 96 tokens are 6 full blocks: llm-d's index has them all, though the engine computes the last one again
    trace = requests((0, 96, 5), (200, 96, 5), shared=6)
    assert machines(pools("pd", decides("llm-d", threshold_tokens=1)), trace) == [(0, 1), (1, -1)]


@pytest.mark.parametrize(
    ("form", "latency_ns"),
    [
        (BlockForm(), 500_000),
        (BlockForm(0.5), 2_250_000),
        (BlockForm(0.25, None, 32_000_000), 500_000),
        (BlockForm(0.5, 64_000_000), 2_250_000),
    ],
)
def test_the_shorter_wait_counts_what_is_queued_and_the_wire_in_its_form(form, latency_ns):
    """Machine 1 computes 400 tokens, 4 ms. A prompt of 100 waits 4 + 1 ms there.

    On machine 0 it takes 1 ms, the latency, and 7 blocks of half a millisecond; half a block takes 0.25 ms, a
    block is decoded in 0.5 ms or encoded in 0.25 ms.
    """
    trace = requests((0, 400, 5), (0, 100, 5))
    for latency, handed_over in ((latency_ns - 1, True), (latency_ns, False)):
        wire = NetworkSettings(default=channel(bandwidth_bytes_per_s=32_000_000, latency_ns=latency))
        placed = machines(pools("pd", decides("shorter-wait", network=wire, form=form)), trace)
        assert placed == [(1, -1), (0, 1) if handed_over else (1, -1)]


@pytest.mark.parametrize(("latency_ns", "handed_over"), [(3_400_000, True), (3_800_000, False)])
def test_the_wire_carries_what_the_gpu_of_the_decode_machine_lacks(latency_ns, handed_over):
    """The second prompt moves four of the first one's seven blocks to the CPU: 0.4 ms on the wire, not 0.1.

    The third one keeps machine 1 busy, so that the first one again is served sooner on machine 0.
    """
    wire = NetworkSettings(default=channel(bandwidth_bytes_per_s=160_000_000, latency_ns=latency_ns))
    trace = requests((0, 100, 5), (200, 160, 5), (400, 200, 5), (400, 100, 5))
    trace.block_ids[-7:] = trace.block_ids[:7]
    placed = machines(pools("pd", decides("shorter-wait", network=wire), (14, 40)), trace)
    assert placed == [*[(1, -1)] * 3, (0, 1) if handed_over else (1, -1)]


def test_a_prompt_that_was_handed_over_is_no_work_for_its_decode_machine():
    # Machine 1 computes 600 tokens, 6 ms. One of 400 takes 4 ms and 1.6 of the wire (25 blocks) on machine 0, and
    # decodes on machine 1 from 6 ms on, for long. At 30 ms a prompt of 300 is served there as on an idle machine.
    wire = NetworkSettings(default=channel(bandwidth_bytes_per_s=250_000_000, latency_ns=0))
    trace = requests((0, 600, 5), (0, 400, 500), (30, 300, 5))
    placed = machines(pools("pd", decides("shorter-wait", network=wire)), trace)
    assert placed == [(1, -1), (0, 1), (1, -1)]


def test_a_busy_prefill_machine_is_spared():
    # 300 of 512 tokens are queued at 0.5 ms
    trace = requests((0, 300, 5), (0.5, 100, 5))
    for busy, handed_over in ((0.58, False), (0.59, True)):
        placed = machines(pools("pd", decides("dynamo-prefill-load", prefill_busy=busy)), trace)
        assert placed == [(0, 1), (0, 1) if handed_over else (1, -1)]


def test_the_machine_that_was_asked_keeps_the_request_and_counts_it():
    # All arrive before the first prompt is computed: 0 0, 300 0, 300 200 and 300 300 tokens are promised.
    trace = requests((0, 300, 5), (0.1, 200, 5), (0.2, 100, 5), (0.3, 150, 5))
    assert machines(pools("pdd", decides("threshold", **AT_ONCE)), trace) == [(0, 1), (0, 2), (0, 2), (0, 1)]


def test_a_promise_ends_with_its_request():
    # The second client leaves the queue after 1 ms. Of idle machines that which was chosen least often is next.
    trace = requests((0, 300, 5), (0.1, 200, 5), (50, 200, 5), (90, 100, 5))
    trace = replace(trace, abort_after_ns=np.array([-1, MS, -1, -1]))
    placed = machines(pools("pdd", decides("threshold", **AT_ONCE)), trace)
    assert [target for _, target in placed] == [1, -1, 1, 2]


def test_dynamo_chooses_again_when_the_prompt_is_computed():
    # Machine 1 is asked for the first prompt. Machine 0 is busy: the others are served whole, on 2 and on 1,
    # which still computes when the first prompt is done at 3 ms.
    trace = requests((0, 300, 5), (0.1, 100, 5), (0.2, 600, 5))
    placed = machines(pools("pdd", decides("dynamo-prefill-load", prefill_busy=0.5)), trace)
    assert placed == [(0, 2), (2, -1), (1, -1)]


def test_dynamo_books_a_prompt_that_is_served_whole():
    # The second prompt finds 6 of its 18 blocks where the first was decoded: 18 − 6 there, 18 elsewhere. While
    # it is open, the first prompt again costs 18 − 6 there and 6 elsewhere.
    trace = requests((0, 100, 2), (200, 300, 400), (210, 100, 5), shared=6)
    first, second, third = machines(pools("pdd", decides("dynamo-isl-bounding", router="dynamo-kv")), trace)
    assert second == (first[1], -1)
    assert third == (0, 3 - first[1])


def test_a_request_at_a_boundary_joins_the_step_that_begins_there():
    trace = requests((0, 100, 5), (1, 100, 5))
    done = run(pools("pd", decides("threshold")), trace).requests
    assert done["machine"].tolist() == [1, 1]
    assert done["queue_ns"].tolist() == [0, 0]


def test_a_decode_machine_too_small_for_the_request_is_skipped():
    cluster = pools("pdd", decides("threshold"), (40,))
    small = replace(cluster.machines[1], tiers=(TierSettings("gpu", 5),))
    machine_0, _, machine_2 = cluster.machines
    trace = requests((0, 100, 5), (10, 60, 5), (20, 60, 5))
    # a choice of machine 1 counts as one of it, though machine 2 takes the request
    assert machines(replace(cluster, machines=(machine_0, small, machine_2)), trace) == [
        (2, -1),
        (2, -1),
        (1, -1),
    ]
    done = run(replace(cluster, machines=(machine_0, small, small)), trace).requests
    assert (done["first_token_ns"] < 0).tolist() == [True, False, False]


def test_a_request_of_one_token_is_promised_to_no_machine():
    trace = requests((0, 300, 1), (0.1, 200, 5), (0.2, 100, 5))
    placed = machines(pools("pdd", decides("threshold", threshold_tokens=0)), trace)
    assert [target for _, target in placed] == [-1, 2, 1]


@pytest.mark.parametrize(("promised", "chosen"), [(None, 1), (Promised(3), 0)])
def test_dynamo_weighs_open_blocks_against_cached_ones(promised, chosen):
    """Ten blocks, six of them on machine 0, where others have 5: 15 or 9 there, 10 on machine 1, 11 on 2."""
    fleet = Fleet(0, [Machine(), Machine(), Machine()], {"decodes": True, "promised": promised})
    fleet.given([[0], [1, 2, 3], [4, 5], [6]], [1, 10 * BLOCK, 5 * BLOCK, BLOCK])
    router = fleet.router("dynamo-kv")
    for number, machine in ((2, 0), (3, 2)):
        router.sent(fleet.request(number), machine)
    sequence = fleet.request(1)
    fleet.found = [6, 0, 0]
    assert router.ask(sequence) == router.ask(sequence) == chosen


# -- clusters that must come out the same


@given(
    seed=st.integers(0, 100_000),
    tiers=st.sampled_from([(40,), (200,), (14, 20), (30, 60)]),
    policy=st.sampled_from(["least-loaded", "overlap-cost", "prefill-cost", "longest-prefix"]),
    loop=st.booleans(),
)
@examples(20)
def test_without_a_hand_over_the_decode_machines_serve_alone(seed, tiers, policy, loop):
    trace = _drawn(seed, loop)
    rule = decides("threshold", threshold_tokens=10**9, router=policy)
    decided = run(pools("dpd", rule, tiers), trace).requests
    alone = run(_routed(pools("bb", tiers=tiers), policy), trace).requests
    number = {0: 0, 2: 1}
    assert [number[m] for m in decided["machine"].tolist()] == alone["machine"].tolist()
    for column in ("first_token_ns", "finish_ns", "cached_prefix_length_used", "queue_ns"):
        assert (decided[column] == alone[column]).all(), column


@given(seed=st.integers(0, 100_000), tiers=st.sampled_from([(40,), (200,), (30, 60)]), loop=st.booleans())
@examples(20)
def test_with_every_prompt_handed_over_nothing_is_decided(seed, tiers, loop):
    trace = _drawn(seed, loop)
    always = run(pools("ppd", None, tiers), trace)
    for rule in (
        decides("threshold", threshold_tokens=0),
        decides("dynamo-isl-bounding", threshold_share=0.0),
    ):
        decided = run(pools("ppd", rule, tiers), trace)
        assert results(decided) == results(always)


def _drawn(seed: int, loop: bool) -> Trace:
    """Random requests, none with whole blocks alone, so that some of each prompt is never cached."""
    trace = random_trace(seed, requests=30)
    if not loop:
        trace.think_ns[:] = -1
    tokens = np.minimum(trace.input_tokens, 11 * BLOCK)
    trace.input_tokens[:] = np.where(tokens % BLOCK, tokens, tokens - 1)
    return trace


def _routed(cluster: ClusterSettings, policy: str) -> ClusterSettings:
    return replace(cluster, router=replace(cluster.router, policy=policy))


# -- refusals


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("handover: {decide: dynamo-prefill-load}", "handover.prefill_busy"),
        ("handover: {threshold_tokens: 5}", "handover.decide is not threshold or llm-d"),
        ("handover: {decide: llm-d, threshold_share: 0.5}", "handover.decide is not dynamo-isl"),
        ("handover: {decide: dynamo-isl-bounding, router: lmetric}", "counts each machine it names"),
    ],
)
def test_a_figure_that_no_rule_reads_is_refused(settings, why):
    with pytest.raises(UsageError, match=why):
        scenario_from_text(f"pools: {{prefill: 2, decode: 2}}\n{settings}\n", "s.yaml", Path())
