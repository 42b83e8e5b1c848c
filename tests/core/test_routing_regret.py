"""Routing regret: in closed form to the nanosecond, against a recount from the run, and without effect on
the run."""

import json
from dataclasses import replace

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster
from support.pools import TOKEN_NS, pools, requests
from support.product.models import Residuals
from support.traces import random_trace

WATCHED = RunOptions(regret=True)


def sums(run):
    return {n.removeprefix("regret."): v for n, v in run.counters.items() if n.startswith("regret.")}


def test_by_hand():
    """Round robin over two machines: 64 tokens to 0; 80 that begin with them to 1; then the same 80 to 0
    again.

    The second would have found four blocks of 16 on machine 0. The third finds those four, and machine 1 has
    all
    five, of which four may be reused.
    """
    trace = requests((0, 64, 1), (10, 80, 1), (20, 80, 1), shared=5)
    run = simulate(pools("bb"), trace, options=WATCHED)
    assert run.requests["machine"].tolist() == [0, 1, 0]
    assert sums(run) == {
        "choices": 3,
        "prompt_tokens": 224,
        "found_tokens": 0 + 0 + 64,
        "best_found_tokens": 0 + 64 + 64,
        "expected_ns": (64 + 80 + 16) * TOKEN_NS,
        "least_expected_ns": (64 + 16 + 16) * TOKEN_NS,
        "later": 1,
    }


def test_what_waits_counts_until_its_first_token():
    """Session affinity keeps all on machine 0: the second prompt stands behind the first, machine 1 is
    idle."""
    trace = requests((0, 200, 1), (1, 100, 1), (2.1, 50, 1))
    trace = replace(trace, session=0 * trace.session)
    found = sums(
        simulate(replace(pools("bb"), router=RouterSettings("session-affinity")), trace, options=WATCHED)
    )
    # at 1 ms the first, 200 tokens that take 2 ms, has no token yet; at 2.1 ms the second has none
    assert found["expected_ns"] == (200 + 300 + 150) * TOKEN_NS
    assert found["least_expected_ns"] == (200 + 100 + 50) * TOKEN_NS
    assert found["later"] == 2
    assert found["found_tokens"] == found["best_found_tokens"] == 0


@pytest.mark.parametrize("policy", ["round-robin", "longest-prefix", "dynamo-kv", "weighted"])
def test_watching_changes_nothing_and_the_best_is_never_worse(policy):
    settings = replace(cluster((90, 60), 3), router=RouterSettings(policy))
    plain = simulate(settings, random_trace(6))
    watched = simulate(settings, random_trace(6), options=WATCHED)
    assert watched.digest_results == plain.digest_results
    assert watched.digest_events == plain.digest_events
    found = sums(watched)
    assert found["choices"] == 120
    assert 0 < found["found_tokens"] <= found["best_found_tokens"] <= found["prompt_tokens"]
    assert 0 < found["least_expected_ns"] <= found["expected_ns"]
    assert not sums(plain)


def test_longest_prefix_loses_fewer_hits_than_round_robin():
    three, lost = cluster((900,), 3), {}
    linear = tuple(
        replace(one, step_time=replace(one.step_time, residuals=Residuals())) for one in three.machines
    )  # its regret is small if machines are not overloaded
    for policy in ("round-robin", "longest-prefix"):
        settings = replace(three, machines=linear, router=RouterSettings(policy))
        found = sums(simulate(settings, random_trace(6), options=WATCHED))
        lost[policy] = found["best_found_tokens"] - found["found_tokens"]
    assert lost["longest-prefix"] < lost["round-robin"] / 3


def test_explain_reports_routing_regret(tmp_path, capsys):
    workload = "workload={kind: conversational, requests: 60}"
    argv = ["simulate", "--set", workload, "--set", "cluster.machines=3"]
    assert kvsim([*argv, "-o", str(tmp_path / "r"), "-q"]) == 0
    assert kvsim(["explain", str(tmp_path / "r"), "--regret", "--format", "json"]) == 0
    out = capsys.readouterr().out
    reported = json.loads(out[out.index("{") :])
    assert reported["choices"] == 60
    assert kvsim(["explain", str(tmp_path / "r"), "--regret"]) == 0
    text = capsys.readouterr().out
    assert "Router round-robin, 60 choices among 3 machines" in text
    assert "lost to routing" in text
    assert kvsim([*argv[:-1], "cluster.machines=1", "-o", str(tmp_path / "one"), "-q"]) == 0
    assert kvsim(["explain", str(tmp_path / "one"), "--regret"]) == 2
    assert "one machine" in capsys.readouterr().err
