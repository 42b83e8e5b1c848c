"""KV of another width below the GPU and on the wire: times on paper, and links that must be worth the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import OPEN_LOOP, Trace
from support.examples import examples
from support.pools import BLOCK, BLOCK_BYTES, MS, TOKEN_NS, channel, pools, requests
from support.product.machines import BlockForm
from support.traces import random_trace

LATENCY_NS = 100_000
#: Bytes per second of a wire that takes a millisecond for a block.
WIRE = BLOCK_BYTES * 1000


def run(cluster: ClusterSettings, trace: Trace) -> Run:
    return simulate(cluster, trace, options=RunOptions(check="full"))


def formed(cluster: ClusterSettings, *forms: BlockForm) -> ClusterSettings:
    """Return the cluster with the forms of the tiers below the GPU."""
    machines = [
        replace(
            one,
            tiers=(one.tiers[0], *(replace(t, form=f) for t, f in zip(one.tiers[1:], forms, strict=True))),
        )
        for one in cluster.machines
    ]
    return replace(cluster, machines=tuple(machines))


def again(tokens: int) -> Trace:
    """A prompt, one that drives it from the GPU, and the first again."""
    trace = requests((0, tokens, 1), (200, 320, 1), (400, tokens, 1))
    ids, at = trace.block_ids.copy(), trace.id_offsets
    ids[at[2] :] = ids[: at[1]]
    return replace(trace, block_ids=ids)


def loaded_ns(*forms: BlockForm, tiers: tuple[int | None, ...] = (20, 100), tokens: int = 165) -> int:
    """The fetch of the third prompt's ten full blocks from below; its GPU is empty of them, and free."""
    cluster = formed(pools("b", tiers=tiers), *forms)
    cluster = replace(
        cluster, movement=MovementSettings(layer_pipelining=False, write={"gpu": "through", "cpu": "through"})
    )
    return int(run(cluster, again(tokens)).requests["fetch_ns"][2])


# -- on paper: ten blocks of 1 ms each at full width, 0.1 ms latency


@pytest.mark.parametrize(
    ("form", "blocks_ns"),
    [
        (BlockForm(), 10 * MS),
        (BlockForm(0.5), 5 * MS),
        (BlockForm(0.25), 10 * MS // 4),
        # the slower of wire and decoder; rates count bytes of the GPU's form
        (BlockForm(0.5, None, WIRE), 10 * MS),
        (BlockForm(0.5, None, 2 * WIRE), 5 * MS),
        (BlockForm(0.5, None, 4 * WIRE), 5 * MS),
        (BlockForm(1.0, None, WIRE // 2), 20 * MS),
        # encoding was long ago
        (BlockForm(0.5, WIRE // 100, None), 5 * MS),
    ],
)
def test_a_load_takes_the_slower_of_wire_and_decoder(form, blocks_ns):
    assert loaded_ns(form) == LATENCY_NS + blocks_ns


def test_a_write_takes_the_slower_of_wire_and_encoder():
    # A prompt of 20 blocks waits until ten others have been evicted: written then, ten blocks at a time.
    waits = []
    for form in (BlockForm(), BlockForm(0.5), BlockForm(0.5, WIRE // 2), BlockForm(0.5, None, WIRE // 2)):
        cluster = formed(pools("b", tiers=(20, 100)), form)
        trace = requests((0, 160, 1), (100, 320, 1))
        waits.append(int(run(cluster, trace).requests["first_token_ns"][1]) - 100 * MS - 320 * TOKEN_NS)
    assert waits == [LATENCY_NS + 10 * MS, LATENCY_NS + 5 * MS, LATENCY_NS + 20 * MS, LATENCY_NS + 5 * MS]


def test_an_edge_carries_the_form_of_its_lower_tier():
    form, narrow = BlockForm(0.5), BlockForm(0.125)
    cluster = replace(
        formed(pools("b", tiers=(20, 40, 100)), form, narrow),
        movement=MovementSettings(write={"gpu": "through", "cpu": "through"}),
    )
    done = run(cluster, again(165))
    blocks = {edge: done.counters[f"edge.{edge}.bytes"] for edge in ("gpu->cpu", "cpu->disk")}
    assert blocks["gpu->cpu"] == 4 * blocks["cpu->disk"]
    assert blocks["gpu->cpu"] % (BLOCK_BYTES // 2) == 0
    assert done.counters["edge.cpu->gpu.bytes"] == 10 * BLOCK_BYTES // 2


def test_another_machine_sends_the_form_of_its_memory():
    # machine 1 reads six blocks of machine 0: over the wire as they are there, decoded as they go to its GPU
    trace = requests((0, 100, 1), (100, 100, 1), shared=6)
    got = {}
    for form in (BlockForm(), BlockForm(0.5), BlockForm(0.5, None, WIRE // 2)):
        cluster = formed(pools("bb", tiers=(40, 100)), form)
        movement = MovementSettings(layer_pipelining=False, lookup="cluster", write={"gpu": "through"})
        network = NetworkSettings(default=channel("net"))
        done = run(replace(cluster, movement=movement, network=network), trace)
        assert done.counters["edge.remote->cpu.bytes"] == round(6 * BLOCK_BYTES * form.kv_ratio)
        got[form] = int(done.requests["fetch_ns"][1])
    assert list(got.values()) == [2 * LATENCY_NS + blocks * MS for blocks in (12, 6, 15)]


@pytest.mark.parametrize(
    ("form", "blocks_ns"), [(BlockForm(), 4_500_000 + 12 * MS), (BlockForm(0.5), 9 * MS)]
)
def test_the_machine_to_read_from_is_chosen_by_the_form_of_its_memory(form, blocks_ns):
    # Machine 2 reads six blocks of 0, whose wire has half the rate, or of 1, whose wire takes 4.5 ms more before
    # the first byte: at full width 12 ms against 4.5 + 6, at half 6 against 4.5 + 3. Then they go to its GPU.
    slow, late = (
        channel("slow", bandwidth_bytes_per_s=WIRE // 2),
        channel("late", latency_ns=LATENCY_NS + 4_500_000),
    )
    network = NetworkSettings(pairs={(0, 2): "slow", (1, 2): "late"}, default=channel("net"))
    cluster = formed(pools("bbb", tiers=(40, 100)), form)
    movement = MovementSettings(layer_pipelining=False, lookup="cluster", write={"gpu": "through"})
    channels = {**cluster.channels, "slow": slow, "late": late}
    cluster = replace(cluster, movement=movement, network=network, channels=channels)
    done = run(cluster, requests((0, 100, 1), (100, 100, 1), (200, 100, 1), shared=6)).requests
    assert done["machine"].tolist() == [0, 1, 2]
    assert int(done["fetch_ns"][2]) == 2 * LATENCY_NS + blocks_ns


@pytest.mark.parametrize(
    ("form", "block_ns"),
    [
        (BlockForm(0.5), MS // 2),
        (BlockForm(0.5, WIRE // 2, WIRE), 2 * MS),
        (BlockForm(0.5, WIRE, WIRE // 4), 4 * MS),
        (BlockForm(1.0, 4 * WIRE, 4 * WIRE), MS),
    ],
)
def test_a_hand_over_is_encoded_sent_and_decoded_at_once(form, block_ns):
    handover = HandoverSettings(network=NetworkSettings(default=channel()), form=form)
    done = run(pools("pd", handover), requests((0, 100, 5))).requests
    assert done["handover_ns"].tolist() == [LATENCY_NS + 7 * block_ns]


@pytest.mark.parametrize(("rate", "loaded"), [(100_000_000, 0), (114_285_715, 160)])
def test_a_choice_between_load_and_computing_knows_the_decoder(rate, loaded):
    # Ten blocks take 0.1 ms and ten times 0.16 or 0.14 ms in the decoder; computing their 160 tokens takes 1.6 ms.
    cluster = formed(pools("b", tiers=(20, 100)), BlockForm(0.01, None, rate))
    cluster = replace(cluster, movement=MovementSettings(layer_pipelining=False, fetch="cheaper"))
    done = run(cluster, again(165)).requests
    assert int(done["cached_prefix_length_used"][2]) == loaded


# -- links that must be worth the same


@given(
    seed=st.integers(0, 100_000),
    roles=st.sampled_from(["b", "bb"]),
    tiers=st.sampled_from([(14, 20), (30, 60), (30, 40, 80)]),
    halves=st.sampled_from(["width", "coding"]),
    fetch=st.sampled_from(["always", "cheaper", "split"]),
    by_layer=st.booleans(),
    sharing=st.sampled_from(["fifo", "fair"]),
)
@examples(20)
def test_half_the_width_is_worth_twice_the_rate(seed, roles, tiers, halves, fetch, by_layer, sharing):
    trace = random_trace(seed, requests=30)
    if seed % 2:
        trace.think_ns[:] = OPEN_LOOP
    trace.input_tokens[:] = np.minimum(trace.input_tokens, 11 * BLOCK)
    lookup = "cluster" if len(roles) > 1 else "local"
    movement = MovementSettings(fetch=fetch, lookup=lookup, layer_pipelining=by_layer)
    fast, slow = (channel(bandwidth_bytes_per_s=rate, sharing=sharing) for rate in (2 * WIRE, WIRE))
    net, lower = NetworkSettings(default=replace(fast, name="net")), len(tiers) - 1

    def cluster(link, form: BlockForm) -> ClusterSettings:
        own = replace(pools(roles, tiers=tiers), movement=movement, network=net)
        own = replace(own, channels={name: replace(link, name=name) for name in own.channels})
        return formed(own, *[form] * lower)

    if halves == "width":
        wire = NetworkSettings(default=replace(slow, name="net"))
        one, other = replace(cluster(slow, BlockForm(0.5)), network=wire), cluster(fast, BlockForm())
    else:
        one, other = cluster(fast, BlockForm(1.0, WIRE, WIRE)), cluster(slow, BlockForm())
    found, expected = run(one, trace).requests, run(other, trace).requests
    for name, column in expected.items():
        assert found[name].tolist() == column.tolist(), name


# -- scenarios


@pytest.mark.parametrize("block_bytes", [1, 3, 16_000, 131_072])
@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.3, 1e-6])
def test_a_block_has_whole_bytes_and_its_coding_whole_ns(block_bytes, ratio):
    size, encode_ns, decode_ns = BlockForm(ratio, 7, None).in_core(block_bytes)
    assert block_bytes * ratio <= size < block_bytes * ratio + 1
    assert (encode_ns, decode_ns) == (-(-block_bytes * 10**9 // 7), 0)
