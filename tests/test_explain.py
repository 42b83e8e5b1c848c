"""For each sentence that ``explain`` can say: a planted cause produces it, and its absence removes it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_run import made_up_run, request_columns, write_run
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.columns import TTFT_PARTS
from kvcache_sim.metrics.tier_use import TierUse, summarize_tiers
from kvcache_sim.report.explain import hit_rate as causes
from kvcache_sim.report.explain.break_even import break_even_tokens, compute_ns, load_ns
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.explanation import Moment, explanation
from kvcache_sim.report.explain.sentences import SENTENCES, explain
from kvcache_sim.report.finished import open_runs
from support.report_traces import make_trace

MS = 1_000_000
COUNT = 40
TWO_TIERS = """tiers:
  gpu: {capacity: 1000 blocks}
  cpu: {capacity: 1000 blocks}
"""


class Planted:
    """A run of ``COUNT`` requests one after another, all distinct, with nothing remarkable, to plant in."""

    directory = Path("/planted")

    def __init__(self):
        self.rows = [(n * 1000 * MS, 2049, [4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3]) for n in range(COUNT)]
        self.columns = {name: np.zeros_like(v) for name, v in request_columns(COUNT).items()}
        self.columns["request"] = np.arange(COUNT)
        self.columns["input_tokens"][:] = 2049
        self.columns["output_tokens"][:] = 10
        for part, share in (("queue", 45), ("prefill", 45), ("first_decode", 10)):
            self.columns[f"{part}_ns"][:] = share * MS
        self.evictions, self.dropped = {"gpu": 0, "cpu": 0, "disk": 0}, 0
        self.scenario_text = TWO_TIERS
        self.trace_is_there, self.remarks = True, ()
        self.disk, self.channels, self.by_machine = {}, {}, [COUNT]
        self.junctions, self.fleet, self.saturation = None, {}, ""

    def cached(self, index, tokens, tier="gpu"):
        self.columns["cached_prefix_length_used"][index] = tokens
        self.columns[f"cached_{tier}_tokens"][index] = tokens

    def case(self):
        rows = self.columns
        rows["fetch_ns"][:] = sum(rows[f"fetch_{p}_ns"] for p in ("room", "cpu", "disk", "remote"))
        rows["arrival_ns"][:] = [arrival for arrival, _, _ in self.rows]
        rows["first_token_ns"][:] = rows["arrival_ns"] + sum(rows[f"{part}_ns"] for part in TTFT_PARTS)
        rows["finish_ns"][:] = rows["first_token_ns"] + 9 * MS
        rows["num_tokens_actually_prefilled"][:] = rows["input_tokens"] - rows["cached_prefix_length_used"]
        self.requests = rows
        self.finished = {name: values[rows["status"] == 0] for name, values in rows.items()}
        self.trace = replace(make_trace(self.rows), warnings=self.remarks) if self.trace_is_there else None
        self.block_size_tokens = 512
        hits = {t: int(rows[f"cached_{t}_tokens"].sum()) for t in ("gpu", "cpu", "disk", "remote")}
        above = {"cpu": "gpu", "disk": "cpu"}
        uses = [
            TierUse(t, None, self.evictions[above.get(t, t)], 0, self.evictions[t], 0, True)
            for t in ("gpu", "cpu", "disk")
            if f"  {t}:" in self.scenario_text
        ]
        tiers = summarize_tiers(tuple(uses), hits, 1)
        tiers["disk"] |= self.disk
        self.summary = {
            "cache": {"evictions": self.evictions, "dropped_blocks": self.dropped},
            "saturation": {"sentence": self.saturation},
            "fleet": self.fleet,
            "tiers": tiers,
            "channels": self.channels,
            "machines": {"requests": self.by_machine},
        }
        return Case(self)

    def repeat(self, index, of, **changes):
        """Ask again for what request ``of`` asked for."""
        self.rows[index] = (self.rows[index][0], 2049, self.rows[of][2])
        for name, value in changes.items():
            self.columns[name][index] = value


def evicted(p):
    p.repeat(30, 10)
    p.evictions["gpu"] = 500


def everything_again(p):
    for n in range(20, 40):
        p.repeat(n, n - 20)
        p.cached(n, 2048)


def tail(column, share):
    """Return a plant that makes a part ``share`` of TTFT in the slowest requests."""

    def plant(p):
        slow = slice(36, 40)
        p.columns["queue_ns"][slow] = p.columns["prefill_ns"][slow] = int(1000 * MS * (1 - share) / 2)
        p.columns["first_decode_ns"][slow] = 0
        p.columns[column][slow] = p.columns[column][slow] * (column in ("queue_ns", "prefill_ns")) + int(
            1000 * MS * share
        )

    return plant


def second_machine(p):
    p.scenario_text = TWO_TIERS + "cluster: {machines: 2}\n"
    p.by_machine = [COUNT // 2, COUNT // 2]


def one_machine_idle(p):
    second_machine(p)
    p.by_machine = [COUNT, 0]


def on_another(p):
    second_machine(p)
    p.repeat(30, 10, machine=1)


def together(p):
    p.rows[11] = (p.rows[10][0] + MS, 2049, p.rows[10][2])


def parted(p):
    p.rows[30] = (p.rows[30][0], 2049, [*p.rows[10][2][:2], 9001, 9002])
    p.cached(30, 1024)


def kept_out(p):
    evicted(p)
    p.scenario_text = TWO_TIERS + "cache: {discard_on_finish: true}\n"


def long_ends(p):
    p.columns["input_tokens"][:] = 2049 + 400
    p.rows = [(arrival, 2449, ids) for arrival, _, ids in p.rows]


def served_by(tier):
    def plant(p):
        p.repeat(30, 10)
        p.cached(30, 2048, tier)
        p.columns[f"fetch_{tier}_ns"][30] = 5 * MS if tier != "gpu" else 0
        if tier == "disk":
            p.scenario_text = TWO_TIERS + "  disk: {capacity: 1000 blocks}\n"

    return plant


def with_disk(p):
    p.scenario_text = TWO_TIERS + "  disk: {capacity: 1000 blocks}\n"


def slow_disk(p):
    p.scenario_text = (
        TWO_TIERS + "  disk: {capacity: 1000 blocks}\n"
        "channels:\n  slow: {bandwidth: 1MB/s, edges: [disk->cpu]}\n"
    )


def no_trace(p):
    p.trace_is_there = False


def assumed(p):
    p.remarks = ("a.csv: prefixes are synthesised, not measured: 9 sessions of 2.00 turns (2 asked for)",)


def quiet(p):
    pass


def instant(p):
    with_disk(p)
    p.scenario_text += "replica: {instant: true}\n"


def one_tier(p):
    p.scenario_text = "tiers:\n  gpu: {capacity: 1000 blocks}\n"


def needing(bytes_per_s):
    def plant(p):
        rates = {"p50": 1.0, "p99": bytes_per_s, "max": bytes_per_s}
        idle = {"bandwidth_bytes_per_s": 10**9, "needed_bytes_per_s": dict.fromkeys(rates)}
        p.channels = {"down": idle, "up": idle | {"needed_bytes_per_s": rates}}

    return plant


def written_a_day(times):
    def plant(p):
        p.disk = {"drive_writes_per_day": times, "drive_writes_per_day_hottest": times and 2 * times}

    return plant


def dropped(p):
    p.dropped = 7


def preempted(p):
    p.columns["preemptions"][5], p.columns["recomputed_tokens"][5] = 2, 3000


def rejected(p):
    p.columns["status"][5] = 1


def stalled(p):
    p.columns["batch_stall_ns"][:] = 5 * MS


def handed_over(p):
    p.columns["handover_ns"][:] = 100 * MS
    p.columns["handover_room_ns"][:] = 25 * MS


def nothing_finished(p):
    p.columns["status"][:] = 1


def all_seen_again(p):
    everything_again(p)
    for n in range(20):
        p.cached(n, 2048)


#: sentence → (a plant with its cause, a plant without it, the expected text).
CAUSES = {
    "upper-bound": (everything_again, quiet, "100.0 % of the upper bound"),
    "no-trace": (no_trace, quiet, "unknown"),
    "synthesised": (assumed, quiet, "The prefixes are synthesised, not measured: 9 sessions"),
    "at-upper-bound": (everything_again, evicted, "nothing to add"),
    "nothing-repeats": (quiet, everything_again, "No block is requested twice"),
    "never-seen": (quiet, all_seen_again, "requested for the first time"),
    "evicted": (evicted, everything_again, "2.5 % of prompt tokens were evicted on their machine"),
    "evictors": (evicted, everything_again, "median of 76 blocks on its machine, whose tiers hold 2,000"),
    "elsewhere": (on_another, evicted, "the router (round-robin) sent"),
    "diverged": (parted, quiet, "follow a shared prefix but diverge"),
    "not-admitted": (kept_out, evicted, "but not cached or not visible"),
    "not-ready": (together, evicted, "arrive together"),
    "shorter": (long_ends, quiet, "fill no block of 512 tokens"),
    "parts": (
        quiet,
        nothing_finished,
        "queue 45 ms (45.0 %), prefill 45 ms (45.0 %), first decode 10 ms",
    ),
    "queueing": (tail("queue_ns", 0.3), tail("prefill_ns", 0.3), "65.0 % of TTFT is queueing"),
    "prefilling": (tail("prefill_ns", 0.3), tail("queue_ns", 0.3), "65.0 % of TTFT is prefill"),
    "fetching": (
        tail("fetch_disk_ns", 0.3),
        tail("fetch_disk_ns", 0.2),
        "30.0 % of TTFT waits for KV from disk",
    ),
    "waiting-for-room": (tail("fetch_room_ns", 0.1), quiet, "10.0 % of TTFT waits for the write-back"),
    "batch-stalls": (stalled, quiet, "11.1 % of prefill time"),
    "handovers": (handed_over, quiet, "takes 50.0 % of the mean TTFT; 25.0 % of it waits for free blocks"),
    "preemptions": (
        preempted,
        quiet,
        "2 preemptions: running requests lost their blocks and recomputed 3,000",
    ),
    "rejections": (rejected, quiet, "1 request was rejected"),
    "cpu-used": (served_by("cpu"), quiet, "to 1 request, with a mean wait of 5 ms"),
    "cpu-unused": (quiet, served_by("cpu"), "gpu never evicted a block"),
    "disk-used": (served_by("disk"), with_disk, "disk served 2.5 %"),
    "disk-unused": (with_disk, served_by("disk"), "cpu never evicted a block"),
    "remote-used": (served_by("remote"), quiet, "remote served 2.5 %"),
    "channel-too-slow": (needing(2.5e9), needing(0.5e9), "this link would need 2.5 GB/s; it has 1"),
    "drive-writes": (
        written_a_day(3.0),
        written_a_day(0.5),
        "disk: 3 drive writes per day",
    ),
    "dropped": (dropped, quiet, "7 blocks were dropped: not written down, or behind a block that left"),
    "policy-without-choice": (quiet, evicted, "eviction policy (lru) had no effect"),
    "router-without-choice": (quiet, second_machine, "there is one machine"),
    "idle-machines": (one_machine_idle, second_machine, "1 of 2 machines got no request"),
    "write-policy-without-choice": (one_tier, quiet, "no tier below gpu"),
    "break-even-cpu": (
        quiet,
        one_tier,
        "Loading from cpu beats recomputing from the first block (512 tokens)",
    ),
    "break-even-disk": (slow_disk, instant, "Recomputing beats loading from disk at every length"),
}


def other_layers_had_it(is_state):
    def plant(p):
        half = COUNT // 2
        for n in range(half, COUNT):
            p.repeat(n, n - half)
        again = np.arange(half, COUNT)
        p.junctions = {
            "request": again,
            "machine": np.zeros_like(again),
            "junction_tokens": np.full_like(again, 2048),
            "is_state": np.full_like(again, is_state),
        }

    return plant


def scaled(p):
    p.scenario_text += "fleet: {scaling: {policy: requests, target: 4, most: 3, interval: 1s}}\n"
    changes = [{"change": "serves"}, {"change": "serves"}, {"change": "drains"}]
    p.fleet = {"machine_s": 58.65, "ordered": 2, "released": 1, "changes": changes}


def crowded(p):
    p.saturation = "20 requests/s arrive, about 15/s would hold"


CAUSES |= {
    "saturated": (crowded, quiet, "Saturated: 20 requests/s arrive, about 15/s would hold."),
    "window-moved-on": (
        other_layers_had_it(0),
        other_layers_had_it(1),
        "sliding-window layers had released their blocks",
    ),
    "no-checkpoint": (other_layers_had_it(1), other_layers_had_it(0), "no state checkpoint was kept"),
    "scaled-fleet": (
        scaled,
        quiet,
        "The scaling policy (requests) kept 1 to 3 machines in service: 2 ordered, 1 released, 59 machine-",
    ),
}


def said(plant):
    planted = Planted()
    plant(planted)
    return {name: text for group in explain(planted.case()).values() for name, text in group.items()}


def test_every_sentence_has_its_test():
    assert set(CAUSES) == {name for group in SENTENCES.values() for name in group}


@pytest.mark.parametrize("name", CAUSES)
def test_a_planted_cause_says_it_and_its_absence_does_not(name):
    cause, absence, words = CAUSES[name]
    assert words in said(cause).get(name, "")
    assert name not in said(absence)


@pytest.mark.parametrize("tier", ["cpu", "disk", "remote"])
def test_the_source_with_the_longest_waits_is_named(tier):
    text = f"30.0 % of TTFT waits for KV from {tier}"
    assert text in said(tail(f"fetch_{tier}_ns", 0.3))["fetching"]


@pytest.mark.parametrize(
    ("window", "rejected"), [(None, "more blocks"), (2050, "more blocks"), (2049, "(2,049)"), (9, "(9)")]
)
def test_a_rejected_request_is_explained_by_its_context_or_its_blocks(window, rejected):
    rows = {"request": [0], "arrival_ns": [7], "input_tokens": [2049], "output_tokens": [3], "status": [1]}
    scenario = {} if window is None else {"replica": {"max_model_len": window}}
    run = SimpleNamespace(requests={name: np.array(own) for name, own in rows.items()}, scenario=scenario)
    (arrives, end), reasons = explanation(run, 0)
    assert arrives == Moment(0, "arrives: 2,049 prompt tokens, 3 to generate")
    assert (end.since_arrival_ns, reasons, rejected in end.text) == (0, [], True)


@pytest.mark.parametrize("seed", range(4))
def test_reuse_is_that_of_the_prompts_before(seed):
    """Prompts are paths of a tree, of whole blocks or a token more, in which the last block may not be found whole."""
    draw, planted = np.random.default_rng(seed), Planted()
    for n in range(COUNT):
        path = "".join(draw.choice(["0", "1"], draw.integers(1, 5)))
        ids = [int("1" + path[: k + 1], 2) for k in range(len(path))]
        tokens = 512 * len(ids) + int(draw.integers(2))
        planted.rows[n] = (planted.rows[n][0], tokens, ids)
        planted.columns["input_tokens"][n] = tokens
    reuse, ends = planted.case().reuse, planted.columns["finish_ns"]
    for n, (arrival_ns, tokens, ids) in enumerate(planted.rows):
        held = [max((m for m in range(n) if block in planted.rows[m][2]), default=-1) for block in ids]
        found = held.index(-1) if -1 in held else len(held)
        last = held[found - 1] if found else -1
        assert reuse.seen[n] == min(512 * found, (tokens - 1) // 512 * 512)
        assert reuse.last_user[n] == last
        assert reuse.idle_ns[n] == (max(arrival_ns - ends[last], 0) if found else -1)


def test_a_tier_that_was_written_to_and_never_read_says_so():
    reported = said(evicted)["cpu-unused"]
    assert "no block written to it was requested again (500 blocks evicted from gpu)" in reported
    assert "no tier of any size" not in reported, "a block was requested again, on time or not"

    def never_again(p):
        p.evictions["gpu"] = 500

    assert "None of these blocks was requested again" in said(never_again)["cpu-unused"]


def test_the_break_even_is_where_the_times_cross():
    planted = Planted()
    planted.scenario_text = TWO_TIERS + (
        "channels:\n  up: {bandwidth: 25GB/s, latency: 50ms, edges: [cpu->gpu]}\n"
    )
    settings = planted.case().scenario.settings
    length = break_even_tokens(settings, "cpu")
    assert length > 512
    assert load_ns(settings, "cpu", length) < compute_ns(settings, length)
    assert load_ns(settings, "cpu", length - 512) >= compute_ns(settings, length - 512)
    assert load_ns(settings, "cpu", 512) == 50 * MS - (-512 * settings.cache.kv_bytes_per_token // 25)


def test_a_request_is_explained_event_by_event(tmp_path):
    (run,) = open_runs([made_up_run(tmp_path / "run", 50)])
    rows = run.requests
    slowest = int(np.argmax(rows["first_token_ns"] - rows["arrival_ns"]))
    moments, reasons = explanation(run, slowest)
    times = [moment.since_arrival_ns for moment in moments]
    assert times == sorted(times)
    assert moments[0].text.startswith("arrives")
    assert [m.since_arrival_ns for m in moments if m.text == "first token"] == [
        int(rows["first_token_ns"][slowest] - rows["arrival_ns"][slowest])
    ]
    assert "slower than 100.0 %" in reasons[0]
    assert reasons[1].startswith("Most of the difference is ")
    with pytest.raises(UsageError, match="0 to 49"):
        explanation(run, 50)


def test_the_command(tmp_path, capsys):
    directory = str(write_run(tmp_path / "run", request_columns(30), scenario=TWO_TIERS))
    assert kvsim(["explain", directory]) == 0
    out, err = capsys.readouterr()
    assert "What TTFT is made of\n  Mean TTFT is" in out
    assert " ".join(err.split()).startswith(f"warning: {directory}/scenario.yaml: no requests")
    assert kvsim(["explain", directory, "--format", "json"]) == 0
    assert "parts" in json.loads(capsys.readouterr().out)["What TTFT is made of"]
    assert kvsim(["explain", directory, "--request", "3"]) == 0
    assert "first token" in capsys.readouterr().out
    assert kvsim(["explain", directory, "--request", "30"]) == 2


@pytest.mark.parametrize("gap_ms", [0, 60_000])
def test_evicted_blocks_were_idle_from_their_last_use_to_the_admission_that_missed_them(
    tmp_path, capsys, gap_ms
):
    """All at once, in the order a b a b …: a prompt arrives before the one that it repeats has finished."""
    rows = [{"timestamp": gap_ms * n, "input_length": 2048, "output_length": 4, "hash_ids": [9 * (n % 2) + k for k in range(4)]}
            for n in range(20)]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["--set", "tiers.gpu.capacity=6 blocks", "--set", "replica.max_num_seqs=1"]
    assert (
        kvsim(["simulate", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "run"), "-q", *small, "--causes"])
        == 0
    )
    capsys.readouterr()
    assert kvsim(["explain", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    idle = json.loads((tmp_path / "run" / "summary.json").read_text())["misses"]["evicted_idle_ms"]
    assert idle["requests"] == 18
    assert " 0 ns" not in said
    if gap_ms:
        assert "before reuse (median idle time 120 s)" in said
        assert idle["avg"] == pytest.approx(120_000, rel=0.01)
    else:
        median_ms = float(re.findall(r"before reuse \(median idle time ([\d.]+) ms\)", said)[0])
        assert median_ms == pytest.approx(idle["avg"], rel=0.2), "the time of the request between"


def test_hops_of_a_load_overlap_and_the_slowest_counts_whole():
    wires = {
        name: ChannelSettings(name, 10**9, latency_ns=n)
        for n, name in enumerate(("disk->cpu", "cpu->gpu"), 7)
    }
    wires["disk->cpu"] = replace(wires["disk->cpu"], bandwidth_bytes_per_s=10**8)
    cache = CacheSettings(block_size_tokens=16, kv_bytes_per_token=1000, num_layers=1)
    machine = SimpleNamespace(edge_channels={name: name for name in wires})
    settings = SimpleNamespace(machines=[machine], cache=cache, channels=wires)
    assert load_ns(settings, "disk", 1600) == 1600 * 1000 * 10 + 7 + 8


ASKED = {
    "--request": ["--request", "0"],
    "--session": ["--session", "0"],
    "--prefixes": ["--prefixes"],
    "--sensitivity": ["--sensitivity"],
    "--regret": ["--regret"],
    "--worst, --between": ["--worst", "1"],
}


@pytest.mark.parametrize("first", ASKED)
@pytest.mark.parametrize("second", ASKED)
def test_a_run_is_asked_one_question_at_a_time(tmp_path, capsys, first, second):
    """An answer needs the run, which is not there; two questions are refused before it is opened."""
    options = ASKED[first] if first == second else [*ASKED[first], *ASKED[second]]
    assert kvsim(["explain", str(tmp_path / "none"), *options]) != 0
    line = capsys.readouterr().err
    names = [name for name in ASKED if name in (first, second)]
    refused = f"{', '.join(names)}: one at a time" in line
    assert refused == (first != second), line
    if first == second and "--sensitivity" not in names and "--regret" not in names:
        assert kvsim(["explain", str(tmp_path / "none"), *options, "--plugins"]) == 2
        assert "has no effect without --sensitivity or --regret" in capsys.readouterr().err


def test_worst_and_a_window_are_one_question(tmp_path, capsys):
    assert kvsim(["explain", str(tmp_path / "none"), "--worst", "3", "--between", "1s", "2s"]) != 0
    assert "one at a time" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cause", "least", "words"),
    [
        ("never_seen", 5, "are requested for the first time"),
        ("diverged", 5, "diverge from every earlier request"),
        ("evicted", 5, "were evicted on their machine before reuse (median idle time 3 s)"),
        ("elsewhere", 5, "the router (own-rule) sent the request elsewhere"),
        ("not_ready", 5, "were still being computed by an earlier request"),
        ("shorter", 20, "fill no block of 16 tokens"),
        ("not_admitted", 5, "not cached or not visible"),
        ("window_moved_on", 5, "sliding-window layers had released"),
        ("no_checkpoint", 5, "no state checkpoint was kept"),
    ],
)
def test_a_cause_of_misses_is_said_from_half_a_per_cent_on(cause, least, words):
    """Of a thousand prompt tokens; what lies behind the last whole block from two per cent on."""
    settings = SimpleNamespace(router=SimpleNamespace(policy="own-rule"))
    for missed in (least - 1, least):
        reuse = SimpleNamespace(
            missed={cause: np.array([0, missed - 1, 1])}, evicted_idle_ns=np.array([9, 2 * 10**9, 4 * 10**9])
        )
        case = SimpleNamespace(
            reuse=reuse, prompt_tokens=1000, run=SimpleNamespace(trace=None, block_size_tokens=16),
            scenario=SimpleNamespace(settings=settings),
        )  # fmt: skip
        said = getattr(causes, cause)(case)
        assert (said is None) is (missed < least)
        assert said is None or (said.startswith(f"{missed / 10:.1f} % of prompt tokens") and words in said)
    case.reuse = None
    assert getattr(causes, cause)(case) is None


@pytest.mark.parametrize(
    ("rates", "bound", "full", "none"),
    [(None, None, False, False), ((0.0, 0.0), None, False, True), ((0.4, 0.5), "80.0 %", False, False), ((0.474, 0.5), "94.8 %", False, False), ((0.475, 0.5), "95.0 %", True, False)],
)  # fmt: skip
def test_the_hit_rate_against_its_bound_in_words(monkeypatch, rates, bound, full, none):
    monkeypatch.setattr(causes, "hit_rates", lambda run: rates)
    case = SimpleNamespace(run=SimpleNamespace(trace=None), reuse=None)
    said = causes.upper_bound(case)
    assert (
        said is None
        if bound is None
        else f"{100 * rates[0]:.1f} %, {bound} of the upper bound of 50.0 %" in said
    )
    assert (causes.at_upper_bound(case) is not None) is full
    assert (causes.nothing_repeats(case) is not None) is none
    assert causes.no_trace(case).startswith("Causes of misses are unknown")


def test_what_others_wrote_while_a_context_was_idle():
    """Requests 0 to 4 in order on machine 1, of 48 tokens each but the third; 5 on another."""
    rows = {
        "machine": np.array([1, 1, 1, 1, 1, 0]), "arrival_ns": np.array([0, 1, 2, 3, 4, 2]),
        "num_tokens_actually_prefilled": np.array([40, 40, 90, 40, 40, 999]), "output_tokens": np.array([8, 8, 6, 8, 8, 1]),
    }  # fmt: skip
    reuse = SimpleNamespace(
        missed={"evicted": np.array([0, 0, 0, 0, 16, 0])}, last_user=np.array([-1, -1, -1, -1, 0, -1])
    )
    tiers = [SimpleNamespace(capacity_blocks=7), SimpleNamespace(capacity_blocks=None)]
    settings = SimpleNamespace(machines=[SimpleNamespace(tiers=tiers)])
    case = SimpleNamespace(
        reuse=reuse, prompt_tokens=100, run=SimpleNamespace(finished=rows, block_size_tokens=16),
        scenario=SimpleNamespace(settings=settings),
    )  # fmt: skip
    assert causes.evictors(case) == (
        "While an evicted context was idle, other requests wrote a median of 12 blocks on its machine, whose tiers hold "
        "7. The largest request wrote 50.0 % of them."
    )
    reuse.last_user[4] = 3
    assert causes.evictors(case) is None, "no other request wrote in between"
