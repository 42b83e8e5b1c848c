"""Hand-overs between prefill and decode machines: closed forms, rules, and agreement of core and
specification."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.rng import derive_seed, stream
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import Scenario, load_scenario, scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import OPEN_LOOP, Trace
from support.agreement import agree
from support.examples import examples
from support.pools import BLOCK, BLOCK_BYTES, DECODE_NS, LAYERS, MS, TOKEN_NS, channel, pools, requests
from support.product.scenarios import to_yaml
from support.traces import random_trace

WIRE_NS, LATENCY_NS = MS, 100_000  # of a block; of a job
BY_LAYER = HandoverSettings(transfer="layer-by-layer")


def run(cluster: ClusterSettings, trace: Trace) -> Run:
    return simulate(cluster, trace, options=RunOptions(check="full"))


# -- closed forms


def test_at_the_end_it_takes_latency_and_bytes_over_bandwidth():
    # 100 tokens are 7 blocks, the last one partial
    done = run(pools("pd"), requests((0, 100, 5))).requests
    assert done["prefill_ns"] == 100 * TOKEN_NS
    assert done["handover_ns"] == LATENCY_NS + 7 * WIRE_NS
    assert done["handover_blocks"] == 7
    assert done["first_token_ns"] == 100 * TOKEN_NS + LATENCY_NS + 7 * WIRE_NS
    # the first token is there: four steps of decoding
    assert done["finish_ns"] - done["first_token_ns"] == 4 * DECODE_NS
    assert (done["machine"], done["decode_machine"]) == (0, 1)


def test_a_first_token_from_the_prefill_machine_does_not_wait():
    done = run(pools("pd", HandoverSettings(first_token="prefill")), requests((0, 100, 5))).requests
    assert done["first_token_ns"] == 100 * TOKEN_NS
    assert (done["handover_ns"], done["handover_gap_ns"]) == (0, LATENCY_NS + 7 * WIRE_NS)
    # the hand-over lies between the first token and the second
    assert done["finish_ns"] - done["first_token_ns"] == LATENCY_NS + 7 * WIRE_NS + 4 * DECODE_NS


@given(
    tokens=st.integers(1, 512),
    bandwidth=st.sampled_from([1_000_000, 16_000_000, 999_999_937, 10**12]),
    latency_ns=st.integers(0, MS),
)
@examples(40)
def test_layer_by_layer_what_compute_does_not_hide_is_exposed(tokens, bandwidth, latency_ns):
    wire = channel(bandwidth_bytes_per_s=bandwidth, latency_ns=latency_ns)
    network = NetworkSettings(default=wire)
    done = run(pools("pd", replace(BY_LAYER, network=network)), requests((0, tokens, 2))).requests
    compute = tokens * TOKEN_NS
    blocks = -(-tokens // BLOCK)
    per_layer = math.ceil(math.ceil(Fraction(blocks * BLOCK_BYTES * 10**9, bandwidth)) / LAYERS)
    # last = latency + max(f1 + L·p, f1 + (L − 1)·c + p): the wire or the last layer is the bottleneck
    first = compute // LAYERS
    last = latency_ns + max(first + LAYERS * per_layer, compute + per_layer)
    assert done["handover_ns"][0] == last - compute
    at_end = run(pools("pd", HandoverSettings(network=network)), requests((0, tokens, 2))).requests
    assert at_end["handover_ns"][0] == latency_ns + LAYERS * per_layer
    assert done["handover_ns"][0] <= at_end["handover_ns"][0]


def test_only_the_last_chunk_of_a_prompt_hides_the_transfer():
    wire = NetworkSettings(default=channel(latency_ns=0))
    done = run(pools("pd", replace(BY_LAYER, network=wire)), requests((0, 512 + 40, 2))).requests
    blocks, last_chunk = 35, 40 * TOKEN_NS
    assert done["prefill_ns"] == (512 + 40) * TOKEN_NS
    assert done["handover_ns"] == last_chunk // LAYERS + blocks * WIRE_NS - last_chunk


def test_two_hand_overs_on_one_channel_wait_for_each_other():
    trace = requests((0, 64, 2), (0, 64, 2))
    alone = run(pools("pdd"), trace).requests
    # one step computes both; each decode machine has a channel of its own
    assert sorted(alone["decode_machine"].tolist()) == [1, 2]
    assert alone["handover_ns"].tolist() == [LATENCY_NS + 4 * WIRE_NS] * 2
    network = NetworkSettings({(0, 1): "nic", (0, 2): "nic"})
    shared = pools("pdd", HandoverSettings(network=network))
    shared.channels["nic"] = channel("nic")
    done = run(shared, trace)
    assert done.requests["handover_ns"].tolist() == [LATENCY_NS + 4 * WIRE_NS, LATENCY_NS + 8 * WIRE_NS]
    assert done.counters["channel.nic.queued_ns"] == 4 * WIRE_NS
    shared.channels["nic"] = channel("nic", sharing="fair")
    fair = run(shared, trace).requests["handover_ns"].tolist()
    assert fair == [LATENCY_NS + 8 * WIRE_NS] * 2


def test_via_cpu_it_goes_down_across_and_up():
    trace = requests((0, 64, 2))
    hop = LATENCY_NS + 4 * WIRE_NS
    whole = run(pools("pd", HandoverSettings(path="via-cpu"), tiers=(None, 100)), trace)
    assert whole.requests["handover_ns"] == 3 * hop
    size = 4 * BLOCK_BYTES
    edges = {edge: whole.counters[f"edge.{edge}.bytes"] for edge in ("gpu->cpu", "remote->gpu", "cpu->gpu")}
    assert edges == dict.fromkeys(edges, size)
    # layer by layer every hop sends on what has come: each adds its latency and a layer
    streamed = run(
        pools("pd", HandoverSettings(path="via-cpu", transfer="layer-by-layer"), (None, 100)), trace
    )
    first, layer = 64 * TOKEN_NS // LAYERS, 4 * WIRE_NS // LAYERS
    assert streamed.requests["handover_ns"] == first + 3 * (LATENCY_NS + layer) + 3 * layer - 64 * TOKEN_NS
    direct = run(pools("pd", tiers=(None, 100)), trace)
    assert direct.requests["handover_ns"] == hop


# -- rules


@pytest.mark.parametrize("offset_ms", [0, 0.5, 1, 1.5])
def test_a_synchronous_copy_of_what_was_received_delays_a_step_until_it_is_on_the_cpu(offset_ms):
    """Two prompts arrive within a step of 2 ms and are copied down in 0.8 ms; their own decoding does not
    matter."""
    trace = requests((0, 64, 40), (20 + offset_ms, 16, 10), (20 + offset_ms, 16, 10))
    wire = HandoverSettings(network=NetworkSettings(default=channel(bandwidth_bytes_per_s=10**9)))
    cluster = pools("pd", wire, tiers=(None, 100, 100))
    writing = MovementSettings(write={"gpu": "through-sync", "cpu": "through"})
    cluster = replace(cluster, movement=writing, cache=replace(cluster.cache, cache_output=False))
    cluster.channels["gpu->cpu-1"] = channel("gpu->cpu-1", bandwidth_bytes_per_s=40_000_000, latency_ns=0)
    finishes = []
    for bandwidth in (10**9, 160_000):
        cluster.channels["cpu->disk-1"] = channel("cpu->disk-1", bandwidth_bytes_per_s=bandwidth)
        finishes.append(run(cluster, trace).requests["finish_ns"].tolist())
    assert finishes[0] == finishes[1]


def test_blocks_that_the_decode_machine_has_stay_home():
    trace = requests((0, 100, 2), (50, 100, 2), shared=4)
    done = run(pools("pd"), trace)
    assert done.requests["handover_blocks"].tolist() == [7, 3]
    # what came by hand-over is no hit; what the prefill machine had is
    assert done.requests["cached_gpu_tokens"].tolist() == [0, 4 * BLOCK]
    assert done.counters["edge.remote->gpu.bytes"] == 10 * BLOCK_BYTES


def test_a_prompt_that_is_there_whole_needs_no_transfer():
    trace = requests((0, 64, 2), (50, 64, 2), shared=4)
    for handover in (HandoverSettings(), BY_LAYER):
        done = run(pools("pd", handover), trace).requests
        assert done["handover_blocks"].tolist() == [4, 0]
        assert done["handover_ns"][1] == 0


def test_answers_stay_in_the_decode_machines_cache():
    trace = random_trace(5)
    trace.think_ns[:] = -1
    done = run(pools("pd", tiers=(4000,)), trace)
    again = done.requests["handover_blocks"] < -(-done.requests["input_tokens"] // BLOCK)
    follow_ups = trace.turn > 0
    assert (done.requests["decode_machine"] >= 0).any()
    assert again[follow_ups].any()


def test_one_token_is_answered_by_the_prefill_machine():
    done = run(pools("pd"), requests((0, 100, 1), (0, 100, 0))).requests
    assert done["decode_machine"].tolist() == [-1, -1]
    assert done["handover_ns"].tolist() == [0, 0]
    assert summarize(run(pools("pd"), requests((0, 100, 1))), BLOCK)["handover"]["requests"] == 0


def test_blocks_are_reserved_before_the_transfer_first_come_first_served():
    # 5 blocks: the first request holds all of them until it is done
    trace = requests((0, 64, 10), (1, 64, 10), (2, 64, 10))
    cluster = pools("pd")
    small = replace(cluster.machines[1], tiers=(replace(cluster.machines[1].tiers[0], capacity_blocks=5),))
    done = run(replace(cluster, machines=(cluster.machines[0], small)), trace).requests
    finish, first = done["finish_ns"], done["first_token_ns"]
    assert finish[0] < first[1] < finish[1] < first[2]
    transfer = LATENCY_NS + 4 * WIRE_NS
    assert (done["handover_ns"] - done["handover_room_ns"]).tolist() == [transfer] * 3
    assert done["handover_room_ns"][0] == 0
    assert (first[1:] - finish[:2]).tolist() == [transfer] * 2


def test_a_request_that_no_decode_machine_can_hold_is_rejected():
    cluster = pools("pdd", tiers=(40,))
    small = replace(cluster.machines[1], tiers=(replace(cluster.machines[1].tiers[0], capacity_blocks=5),))
    cluster = replace(cluster, machines=(cluster.machines[0], small, cluster.machines[2]))
    # 5 blocks; 7 blocks: only the larger one; 40 blocks of prompt and one more of answer: none
    done = run(cluster, requests((0, 64, 10), (1, 100, 10), (2, 640, 10))).requests
    assert done["status"].tolist() == [0, 0, 1]
    assert done["decode_machine"].tolist() == [1, 2, -1]


def test_a_request_preempted_while_decoding_computes_again_there():
    trace = requests(*((0, 64, 60) for _ in range(4)))
    roomy, tight = (run(pools("pd", tiers=(blocks,)), trace) for blocks in (100, 20))
    assert roomy.requests["preemptions"].sum() == 0
    done = tight.requests
    assert done["preemptions"].sum() > 0
    assert (done["status"] == 0).all()
    assert done["recomputed_tokens"].sum() > 0
    assert done["handover_blocks"].tolist() == [4] * 4
    assert done["finish_ns"].max() > roomy.requests["finish_ns"].max()


def test_the_source_holds_its_blocks_until_they_have_been_read():
    # one prompt fits: the second is computed when the first has been read
    trace = requests((0, 64, 2), (0, 64, 2))
    held = run(pools("pd", tiers=(5,)), trace).requests
    assert held["queue_ns"][1] == 64 * TOKEN_NS + LATENCY_NS + 4 * WIRE_NS
    assert run(pools("pd", tiers=(50,)), trace).requests["queue_ns"][1] == 0


def test_a_machine_with_both_roles_takes_hand_overs_and_requests():
    trace = requests(*((5 * i, 64, 30) for i in range(20)))
    done = run(pools("pb"), trace).requests
    assert set(done["machine"].tolist()) == {0, 1}
    assert (done["decode_machine"][done["machine"] == 0] == 1).all()
    assert (done["decode_machine"][done["machine"] == 1] == -1).all()


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_chooses_decode_machines(router):
    done = run(pools("ppddd", HandoverSettings(router=router), tiers=(200,)), random_trace(2)).requests
    chosen = done["decode_machine"][done["decode_machine"] >= 0]
    assert set(chosen.tolist()) <= {2, 3, 4}
    if router not in ("longest-prefix", "session-affinity"):
        assert len(set(chosen.tolist())) == 3


def test_decode_machines_are_drawn_from_a_stream_of_their_own():
    """In the order of hand-overs; the prefill machines' draws come from the run's own seed."""
    cluster = replace(pools("pppddd", HandoverSettings(router="random")), seed=5)
    cluster = replace(cluster, router=replace(cluster.router, policy="random"))
    done = run(cluster, requests(*((1000 * i, 64, 3) for i in range(12)))).requests
    own, other = stream(5, "router"), stream(derive_seed(5, "decode router"), "router")
    assert done["machine"].tolist() == own.integers(3, size=12).tolist()
    assert done["decode_machine"].tolist() == (3 + other.integers(3, size=12)).tolist()


def test_the_least_loaded_decode_machine_is_that_with_the_fewest_tokens_to_hold():
    trace = requests(*((10 * i, 64, 200) for i in range(9)))
    done = run(pools("pddd"), trace).requests
    assert np.bincount(done["decode_machine"]).tolist() == [0, 3, 3, 3]


def test_the_summary_has_the_transfers_share_of_ttft():
    trace = requests((0, 100, 5), (100, 100, 1))
    handover = summarize(run(pools("pd"), trace), BLOCK)["handover"]
    wait = LATENCY_NS + 7 * WIRE_NS
    assert (handover["requests"], handover["blocks"], handover["bytes"]) == (1, 7, 7 * BLOCK_BYTES)
    assert handover["wait"]["avg"] == wait / MS
    assert handover["share_of_ttft"] == wait / (wait + 100 * TOKEN_NS)
    assert handover["machines"] == [0, 1]


# -- everything together


@given(
    seed=st.integers(0, 10_000),
    roles=st.sampled_from(["pd", "dp", "ppd", "pdd", "pb", "bpd", "dpbp"]),
    tiers=st.sampled_from([(12,), (40,), (200,), (14, 20), (30, 60), (30, 40, 80)]),
    path=st.sampled_from(["gpu-direct", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    first_token=st.sampled_from(["prefill", "decode"]),
    sharing=st.sampled_from(["fifo", "fair"]),
    through=st.booleans(),
    open_loop=st.booleans(),
)
@examples(40)
def test_hand_overs_agree_and_keep_their_promises(
    seed, roles, tiers, path, transfer, first_token, sharing, through, open_loop
):
    trace = random_trace(seed, requests=30)
    if open_loop:  # no request waits for an answer: the core's machines may run ahead of time
        trace.think_ns[:] = OPEN_LOOP
    trace.input_tokens[:] = np.minimum(trace.input_tokens, 11 * BLOCK)
    wire = NetworkSettings(default=channel(sharing=sharing))
    handover = HandoverSettings(
        path=path if len(tiers) > 1 else "gpu-direct",
        transfer=transfer,
        first_token=first_token,
        network=wire,
    )
    cluster = pools(roles, handover, tiers)
    if len(tiers) > 1:
        write = {"gpu": "through" if through else "back", "cpu": "back"}
        lookup = "cluster" if seed % 2 else "local"
        cluster = replace(cluster, movement=MovementSettings(write=write, lookup=lookup))
    agreed = agree(cluster, trace)
    done = agreed.requests
    sent = done["decode_machine"] >= 0
    assert agreed.counters.get("edge.remote->gpu.bytes", 0) == done["handover_blocks"].sum() * BLOCK_BYTES
    assert (done["handover_room_ns"] <= done["handover_ns"] + done["handover_gap_ns"]).all()
    assert (done["handover_blocks"][~sent] == 0).all()


def test_samples_stay_complete_when_a_channel_is_first_used():
    series = run(pools("pd"), requests((0, 100, 5), (400, 100, 5))).series
    assert (
        len({len(series[name]) for name in ("time_ns", "machine", "value")} | {len(series["name"].codes)})
        == 1
    )
    names = np.array(series["name"].words, object)[series["name"].codes]
    sent = series["value"][names == "channel.handover-0-1.bytes"]
    assert sent[-1] == 14 * BLOCK_BYTES
    assert (np.diff(sent) >= 0).all()


# -- by option

GENERATED = (
    "workload.kind=conversational",
    "workload.requests=120",
    "tiers.gpu.capacity=600 blocks",
    "tiers.cpu.capacity=3000 blocks",
    "cache.block_size=16",
)
POOLS = ("pools.prefill=2", "pools.decode=2")


def loaded(*options: str) -> Scenario:
    return load_scenario(None, [*GENERATED, *options])


def summary(*options: str) -> dict:
    scenario = loaded(*options)
    return summarize(simulate(scenario.settings, read_requests(scenario)), BLOCK)


def test_pools_and_roles_of_machines_are_the_same():
    roles = [
        f"machines[{m}].role={role}" for m, role in enumerate(("prefill", "prefill", "decode", "decode"))
    ]
    short, long = loaded(*POOLS), loaded("cluster.machines=4", *roles)
    assert short.settings.machines == long.settings.machines
    assert loaded(*POOLS, "cluster.machines=5").settings.machines[4].role == "both"
    swapped = loaded(*POOLS, "machines[0].role=decode", "machines[2].role=prefill").settings
    assert [machine.role for machine in swapped.machines] == ["decode", "prefill", "prefill", "decode"]


def test_a_resolved_scenario_with_pools_runs_again():
    options = (*POOLS, "machines[2].role=both", "handover.path=via-cpu", "channels.handover.bandwidth=3GB/s")
    once = loaded(*options)
    again = scenario_from_text(to_yaml(once.resolved), "", Path.cwd())
    assert again.settings == once.settings
    assert again.resolved == once.resolved


def test_hand_overs_and_remote_reads_contend_on_one_channel():
    nic = ("channels.net.bandwidth=2GB/s", "channels.net.scope=cluster")
    pooled = (*POOLS, "fetch.lookup=cluster", "router.policy=random", *nic)
    both = ["channels.handover.bandwidth=2GB/s", "channels.handover.scope=cluster"]
    together = ['channels.net.edges=["remote->cpu", "remote->gpu"]']
    counters = []
    for options in (both, together):
        scenario = loaded(*pooled, *options)
        counters.append(simulate(scenario.settings, read_requests(scenario)).counters)
    apart, shared = counters
    sent = [shared[f"edge.remote->{tier}.bytes"] for tier in ("cpu", "gpu")]
    assert min(sent) > 0
    assert shared["channel.net.bytes"] == sum(sent)
    assert apart["channel.handover.bytes"] == apart["edge.remote->gpu.bytes"]
    queued = apart["channel.net.queued_ns"] + apart["channel.handover.queued_ns"]
    assert shared["channel.net.queued_ns"] > queued


@pytest.mark.parametrize("ends", ["length", "stop-token"])
@pytest.mark.parametrize("handover", [HandoverSettings(), BY_LAYER])
def test_asynchronous_scheduling_agrees_with_pools(ends, handover):
    trace = random_trace(7, requests=60)
    trace.input_tokens[:] = np.minimum(trace.input_tokens, 11 * BLOCK)
    cluster = pools("dpbp", handover, tiers=(14,), async_scheduling=ends, max_num_batched_tokens=64)
    assert (agree(cluster, trace).requests["decode_machine"] >= 0).any()
