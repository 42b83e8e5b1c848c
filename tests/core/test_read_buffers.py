"""Read buffers bound the layers loaded before compute needs them; checked by the recurrence, a closed form
and runs."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import ARRIVAL, BOUNDARY, Engine
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree
from support.clusters import moving, reading_each_other
from support.pools import pools
from support.product.spec import Loading, Transfer
from support.spec_read_buffers import BufferedChannel, ReadBuffers, at_layer
from support.traces import random_trace

GB = 10**9


def step_end(layers, lookahead, per_layer, compute, begin, latency=0):
    """Load from 0 on, start a step at ``begin``, or at the first layer's arrival; return the step's end."""
    engine = Engine(1)
    channel = BufferedChannel(ChannelSettings("c", GB, latency), engine)
    mover = SimpleNamespace(
        engine=engine, machine=0, layers=layers, read_buffer_layers=lookahead, pipelining=True
    )
    load = Transfer(mover, 0, 1, 0, 1)
    load.channel = channel

    def on_layer(count):
        for notify in at_layer(load):
            notify()

    def submit(_):
        load.job = channel.submit((layers * per_layer, 0, layers), layers, True, on_layer)
        channel.allow(load.job, lookahead)
        load.sent = load.job.times

    begin = max(begin, per_layer + latency)
    engine.schedule(0, ARRIVAL, 0, submit)
    engine.schedule(begin, BOUNDARY, 0, lambda _: ReadBuffers(mover, [load], begin, layers * compute))
    engine.run()
    loading = Loading.__new__(Loading)
    loading.transfers, loading._layers = [load], layers
    return loading.late_until(begin, layers * compute)


def by_recurrence(layers, lookahead, per_layer, compute, begin, latency=0):
    """Layer k leaves when layer k − 1 has left and layer k − n is computed, and is computed when it is
    there."""
    begin = max(begin, per_layer + latency)
    sent, computed = 0, [begin]
    for k in range(1, layers + 1):
        free = computed[k - lookahead] if k > lookahead else 0
        sent = max(sent, free) + per_layer
        computed.append(max(computed[-1], sent + latency) + compute)
    return computed[-1]


SHAPES = st.tuples(
    st.integers(1, 12),
    st.integers(1, 14),
    st.integers(1, 60),
    st.integers(0, 60),
    st.integers(0, 900),
    st.integers(0, 40),
)


@given(SHAPES)
def test_a_step_over_a_bounded_buffer_ends_as_the_recurrence_says(shape):
    assert step_end(*shape) == by_recurrence(*shape)


@given(SHAPES)
def test_more_buffers_never_end_later_and_as_many_as_layers_are_no_bound(shape):
    layers, _, p, c, begin, latency = shape
    ends = [step_end(layers, n, p, c, begin, latency) for n in range(1, layers + 2)]
    assert all(a >= b for a, b in pairwise(ends))
    first, t = p + latency, max(begin, p + latency)
    closed = max(t + layers * c, first + layers * c, first + (layers - 1) * p + c)
    assert ends[-1] == ends[-2] == closed, "the pipelining formula of semantics 4"


def test_others_pass_a_load_whose_next_layer_has_no_buffer():
    engine = Engine()
    channel = BufferedChannel(ChannelSettings("c", GB), engine)
    jobs = []

    def submit(allowed):
        jobs.append(channel.submit((400, 0, 4), 4, True, lambda layers: None))
        channel.allow(jobs[-1], allowed)

    for allowed in (2, 4):
        engine.schedule(0, ARRIVAL, -1, submit, allowed)
    engine.schedule(450, ARRIVAL, -1, lambda _: channel.allow(jobs[0], 4))
    engine.run()
    # Two layers of the first, three of the other while the first may not continue, then its last two.
    assert [job.times.completion_ns for job in jobs] == [700, 800]
    assert channel.busy_ns == 800


# -- whole runs


def slow_loads(**movement):
    settings = moving((90, 400), **movement)
    channels = {
        name: replace(one, bandwidth_bytes_per_s=one.bandwidth_bytes_per_s // 4)
        if name.startswith("cpu->gpu")
        else one
        for name, one in settings.channels.items()
    }
    return replace(settings, channels=channels)


@pytest.mark.parametrize("buffers", [1, 3])
def test_core_and_specification_agree(buffers):
    agree(moving(read_buffer_layers=buffers), random_trace(8))
    agree(reading_each_other((90, 60, 400), machines=2, read_buffer_layers=buffers), random_trace(9))


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_a_step_waits_for_the_slowest_of_its_loads(sharing):
    """Each layer is computed when all loads of the step have it, and then has a free buffer again."""
    settings = slow_loads(read_buffer_layers=1)
    channels = {name: replace(one, sharing=sharing) for name, one in settings.channels.items()}
    agree(replace(settings, channels=channels), random_trace(2))


@pytest.mark.parametrize("path", ["gpu-direct", "via-cpu"])
def test_hand_overs_between_pools_need_no_buffers(path):
    handover = HandoverSettings(path=path, transfer="layer-by-layer")
    settings = pools("ppd", handover, (40, 30))
    settings = replace(settings, movement=replace(settings.movement, read_buffer_layers=1))
    trace = random_trace(4, requests=40)
    trace.input_tokens[:] = np.minimum(trace.input_tokens, 11 * settings.cache.block_size_tokens)
    result = agree(settings, trace)
    assert result.counters["edge.cpu->gpu.bytes"] > 0


def test_fewer_buffers_expose_more_of_the_loads_and_as_many_as_layers_expose_no_more():
    layers = slow_loads().cache.num_layers
    runs = {n: simulate(slow_loads(read_buffer_layers=n), random_trace(8)) for n in (None, layers, 8, 1)}
    waits = ("fetch_cpu_ns", "batch_stall_ns")
    stall = {n: sum(int(run.requests[name].sum()) for name in waits) for n, run in runs.items()}
    assert runs[None].digest_results == runs[layers].digest_results
    assert stall[None] < stall[8] < stall[1]
