"""Rules of sampled tables, of a channel's file, and of stated intervals, by hand; no library is asked."""

import math

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.aiconfigurator import other_links, sampling
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.roofline import roofline_step_time
from kvcache_sim.model.roofline_name import parse_roofline
from kvcache_sim.model.run_errors import Factors
from kvcache_sim.model.run_intervals import model_interval, run_factors, source_kind, step_interval
from kvcache_sim.model.run_rule import combined
from kvcache_sim.model.step_times import nearest_source
from support.timed_rows import rows_of


def test_the_steps_that_a_table_is_sampled_at():
    assert sampling._halves(2, 16) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert sampling._halves(8, 31) == (1, 8, 12, 16, 24)
    steps = sampling._random_steps("test", (40, 50, 60))
    new, past, n, kv = steps.T
    assert [steps.shape, (new[:40] + past[:40]).any(), (n[40:90] + kv[40:90]).any()] == [
        (150, 4),
        False,
        False,
    ]
    assert [new[40:].min() >= 8, new.max() <= 8192, n.max() <= 256, kv.max() <= 2_000_000] == [True] * 4
    assert (np.delete(n, np.s_[40:90]) >= 1).all()
    assert (np.delete(kv // np.maximum(n, 1), np.s_[40:90]) >= 16).mean() > 0.8
    assert 0.3 < (past[40:] > 0).mean() < 0.7
    assert [past[past > 0].min() >= 64, past.max() <= 32_768, (past <= 512 * new).all()] == [True] * 3


def test_bases_and_columns_of_sampled_steps_by_hand():
    """A base is the median of what is left, weighted by one over the time, and never below 0."""
    rows = rows_of(7, decode_sequences=[2, 1, 2, 2, 1, 3, 2], iter_ms=[4, 5, 9, 100, 5, 1, 90])
    linear = np.array([0.0, 1, 1, 0, 2, 3, 0])
    found = sampling._bases(rows, linear, sampling._decodes)
    for count in (1, 2, 3):
        own = sorted(
            (ms - line, 1 / ms)
            for ms, line, n in zip(rows.iter_ms, linear, rows.decode_sequences, strict=True)
            if n == count
        )
        half = sum(weight for _, weight in own) / 2
        left = next(
            one for k, (one, _) in enumerate(own) if sum(weight for _, weight in own[: k + 1]) >= half
        )
        assert found[count] == max(left, 0)
    both = rows_of(3, prefill_tokens=[6, 6, 0], prefill_requests=[1, 1, 0], past_tokens=[10, 0, 0], decode_sequences=[2, 0, 3],
                   decode_kv_tokens=[500, 0, 700], decode_max_kv_tokens=[300, 0, 300])  # fmt: skip
    columns = sampling._columns(both)
    at = sampling._AT
    assert columns[:, 0].tolist() == [1, 0, 0]
    assert columns[:, at["kv"]] == pytest.approx([0, 0, 0.7])
    assert columns[:, at["kv_mixed_extra"]] == pytest.approx([0.5, 0, 0])
    assert columns[:, at["sequence"]].tolist() == [0, 0, 0]
    assert columns[:, at["pairs"]] == pytest.approx([(60 + 18 - 32) / 1e6, 0, 0])
    bases = sampling._Bases({1: 1.0, 3: 5.0}, {1: 10.0, 11: 30.0}, {1: 100.0, 9: 180.0})
    assert bases.ms(both).tolist() == [170, 20, 5]
    costs = np.zeros(columns.shape[1])
    costs[0], costs[at["pairs"]], costs[at["kv"]], costs[at["kv_mixed_extra"]], costs[at["past"]] = (
        0.25,
        2e4,
        0.5,
        0.75,
        0.125,
    )
    model = sampling._model(bases, costs)
    assert model.base_points == ((1.0, 9.99), (11.0, 30 - 0.01 * 121))
    assert [model.past_points, model.decode_points] == [
        ((1.0, 99.99), (9.0, 180 - 0.81)),
        ((1.0, 1.0), (3.0, 5.0)),
    ]
    assert [model.beside_ms, model.kv_ms_per_thousand, model.kv_mixed_ms_per_thousand] == [0.25, 0.5, 0.75]
    assert [model.pairs_ms_per_million, model.past_ms_per_thousand] == [2e4, 0.125]


def test_a_sampled_table_has_its_bases_and_the_work_of_all_ranks():
    model = ParametricStepTime(
        base_points=((1.0, 5.0), (8.0, 2.0)), past_points=((1.0, 6.0), (8.0, 9.0)), decode_points=((1.0, 4.0), (4.0, 1.0)),
        kv_ms_per_thousand=0.5, kv_mixed_ms_per_thousand=0.2, graph_tokens=0, shared_ranks=2,
        shared_points=((1.0, 1.0), (16.0, 16.0)),
    )  # fmt: skip
    table = SampledStepTime(model).table(8, 4)
    at = np.arange(9)
    shared = np.minimum(2 * at, 16) * 10**6
    assert table.base_ns == pytest.approx(np.interp(at, [0, 1, 8], [0, 5e6, 2e6]) * (at > 0) + shared, abs=1)
    assert table.past_base_ns == pytest.approx(np.interp(at, [0, 1, 8], [0, 6e6, 9e6]) + shared, abs=1)
    assert table.decode_base_ns == pytest.approx(
        np.interp(at[:5], [0, 1, 4], [0, 4e6, 1e6]) + shared[:5], abs=1
    )
    assert [table.kv_decode_fs, table.kv_mixed_fs] == [5 * 10**8, 2 * 10**8]
    changed = other_links._changed(
        ((2.0, 3.0), (8.0, 9.0)), np.array([1.0, 4.0, 8.0, 9.0]), np.array([1.0, 4.0, -9.5, 7.0])
    )
    assert changed == ((2.0, 5.0), (4.0, 9.0), (8.0, 0.0))
    assert other_links._changed((), np.ones(1), np.ones(1)) == ()
    assert other_links._never_falling(((1.0, 3.0), (2.0, 1.0), (3.0, 4.0))) == (
        (1.0, 3.0),
        (2.0, 3.0),
        (3.0, 4.0),
    )


def test_a_channels_own_file_has_its_least_figures(tmp_path):
    path = tmp_path / "mine.toml"
    least = {"bandwidth_bytes_per_s": 1, "latency_ns": 0, "piece_overhead_ns": 0}
    for change, said in (
        ({}, ""), ({"bandwidth_bytes_per_s": 0}, "is too small"), ({"latency_ns": -1}, "is too small"),
        ({"piece_gap_ns": -1}, "is too small"), ({"piece_gap_ns": 0}, ""), ({"latency_ns": None}, "no latency_ns"),
    ):  # fmt: skip
        values = {key: value for key, value in (least | change).items() if value is not None}
        path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        if said:
            with pytest.raises(UsageError, match=said):
                load_channel(str(path))
        else:
            channel = load_channel(str(path))
            assert [channel.name, channel.source, channel.piece_submit_range_ns] == ["mine", str(path), None]
    path.write_text(
        path.read_text().replace("piece", "latency_ns = 7\npiece", 1)
        + "piece_gap_ns = 3\npiece_submit_ns = 5\n"
    )
    channel = load_channel(str(path))
    assert [channel.transfer_ns(size, 4) for size in (0, 1)] == [0, 7 + 20 + 10**9 + 12]


def test_what_a_model_leaves_open_by_hand():
    assert model_interval("ttft_mean", 0.0, 3.0, -1.0, [], "low") == (-1, 3)
    assert model_interval("ttft_mean", 2.0, 3.0, 1.0, [None], "low") == (1, 3)
    assert model_interval("ttft_mean", 2.0, 1.5, 3.0, [], "low") == (1.5, 3)
    kinds = [source_kind(name) for name in ("roofline:llama-3.1-8b@h100", "h100-llama-3.1-8b-tp1")]
    replayed = Factors(0.5, 1.5)
    own = [
        combined(
            "ttft_mean", run_factors(kind, "low")["ttft_mean"].factors, step_interval(kind).factors, replayed
        )
        for kind in kinds
    ]
    for chosen in ([0], [1], [0, 1], [1, 0]):
        low, high = model_interval("ttft_mean", 2.0, 3.0, 1.0, [kinds[k] for k in chosen], "low")
        assert low == pytest.approx(2 * min(own[k].low for k in chosen))
        assert high == pytest.approx(2 * max(own[k].high for k in chosen))
    assert math.isclose(model_interval("ttft_mean", 2.0, 3.0, 0.0, kinds, "low")[1], 3)


def test_a_rooflines_points_and_the_names_of_its_degrees():
    named = parse_roofline("llama-3.1-8b@h100:tp2,kv-fp8,fp8")
    assert [named.tensor_parallel, named.data_parallel, named.expert_parallel] == [2, 1, 1]
    assert [named.weight_dtype, named.kv_dtype, named.spec().weights.embedding] == ["fp8", "fp8", "bf16"]
    points = [n for n, _ in roofline_step_time(named.spec(), load_gpu("h100"), 2).base_points]
    assert points == [*range(1, 17), *(round(2 ** (k / 2)) for k in range(9, 31))]
    assert [nearest_source("llama-3.1-8b", "b200", tp) for tp in (1, 2)] == [
        "roofline:llama-3.1-8b@b200", "roofline:llama-3.1-8b@b200:tp2"
    ]  # fmt: skip
