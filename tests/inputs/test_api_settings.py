"""Settings and requests that are given from Python: what lies over what, what is a value, and which requests run."""

from pathlib import Path

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.api import replays, simulate, sizing, sweeping
from kvcache_sim.api.html import html_list, html_table
from kvcache_sim.api.settings import lay_over, plain
from kvcache_sim.base.errors import UsageError
from support.product.reports import Table
from support.product.scenarios import Tree

OVER = [
    ({"router": "round-robin"}, {"router": {"policy": "round-robin"}}),
    (
        {"tiers": {"cpu": "4GiB", "gpu": {"capacity": "1GiB"}}},
        {"tiers": {"cpu": {"capacity": "4GiB"}, "gpu": {"capacity": "1GiB"}}},
    ),
    ({"tiers.cpu": 3, "tiers.cpu.policy": "lru"}, {"tiers": {"cpu": {"capacity": 3, "policy": "lru"}}}),
    ({"cluster": 4, "cluster.pool": "8GiB"}, {"cluster": {"machines": 4, "pool": {"capacity": "8GiB"}}}),
    (
        {"channels": {"net": "ib"}, "fetch": None, "write": False},
        {"channels": {"net": {"preset": "ib"}}, "fetch": None, "write": False},
    ),
    ({"workload": {"kind": "a", "x": 1}, "workload.x": 2}, {"workload": {"kind": "a", "x": 2}}),
    ({"workload": {"y": 1}}, {"workload": {"x": 0, "y": 1}}),
    ({"slo.x": 1, "slo": {"kind": "a"}}, {"slo": {"x": 1, "kind": "a"}}),
    ({"cache": {}, "seed": np.int64(7)}, {"cache": {}, "seed": 7}),
    ({"trace": Path("t.jsonl"), "slo": {"a": (1, 2)}}, {"trace": {"path": "t.jsonl"}, "slo": {"a": [1, 2]}}),
]


@pytest.mark.parametrize(("settings", "values"), OVER)
def test_settings_are_laid_over_those_there_are(settings, values):
    """Text and numbers stand for a section's main key; a workload of a kind replaces the one before it."""
    tree = Tree()
    if "workload" in settings:
        tree.values["workload"] = {"x": 0}
    lay_over(tree, settings)
    assert tree.values == values


def test_a_value_that_no_setting_has_is_named_by_its_key():
    for value, where, got in (
        ({"a": [0, {"b": {1}}]}, "k.a[1].b", "set"),
        (np.zeros(2), "k", "ndarray"),
        (b"x", "k", "bytes"),
    ):
        with pytest.raises(UsageError, match="not a setting") as refused:
            plain(value, "k")
        assert (refused.value.where, refused.value.got) == (where, got)
    values = [np.float32(0.5), True, None, {"a": np.bool_(False)}]
    assert plain(values, "k") == [0.5, True, None, {"a": False}]


def test_settings_to_try_are_columns_and_whole_sets():
    space = sweeping.settings_space(
        {"tiers.cpu": ["1GiB", "2GiB"], "tiers.gpu": [{"capacity": "1GiB"}], "seed": (1, 2)},
        [{"tiers": {"gpu": "4GiB"}, "fleet": {"scaling": "queue"}}, {"router": "random"}],
    )
    assert space.grid == {
        "tiers.cpu.capacity": ["1GiB", "2GiB"],
        "tiers.gpu": [{"capacity": "1GiB"}],
        "seed": [1, 2],
    }
    first = {"tiers.gpu.capacity": "4GiB", "fleet.scaling.policy": "queue"}
    assert space.points == [first, {"router.policy": "random"}]
    for values in ("ab", [], 3, {1: 2}):
        with pytest.raises(UsageError, match="not values to try"):
            sweeping.settings_space({"seed": values}, ())


def test_the_requests_of_a_run_are_those_given_or_the_scenarios(tmp_path, monkeypatch):
    """A path is made absolute but ``-``; a workload replaces a trace, and one trace alone can be given."""
    workload = {"kind": "diverse", "requests": 3}
    own = kv.Scenario(workload=workload, **{"cache.policy": "fifo"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("")

    def resolved(requests, **settings):
        scenario, trace = simulate.resolve_requests(requests, own, settings)
        return {name: scenario.written.get(name) for name in ("trace", "workload", "cache")}, trace

    assert resolved(None) == ({"trace": None, "workload": workload, "cache": {"policy": "fifo"}}, None)
    whole = str(tmp_path / "t.jsonl")
    for path, located in (("t.jsonl", whole), (Path("t.jsonl"), whole), ("-", "-")):
        found, none = resolved(path, seed=3)
        assert (found["trace"], found["workload"], none) == ({"path": located}, None, None)
    assert resolved("t.jsonl", workload={"output_tokens": 2})[0]["workload"] == {"output_tokens": 2}
    found, none = resolved({"kind": "diverse", "requests": 9})
    assert (found["trace"], found["workload"], none) == (None, {"kind": "diverse", "requests": 9}, None)
    columns = {"arrival_s": [0.0, 1.0], "input_tokens": [512] * 2, "output_tokens": [1] * 2}
    for requests in (columns, kv.make_trace(columns)):
        found, trace = resolved(requests)
        assert (found["trace"], found["workload"], len(trace)) == (None, None, 2)
        assert resolved(requests, cache={"block_size": 8})[0]["cache"]["block_size"] == 8
        for key in ("trace", "workload"):
            with pytest.raises(UsageError, match="requests are given already"):
                resolved(requests, **{key: {"kind": "x"}})


def test_given_requests_are_written_for_other_processes():
    asked = kv.Scenario(**{"cache.policy": "fifo"})
    columns = {"arrival_s": [0.0], "input_tokens": [512], "output_tokens": [1], "block_ids": [[1]]}
    trace = kv.make_trace(columns, block_size=512)
    with sweeping.requests_in_a_file(asked, trace) as (written, folder):
        (file,) = folder.parent.iterdir()
        assert written.written["trace"] == {"path": str(file), "block_size": 512, "time_order": "keep"}
        assert kv.read_trace(file).block_ids.tolist() == trace.block_ids.tolist()
    assert not folder.parent.exists()


def test_results_are_shown_as_text_and_as_tables(snapshot):
    """Texts at the left and figures at the right, escaped; a curve of groups has a row for each of its kinds."""
    points = [
        {"capacity_blocks": n, "capacity_bytes": 9 * n, "full_attention": {"hit_rate": n / 8}} for n in (2, 4)
    ]
    curve = replays.GroupCurve({"points": points, "model": "m"})
    replay = replays.CacheReplay(
        "lru", {"hit_rate": 0.5, "hits": 4, "causes": {"cold": 2}}, {"request": np.array([0, 1])}
    )
    rates = [{"capacity.rate_per_s": rate} for rate in (2.0, 5.0, None, 3.0)]
    shown = [
        html_table(Table(("a", "b", "c", "d"), (("<x>", None, 1234567, 1234.56789),))),
        html_list([]),
        html_list(["a", "<"]),
        *(repr(one) for one in (curve, replay, replays.Curve({"points": []}))),
        *(str(one.to_pylist()) for one in (curve.to_arrow(), replay.requests)),
        *(str(sizing.Capacity(rows, 0.9).rate_per_s) for rows in (rates, rates[2:3])),
    ]
    assert "\n".join(shown) == snapshot
    with pytest.raises(UsageError, match="no knee; got m"):
        _ = curve.knee
