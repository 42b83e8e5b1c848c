"""The toolbox: statistics to the integer, and metamorphic tests of every transform."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InvariantError, TraceError, UsageError
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace
from kvcache_sim.workload.toolbox.check import duplicate_rows, judge
from kvcache_sim.workload.toolbox.stats import describe, table, trace_stats, unbounded_hits, working_set_svg
from kvcache_sim.workload.toolbox.transforms import (
    anonymise,
    check_times,
    copy_span_ns,
    cut,
    head,
    rechunk,
    repeat,
    same_requests,
    sample,
    scale,
)
from kvcache_sim.workload.toolbox.write import mooncake_lines
from support.examples import examples
from support.product.traces import merge, parse_speed
from support.shared_files import shared
from support.small_traces import trace_of

LEAVE = ReadSettings(missing_ids="leave", keep_unknown=True)


@pytest.fixture(scope="module")
def conversation():
    return read_trace(shared("traces/conversation_trace.jsonl"))


@pytest.fixture(scope="module")
def agents():
    return read_trace(shared("traces/miniswe_b256bytes.jsonl"), settings=LEAVE)


@examples(60)
@given(st.integers(1, 10_000), st.integers(0, 1 << 40), st.data())
def test_copies_end_within_64_bits_of_nanoseconds(times, last_ns, data):
    """The last arrival of all copies is the span between two, times the copies before it, and the trace's own last."""
    top = (1 << 63) - 1
    most = (top - last_ns) // max(1, times - 1) - last_ns
    gap_ns = data.draw(st.sampled_from((0, most - 1, most, most + 1)))
    ends = max(last_ns + k * (last_ns + gap_ns) for k in range(times))
    if ends <= top:
        assert copy_span_ns(last_ns, gap_ns, times) == last_ns + gap_ns
    else:
        with pytest.raises(UsageError, match="292 years"):
            copy_span_ns(last_ns, gap_ns, times)
    for outside in (0, 10_001):
        with pytest.raises(UsageError, match="1 to 10000"):
            check_times(outside)
    check_times(times)


@st.composite
def rows(draw):
    """Rows of Mooncake JSON over a small prefix tree, with and without sessions, times and ids."""
    out, time, tree = [], 0, {(): 0}
    for _ in range(draw(st.integers(1, 12))):
        time += draw(st.integers(0, 3_000_000))
        path = ()
        for _ in range(draw(st.integers(0, 4))):
            path = (*path, draw(st.integers(0, 1)))
            tree.setdefault(path, len(tree) * 7)
        ids = [tree[path[: k + 1]] for k in range(len(path))]
        low = max(1, (len(ids) - 1) * 512 + 1)
        row = {"input_length": draw(st.integers(low, max(low, len(ids) * 512)))}
        row["output_length"] = draw(st.integers(0, 5))
        if draw(st.booleans()):
            row["session_id"] = draw(st.sampled_from(["a", "é\n", "</script>"]))
        if (
            "session_id" in row
            and any(r.get("session_id") == row["session_id"] for r in out)
            and draw(st.booleans())
        ):
            row["delay"] = draw(st.integers(0, 10**7)) / 1000
        else:
            row["timestamp"] = time / 1000
        row |= {"hash_ids": ids} if ids else {}
        row |= {"priority": draw(st.sampled_from([-3, 2]))} if draw(st.booleans()) else {}
        row |= {"kind": draw(st.sampled_from(["x", None, [1]]))} if draw(st.booleans()) else {}
        out.append(row)
    return out


def read_rows(directory, lines):
    path = directory / "t.jsonl"
    path.write_text("".join(lines))
    return read_trace(path, settings=LEAVE)


SLOW_OK = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW_OK
@given(rows())
def test_what_is_written_reads_as_what_was_read(tmp_path, made):
    trace = read_rows(tmp_path, [json.dumps(row) + "\n" for row in made])
    again = read_rows(tmp_path, mooncake_lines(trace))
    assert same_requests(trace, again)
    opens = trace.think_ns < 0
    for column in ("think_ns", "is_conversational_turn", "after", "history_tokens", "priority"):
        assert np.array_equal(getattr(trace, column), getattr(again, column)), column
    assert np.array_equal(trace.arrival_ns[opens], again.arrival_ns[opens])
    assert trace.session_names == again.session_names
    assert [json.loads("{" + e + "}") for e in trace.extra] == [
        json.loads("{" + e + "}") for e in again.extra
    ]
    assert np.array_equal(np.asarray(trace.id_names), np.asarray(again.id_names))


@SLOW_OK
@given(rows(), rows(), st.integers(2, 3))
def test_transforms_of_any_trace(tmp_path, one, two, times):
    a = read_rows(tmp_path, [json.dumps(row) + "\n" for row in one])
    b = read_rows(tmp_path, [json.dumps(row) + "\n" for row in two])
    both = merge([a, b])
    hits = unbounded_hits(both).blocks.sum()
    assert hits == unbounded_hits(a).blocks.sum() + unbounded_hits(b).blocks.sum()  # nothing is shared
    assert unbounded_hits(repeat(a, times, 10)).blocks.sum() == times * unbounded_hits(a).blocks.sum()
    coarse, fine = unbounded_hits(a), unbounded_hits(rechunk(a, 16))
    assert np.all(fine.tokens <= coarse.tokens)
    if not any("another size" in w for w in a.warnings):
        assert np.array_equal(fine.tokens, coarse.tokens)
    assert same_requests(scale(scale(a, Fraction(1, 3)), Fraction(3)), a)
    assert same_requests(anonymise(a), a)
    assert same_requests(head(a, len(a)), a)
    assert same_requests(sample(a, 1.0, 0), a)


def test_percentiles_are_nearest_ranks_and_a_block_used_twice_running_has_distance_nought():
    ranks = describe(np.arange(1, 11))
    assert [ranks[f"p{p}"] for p in (50, 75, 90, 99)] == [5, 8, 9, 10]
    distances = trace_stats(trace_of([[0], [0], [1], [0]], arrival_ns=[0, 1, 2, 3]))["reuse_distance_blocks"]
    assert (distances["min"], distances["avg"], distances["max"]) == (0, 0.5, 1)


def test_statistics_of_the_conversation_trace(conversation):
    stats = trace_stats(conversation)
    assert stats["requests"] == 12_031
    assert stats["tokens"] == {"input": 144_793_823, "output": 4_122_048}
    assert stats["blocks"] == {
        "block_size": 512,
        "references": 288_500,
        "distinct": 182_790,
        "repeats": 105_710,
        "prefix_groups": 1,
    }
    assert stats["arrivals"]["distinct_times"] == 1_180
    rates = stats["unbounded_hit_rate"]
    assert round(rates["blocks"], 6) == 0.366412
    assert round(rates["tokens"], 10) == 0.3736237491
    assert round(rates["mean_over_requests"], 10) == 0.3842580875
    assert stats["working_set"][-1]["seen"] == 182_790
    text = table(stats)
    assert max(map(len, text.split("\n"))) <= 80
    labels = text.split("\n")
    assert "AIPerf" in labels[next(k for k, line in enumerate(labels) if "0.3842581" in line) + 1]


def test_statistics_by_hand(tmp_path):
    def row(t, n, ids):
        return json.dumps({"timestamp": t, "input_length": n, "output_length": 1, "hash_ids": ids}) + "\n"

    trace = read_rows(
        tmp_path, [row(0, 1000, [5, 6]), row(1000, 600, [5, 7]), row(1000, 1000, [5, 6]), row(4000, 9, [9])]
    )
    stats = trace_stats(trace)
    assert stats["blocks"] | {"block_size": 0} == {
        "block_size": 0,
        "references": 7,
        "distinct": 4,
        "repeats": 3,
        "prefix_groups": 2,
    }
    assert stats["unbounded_hit_rate"]["blocks"] == 3 / 7
    assert stats["unbounded_hit_rate"]["tokens"] == (512 + 1000) / 2609  # the partial block counts as it is
    assert stats["unbounded_hit_rate"]["mean_over_requests"] == (0.5 + 1.0) / 4
    # Between two namings of 5 stand 6, then 7; between those of 6 stand 5 and 7.
    assert stats["reuse_distance_blocks"]["max"] == 2
    assert stats["reuse_distance_blocks"]["avg"] == pytest.approx((1 + 1 + 2) / 3)
    assert stats["reuse_time_s"]["avg"] == pytest.approx((1 + 0 + 1) / 3)
    assert stats["arrivals"]["span_s"] == 4.0
    assert [w["seen"] for w in stats["working_set"]][-1] == 4
    assert working_set_svg(stats).count("<rect") == 21
    assert describe(np.array([1, 2, 3, 4]))["p50"] == 2


def test_rechunking_keeps_exactly_what_is_shared(conversation):
    fine = rechunk(conversation, 16)
    coarse, small = unbounded_hits(conversation), unbounded_hits(fine)
    assert np.array_equal(small.tokens, coarse.tokens)
    assert int(np.diff(fine.id_offsets).sum()) == int((-(-conversation.input_tokens // 16)).sum())
    assert same_requests(rechunk(rechunk(conversation, 128), 16), fine)
    with pytest.raises(UsageError, match="not a divisor"):
        rechunk(conversation, 48)


def test_a_sample_keeps_the_reuse_of_its_groups(conversation, agents):
    part = sample(conversation, 0.2, 7)
    assert 0.05 < len(part) / len(conversation) < 0.4
    assert same_requests(sample(conversation, 0.2, 7), part)
    assert not same_requests(sample(conversation, 0.2, 8), part)
    some = sample(agents, 0.5, 1)
    kept = set(some.session_names)
    whole = [k for k in range(len(agents)) if agents.session_names[agents.session[k]] in kept]
    assert len(some) == len(whole) < len(agents)
    for wrong in (0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="fraction"):
            sample(conversation, wrong, 1)


def test_a_window_starts_at_zero_and_takes_chains_along(tmp_path, conversation):
    part = cut(conversation, 60 * 10**9, 120 * 10**9)
    inside = (conversation.arrival_ns >= 60 * 10**9) & (conversation.arrival_ns < 120 * 10**9)
    assert len(part) == int(inside.sum())
    assert int(part.arrival_ns[0]) == int(conversation.arrival_ns[inside][0]) - 60 * 10**9
    base = {"input_length": 5, "output_length": 1}
    made = [
        {"timestamp": 0, "session_id": "a", **base},
        {"timestamp": 5000, "session_id": "b", **base},
        {"delay": 1, "session_id": "a", **base},
        {"delay": 1, "session_id": "b", **base},
        {"delay": 1, "after": 3, **base},
    ]
    trace = read_rows(tmp_path, [json.dumps(row) + "\n" for row in made])
    window = cut(trace, 4 * 10**9, 6 * 10**9)
    assert window.session_names == ["b"]
    assert window.after.tolist() == [-1, -1, 1]
    with pytest.raises(TraceError, match="no request arrives"):
        cut(trace, 10**12, 2 * 10**12)


def test_speeds_are_exact(tmp_path):
    made = [{"timestamp": t, "input_length": 5, "output_length": 1} for t in (0, 3, 46.927, 10**9 + 0.000001)]
    trace = read_rows(tmp_path, [json.dumps(row) + "\n" for row in made])
    assert scale(trace, parse_speed("3")).arrival_ns.tolist() == [0, 10**6, 15_642_333, 333_333_333_333_333]
    assert scale(trace, parse_speed("0.5")).arrival_ns.tolist()[2] == 93_854_000
    assert scale(trace, parse_speed("3/2")).arrival_ns.tolist()[1] == 2 * 10**6
    for wrong in ("0", "-1", "x", "1e400", "1/0", "nan"):
        with pytest.raises(UsageError, match=r"--speed|SPEED"):
            scale(trace, parse_speed(wrong))


def test_anonymised_rows_hold_no_name(agents):
    out = "".join(mooncake_lines(anonymise(agents)))
    assert not any(name in out for name in agents.session_names)
    assert "input_bytes" not in out


def test_a_planted_fault_is_caught_by_the_transform_itself(monkeypatch, conversation):
    from kvcache_sim.workload.toolbox import transforms as module

    def forgetful(trace, chosen):
        return replace(trace, arrival_ns=trace.arrival_ns[chosen] + 1)

    monkeypatch.setattr(module, "select_rows", forgetful)
    with pytest.raises(InvariantError, match="trace head broke its invariant"):
        head(conversation, 5)


def test_check_counts_problems_by_kind(tmp_path):
    path = tmp_path / "t.jsonl"
    good = '{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n'
    path.write_text(
        good
        + good
        + good.replace("[1, 2]", "[3, 2]")
        + good.replace("600", "1024")
        + good.replace("[1, 2]", "[4, 4]")
        + good.replace("5,", "4,", 1)
        + "{"
    )
    verdict = judge(read_report(path, settings=replace(LEAVE, on_bad_row="skip")))
    assert verdict.counts == {"repeated-id": 1, "time-order": 1, "json": 1, "broken-chain": 1, "id-size": 1}
    assert [p.split(": ")[0].removeprefix(str(path)) for p in verdict.problems] == [
        f":5:{good.index(chr(91)) + 1}",
        ":6:15",
        ":7:2",
        ":3",
        ":4",
    ]
    assert any("1 rows repeat another row" in r for r in verdict.remarks)
    assert judge(read_report(shared("traces/conversation_trace.jsonl"))).counts == {}


@pytest.mark.parametrize("seed", range(6))
def test_repeated_rows_are_those_of_equal_times_lengths_and_outer_blocks(seed):
    """Rows of no, one or two blocks, the last row of no block."""
    random = np.random.default_rng(seed)
    rows = [
        (*random.integers(0, 2, 5).tolist(), random.integers(0, 2, random.integers(0, 3)).tolist())
        for _ in range(40)
    ]
    rows.append((0, 0, 0, 0, 0, []))
    at, think, inputs, outputs, session = np.array([row[:5] for row in rows]).T
    ids = [row[5] for row in rows]
    trace = replace(
        trace_of([["x"]] * len(rows), 4),
        arrival_ns=at,
        think_ns=think,
        input_tokens=inputs,
        output_tokens=outputs,
        session=session,
        id_offsets=np.cumsum([0, *map(len, ids)]),
        block_ids=np.array([own for row in ids for own in row], np.uint32),
    )
    assert duplicate_rows(trace) == len(rows) - len({(*row[:5], *row[5][:1], *row[5][-1:]) for row in rows})
    assert duplicate_rows(replace(trace, block_ids=np.empty(0, np.uint32))) == 0


def test_statistics_of_few_requests():
    """A prompt without blocks is of no group; the requests of two seconds are enough for their spread."""
    trace = trace_of([[], [0, 1], [0, 2], [5], []], 4, [4, 8, 8, 4, 3], [0, 0, 0, 10**9, 10**9])
    found = trace_stats(trace)
    assert found["blocks"]["prefix_groups"] == 2
    assert found["arrivals"]["dispersion_per_s"] == 0.25 / 2.5
    assert trace_stats(replace(trace, arrival_ns=np.arange(5)))["arrivals"]["dispersion_per_s"] is None
    check_times(10_000)
    for apply in (lambda: check_times(10_001), lambda: cut(trace, 5, 5)):
        with pytest.raises(UsageError):
            apply()
