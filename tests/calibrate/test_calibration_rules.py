"""Rules of calibration by hand and by small independent models, one module a test."""

import math
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import TraceError
from kvcache_sim.extras.calibrate.coverage import Cell, Judged, cells
from kvcache_sim.extras.calibrate.csv_table import CsvTable, column_values, read_table
from kvcache_sim.extras.calibrate.kernels import KernelTimes, with_shared_apart
from kvcache_sim.extras.calibrate.rows import (
    IterationRows,
    PhaseError,
    held_out_blocks,
    phase_errors,
    read_iterations,
)
from kvcache_sim.extras.calibrate.runs import compiles, usual_ms, waits
from kvcache_sim.extras.calibrate.transfer import SplitKv, Topology
from kvcache_sim.extras.calibrate.unsplit_kv import unsplit_from
from kvcache_sim.model.layer_group import MoeFeedForward
from kvcache_sim.model.parametric import ParametricStepTime, parametric_step_time
from kvcache_sim.model.run_errors import Factors, Kind, MeasuredRun
from kvcache_sim.model.step_time_file import Provenance, model_text
from support.timed_rows import rows_of


def a_judged(source: str, queue: float, true: float, low: float, high: float) -> Judged:
    values = {"ttft_mean": (true, 100.0), "tpot_mean": (true, 100.0)}
    run = MeasuredRun(Kind(source, "dense"), "group", "deployment", "run", queue, values, (), {})
    return Judged(run, "ttft_mean", Factors(low, high))


def test_coverage_of_figures_by_hand():
    for low, high, held in ((1.0, 1.5, True), (1.5, 2.0, True), (1.0, 1.49, False), (1.51, 2.0, False)):
        assert a_judged("a", 0.1, 150.0, low, high).held is held
    one = a_judged("a", 0.1, 150.0, 0.75, 1.5)
    assert [one.half_width, one.error] == pytest.approx([0.375 * 100 / 150, 1 - 100 / 150])
    two = a_judged("a", 0.1, 50.0, 0.75, 1.5)
    other = replace(two, figure="tpot_mean")
    near = a_judged("a", 0.5, 150.0, 0.75, 1.5)
    found = cells([one, two, other, near, a_judged("b", 0.1, 100.0, 1.0, 1.0)])
    assert [(cell.source, cell.load, cell.figure, cell.count, cell.held) for cell in found] == [
        ("a", "low", "", 3, pytest.approx(1 / 3)),
        ("a", "low", "tpot_mean", 1, 0),
        ("a", "low", "ttft_mean", 2, 0.5),
        ("a", "near capacity", "", 1, 1),
        ("a", "near capacity", "ttft_mean", 1, 1),
        ("b", "low", "", 1, 1),
        ("b", "low", "ttft_mean", 1, 1),
    ]
    assert found[0].half_width == pytest.approx(0.75)
    assert found[0].error == pytest.approx(1)
    assert found[0].ratio == pytest.approx(0.75)
    assert found[-1].ratio == math.inf
    for held, half_width, meets in ((0.85, 5.0, True), (0.84, 5.0, False), (0.85, 5.01, False)):
        assert Cell("a", "dense", "vllm", "low", "", 9, held, half_width, 2.0).meets_goal is meets


def test_cells_of_a_table_are_numbers_within_their_borders(tmp_path):
    def column(name: str, *cells: str) -> CsvTable:
        return CsvTable(Path("f.csv"), [2, 4, 9][: len(cells)], {name: list(cells)})

    assert column("x", "1.5", "", "0").numbers("x", 7).tolist() == [1.5, 7, 0]
    assert column("x", "1", "2").numbers("y", 3).tolist() == [3, 3]
    assert column("x", str(2**22), "0").counts("x").tolist() == [2**22, 0]
    assert column("kv", str(2**40)).counts("kv").tolist() == [2**40]
    assert column("x", "1e12", "1e-9").times("x").tolist() == [1e12, 1e-9]
    for kind, name, cell in (
        *(("numbers", "x", cell) for cell in ("-1", "inf", "nan", "two")),
        *(("counts", "x", cell) for cell in ("1.5", str(2**22 + 1), "-1")),
        ("counts", "kv", str(2**40 + 1)),
        *(("times", "x", cell) for cell in ("0", "", "1.1e12", "-1")),
    ):
        with pytest.raises(TraceError) as refused:
            getattr(column(name, "1", cell), kind)(name)
        assert [refused.value.where, refused.value.got] == ["f.csv:4", repr(cell)]
    table = column("x", "a", "b", "c").take(np.array([True, False, True]))
    assert [table.lines, table.cells, len(table), table.location(1)] == [
        [2, 9],
        {"x": ["a", "c"]},
        2,
        "f.csv:9",
    ]

    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,2,3\n\n1,3,\n2,2,5\n1,2,7\n")
    assert read_table(path, ("a",), {}).lines == [2, 4, 5, 6]
    assert read_table(path, (), {"a": "1"}).cells["c"] == ["3", "", "7"]
    assert read_table(path, (), {"a": "1", "b": "2"}).cells["c"] == ["3", "7"]
    assert column_values(path, ("c", "d"), {"a": "1"}) == {"c": {"3", "7"}, "d": set()}
    with pytest.raises(TraceError, match="no column d"):
        read_table(path, ("a", "d"), {})
    for row, said in (("1,2", "cut short"), ("1,2,3,4", "too many cells")):
        path.write_text(f"a,b,c\n1,2,3\n{row}\n")
        with pytest.raises(TraceError, match=said) as refused:
            read_table(path, (), {})
        assert refused.value.where == f"{path}:3"


def iterations(tmp_path: Path, names: str, *lines: str) -> IterationRows:
    path = tmp_path / f"{abs(hash((names, lines)))}.csv"
    path.write_text("\n".join((names, *lines)) + "\n")
    return read_iterations(path)


def test_iterations_are_read_with_what_they_do_not_say(tmp_path):
    names = "iter_ms,prefill_tokens,decode_requests,decode_kv_tokens,decode_kv_std,artefact"
    rows = iterations(
        tmp_path,
        names,
        "1,0,5,100,10,0",
        "2,7,0,0,0,",
        "3,0,26,260,10,",
        "9,1,1,1,0,1",
        "9,1,1,1,0,1.0",
        "4,1,1,9,5,2",
    )
    assert rows.iter_ms.tolist() == [1, 2, 3, 4]
    assert rows.decode_max_kv_tokens.tolist() == [20 + 10 * 2, 0, 10 + 4 * 10, 9]
    assert [rows.prefill_requests.tolist(), rows.tensor_parallel.tolist()] == [[0, 1, 0, 1], [1, 1, 1, 1]]
    longest = "iter_ms,decode_requests,decode_kv_tokens,decode_kv_max,tp"
    exact = iterations(tmp_path, longest, "1,3,10,10,4", "1,3,30,10,0", "1,3,30,0,2", "1,3,2,1,1")
    assert exact.decode_max_kv_tokens.tolist() == [10, 10, 10, 1]
    assert exact.tensor_parallel.tolist() == [4, 1, 2, 1]
    for row, said in (
        ("1,3,9,10,1", "cannot be"),
        ("1,3,31,10,1", "cannot be"),
        ("1,3,4,1,1", "cannot be"),
        ("1,0,0,0,1", "computes nothing"),
    ):
        with pytest.raises(TraceError, match=said) as refused:
            iterations(tmp_path, longest, "1,3,10,10,1", row)
        assert str(refused.value.where).endswith(":3")
    with pytest.raises(TraceError, match="no iterations"):
        iterations(tmp_path, names, "1,0,5,100,10,1")


def test_pairs_phases_and_errors_of_rows_by_hand():
    rows = rows_of(4, prefill_tokens=[0, 6, 6, 6], prefill_requests=[0, 1, 2, 2], past_tokens=[0, 10, 0, 20],
                   decode_sequences=[1, 1, 0, 0], iter_ms=[10, 10, 20, 40])  # fmt: skip
    assert rows.twice_pairs(0).tolist() == [0, 2 * 6 * 10 + 36, 2 * 9, 2 * (2 * 3 * 10 + 9)]
    assert rows.twice_pairs(8).tolist() == [0, 2 * 8 * 10 + 36, 2 * 9, 2 * (2 * 8 * 10 + 9)]
    few = rows_of(3, prefill_tokens=[1, 1, 0], decode_sequences=[1, 0, 1])
    assert {name: mask.tolist() for name, mask in few.phases().items()} == {
        "decode": [False, False, True], "mixed": [True, False, False], "prefill": [False, True, False]
    }  # fmt: skip
    found = phase_errors(rows, np.array([11.0, 8.0, 30.0, 36.0]))
    assert [(e.phase, e.rows) for e in found] == [("decode", 1), ("mixed", 1), ("prefill", 2)]
    assert [(e.mape, e.bias) for e in found] == [
        pytest.approx(pair) for pair in ((10, 10), (20, -20), (30, 20))
    ]
    assert found[-1].p95 == pytest.approx(10 + 0.95 * 40)
    for count in (1, 49, 50, 100, 173):
        out = held_out_blocks(count)
        blocks = {int(Fraction(50 * row, count)) for row in np.flatnonzero(out)}
        assert blocks <= {int(Fraction(50 * row, 5000)) for row in np.flatnonzero(held_out_blocks(5000))}
    assert held_out_blocks(5000).sum() == 500
    # half of the rows lie at 100 ms: three times as much waits, and 200 ms more than usual compiles
    ms = np.array([100.0] * 20 + [301.0, 300.0, 299.0, 900.0])
    decode = rows_of(24, decode_sequences=[2] * 24, iter_ms=ms)
    assert usual_ms(decode).tolist() == [100] * 24
    assert np.flatnonzero(compiles(decode)).tolist() == [20, 23]
    short = replace(decode, iter_ms=ms / 10)
    assert np.flatnonzero(compiles(short)).tolist() == []
    assert np.flatnonzero(waits(short)).tolist() == [20, 23]
    assert not waits(replace(short, prefill_tokens=np.ones(24))).any()


@pytest.mark.parametrize("degrees", [(1, 1), (2, 1), (4, 1), (1, 4), (2, 4), (8, 2)])
def test_what_a_topology_shares_in_closed_form(degrees):
    tp, dp = degrees
    shares = Topology(tp, tp * dp, dp).shares()
    assert shares == pytest.approx(
        {
            "split": 1 / tp,
            "once": 1,
            "experts": 1 / (tp * dp),
            "ranks": float(dp > 1),
            "ranks_of_several": float(dp > 1 and tp > 1),
            "crossed": math.log2(tp) if dp > 1 else 0,
            "others": dp - 1,
            "doublings": math.log2(tp * dp),
        }
    )
    # cores are shared evenly by the pairs of a sequence and a head, at least one each; then pairs take turns
    kv = SplitKv(kv_heads=4, multiprocessors=20)
    for n in (0, 1, 3, 5, 6, 20, 21, 40):
        pairs = max(n, 1) * max(4 / tp, 1)
        wanted = pairs / 20 if pairs > 20 else 1 / (20 // pairs)
        assert kv.share(np.array([float(n)]), np.array([float(tp)]))[0] == pytest.approx(wanted)
    found = unsplit_from(4, tp, 20)
    heads = max(-(-4 // tp), 1)
    assert [n * heads >= 0.8 * 2 * 20 for n in (found - 1, found)] == [False, True]


@pytest.mark.parametrize("base", [True, False])
def test_a_model_file_has_every_coefficient_degree_and_error(base):
    shape = (
        {"base_points": ((1.0, 2.0), (8.0, 3.5))}
        if base
        else {"weights_ms": 2.0, "token_ms": 0.1, "exponent": 2.0}
    )
    model = ParametricStepTime(**shape, kv_ms_per_thousand=0.25, decode_points=((1.0, 1.5),), graph_tokens=64)
    errors = [PhaseError("decode", 3, 1.234, 5.678, 0.0)]
    for degrees in ((1, 1), (2, 1), (1, 2), (4, 8)):
        text = model_text(model, Provenance('a "b"', "", 2, "où", *degrees), errors, errors * 1)
        found = tomllib.loads(text)
        assert parametric_step_time(found["coefficients"], "") == (
            replace(model, exponent=1.0) if base else model
        )
        assert set(found["coefficients"]) >= {"kv_ms_per_thousand", "decode_points", "graph_tokens"}
        assert not set(found["coefficients"]) & {
            "past_points",
            "sequence_ms",
            "exponent" if base else "base_points",
        }
        wanted = {"model": 'a "b"', "tensor_parallel": 2, "source": "où"}
        wanted |= {
            f"{kind}_parallel": n for kind, n in zip(("expert", "data"), degrees, strict=True) if n > 1
        }
        error = {"decode": {"rows": 3, "mape_percent": 1.23, "p95_percent": 5.68}}
        del found["coefficients"]
        assert found == wanted | {"held_out": error, "held_out_blocks": error}
    assert "held_out" not in model_text(model, Provenance("", "g", 1, ""), [])


def test_experts_of_kernels_by_tokens_and_by_experts_reached(monkeypatch):
    """Times are 10 µs a token and 100 µs an expert, in three layers: linear between counts, so in all of it."""
    from kvcache_sim.extras.calibrate import kernels

    monkeypatch.setattr(kernels, "expert_layers", lambda model: (3, MoeFeedForward(8, 2, 16)))
    table = np.array([(n, e, 10.0 * n + 100.0 * e) for n in (1, 4, 16) for e in (1, 2, 8) if e <= 2 * n])
    zero = np.zeros(1)
    times = KernelTimes(3, zero, zero, zero, zero, np.zeros((0, 5)), table)
    tokens = np.array([2.0, 8.0, 16.0, 40.0])
    for gpus in (1, 2):
        reached = 8 / gpus * (1 - (1 - 2 / 8) ** tokens)
        wanted = 3 * (10 * np.maximum(tokens / gpus, 1) + 100 * np.maximum(reached, 1)) / 1e3
        few = tokens / gpus < 4  # of fewer than four tokens no eight experts were reached: as of four
        found = times.experts_ms(tokens, None, gpus)
        assert found[~few] == pytest.approx(wanted[~few])
        assert (found[few] >= wanted[few] - 1e-9).all()


def test_kernels_are_composed_by_hand():
    attention = np.array(
        [
            (0, 0, 4, 100, 50.0),
            (10, 20, 0, 0, 30.0),
            (10, 20, 4, 100, 90.0),
            (0, 0, 0, 0, 9.0),
            (0, 0, 5, 100, 60.0),
        ]
    )
    times = KernelTimes(
        2,
        np.array([1.0, 8.0, 16.0, 32.0]),
        np.array([1.0, 3.0, 2.0, 6.0]),
        np.array([1.0, 5.0]),
        np.array([0.5, 0.9]),
        attention,
        np.zeros((0, 3)),
    )
    assert times.base_points() == ((1.0, 1.5), (8.0, 3.5), (16.0, 3.5), (32.0, 6.5))
    for capacity, kept in ((430, [0, 1, 2]), (429, [0, 1]), (400, [0, 1]), (399, [1]), (500, [0, 1, 2, 4])):
        rows = times.iterations(capacity)
        assert rows.decode_kv_tokens.tolist() == [float(attention[k][2] * attention[k][3]) for k in kept]
    rows = times.iterations(500)
    assert rows.prefill_requests.tolist() == [0, 1, 1, 0]
    assert rows.past_tokens.tolist() == [0, 20, 20, 0]
    assert rows.decode_max_kv_tokens.tolist() == [100, 0, 100, 100]
    # 4, 16, 16 and 8 padded tokens; heads of 4, 1, 5 and 5 sequences; attention in two layers
    dense, heads = [1 + 2 * 3 / 7, 2, 2, 3], [0.8, 0.5, 0.9, 0.9]
    wanted = [d + h + 2 * us / 1e3 for d, h, us in zip(dense, heads, (50, 30, 90, 60), strict=True)]
    assert rows.iter_ms == pytest.approx(wanted)

    model = ParametricStepTime(base_points=((1.0, 5.0), (2.0, 6.0), (4.0, 6.5), (8.0, 9.0)))
    assert with_shared_apart(model, (), 2) is model
    apart = with_shared_apart(model, ((1.0, 1.0), (8.0, 4.5), (16.0, 10.0)), 2)
    assert apart.base_points == ((1.0, 3.5), (2.0, 3.5), (4.0, 3.5), (8.0, 3.5))
    assert [apart.shared_ranks, apart.shared_points] == [2, ((1.0, 1.0), (8.0, 4.5), (16.0, 10.0))]
    assert with_shared_apart(model, ((1.0, 7.0),), 2).base_points[0] == (1.0, 0.0)
