"""Channels of the core and of the specification against closed forms: FIFO, fair, two hops, compute, M/D/1."""

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.channels.channel import Transmission as CoresTransmission
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import ARRIVAL, Engine
from kvcache_sim.spec.channels import FifoChannel
from kvcache_sim.spec.request import Admission
from support.product.spec import Demand, Loading, Transmission
from support.spec_submission import SubmittedFifo, SubmittedLayered

GB = 10**9
#: A channel whose jobs go one after another, in the core, in the specification, and there with submission.
both = pytest.mark.parametrize("kind", [_core.Channel, FifoChannel, SubmittedFifo])
submitted = pytest.mark.parametrize("kind", [_core.Channel, SubmittedFifo])


def settings(**changes) -> ChannelSettings:
    return ChannelSettings("c", **{"bandwidth_bytes_per_s": GB, **changes})


def transmit(channel, size, at, feed=None):
    """Send (bytes, pieces, layers) over a channel of the core or the specification."""
    if isinstance(channel, FifoChannel):
        return channel.transmit(size, at, feed)
    return channel.transmit(*size, at) if feed is None else channel.forward(*size, feed)


def times_of(sent):
    return sent.start_ns, sent.first_layer_ns, sent.completion_ns, sent.per_layer_ns


def submit(channel, size, at_hand=None, is_load=True, on_layer=lambda layers: None):
    """Queue (bytes, pieces, layers) on a layered channel, with all or some layers at hand."""
    return channel.submit(size, size[2] if at_hand is None else at_hand, is_load, on_layer)


def served(jobs, **changes):
    """Send jobs (time, bytes, layers, is_load) over a layered channel; return their transmissions."""
    engine = Engine()
    channel = SubmittedLayered(settings(**changes), engine)
    sent = {}

    def send(number):
        _, size, layers, is_load = jobs[number]
        sent[number] = submit(channel, (size, size % 5, layers), is_load=is_load)

    for number, job in enumerate(jobs):
        engine.schedule(job[0], ARRIVAL, -1, send, number)
    engine.run()
    return [sent[n].times for n in range(len(jobs))], channel


@both
def test_the_seeds_transmit_gives_its_three_times(kind):
    # 100 bytes at 1 byte/ns in 4 layers: 25 ns a layer; 7 ns of latency come on top and do not occupy.
    channel = kind(settings(latency_ns=7))
    first = transmit(channel, (100, 0, 4), 1_000)
    assert (first.first_layer_ns, first.completion_ns, first.per_layer_ns) == (1_032, 1_107, 25)
    assert channel.wait_ns(1_000) == 100
    assert transmit(channel, (100, 0, 4), 1_000).start_ns == 1_100
    assert channel.queued_ns == 100


@both
@pytest.mark.parametrize(
    ("size", "layers", "each_ns"),
    [(9, 1, 3), (10, 1, 4), (10, 3, 2), (12, 4, 1), (13, 4, 2), (20 * GB + 1, 1, 6_666_666_667)],
)
def test_part_of_a_nanosecond_counts_as_a_whole_one(kind, size, layers, each_ns):
    """At three bytes a nanosecond; the last one's time is a product beyond 64 bits."""
    sent = transmit(kind(settings(bandwidth_bytes_per_s=3 * GB)), (size, 0, layers), 0)
    assert (sent.per_layer_ns, sent.completion_ns) == (each_ns, layers * each_ns)


@both
def test_latency_occupies_where_that_is_chosen(kind):
    channel = kind(settings(latency_ns=7, latency_occupies=True))
    transmit(channel, (100, 0, 4), 0)
    assert transmit(channel, (100, 0, 4), 0).start_ns == 107
    times, _ = served([(0, 100, 4, True), (0, 100, 4, True)], latency_ns=7, latency_occupies=True)
    assert [t.start_ns for t in times] == [0, 107]


@both
def test_small_pieces_are_bound_by_their_submission_and_nothing_takes_no_turn(kind):
    channel = kind(settings(piece_overhead_ns=50))
    assert transmit(channel, (100, 8, 4), 0).completion_ns == 400
    assert times_of(transmit(channel, (0, 0, 4), 5)) == (5, 5, 5, 0)


@both
def test_a_gap_between_pieces_adds_to_their_bytes(kind):
    channel = kind(settings(piece_gap_ns=50, piece_overhead_ns=10))
    assert transmit(channel, (100, 8, 4), 0).completion_ns == 100 + 8 * 50
    assert channel.busy_ns == 500, "the gaps occupy the link"


@submitted
def test_a_job_is_submitted_before_its_first_byte_and_while_others_are_sent(kind):
    """Three jobs of 8 pieces submitted in 5 ns each; 100, 20 and 100 bytes at a byte a ns, latency 7."""
    channel = kind(settings(piece_submit_ns=5, latency_ns=7))
    first, second, third = (transmit(channel, (size, 8, 4), 0) for size in (100, 20, 100))
    assert (first.start_ns, first.first_layer_ns, first.completion_ns) == (40, 72, 147)
    assert (second.start_ns, second.completion_ns) == (140, 167), "submitted at 80, the link is free at 140"
    assert third.start_ns == 160, "submitted at 120"
    assert channel.busy_ns == 220
    assert channel.queued_ns == (140 - 40) + (160 - 40)
    assert channel.wait_ns(160) == 100
    assert channel.wait_ns(160, 30) == 150
    late = transmit(channel, (10, 2, 1), 1_000)
    assert (late.start_ns, late.completion_ns) == (1_010, 1_027)


@submitted
def test_a_job_that_is_fed_is_submitted_when_its_first_layer_has_come(kind):
    channel = kind(settings(piece_submit_ns=5))
    fed = transmit(channel, (40, 8, 4), 0, CoresTransmission(0, 100, 130, 10))
    assert (fed.start_ns, fed.first_layer_ns, fed.completion_ns) == (140, 150, 180)


@submitted
@pytest.mark.parametrize("pieces", [1, 64, 8_192])
def test_jobs_that_follow_each_other_take_the_longer_of_submission_and_bytes(kind, pieces):
    """The closed form of a line of two stages: n jobs end at S + B + (n - 1) · max(S, B)."""
    for size in (100, 10**6, 10**8):
        channel = kind(settings(piece_submit_ns=750))
        submit, sent, jobs = 750 * pieces, size, 6
        ends = [transmit(channel, (size, pieces, 1), 0).completion_ns for _ in range(jobs)]
        assert ends[-1] == submit + sent + (jobs - 1) * max(submit, sent)


JOBS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 400), st.integers(1, 6), st.booleans()),
    min_size=1,
    max_size=8,
).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


@given(JOBS, st.integers(0, 50), st.booleans(), st.sampled_from([0, 3, 90]), st.sampled_from([0, 4]))
def test_fifo_completes_in_order_and_layer_by_layer_service_is_the_same(jobs, latency, occupies, submit, gap):
    changes = {"latency_ns": latency, "piece_submit_ns": submit, "piece_gap_ns": gap}
    channel = _core.Channel(settings(latency_occupies=occupies, **changes))
    closed = [transmit(channel, (size, size % 5, layers), at) for at, size, layers, _ in jobs]
    times, layered = served(jobs, latency_occupies=occupies, **changes)
    for one, other in zip(closed, times, strict=True):
        assert (one.start_ns, one.first_layer_ns, one.completion_ns) == (
            other.start_ns,
            other.first_layer_ns,
            other.completion_ns,
        )
    assert all(a.completion_ns <= b.completion_ns for a, b in pairwise(closed))
    for figure in ("busy_ns", "queued_ns", "sent_bytes", "jobs"):
        assert getattr(channel, figure) == getattr(layered, figure), figure
    assert channel.busy_ns <= closed[-1].completion_ns


@given(
    JOBS,
    st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 9)), min_size=8, max_size=8),
    st.booleans(),
    st.sampled_from([0, 2, 40]),
    st.sampled_from([0, 5]),
)
def test_the_cores_channel_is_the_specifications(jobs, feeds, occupies, submit, gap):
    pieces = {"piece_overhead_ns": 3, "piece_gap_ns": gap, "piece_submit_ns": submit}
    wanted = settings(latency_ns=7, latency_occupies=occupies, **pieces)
    one, other, demand = SubmittedFifo(wanted), _core.Channel(wanted), Demand()
    for (at, size, layers, load), (fed, behind, pieces) in zip(jobs, feeds, strict=False):
        size *= load  # nothing to send takes no turn
        sent = []
        for asked in (demand, other.demand):
            asked.ask(size, at * 10**7)
            asked.hide(size, behind)
        for channel in (one, other):
            feed = CoresTransmission(at, at, at + behind, 1) if fed else None
            sent.append(times_of(transmit(channel, (size, pieces, layers), at, feed)))
        assert sent[0] == sent[1]
        assert one.wait_ns(at) == other.wait_ns(at)
        assert one.wait_ns(at, pieces) == other.wait_ns(at, pieces)
    for figure in ("busy_ns", "queued_ns", "sent_bytes", "jobs", "last_call_ns", "settings"):
        assert getattr(one, figure) == getattr(other, figure), figure
    assert list(demand.hiding) == other.demand.hiding.tolist()
    assert list(demand.offered) == other.demand.offered.tolist()


def shared_fairly(jobs):
    """Processor sharing in exact fractions: completion times of (arrival, work)."""
    left = [Fraction(work) for _, work in jobs]
    done: dict[int, Fraction] = {}
    now = Fraction(0)
    while len(done) < len(jobs):
        at_work = [j for j, (at, _) in enumerate(jobs) if at <= now and j not in done]
        coming = [at for at, _ in jobs if at > now]
        if not at_work:
            now = Fraction(min(coming))
            continue
        step = min(left[j] for j in at_work) * len(at_work)
        if coming:
            step = min(step, min(coming) - now)
        for j in at_work:
            left[j] -= step / len(at_work)
            if left[j] == 0:
                done[j] = now + step
        now += step
    return [done[j] for j in range(len(jobs))]


@given(JOBS)
def test_fair_sharing_is_processor_sharing(jobs):
    works = [(at, -(-size // layers) * layers) for at, size, layers, _ in jobs]
    times, channel = served(jobs, sharing="fair")
    for expected, got in zip(shared_fairly(works), times, strict=True):
        # Layers end at whole nanoseconds: each of the layers of all jobs may be up to one late.
        assert expected <= got.completion_ns <= expected + sum(layers for _, _, layers, _ in jobs)
    assert channel.busy_ns <= max(t.completion_ns for t in times)


def test_loads_pass_stores_at_the_next_layer_and_go_in_turn_among_themselves():
    jobs = [(0, 400, 4, False), (10, 100, 1, True)]
    assert [t.completion_ns for t in served(jobs)[0]] == [400, 500]
    assert [t.completion_ns for t in served(jobs, priority="loads-first")[0]] == [500, 200]
    assert [t.completion_ns for t in served(jobs, priority="loads-first", sharing="fair")[0]] == [500, 110]
    jobs = [(0, 100, 1, False), (0, 100, 1, False), (0, 300, 1, True), (0, 200, 1, True)]
    assert [t.completion_ns for t in served(jobs, priority="loads-first")[0]] == [600, 700, 300, 500]


def test_what_a_job_was_given_too_much_of_is_lost_while_it_waits_for_its_next_layer():
    # A sends one of its two layers while B sends, and C from 1 ns on: three thirds of 299 ns are more than is
    # left of A's layer, 1/6 ns. At 1,000 its next layer comes, and with it eight more of 100 ns: nine ends at
    # 1,900.
    engine = Engine()
    channel = SubmittedLayered(settings(sharing="fair"), engine)
    first = submit(channel, (200, 0, 2), 1)
    submit(channel, (100, 0, 1))
    later = []

    def crowd(_):
        channel.feed(first, 2)
        later.extend(submit(channel, (100, 0, 1)) for _ in range(8))

    engine.schedule(1, ARRIVAL, -1, lambda _: submit(channel, (100, 0, 1)), None)
    engine.schedule(1_000, ARRIVAL, -1, crowd, None)
    engine.run()
    assert first.times.arrivals_ns == [300, 1_900]
    assert [job.times.completion_ns for job in later] == [1_900] * 8


@pytest.mark.parametrize(("sharing", "at_25_ns"), [("fifo", 75 + 40), ("fair", 0)])
def test_a_job_waits_for_the_layers_of_those_before_it_unless_all_share(sharing, at_25_ns):
    engine = Engine()
    channel = SubmittedLayered(settings(sharing=sharing), engine)
    assert channel.wait_ns(0) == 0
    submit(channel, (100, 0, 4))
    submit(channel, (40, 0, 1))
    asked = []
    at = 25 if sharing == "fifo" else 50  # after the first layer
    engine.schedule(at, ARRIVAL, -1, lambda _: asked.append(channel.wait_ns(at)), None)
    engine.run()
    assert asked == [at_25_ns]


# -- two hops


def two_hops_by_recurrence(layers, p1, p2, latencies, starts):
    """Layer k leaves hop 2 when hop 1 has brought it and hop 2 is done with layer k − 1."""
    (lat1, lat2), (s1, s2) = latencies, starts
    free = s2
    arrivals = []
    for k in range(1, layers + 1):
        free = max(free, s1 + lat1 + k * p1) + p2
        arrivals.append(free + lat2)
    return arrivals


HOPS = st.tuples(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 200),
    st.integers(0, 600),
)


@both
@given(HOPS)
def test_two_fifo_hops_end_as_the_recurrence_says(kind, hops):
    layers, p1, p2, lat1, lat2, s1, busy = hops
    one, two = kind(settings(latency_ns=lat1)), kind(settings(latency_ns=lat2))
    transmit(two, (busy, 0, 1), 0)
    feed = transmit(one, (layers * p1, 0, layers), s1)
    last = transmit(two, (layers * p2, 0, layers), s1, feed)
    expected = two_hops_by_recurrence(layers, p1, p2, (lat1, lat2), (s1, busy))
    assert (last.first_layer_ns, last.completion_ns) == (expected[0], expected[-1])


@given(HOPS)
def test_two_hops_served_layer_by_layer_end_as_the_recurrence_says(hops):
    layers, p1, p2, lat1, lat2, s1, busy = hops
    engine = Engine()
    one, two = (SubmittedLayered(settings(latency_ns=lat), engine) for lat in (lat1, lat2))
    second = []

    def arrived(count):
        if not second:
            second.append(submit(two, (layers * p2, 0, layers), count))
        else:
            two.feed(second[0], count)

    if busy:
        submit(two, (busy, 0, 1))
    engine.schedule(s1, ARRIVAL, -1, lambda _: submit(one, (layers * p1, 0, layers), on_layer=arrived))
    engine.run()
    assert second[0].times.arrivals_ns == two_hops_by_recurrence(layers, p1, p2, (lat1, lat2), (s1, busy))


# -- loading under compute


def step_end(transmission, start, compute, layers):
    """Return the end of a step that needs the layers of a transmission."""
    mover = SimpleNamespace(pipelining=True, layers=layers, transfers={}, engine=Engine())
    loading = Loading(None, Admission(0, 0, 0, [], [], []), mover, print)
    loading.transfers = [SimpleNamespace(sent=transmission)]
    return loading.late_until(start, compute)


@given(st.integers(1, 12), st.integers(0, 50), st.integers(0, 900), st.integers(0, 900), st.integers(0, 90))
def test_a_step_over_arriving_layers_ends_as_the_closed_form_says(layers, c, start, first, p):
    arrivals = [first + k * p for k in range(layers)]
    end = start
    for arrival in arrivals:
        end = max(end, arrival) + c
    even = Transmission(0, first, arrivals[-1], p)
    assert end == max(start + layers * c, first + layers * c, first + (layers - 1) * p + c)
    assert step_end(even, start, layers * c, layers) == end
    assert step_end(Transmission(0, first, arrivals[-1], p, arrivals), start, layers * c, layers) == end


@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(0, 40), st.integers(0, 900))
def test_uneven_layers_end_as_the_recurrence_says(gaps, c, start):
    arrivals = np.cumsum(gaps).tolist()
    end = start
    for arrival in arrivals:
        end = max(end, arrival) + c
    layers = len(arrivals)
    sent = Transmission(0, arrivals[0], arrivals[-1], 0, arrivals)
    assert step_end(sent, start, layers * c, layers) == end


# -- queueing


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_waiting_on_a_channel_is_that_of_m_d_1(load):
    """Poisson jobs of constant size wait ρ·D / (2·(1 − ρ)) on average (Pollaczek and Khinchine)."""
    work, jobs = 1_000, 200_000
    gaps = np.random.default_rng(7).exponential(work / load, jobs)
    channel = _core.Channel(settings())
    for at in np.cumsum(gaps).astype(np.int64).tolist():
        transmit(channel, (work, 0, 1), at)
    assert channel.queued_ns / jobs == pytest.approx(load * work / (2 * (1 - load)), rel=0.05)
