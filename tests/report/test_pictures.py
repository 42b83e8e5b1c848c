"""Contents of pictures by hand: made-up series and requests, and the numbers that follow from them."""

from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.report.colours import OTHER
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.pictures import fleet, machines
from kvcache_sim.report.render import draw
from kvcache_sim.report.time_series import MAX_POINTS, drawn_as, thinned

S = 10**9


def sampled(label: str, **series):
    """A run of series by name, each [(machine, time in s, value), ...]; dots are double underscores."""
    rows = [(name.replace("__", "."), *one) for name, found in series.items() for one in found]
    words = tuple(dict.fromkeys(row[0] for row in rows))
    columns = {
        "name": CodedText(np.array([words.index(row[0]) for row in rows], np.int32), words),
        "machine": np.array([row[1] for row in rows], np.int16),
        "time_ns": np.array([round(row[2] * S) for row in rows], np.int64),
        "value": np.array([row[3] for row in rows], np.int64),
    }
    return SimpleNamespace(
        label=label,
        series=columns,
        summary={},
        trace=None,
        finished={"request": [], "machine": np.array([0])},
    )


def test_a_queue_is_summed_over_machines():
    first = sampled("A", queue=[(0, 1, 3), (1, 1, 4), (0, 2, 1)], running=[(0, 1, 2)])
    picture = draw("queue", [first, sampled("B", loading=[(0, 0.5, 9)])])
    assert [tuple(row.values()) for row in picture.data] == [
        ("A", "queue", 1.0, 7),
        ("A", "queue", 2.0, 1),
        ("A", "running", 1.0, 2),
        ("B", "loading", 0.5, 9),
    ]
    assert picture.table.rows == (("A", "queue", 4.0, 7), ("A", "running", 2.0, 2), ("B", "loading", 9.0, 9))


def test_channels_are_used_by_the_time_between_samples():
    """Of two machines' shares of one channel; of more than six channels the least used are one, their mean."""
    named = {}
    for n in range(7):
        busy = [(0, 1, 0), (0, 2, (9 - n) * S // 10), (0, 3, (9 - n) * S // 5)]
        named |= {f"channel__c{n}__busy_ns": busy, f"channel__c{n}__queued_ns": [(0, 1, 0), (0, 3, n * S)]}
        named[f"channel__c{n}__bytes"] = [(0, 3, 100 * n)]
    picture = draw("channels", [sampled("A", **named)])
    drawn = {(row["channel"], row["s"]): row["use"] for row in picture.data}
    assert drawn == {
        **{(f"c{n}", at): (9 - n) / 10 for n in range(5) for at in (2.0, 3.0)},
        **{(OTHER, at): (0.4 + 0.3) / 2 for at in (2.0, 3.0)},
    }
    assert picture.table.rows == tuple(
        ("A", f"c{n}", (9 - n) / 10, float(n), n / 2, 100 * n) for n in range(7)
    )
    steady = {
        "channel__c__busy_ns": [(0, 1, 5 * S), (0, 2, 8 * S)],
        "channel__c__queued_ns": [(0, 2, 0)],
        "channel__c__bytes": [(0, 2, 1)],
    }
    picture = draw("channels", [sampled("B", **steady)])
    assert [(row["s"], row["use"]) for row in picture.data] == [(2.0, 1.0)], "no more than all of the time"
    assert picture.table.rows == (("B", "c", 3.0, 0.0, 0.0, 1),)


def test_occupancy_leaves_out_what_has_no_bound_and_fills_the_grid():
    first = sampled(
        "A", gpu__held=[(0, 1, 3), (1, 1, 4), (0, 2, 1)], gpu__free=[(0, 1, -1)], cpu__held=[(0, 1, 6)]
    )
    picture = draw("occupancy", [first, sampled("B", gpu__held=[(0, 1, 2)])])
    drawn = [
        (row["run"], row["tier"], row["state"], row["order"], row["s"], row["blocks"]) for row in picture.data
    ]
    assert drawn == [
        ("A", "gpu", "held", 0, 1.0, 7),
        ("A", "gpu", "held", 0, 2.0, 1),
        ("A", "cpu", "held", 0, 1.0, 6),
        ("B", "gpu", "held", 0, 1.0, 2),
        ("B", "cpu", "free", 0, 0.0, 0),
    ]
    nothing = (None, None)
    assert picture.table.rows == (
        ("A", "gpu", 4.0, 7, *nothing, *nothing, -1.0, -1),
        ("A", "cpu", 6.0, 6, *nothing * 3),
        ("B", "gpu", 2.0, 2, *nothing * 3),
    )


@pytest.mark.parametrize("count", [1, MAX_POINTS, MAX_POINTS + 1, 5 * MAX_POINTS])
def test_drawn_samples_are_few_and_have_both_ends(count):
    times, values = thinned(np.arange(count) * 7, np.arange(count) * 3)
    assert len(times) == min(count, MAX_POINTS)
    assert (times[0], times[-1]) == (0, 7 * (count - 1))
    assert (values * 7 == times * 3).all()
    gaps = np.diff(times) // 7
    assert count == 1 or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(
    ("amounts", "other"),
    [([5, 0, 4], ""), ([6, 5, 4, 3, 2, 1], ""), ([1, 6, 0, 5, 4, 3, 2], ""), ([1, 6, 7, 5, 4, 3, 2], "ag")],
)
def test_of_more_than_six_series_the_largest_five_have_names(amounts, other):
    named = dict(zip("abcdefg", amounts, strict=False))
    assert drawn_as(named) == {
        name: OTHER if name in other else name for name, amount in named.items() if amount
    }


def test_requests_are_grouped_where_no_prefix_has_over_a_third():
    """All share 9, then two of three parts share 1: only at the third block are groups small enough."""
    ids = [[9, 1, n // 2] for n in range(4)] + [[9, 2, 5], [9, 2, 5]] + [[9]]
    offsets = np.cumsum([0, *map(len, ids)])
    trace = SimpleNamespace(id_offsets=offsets, block_ids=np.array([name for row in ids for name in row]))
    finished = {"request": np.arange(7), "machine": np.array([0, 0, 1, 2, 1, 1, 0])}
    run = SimpleNamespace(label="A", trace=trace, finished=finished)
    assert machines.prefix_groups(run).tolist() == [0, 0, 1, 1, 5, 5, 9]
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
    alone = SimpleNamespace(label="B", trace=trace, finished=finished | {"machine": np.ones(7, int)})
    assert isinstance(draw("machines", [alone]), NothingToDraw)


@pytest.mark.parametrize("limited", [True, False])
def test_windows_of_a_fleet_against_each_request(limited):
    draws = np.random.default_rng(3)
    for last in (0, 1, 38, 39, 40, 41, 5000):
        arrival = np.append(draws.integers(0, last + 1, 60), [0, last]) + 12
        rows = {
            "arrival_ns": arrival,
            "status": draws.integers(0, 2, 62),
            "input_tokens": draws.integers(5, 9, 62),
        }
        rows["cached_prefix_length_used"] = draws.integers(0, 5, 62)
        rows["within_slo"] = draws.integers(-1, 2, 62) if limited else np.full(62, -1)
        found = fleet.windows_of(SimpleNamespace(requests=rows))
        width = -(-(last + 1) // 40)
        assert [window["s"] for window in found] == [round((12 + k * width) / 1e9, 3) for k in range(40)]
        for k, window in enumerate(found):
            own = [row for row in range(62) if (arrival[row] - 12) // width == k]
            done = [row for row in own if rows["status"][row] == 0]
            tokens = sum(int(rows["input_tokens"][row]) for row in done)
            judged = [row for row in own if rows["within_slo"][row] >= 0] if limited else own
            met = [row for row in judged if (rows["within_slo"][row] == 1 if limited else row in done)]
            cached = sum(int(rows["cached_prefix_length_used"][row]) for row in done)
            expected = (
                len(own),
                cached / tokens if tokens else None,
                len(met) / len(judged) if judged else None,
            )
            assert (window["requests"], window["hit_rate"], window["attainment"]) == expected
    assert fleet.windows_of(SimpleNamespace(requests={"arrival_ns": np.array([])})) == []
