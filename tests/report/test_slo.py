"""Objectives: attainment and goodput against each row judged by itself, and where service times are known."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.request_rule import parse_request_rule
from kvcache_sim.metrics.slo import AttainmentTotals, Limits, Objectives, RequestClass
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.examples import examples
from support.request_rows import rows
from support.tiered_scenario import load

limits = st.builds(Limits, *[st.none() | st.integers(1, 60)] * 3)
rows_of_requests = st.lists(
    st.tuples(
        st.booleans(),  # finished
        st.integers(0, 50),  # arrival
        st.integers(0, 50),  # TTFT
        st.integers(0, 200),  # the other tokens' time
        st.integers(1, 6),  # output tokens
        st.integers(1, 9),  # input tokens
    ),
    min_size=1,
    max_size=30,
)


def table(drawn) -> dict[str, np.ndarray]:
    done, arrival, ttft, later, outputs, inputs = map(np.array, zip(*drawn, strict=True))
    first = np.where(done, arrival + ttft, -1)
    last = np.where(done, first + later, -1)
    times = {"arrival_ns": arrival, "first_token_ns": first, "finish_ns": last, "output_tokens": outputs}
    return rows(len(drawn), status=~done, input_tokens=inputs, **times)


def judged(row, own: Limits) -> dict[str, bool]:
    """Return by limit whether one request is within it, by fractions."""
    done, _, ttft, later, outputs, _ = row
    tpot = Fraction(later, outputs - 1) if outputs > 1 else Fraction(0)
    times = {"ttft": (own.ttft_ns, ttft), "tpot": (own.tpot_ns, tpot), "e2e": (own.e2e_ns, ttft + later)}
    return {name: done and time <= limit for name, (limit, time) in times.items() if limit is not None}


@examples(200)
@example([(True, 3, 7, 20, 3, 1), (True, 3, 8, 21, 3, 1)], Limits(7, 10, 27), Limits(), 9, 1)  # at each limit
@example([(True, 3, 7, 20, 6, 1)], Limits(None, 1 << 61), Limits(), 9, 1)  # beyond 64 bits if multiplied
@given(rows_of_requests, limits, limits, st.integers(0, 9), st.integers(1, 7))
def test_attainment_is_that_of_each_request_by_itself(drawn, others, of_long, bound, step):
    rule = parse_request_rule(f"input_tokens >= {bound}")
    objectives = Objectives(others, (RequestClass("long", rule, of_long),))
    totals, columns = AttainmentTotals(objectives), table(drawn)
    for start in range(0, len(drawn), step):
        totals.add({name: own[start : start + step] for name, own in columns.items()})
    by_row = [judged(row, of_long if row[5] >= bound else others) for row in drawn]
    reported = [all(own.values()) if own else None for own in by_row]
    found = totals.figures(2_000_000_000)
    assert totals.missed == reported.count(False)
    assert objectives.within(columns).tolist() == [-1 if own is None else int(own) for own in reported]

    def counted(verdicts):
        kept = [own for own in verdicts if own is not None]
        return {
            "judged": len(kept),
            "attained": sum(kept),
            "attainment": sum(kept) / len(kept) if kept else None,
        }

    limited = {name: [own.get(name) for own in by_row] for name in ("ttft", "tpot", "e2e")}
    parts = {"long": (of_long, lambda row: row[5] >= bound), "others": (others, lambda row: row[5] < bound)}
    assert found["slo"] == {
        **counted(reported),
        **{f"{name}_attainment": counted(own)["attainment"] for name, own in limited.items()},
        "classes": {
            name: counted(own for row, own in zip(drawn, reported, strict=True) if holds(row))
            for name, (limits, holds) in parts.items()
            if limits != Limits()
        },
    }
    outputs, inputs = (sum(row[n] for row, own in zip(drawn, reported, strict=True) if own) for n in (4, 5))
    assert found["goodput"] == {
        "requests_per_s": reported.count(True) / 2,
        "output_tokens_per_s": outputs / 2,
        "tokens_per_s": (outputs + inputs) / 2,
    }


ONE_BY_ONE = (
    "workload=null",
    "workload={}",
    "trace.path={path}",
    "cache.block_size=64",
    "cache.enabled=false",
    "tiers.cpu=null",
    "tiers.disk=null",
    "cluster.machines=1",
    "replica.max_num_seqs=1",
    "tiers.gpu.capacity=1000 blocks",
)


def summary_of(tmp_path, rows, *overrides):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = load(*(one.replace("{path}", str(path)) for one in (*ONE_BY_ONE, *overrides)))
    return execute(scenario, read_requests(scenario), RunOptions()).summary


def request(n: int, **more) -> dict:
    return {"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [n], **more}


@pytest.mark.parametrize("within", [1, 2, 5, 12])
def test_goodput_where_service_times_are_known(tmp_path, within):
    """Equal requests that arrive at once and are served one by one: the k-th waits k service times."""
    alone = summary_of(tmp_path, [request(0)])
    service_ms, first_ms = alone["latency"]["e2e"]["max"], alone["latency"]["ttft"]["max"]
    limit_ns = round((first_ms + (within - 1) * service_ms) * 1e6)
    for less in (0, 1):
        found = summary_of(tmp_path, [request(n) for n in range(12)], f"slo.ttft={limit_ns - less}ns")
        assert found["latency"]["e2e"]["max"] == pytest.approx(12 * service_ms, rel=1e-12)
        assert found["slo"]["attained"] == within - less
        assert found["slo"]["attainment"] == (within - less) / 12
        rate = (within - less) / (12 * service_ms / 1e3)
        assert found["goodput"]["requests_per_s"] == pytest.approx(rate, rel=1e-9)
        assert found["goodput"]["output_tokens_per_s"] == pytest.approx(4 * rate, rel=1e-9)
        assert found["goodput"]["tokens_per_s"] == pytest.approx(516 * rate, rel=1e-9)


def test_classes_are_assigned_by_fields_of_the_trace(tmp_path):
    rows = [request(n, customer=("gold", "blue")[n % 2], priority=n % 3, fast=n > 5) for n in range(12)]
    vip = "vip: {when: customer == gold and priority != 2, e2e: 1ns}"
    slo = f"slo={{ttft: 1h, classes: {{{vip}, quick: {{when: fast == true, tpot: 1ns}}}}}}"
    found = summary_of(tmp_path, rows, slo)["slo"]
    vip = [n for n in range(12) if n % 2 == 0 and n % 3 != 2]
    quick = [n for n in range(12) if n > 5 and n not in vip]
    assert found["classes"]["vip"] == {"judged": len(vip), "attained": 0, "attainment": 0.0}
    assert found["classes"]["quick"]["judged"] == len(quick)
    assert found["classes"]["others"] == {
        "judged": 12 - len(vip) - len(quick),
        "attained": 12 - len(vip) - len(quick),
        "attainment": 1.0,
    }
    assert found["ttft_attainment"] == 1.0
    assert found["e2e_attainment"] == 0.0


def test_the_window_leaves_requests_out_of_the_attainment_too():
    scenario = load("slo.ttft=2800ms", "measure.warmup=40%", "measure.cooldown=20%")
    made = execute(scenario, read_requests(scenario), RunOptions())
    rows = made.run.requests
    own = slice(60, 120)
    within = (rows["first_token_ns"] - rows["arrival_ns"])[own] <= 2_800_000_000
    assert made.summary["slo"]["judged"] == 60
    assert made.summary["slo"]["attained"] == within.sum()
    assert 0 < within.sum() < 60


def test_rows_that_leave_are_judged_as_rows_that_stay(tmp_path, capsys):
    arguments = ["simulate", "--set", "workload={kind: few-shot, requests: 300}", "-q", "--set"]
    arguments += [
        "slo={ttft: 12ms, classes: {short: {when: input_tokens < 2176, tpot: 7ms}}}",
        "--format",
        "json",
    ]
    columns, summaries = [], []
    for name, more in (("leave", []), ("stay", ["--causes"])):
        assert run([*arguments, "-o", str(tmp_path / name), *more]) == 0
        summaries.append(json.loads(capsys.readouterr().out))
        columns.append(np.asarray(load_run(tmp_path / name).requests()["within_slo"]))
    assert np.array_equal(*columns)
    assert summaries[0]["slo"] == summaries[1]["slo"]
    assert summaries[0]["slo"]["attained"] == (columns[0] == 1).sum()
    assert 0 < summaries[0]["slo"]["attained"] < 300
