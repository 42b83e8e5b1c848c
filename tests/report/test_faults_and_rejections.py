"""Faults in explain: losses and the time until TTFT was back; requests not served wherever figures stand."""

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.report.explain.faults import recoveries
from report.finished_rows import written
from support.request_rows import rows

S, MS = 10**9, 10**6
FLEET = """
tiers: {gpu: {capacity: 64 blocks}, cpu: {capacity: 64 blocks}}
cluster: {machines: 2}
fleet: {plan: [{at: 39.5s, do: lose, machine: 1}, {at: 45s, do: join}]}
"""


def run_of(ttft_ms: list[int], scenario: str = FLEET, **summary: object):
    """A request a second; TTFT as given."""
    count = len(ttft_ms)
    arrival = np.arange(count, dtype=np.int64) * S
    first = arrival + np.array(ttft_ms, np.int64) * MS
    columns = rows(count, arrival_ns=arrival, first_token_ns=first, finish_ns=first + S)
    return written(columns, scenario=scenario, summary=summary)


@pytest.mark.parametrize(
    ("after", "worst_ms", "back_s"),
    [
        # 30 requests of 300 ms from 40 s on: of 20 from the 61st on (second 60), nine take 300 ms; 61 - 39.5
        ([300] * 30 + [100] * 40, 300, 21.5),
        ([300] * 9 + [100] * 40, 100, 0.0),  # a median of 20 does not see nine
        ([300] * 12 + [100] * 40, 300, 3.5),  # from second 43 on nine of 20
        ([110] * 60, 110, 0.0),  # within 10 %
        ([111] * 60, 111, None),
    ],
)
def test_ttft_is_back_when_the_median_of_twenty_is_within_ten_percent(after, worst_ms, back_s):
    (found,) = recoveries(run_of([100] * 40 + after))
    assert (found.at_ns, found.usual_ns, found.worst_ns) == (39.5 * S, 100 * MS, worst_ms * MS)
    assert found.back_ns == (None if back_s is None else back_s * S)


def test_too_few_requests_around_a_fault_say_nothing():
    assert recoveries(run_of([100] * 41 + [300] * 10)) == []
    assert recoveries(run_of([100] * 80, "tiers: {gpu: {capacity: 9 blocks}}")) == []


def test_explain_names_what_was_lost_and_when_ttft_was_back():
    """One of two machines is lost under a load that two hold; another one comes."""
    trace = kv.generate(
        "conversational", seed=3, requests=500, arrivals={"process": "poisson", "rate_per_s": 5}
    )
    plan = [{"at": "60s", "do": "lose", "machine": 1}, {"at": "61s", "do": "join"}]
    tiers = {"gpu": "600 blocks", "cpu": "4GiB"}
    lost = kv.simulate(trace, tiers=tiers, cluster=2, fleet={"plan": plan, "startup": "30s"})
    said = kv.explain(lost)["What faults cost"]
    retried = lost.summary["fleet"]["retried"]
    series = lost.to_pandas("series")
    before = series[(series.machine == 1) & (series.time_ns < 60 * S)]
    kept = before[(before.time_ns == before.time_ns.max()) & before.name.str.endswith((".cached", ".held"))]
    assert said["losses"].startswith(
        f"Lost: machines 1, blocks on them at the last sample before {kept.value.sum():,}; "
    )
    assert f"; requests started again {retried:,}, failed 0." in said["losses"]
    assert said["recovery"].startswith("At 60 s machine 1 is lost: the median TTFT of 20 requests ")
    assert "What faults cost" not in kv.explain(kv.simulate(trace, tiers=tiers, cluster=2))
    failed = kv.simulate(trace, tiers=tiers, cluster=2, fleet={"plan": plan, "in_flight": "fail"})
    count = failed.summary["requests"]["failed"]
    assert f"failed {count:,}." in kv.explain(failed)["What faults cost"]["losses"]
    assert "rejections" not in kv.explain(failed)["What TTFT is made of"], "failed requests are not rejected"


def test_requests_that_were_not_served_stand_wherever_figures_do(tmp_path):
    trace = kv.generate("conversational", requests=120)
    long = kv.make_trace(
        {
            "arrival_s": np.arange(100) / 2,
            "input_tokens": [9000 if k % 4 == 0 else 1000 for k in range(100)],
            "output_tokens": [4] * 100,
        }
    )
    small, large = (
        kv.simulate(long, tiers={"gpu": size}, name=size[:2]) for size in ("12 blocks", "64 blocks")
    )
    assert small.summary["requests"]["rejected"] == 25
    said = "25.0 % of requests were rejected (25 of 100)"
    compared = kv.compare(large, small)
    assert f"12: {said}; figures are of the requests that it served." in compared.sentences
    page = compared.report(tmp_path / "r.html").read_text()
    assert 'data-figure="requests.unserved"' in page
    assert 'data-figure="requests.unserved"' not in large.report(tmp_path / "l.html").read_text()
    cells = str(kv.sweep(long, grid={"tiers.gpu": ["12 blocks", "64 blocks"]}))
    assert "rejected" in cells.splitlines()[0] or "rejected" in cells
    assert said in " ".join(cells.split())
    assert "rejected" not in str(kv.sweep(trace, grid={"tiers.gpu": ["64 blocks", "96 blocks"]}))
    found = kv.capacity(long, tiers={"gpu": "12 blocks"}, slo="ttft=20s", attain="50%")
    assert "% of requests were rejected (" in " ".join(str(found).split())
