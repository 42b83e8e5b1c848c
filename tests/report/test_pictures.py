"""Contents of pictures by hand: made-up series and requests, and the numbers that follow from them."""

import numpy as np
import pytest
from kvcache_sim.report.colours import OTHER
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.pictures import fleet
from kvcache_sim.report.render import draw
from kvcache_sim.report.time_series import MAX_POINTS, thinned
from report.finished_rows import written
from report.report_traces import make_trace
from support.request_rows import rows

S = 10**9


def sampled(label="A", **series):
    """Return a run of series by name, each [(machine, time in s, value), ...]; dots are double underscores."""
    samples = [
        {"name": name.replace("__", "."), "machine": machine, "time_ns": round(at_s * S), "value": value}
        for name, found in series.items()
        for machine, at_s, value in found
    ]
    return written(rows(0), label, sampled=samples)


def test_channels_are_used_by_the_time_between_samples():
    """Of more than six channels the least used are one, their mean; no use is more than all of the time."""
    named = {}
    for n in range(7):
        busy = [(0, 1, 0), (0, 2, (9 - n) * S // 10), (0, 3, (9 - n) * S // 5)]
        named |= {f"channel__c{n}__busy_ns": busy, f"channel__c{n}__queued_ns": [(0, 1, 0), (0, 3, n * S)]}
        named[f"channel__c{n}__bytes"] = [(0, 3, 100 * n)]
    picture = draw("channels", [sampled(**named)])
    assert {(row["channel"], row["s"]): row["use"] for row in picture.data} == {
        **{(f"c{n}", at): (9 - n) / 10 for n in range(5) for at in (2.0, 3.0)},
        **{(OTHER, at): (0.4 + 0.3) / 2 for at in (2.0, 3.0)},
    }
    expected = tuple(("A", f"c{n}", (9 - n) / 10, float(n), n / 2, 100 * n) for n in range(7))
    assert picture.table.rows == expected
    crowded = {"busy_ns": [(0, 1, 5 * S), (0, 2, 8 * S)], "queued_ns": [(0, 2, 0)], "bytes": [(0, 2, 1)]}
    picture = draw("channels", [sampled(**{f"channel__c__{name}": own for name, own in crowded.items()})])
    assert [(row["s"], row["use"]) for row in picture.data] == [(2.0, 1.0)]


def test_blocks_and_sequences_are_summed_over_machines_and_a_tier_without_a_bound_is_left_out():
    held = {
        "gpu__held": [(0, 1, 3), (1, 1, 4), (0, 2, 1)],
        "gpu__free": [(0, 1, -1)],
        "cpu__held": [(0, 1, 6)],
    }
    runs = [sampled(**held, queue=[(0, 1, 3), (1, 1, 4), (0, 2, 1)]), sampled("B", gpu__held=[(0, 1, 2)])]
    blocks = [(row["tier"], row["state"], row["s"], row["blocks"]) for row in draw("occupancy", runs).data]
    first = [("gpu", "held", 1.0, 7), ("gpu", "held", 2.0, 1), ("cpu", "held", 1.0, 6)]
    assert blocks == [*first, ("gpu", "held", 1.0, 2), ("cpu", "free", 0.0, 0)]
    assert draw("queue", runs[:1]).table.rows == (("A", "queue", 4.0, 7),)


@pytest.mark.parametrize("count", [1, MAX_POINTS, MAX_POINTS + 1, 5 * MAX_POINTS])
def test_drawn_samples_are_few_and_have_both_ends(count):
    times, values = thinned(np.arange(count) * 7, np.arange(count) * 3)
    assert len(times) == min(count, MAX_POINTS)
    assert (times[0], times[-1]) == (0, 7 * (count - 1))
    assert (values * 7 == times * 3).all()
    gaps = np.diff(times) // 7
    assert count == 1 or gaps.max() - gaps.min() <= 1


def test_requests_are_grouped_where_no_prefix_has_over_a_third():
    """All share 9, then two of three parts share 1: only at the third block are groups small enough."""
    ids = [[9, 1, n // 2] for n in range(4)] + [[9, 2, 5], [9, 2, 5]] + [[9]]
    finished = rows(7, machine=[0, 0, 1, 2, 1, 1, 0])
    run = written(finished, trace=make_trace([(0, 1, own) for own in ids]))
    picture = draw("machines", [run])
    assert picture.table.rows == (
        ("A", "01", 2, 1, 2),
        ("A", "02", 2, 2, 1),
        ("A", "03", 2, 1, 2),
        ("A", "04", 1, 1, 1),
    )
    counts = {}
    for row in picture.data:
        counts.setdefault(row["prefix"], []).append(row["requests"])
    assert counts == {"01": [2, 0, 0], "02": [0, 1, 1], "03": [0, 2, 0], "04": [1, 0, 0]}
    alone = written(finished | {"machine": np.ones(7, int)}, trace=run.trace)
    assert isinstance(draw("machines", [alone]), NothingToDraw)


@pytest.mark.parametrize("limited", [True, False])
def test_windows_of_a_fleet_against_each_request(limited):
    draws = np.random.default_rng(3)
    for last in (0, 1, 38, 39, 40, 41, 5000):
        arrival = np.append(draws.integers(0, last + 1, 60), [0, last]) + 12
        columns = rows(
            62, arrival_ns=arrival, status=draws.integers(0, 2, 62), input_tokens=draws.integers(5, 9, 62)
        )
        columns["cached_prefix_length_used"] = draws.integers(0, 5, 62)
        columns["within_slo"] = draws.integers(-1, 2, 62) if limited else np.full(62, -1)
        found = fleet.windows_of(written(columns))
        width = -(-(last + 1) // 40)
        assert [window["s"] for window in found] == [round((12 + k * width) / 1e9, 3) for k in range(40)]
        for k, window in enumerate(found):
            own = [row for row in range(62) if (arrival[row] - 12) // width == k]
            done = [row for row in own if columns["status"][row] == 0]
            tokens = sum(int(columns["input_tokens"][row]) for row in done)
            judged = [row for row in own if columns["within_slo"][row] >= 0] if limited else own
            met = [row for row in judged if (columns["within_slo"][row] == 1 if limited else row in done)]
            cached = sum(int(columns["cached_prefix_length_used"][row]) for row in done)
            expected = (
                len(own),
                cached / tokens if tokens else None,
                len(met) / len(judged) if judged else None,
            )
            assert (window["requests"], window["hit_rate"], window["attainment"]) == expected
    assert fleet.windows_of(written(rows(0))) == []
