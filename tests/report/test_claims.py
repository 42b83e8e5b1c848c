"""The claims of ``kvsim explain``: each is found true by its experiment, on drawn runs that earn its sentence."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
from kvcache_sim import compare
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.claims import CLAIMS, check
from kvcache_sim.report.explain.sentences import SENTENCES
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.product.reports import FinishedRun
from support.product.scenarios import store, varied_from_text

#: Scenarios of each claim: two, and twenty with ``make claims``.
DRAWN = int(os.environ.get("KVSIM_CLAIMS", "2"))
WORKLOAD = """
seed: {seed}
workload: {{kind: {kind}, requests: 150, arrivals: {{process: poisson, rate_per_s: {rate}}}}}
cache: {{block_size: {block}, policy: {policy}{cache}}}
tiers: {{gpu: {{capacity: {gpu} blocks}}{lower}}}
replica: {{max_num_seqs: {seqs}{replica}}}
{more}
"""
CPU, DISK = ", cpu: {capacity: 9000 blocks}", ", disk: {capacity: 9000 blocks}"
MACHINES = "cluster: {machines: 3}"
#: Claim → what earns its sentence, in place of the drawn values.
EARNS: dict[str, dict[str, object]] = {
    "at-upper-bound": {"gpu": 60_000},
    "queueing": {"rate": 30},
    "saturated": {"rate": 30},
    "router-without-choice": {},
    "preemptions": {"rate": 30, "gpu": 220, "seqs": 64},
    "shorter": {"block": 512, "gpu": 900},
    "fetching": {"lower": CPU, "links": "2GB/s", "rate": 0.5},
    "batch-stalls": {"lower": CPU, "links": "0.5GB/s", "rate": 1},
    "channel-too-slow": {"lower": CPU, "links": "2GB/s", "rate": 0.5},
    "break-even-cpu": {"lower": CPU, "links": "1GB/s", "rate": 0.5, "kind": "conversational"},
    "net-of-loads": {"lower": CPU, "kind": "conversational"},
    "waiting-for-room": {"lower": CPU, "links": "1GB/s", "rate": 4},
    "policy-without-choice": {"gpu": 60_000},
    "cpu-unused": {"gpu": 60_000, "lower": CPU},
    "cpu-used": {"lower": CPU, "gpu": 900, "kind": "conversational"},
    "disk-used": {"lower": f", cpu: {{capacity: 900 blocks}}{DISK}", "gpu": 900, "kind": "conversational"},
    "disk-unused": {"gpu": 60_000, "lower": CPU + DISK},
    "drive-writes": {"gpu": 900, "lower": f", cpu: {{capacity: 900 blocks}}{DISK}"},
    "dropped": {"gpu": 900, "lower": ", cpu: {capacity: 40 blocks}, disk: {capacity: 90000 blocks}"},
    "elsewhere": {"more": MACHINES, "gpu": 60_000, "kind": "conversational"},
    "remote-used": {
        "more": f"{MACHINES}\nfetch: {{lookup: cluster}}",
        "lower": CPU,
        "kind": "conversational",
    },
    "not-loaded": {"more": "fetch: {policy: never}", "lower": CPU, "kind": "conversational"},
    "not-admitted": {"cache": ", admission: prompt", "gpu": 60_000, "kind": "conversational"},
    "not-ready": {"kind": "repetitive", "rate": 60, "gpu": 60_000},
    "none-returns": {"kind": "diverse"},
    "nothing-repeats": {"kind": "diverse"},
    "rejections": {"replica": ", max_model_len: 2000", "kind": "conversational"},
}
#: Claims whose sentence needs cache groups: ``tests/report/test_group_causes.py``; and a row on two.
ELSEWHERE = {"partial-block", "window-moved-on", "no-checkpoint", "break-even-disk"}


def drawn_runs(name: str, folder) -> Iterator[FinishedRun]:
    """Yield runs whose explanation has a sentence, at drawn sizes and rates."""
    draw = np.random.default_rng(sum(map(ord, name)))
    for number in range(20 * DRAWN):
        values = {
            "seed": int(draw.integers(1, 1000)),
            "kind": draw.choice(["conversational", "few-shot", "repetitive"]),
            "rate": float(draw.choice([0.5, 2, 6])),
            "block": 16,
            "policy": draw.choice(["lru", "fifo"]),
            "gpu": int(draw.integers(700, 3000)),
            "lower": "",
            "seqs": 16,
            **dict.fromkeys(("cache", "replica", "more"), ""),
        } | EARNS.get(name, {})
        links = values.pop("links", None)
        text = WORKLOAD.format(**values)
        if links:
            text += f"channels: {{gpu-to-cpu: {{bandwidth: {links}}}, cpu-to-gpu: {{bandwidth: {links}}}}}\n"
        scenario = varied_from_text(text, "s", folder, [])
        trace = read_requests(scenario)
        done = execute(scenario, trace, RunOptions())
        with open_run_directory(folder / f"{name}-{number}", force=False) as target:
            store(done, target, ["kvsim"])
        yield FinishedRun(load_run(folder / f"{name}-{number}"), "run", trace)


def test_each_claim_is_of_a_sentence():
    named = {name for group in SENTENCES.values() for name in group}
    assert set(CLAIMS) <= named


@pytest.mark.parametrize("name", sorted(set(CLAIMS) - ELSEWHERE - {"write-policy-without-choice"}))
def test_the_experiment_of_a_claim_finds_it_true(name, tmp_path):
    found = 0
    for run in drawn_runs(name, tmp_path):
        checked = {one.name: one for one in check(Case(run), {name})}
        if name not in checked or not checked[name].changes:
            continue
        assert checked[name].true, checked[name]
        found += 1
        if found == DRAWN:
            return
    pytest.fail(f"only {found} runs have the sentence")


PLAIN = """seed: {seed}
workload: {{kind: conversational, requests: 200, arrivals: {{process: poisson, rate_per_s: 3}}}}
cache: {{block_size: 16}}
tiers: {{gpu: {{capacity: {gpu} blocks}}}}
replica: {{max_num_seqs: {seqs}}}
"""


@pytest.mark.parametrize(("gpu", "seqs", "best"), [(9000, 16, "b"), (900, 2, "a")])
def test_what_a_comparison_calls_better_is_better_at_another_seed(gpu, seqs, best, tmp_path, capsys):
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    for seed in range(1, 1 + DRAWN // 2):
        a.write_text(PLAIN.format(seed=seed, gpu=900, seqs=16))
        b.write_text(PLAIN.format(seed=seed, gpu=gpu, seqs=seqs))
        found = compare(a, b)
        assert found.sentences[0].startswith(f"{best} is better")
        checked = found.check()
        assert checked
        assert [one["true"] for one in checked] == [True] * len(checked)
    assert kvsim(["compare", str(a), str(b), "--check"]) == 0
    assert f"{best} is better" in capsys.readouterr().out
    assert compare(a, a).check() == []


def test_explain_check_prints_each_claim_and_what_came_out(tmp_path, capsys):
    run = str(tmp_path / "run")
    given = ["workload.kind=few-shot", "workload.requests=80", "tiers.gpu.capacity=800 blocks"]
    assert kvsim(["simulate", *(part for one in given for part in ("--set", one)), "-o", run, "-q"]) == 0
    capsys.readouterr()
    assert kvsim(["explain", run, "--check"]) == 0
    printed = capsys.readouterr().out
    assert "as said: router.policy=round-robin: latency.e2e.avg" in printed
    assert "NOT as said" not in printed
