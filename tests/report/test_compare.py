"""Comparison: what differs is found, what does not is called chance, and thresholds decide the exit code."""

from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.metrics.resampling import resampled_rows
from kvcache_sim.report.compare.comparison import compare, differing_settings
from kvcache_sim.report.compare.printed import comparison_text
from kvcache_sim.report.compare.samples import STATISTICS, samples_of
from kvcache_sim.report.compare.sides import open_sides
from kvcache_sim.report.compare.text import sentences
from kvcache_sim.report.finished import open_runs
from support.fake_run import SCENARIO, made_up_run, request_columns, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    columns = request_columns(2000)
    later = {name: values.copy() for name, values in columns.items()}
    later["queue_ns"] += 40_000_000
    later["first_token_ns"] += 40_000_000
    later["finish_ns"] += 40_000_000
    random = np.random.default_rng(0)
    noisy = {name: values.copy() for name, values in columns.items()}
    noise = random.normal(0, 2e7, 2000).astype(int)
    noisy["queue_ns"] += noise
    noisy["first_token_ns"] += noise
    noisy["finish_ns"] += noise
    made = {
        "A": write_run(root / "A", columns),
        "same": write_run(root / "same", columns, scenario=SCENARIO.replace("512GiB", "1TiB")),
        "later": write_run(root / "later", later),
        "noisy": write_run(root / "noisy", noisy),
        "other-trace": made_up_run(root / "other-trace", 1500, seed=5),
    }
    return {name: open_runs([directory])[0] for name, directory in made.items()}


def compared(runs, name):
    return compare([runs["A"]], [runs[name]])


def by_metric(comparison):
    return {d.statistic.metric: d for d in comparison.differences}


def test_pairing_narrows_the_interval(runs):
    paired = by_metric(compared(runs, "later"))["latency.ttft.avg"]
    a, b = samples_of(runs["A"]), samples_of(runs["later"])
    rows = resampled_rows(len(a))
    mean = STATISTICS[2]
    unpaired = [
        mean.value(b.chosen(y)) / mean.value(a.chosen(x)) for x, y in zip(rows, rows[::-1], strict=True)
    ]
    assert paired.high - paired.low < 0.5 * (np.percentile(unpaired, 97.5) - np.percentile(unpaired, 2.5))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Over many samples of a known mean, the 95 % interval holds it about 95 % of the time."""
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        values = random.exponential(1.0, 400)
        rows = resampled_rows(400)
        low, high = np.percentile(values[rows].mean(axis=1), [2.5, 97.5])
        covered += low <= 1.0 <= high
    assert 0.86 <= covered / 200 <= 0.995


def test_replications_give_the_interval(runs):
    random = np.random.default_rng(2)

    class Replication:
        manifest, label, scenario, summary = {}, "x", {}, {}

        def __init__(self, factor):
            self.finished = request_columns(200, seed=int(random.integers(1000)))
            self.finished["first_token_ns"] = self.finished["arrival_ns"] + (
                (self.finished["first_token_ns"] - self.finished["arrival_ns"]) * factor
            ).astype(int)

    base = [Replication(1.0) for _ in range(6)]
    other = []
    for run in base:
        doubled = Replication(1.0)
        doubled.finished = dict(run.finished)
        doubled.finished["first_token_ns"] = 2 * run.finished["first_token_ns"] - run.finished["arrival_ns"]
        other.append(doubled)
    comparison = compare(base, other)
    assert comparison.paired_by == "replication"
    ttft = by_metric(comparison)["latency.ttft.avg"]
    assert ttft.change == pytest.approx(2.0, abs=1e-6)
    assert ttft.high - ttft.low < 1e-6
    assert sentences(comparison)[2] == "x's mean TTFT is 2.00 ± 0.00 times higher than x's (n = 200)."


def test_a_channel_that_one_side_lacks_is_one_row():
    link = {"bandwidth": "5GB/s", "latency": "10us", "scope": "machine"}
    without, with_link = {"channels": {}}, {"channels": {"disk": link}}
    assert differing_settings([without, with_link]) == {"channels.disk.bandwidth": (None, "5GB/s")}
    slower = {"channels": {"disk": link | {"latency": "20us"}}}
    assert differing_settings([slower, with_link]) == {"channels.disk.latency": ("20us", "10us")}


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("intervals", [True, False])
def test_scenarios_are_simulated_with_their_own_seed_then_those_of_repeats(
    tmp_path, monkeypatch, repeats, intervals
):
    """One run that takes at most 20 s of CPU and has step times also gets its intervals, if these are asked for.

    A scenario is labeled by its file, that of a finished run by the run; equal labels are numbered.
    """
    for name in (
        "a.yaml",
        "once/scenario.yaml",
        "run/scenario.yaml",
        "run/run.json",
        "run/b.yaml",
        "two/a.yaml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    clock, stored = [100.0], []

    def load_varied(file, more=()):
        return SimpleNamespace(file=file, more=[*more], settings=SimpleNamespace(seed=5))

    def execute(scenario, trace, options):
        assert trace is scenario
        clock[0] += {"a": 20.0, "scenario": 20.5, "b": 1.0}[scenario.file.stem]
        times = {"b": False}.get(scenario.file.stem, True)
        return SimpleNamespace(summary={"step_times": times}, said=[scenario.more, options.times, "plain"])

    def with_certainty(done, trace):
        return SimpleNamespace(said=[*done.said[:2], "with intervals"]), 0, ""

    def store(done, target, argv):
        stored.append((argv, *done.said))
        (target.part / "asked").write_text(str(len(stored)))
        target.commit()

    # First, as its import takes ``execute``.
    for name, value in (
        ("report.intervals.certainty.with_certainty", with_certainty),
        ("scenario.load.load_varied", load_varied), ("scenario.requests.read_requests", lambda scenario: scenario),
        ("scenario.execute.execute", execute), ("scenario.execute.store", store),
        ("report.compare.sides.load_run", lambda path: SimpleNamespace(path=path, manifest=0, summary=0, scenario="")),
    ):  # fmt: skip
        monkeypatch.setattr(f"kvcache_sim.{name}", value)

    monkeypatch.setattr(
        "kvcache_sim.report.compare.sides.time", SimpleNamespace(process_time=lambda: clock[0])
    )
    files = [
        tmp_path / name
        for name in ("a.yaml", "once/scenario.yaml", "run/scenario.yaml", "run/b.yaml", "two/a.yaml")
    ]
    with ExitStack() as stack:
        sides = open_sides(files, repeats, stack, intervals)
        folders = {run.directory for side in sides for run in side}
        assert len(folders) == 5 * repeats
        assert all((folder / "asked").exists() for folder in folders)
    assert not any(folder.exists() for folder in folders)
    labels = ("a (1)", "scenario", "run", "b", "a (5)")
    assert [[run.label for run in side] for side in sides] == [[label] * repeats for label in labels]
    once = intervals and repeats == 1
    seeds = [[], *([f"seed={repeat_seed(5, n)}"] for n in range(1, repeats))]
    assert stored == [
        (
            ["kvsim", "compare", str(file)],
            seed,
            once,
            "with intervals" if once and file.stem == "a" else "plain",
        )
        for file in files
        for seed in seeds
    ]


@pytest.mark.parametrize(
    ("sides", "repeats", "line"),
    [
        (("run", "run"), 1, ""),
        (("run", "run"), 2, "--repeats: finished runs cannot be repeated"),
        (("run", "s.yaml"), 2, "run: a finished run cannot be repeated"),
        (("s.yaml", "s.yaml"), 2, ""),
    ],
)
def test_only_scenarios_are_repeated(tmp_path, sides, repeats, line):
    write_run(tmp_path / "run", request_columns(5))
    (tmp_path / "s.yaml").write_text("workload: {kind: diverse, requests: 3}\n")
    with ExitStack() as stack:
        if line:
            with pytest.raises(UsageError, match=line):
                open_sides([tmp_path / side for side in sides], repeats, stack)
            return
        found = open_sides([tmp_path / side for side in sides], repeats, stack)
    assert [len(side) for side in found] == [repeats if side == "s.yaml" else 1 for side in sides]
    assert [side[0].label for side in found] == [f"{sides[0].removesuffix('.yaml')} ({n})" for n in (1, 2)]


def test_settings_that_differ_are_a_table_on_request(runs):
    comparison = compared(runs, "same")
    short, long = comparison_text(comparison), comparison_text(comparison, all_settings=True)
    table = [part for part in long.split("\n\n") if part not in short.split("\n\n")]
    assert len(table) == 1
    assert table[0].splitlines()[-1].split() == ["tiers.cpu.capacity", "512GiB", "1TiB"]
    alike = replace(comparison, settings={})
    assert comparison_text(alike, all_settings=True) == comparison_text(alike)
