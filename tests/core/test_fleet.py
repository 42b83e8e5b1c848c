"""Machines that come and go: random plans, known service times, drains, what is refused."""

import itertools
import json
import os
import random

import numpy as np
import pytest
from kvcache_sim import _core
from kvcache_sim.channels.settings import ChannelSettings, Slowdown
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.engine import BOUNDARY, Engine
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.pictures import fleet
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import columns
from support.conserved import check_conserved
from support.lookahead import by_the_clock
from support.spec_slow_channels import SlowedFifo
from support.spec_submission import SubmittedFifo
from support.tiered_scenario import BASE, load

ROUTERS = (
    "round-robin",
    "random",
    "least-loaded",
    "longest-prefix",
    "cache-aware",
    "power-of-two",
    "overlap-cost",
)


def failing(draw: random.Random, machines: int, span_s: float) -> list[str]:
    """Return copies lost and channels slowed, of machines that are there from the start."""
    found = []
    for _ in range(draw.randint(0, 4)):
        at, channel = round(draw.uniform(0, span_s) * 1e9), draw.choice(["cpu-to-gpu", "gpu-to-cpu"])
        slow = f"do: slow, channel: {channel}, share: {draw.choice([0, 0.1, 0.5])}, lasts: {draw.randint(1, 3000)}ms"
        one = f"machine: {draw.randrange(machines)}, "
        found.append(f"{{at: {at}ns, {draw.choice(['', one])}{slow}}}")
    return found


def random_plan(draw: random.Random, machines: int, span_s: float, tiers: bool) -> str:
    """Return a plan as a scenario writes it: machines join, drain and are lost, also all at once."""
    serving, there, number, events, now = set(range(machines)), set(range(machines)), machines, [], 0.0
    for _ in range(draw.randint(1, 6)):
        now += draw.choice([0.0, draw.uniform(0, span_s / 3)])
        do = draw.choice(["join", "lose", "lose", "drain"])
        if do == "join":
            events.append(f"{{at: {round(now * 1e9)}ns, do: join}}")
            serving.add(number)
            there.add(number)
            number += 1
        elif able := sorted(there if do == "lose" else serving):
            machine = draw.choice(able)
            events.append(f"{{at: {round(now * 1e9)}ns, do: {do}, machine: {machine}}}")
            serving.discard(machine)
            if do == "lose":
                there.discard(machine)
    events = events or ["{at: 1s, do: join}"]
    events += failing(draw, machines, span_s) if tiers else []
    in_flight = (
        draw.choice(["retry", "retry", "fail"]) if any("lose" in event for event in events) else "retry"
    )
    faults = ""
    if tiers and draw.random() < 0.6:
        kinds = [f"{{do: lose-tier, tier: {draw.choice(['cpu', 'disk'])}, mtbf: {draw.randint(1, 6)}s}}"]
        kinds += ["{do: lose, mtbf: 20s, repair: 1s}"] if draw.random() < 0.5 else []
        kinds += ["{do: slow, channel: disk-to-cpu, mtbf: 4s, repair: 500ms}"] if draw.random() < 0.5 else []
        faults = f", faults: [{', '.join(kinds)}], faults_until: {span_s}s"
    return f"fleet={{plan: [{', '.join(events)}], in_flight: {in_flight}{faults}}}"


def overrides(seed: int) -> list[str]:
    draw = random.Random(seed)
    machines = draw.randint(1, 3)
    tiers = draw.random() < 0.8
    chosen = [
        random_plan(draw, machines, 9.0, tiers),
        f"cluster.machines={machines}",
        f"workload.requests={draw.randint(12, 30)}",
        f"workload.arrivals={{process: poisson, rate_per_s: {draw.choice([4, 8, 20])}}}",
        f"replica.max_num_seqs={draw.choice([2, 4, 16])}",
        f"seed={draw.randint(0, 99)}",
    ]
    if machines > 1:
        chosen.append(f"router.policy={draw.choice(ROUTERS)}")
    if not tiers:
        chosen += ["tiers.cpu=null", "tiers.disk=null"]
    else:
        chosen += ["channels.cpu-to-gpu.bandwidth=300MB/s", "channels.gpu-to-cpu.bandwidth=300MB/s"]
        chosen.append(f"write.policy={draw.choice(['through', 'through', 'through', 'back'])}")
        chosen.append("tiers.gpu.capacity=160 blocks")
    if draw.random() < 0.3:
        chosen.append("workload.loop=closed")
    return chosen


class InFlight:
    """Counts losses of machines that held requests, and of machines to which KV was in transit."""

    def __init__(self, monkeypatch) -> None:
        self.with_requests = self.with_transfers = 0
        own = Membership._lose

        def lose(membership, machine):
            replica = membership._replicas[machine]
            replica.catch_up(membership._engine.now_ns)
            moving = sum(replica.store.occupancy(level).in_flight_blocks for level in range(replica.tiers))
            self.with_transfers += bool(moving or replica.counts()[2])
            self.with_requests += machine in membership._machine_of.values()
            return own(membership, machine)

        monkeypatch.setattr(Membership, "_lose", lose)


def one_plan(seed: int) -> None:
    scenario = load(*overrides(seed))
    trace = read_requests(scenario)
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    check_conserved(scenario, made[0])
    plain = execute(scenario, trace, RunOptions())
    assert [other.summary["digest"] for other in made] == [plain.summary["digest"]] * 3


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "8"))))
def test_nothing_is_lost_uncounted_whatever_the_plan(seed):
    one_plan(seed)


def rows_of(*settings):
    """Return the rows of a run, in order of the requests."""
    scenario = load(*settings)
    return columns(simulate(scenario.settings, read_requests(scenario)).requests)


@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "longest-prefix"])
def test_a_machine_that_joins_before_all_requests_was_always_there(router):
    more = (f"router.policy={router}", "write.policy=through", "tiers.gpu.capacity=160 blocks")
    joined = rows_of("cluster.machines=2", "fleet={plan: [{at: 0s, do: join}]}", *more)
    assert joined == rows_of("cluster.machines=3", *more)
    assert set(joined["machine"]) == {0, 1, 2}


@pytest.mark.parametrize("do", ["drain", "lose"])
@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "longest-prefix"])
def test_a_machine_that_goes_before_all_requests_was_never_there(do, router):
    more = (f"router.policy={router}", "write.policy=through", "tiers.gpu.capacity=160 blocks")
    gone = rows_of("cluster.machines=3", f"fleet={{plan: [{{at: 0s, do: {do}, machine: 2}}]}}", *more)
    assert gone == rows_of("cluster.machines=2", *more)


def test_plans_hit_requests_and_transfers_in_flight(monkeypatch):
    counted = InFlight(monkeypatch)
    for seed in range(40):
        scenario = load(*overrides(seed))
        check_conserved(scenario, execute(scenario, read_requests(scenario), RunOptions()))
    assert counted.with_requests >= 15
    assert counted.with_transfers >= 10


# --- known service times -----------------------------------------------------------------------------------


def one_by_one(tmp_path, count: int, fleet: str):
    """Return the rows of equal requests that arrive at once and are served one after another."""
    path = tmp_path / "t.jsonl"
    rows = [{"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [n]} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"trace: {{path: {path}}}\ncache: {{enabled: false}}\nreplica: {{max_num_seqs: 1}}\n"
    scenario = scenario_from_text(text + f"tiers: {{gpu: {{capacity: 99 blocks}}}}\n{fleet}", "s", tmp_path)
    return execute(scenario, read_requests(scenario), RunOptions())


@pytest.mark.parametrize(("done", "count"), [(0, 5), (3, 8), (7, 8)])
def test_a_machine_lost_with_k_requests_in_flight(tmp_path, done, count):
    alone = one_by_one(tmp_path, 2, "").run.requests
    first, service = int(alone["first_token_ns"][0]), int(alone["finish_ns"][1] - alone["finish_ns"][0])
    lost_ns, startup_ns = done * service + service // 2, 3 * service
    plan = f"plan: [{{at: {lost_ns}ns, do: lose, machine: 0}}, {{at: {lost_ns}ns, do: join}}]"
    made = one_by_one(tmp_path, count, f"fleet: {{{plan}, startup: {startup_ns}ns}}")
    rows, begins = made.run.requests, lost_ns + startup_ns
    assert made.summary["fleet"] == {"joined": 1, "drained": 0, "lost": 1, "retried": count - done}
    for request in range(count):
        again = request - done
        before = request * service if again < 0 else begins + again * service
        assert rows["arrival_ns"][request] == 0
        assert rows["first_token_ns"][request] == before + first
        assert rows["finish_ns"][request] == before + service
        assert rows["machine"][request] == int(again >= 0)
        # the time on the lost machine and without any counts as queueing
        assert rows["queue_ns"][request] == before
    failing = one_by_one(tmp_path, count, f"fleet: {{{plan}, startup: {startup_ns}ns, in_flight: fail}}")
    counts = failing.summary["requests"]
    assert (counts["finished"], counts["failed"], counts["rejected"]) == (done, count - done, 0)
    assert (failing.run.requests["first_token_ns"][done:] == -1).all()


def test_requests_fail_when_no_machine_is_left(tmp_path):
    made = one_by_one(tmp_path, 5, "fleet: {plan: [{at: 1ns, do: lose, machine: 0}]}")
    assert made.summary["requests"]["failed"] == 5
    drained = one_by_one(tmp_path, 5, "fleet: {plan: [{at: 1ns, do: drain, machine: 0}]}")
    assert drained.summary["requests"]["finished"] == 5


def test_a_drained_machine_serves_what_it_has_and_gets_nothing_more():
    plan = "fleet={plan: [{at: 5s, do: drain, machine: 1}]}"
    made = execute(scenario := load(plan), read_requests(scenario), RunOptions())
    rows = made.run.requests
    there = rows["machine"] == 1
    assert there.any()
    assert (rows["arrival_ns"][there] <= 5 * 10**9).all()
    assert rows["finish_ns"][there].max() > 5 * 10**9
    assert made.summary["requests"]["finished"] == len(rows["request"])


def test_a_machine_that_joins_is_cold_and_is_used():
    base = execute(scenario := load(), read_requests(scenario), RunOptions()).summary
    plan = "fleet={plan: [{at: 8s, do: lose, machine: 0}, {at: 8s, do: join}], startup: 2s}"
    made = execute(scenario := load(plan), read_requests(scenario), RunOptions())
    rows = made.run.requests
    assert (rows["arrival_ns"][rows["machine"] == 2]).max() > 10 * 10**9
    assert made.summary["cache"]["token_hit_rate"] < base["cache"]["token_hit_rate"]
    assert made.summary["machines"]["requests"][2] > 0


def test_an_unneeded_event_changes_nothing_and_does_not_prolong_the_run():
    base = execute(scenario := load(), read_requests(scenario), RunOptions()).summary
    late = load("fleet={plan: [{at: 9h, do: lose, machine: 0}, {at: 10h, do: join}]}")
    made = execute(late, read_requests(late), RunOptions()).summary
    assert made["digest"]["results"] == base["digest"]["results"]
    assert made["simulated_s"] == base["simulated_s"]


def test_a_silenced_machine_receives_no_events():
    engine, notified = Engine(2), []
    for machine in (0, 1):
        for schedule in (engine.schedule, engine.schedule_own):
            schedule(5, BOUNDARY, machine, notified.append, machine)
    engine.silence(0)
    engine.schedule(7, BOUNDARY, 0, notified.append, 0)
    assert engine.run()
    assert notified == [1, 1]


# --- what else fails ---------------------------------------------------------------------------------------

FAULTS = "fleet={faults_until: 9s, faults: [%s]}"


def test_faults_are_drawn_from_streams_of_their_own():
    one, both = (
        load(FAULTS % kinds).settings.membership
        for kinds in (
            "{do: lose, mtbf: 5s, repair: 1s}",
            "{do: lose, mtbf: 5s, repair: 1s}, {do: lose-tier, tier: cpu, mtbf: 2s}",
        )
    )
    assert one.events == both.events
    assert both.tier_losses
    other = load(FAULTS % "{do: lose, mtbf: 5s, repair: 1s}", "seed=4").settings.membership
    assert other.events != one.events
    # every loss whose repair ends within the run is followed by a new machine a second later
    losses = [event.at_ns for event in one.events if event.change == "lose"]
    joins = [event.at_ns for event in one.events if event.change == "join"]
    assert joins == [at + 10**9 for at in losses]


def test_nothing_fails_again_before_it_is_repaired():
    scenario = load(
        "fleet={faults_until: 300s, faults: [{do: slow, channel: cpu-to-gpu, mtbf: 1s, repair: 3s}]}"
    )
    for machine in (0, 1):
        spans = scenario.settings.channels[f"cpu-to-gpu-{machine}"].slowdowns
        assert len(spans) > 40
        assert all(span.until_ns - span.from_ns == 3 * 10**9 for span in spans)
        assert all(a.until_ns < b.from_ns for a, b in itertools.pairwise(spans))


def test_of_several_slowdowns_the_worst_holds():
    one = "{at: 1s, do: slow, channel: cpu-to-gpu, share: 0.5, lasts: 4s}"
    other = "{at: 3s, do: slow, channel: cpu-to-gpu, machine: 1, share: 0.1, lasts: 4s}"
    channels = load(f"fleet={{plan: [{one}, {other}]}}").settings.channels
    first = [
        (s.from_ns // 10**9, s.until_ns // 10**9, s.share_ppm) for s in channels["cpu-to-gpu-0"].slowdowns
    ]
    second = [
        (s.from_ns // 10**9, s.until_ns // 10**9, s.share_ppm) for s in channels["cpu-to-gpu-1"].slowdowns
    ]
    assert {at: share for a, b, share in first for at in range(a, b)} == dict.fromkeys(range(1, 5), 500_000)
    shares = dict.fromkeys(range(1, 3), 500_000) | dict.fromkeys(range(3, 7), 100_000)
    assert {at: share for a, b, share in second for at in range(a, b)} == shares
    assert channels["gpu-to-cpu-1"].slowdowns == ()


def test_times_between_faults_are_exponential():
    scenario = load("fleet={faults_until: 4000s, faults: [{do: lose-tier, tier: cpu, mtbf: 2s}]}")
    by_machine = [[], []]
    for loss in scenario.settings.membership.tier_losses:
        by_machine[loss.machine].append(loss.at_ns)
    for times in by_machine:
        gaps = np.diff([0, *times]) / 2e9
        assert len(gaps) == pytest.approx(2000, rel=0.08)
        assert gaps.mean() == pytest.approx(1, rel=0.08)
        assert gaps.std() == pytest.approx(1, rel=0.12)
        assert (gaps > 1).mean() == pytest.approx(np.exp(-1), rel=0.1)


def times(sent):
    """Return the times of a transmission: of its first layer, of all, and per layer."""
    return sent.first_layer_ns, sent.completion_ns, sent.per_layer_ns


def passed(at_ns, slowdowns):
    """Return the share of the rate at a time, by looking at every slowdown."""
    return next((s.share_ppm for s in slowdowns if s.from_ns <= at_ns < s.until_ns), 1_000_000)


@pytest.mark.parametrize("seed", range(40))
def test_a_slow_channel_against_a_walk_of_single_nanoseconds(seed):
    draw = random.Random(seed)
    edges = sorted(draw.sample(range(1, 300), 6))
    slowdowns = tuple(
        Slowdown(a, b, draw.choice([0, 250_000, 500_000, 100_000]))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )
    channel = SlowedFifo(ChannelSettings("c", 10**9, draw.choice([0, 5]), slowdowns=slowdowns))
    free, now, busy = 0, 0, 0
    for _ in range(8):
        now += draw.randint(0, 40)
        layers, work = draw.randint(1, 4), draw.randint(1, 12)
        sent = channel.transmit((layers * work, 1, layers), now)
        at, arrivals = max(now, free), []
        start = at
        for _ in range(layers):
            left = work * 1_000_000
            while left > 0:
                left -= passed(at, slowdowns)
                at += 1
            arrivals.append(at + channel.settings.latency_ns)
        free, busy = at, busy + at - start
        # a part of a nanosecond more or less in each slowdown that a layer passes
        assert abs(sent.completion_ns - arrivals[-1]) <= 3 * layers
        free = sent.completion_ns - channel.settings.latency_ns
        for layer, arrival in enumerate(arrivals):
            assert sent.first_layer_ns + layer * sent.per_layer_ns >= arrival - 3 * layers
    assert abs(channel.busy_ns - busy) <= 100


@pytest.mark.parametrize("seed", range(40))
def test_the_cores_slow_channel_is_that_of_the_specification(seed):
    draw = random.Random(seed)
    edges = sorted(draw.sample(range(1, 900), 6))
    slowdowns = tuple(
        Slowdown(a, b, draw.choice([0, 250_000, 333_333, 10_000]))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )
    pieces = 3, seed % 3, 4 * (seed % 4 == 0)
    wanted = ChannelSettings("c", 10**9, 7, *pieces, latency_occupies=seed % 2 == 0, slowdowns=slowdowns)
    one, other = type("Slowed", (SlowedFifo, SubmittedFifo), {})(wanted), _core.Channel(wanted)
    now, before = 0, None
    for _ in range(30):
        now += draw.randint(0, 60)
        size, pieces, layers = draw.randint(0, 200), draw.randint(0, 9), draw.randint(1, 5)
        if before is not None and draw.random() < 0.4 and before.first_layer_ns >= now:
            now = before.first_layer_ns
            sent = (
                one.transmit((size, pieces, layers), now, before),
                other.forward(size, pieces, layers, before),
            )
        else:
            sent = one.transmit((size, pieces, layers), now), other.transmit(size, pieces, layers, now)
        assert times(sent[0]) == times(sent[1])
        assert one.wait_ns(now, pieces) == other.wait_ns(now, pieces)
        before = sent[0]
    for figure in ("busy_ns", "queued_ns", "sent_bytes", "jobs", "last_call_ns"):
        assert getattr(one, figure) == getattr(other, figure), figure


def test_nothing_passes_a_channel_that_is_down_and_waiting_requests_resume_when_it_is_back():
    base = execute(scenario := load(*SLOW_LINKS), read_requests(scenario), RunOptions()).summary
    plan = "fleet={plan: [{at: 2s, do: slow, channel: cpu-to-gpu, lasts: 30s}]}"
    made = execute(scenario := load(*SLOW_LINKS, plan), read_requests(scenario), RunOptions()).summary
    assert made["latency"]["ttft"]["max"] > base["latency"]["ttft"]["max"] + 10_000
    assert made["requests"]["finished"] == base["requests"]["finished"]


SLOW_LINKS = (
    "channels.cpu-to-gpu.bandwidth=300MB/s",
    "tiers.gpu.capacity=160 blocks",
    "write.policy=through",
)


def test_a_tier_loses_its_copies_and_is_there_again():
    plan = "fleet={plan: [{at: 8s, do: lose-tier, machine: 0, tier: cpu}, {at: 8s, do: lose-tier, machine: 1, tier: cpu}]}"
    base = execute(scenario := load(*SLOW_LINKS), read_requests(scenario), RunOptions())
    made = execute(scenario := load(*SLOW_LINKS, plan), read_requests(scenario), RunOptions(check="full"))
    assert made.summary["fleet"]["tiers_lost"] == 2
    assert made.summary["fleet"]["blocks_lost"] > 100
    cached, before = made.run.requests, base.run.requests
    early = before["finish_ns"] < 8 * 10**9
    assert np.array_equal(cached["cached_cpu_tokens"][early], before["cached_cpu_tokens"][early])
    assert cached["cached_cpu_tokens"].sum() < before["cached_cpu_tokens"].sum()


def test_a_router_that_forgets_chooses_as_a_new_one():
    index = ("router.policy=longest-prefix", "router.index_blocks=100000")
    plan = "fleet={plan: [{at: 8s, do: lose-index}]}"
    base = execute(scenario := load(*index), read_requests(scenario), RunOptions()).summary
    made = execute(scenario := load(*index, plan), read_requests(scenario), RunOptions()).summary
    assert made["fleet"] == {"index_lost": 1, "tiers_lost": 0, "blocks_lost": 0, "flushes": 0}
    assert made["router"]["missed_hit_blocks"] > base["router"]["missed_hit_blocks"]


def test_what_happened_stands_in_the_picture(tmp_path):
    plan = "fleet={plan: [{at: 4s, do: lose, machine: 1}, {at: 6s, do: join}, {at: 1h, do: join}]}"
    path = tmp_path / "s.yaml"
    path.write_text(BASE)
    kvsim(
        [
            "simulate",
            "-c",
            str(path),
            "--set",
            plan,
            "--set",
            "slo.ttft=800ms",
            "-o",
            str(tmp_path / "run"),
            "-q",
        ]
    )
    run = FinishedRun(load_run(tmp_path / "run"))
    windows = [w for w in fleet.windows_of(run) if w["requests"]]
    rows = run.requests
    assert sum(w["requests"] for w in windows) == len(rows["request"])
    met = sum(round(w["attainment"] * w["requests"]) for w in windows)
    assert met == run.summary["slo"]["attained"]
    picture = fleet.draw([run])
    assert len({frozenset(row) for row in picture.data}) == 1
    assert all(len(row) == len(picture.table.headings) for row in picture.table.rows)
    assert [row["what"] for row in picture.data if row["name"] == "event"] == [
        "machine 1 is lost",
        "machine 2 joins",
    ]
