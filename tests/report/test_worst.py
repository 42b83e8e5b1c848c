"""The worst requests and the spike: a planted one is found, with its part; a flat run has none."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.report.explain.worst import ttft_ns, worst_rows, worst_table
from kvcache_sim.report.explain.worst_text import find_spike, spike_sentences, worst_requests
from kvcache_sim.report.pictures.waterfall import PARTS
from report.finished_rows import written
from support.examples import examples
from support.request_rows import rows

#: Nanoseconds of a millisecond.
MS = 10**6


def flat(count, every_ms=100):
    """Return requests that arrive evenly and all wait alike."""
    columns = {name: column.astype(np.int64) for name, column in rows(count).items()}
    columns["arrival_ns"] = np.arange(count) * every_ms * MS
    columns["input_tokens"] = np.full(count, 1000)
    columns["prefill_ns"] = np.full(count, 20 * MS)
    columns["first_token_ns"] = columns["arrival_ns"] + 20 * MS
    return columns


def delayed(columns, part, waiting, by_ns):
    columns[PARTS[part]][waiting] += by_ns
    columns["first_token_ns"][waiting] += by_ns
    return columns


@examples(150)
@given(
    st.integers(60, 400), st.data(), st.sampled_from(sorted(set(PARTS) - {"prefill"})), st.integers(200, 5000)
)
def test_a_planted_spike_is_found_whole(count, data, part, wait_ms):
    length = data.draw(st.integers(3, count // 12 + 3))
    first = data.draw(st.integers(0, count - length))
    spiked = np.arange(first, first + length)
    # longer than twice the mean even where the spike itself raises the mean
    columns = delayed(flat(count), part, spiked, max(wait_ms, 200) * MS)
    # a request next to the spike may belong to it
    elsewhere = sorted({*range(count)} - {*range(first - 1, first + length + 1)})
    for scattered in data.draw(st.lists(st.sampled_from(elsewhere), max_size=4, unique=True)):
        delayed(columns, "prefill", np.array([scattered]), 15 * MS)
    spike = find_spike(written(columns))
    assert spike.rows.tolist() == spiked.tolist()
    assert spike.part == part
    assert (spike.from_ns, spike.to_ns) == (
        columns["arrival_ns"][spiked[0]],
        columns["arrival_ns"][spiked[-1]],
    )


@examples(80)
@given(st.lists(st.integers(1, 50), min_size=3, max_size=60))
def test_no_stretch_waits_more_beyond_twice_the_mean(waits):
    """The definition itself, tried on every run of requests."""
    columns = flat(len(waits))
    columns["first_token_ns"] = columns["arrival_ns"] + np.array(waits) * MS
    ttft = ttft_ns(columns)
    beyond = ttft - 2 * ttft.mean()
    most = max(beyond[i:j].sum() for i in range(len(waits)) for j in range(i + 1, len(waits) + 1))
    spike = find_spike(written(columns))
    if spike is not None:
        assert beyond[spike.rows].sum() == pytest.approx(max(most, 0))
        assert len(spike.rows) >= 3


@examples(80)
@given(
    st.integers(3, 14),
    st.integers(0, 30),
    st.sampled_from([0, 2]),
    st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=45, max_size=45),
)
def test_what_is_unusual_about_a_spike_is_said(length, after, more, drawn):
    """Rates of ten arrivals and more, hit rates, preemptions and the heaviest request, counted one by one."""
    columns = flat(len(drawn))
    columns["request"] += 100
    columns["arrival_ns"] = np.cumsum([1 + gap * gap for gap, *_ in drawn]) * 100 * MS
    columns["input_tokens"] = np.array(
        [1000 * (1 + more * (k in range(after, after + length))) for k in range(len(drawn))]
    )
    columns["cached_prefix_length_used"] = np.array([250 * cached for _, cached, *_ in drawn])
    columns["num_tokens_actually_prefilled"] = columns["input_tokens"] - columns["cached_prefix_length_used"]
    columns["preemptions"] = np.array([max(0, times - 1) for *_, times, _ in drawn])
    columns["first_token_ns"] = columns["arrival_ns"] + 20 * MS
    run = written(delayed(columns, "queue", np.arange(after, min(after + length, len(drawn))), 9000 * MS))
    spike = find_spike(run)
    inside = spike.rows.tolist()
    rest = sorted({*range(len(drawn))} - {*inside})
    at = columns["arrival_ns"] / 1e9
    tokens, cached = columns["input_tokens"], columns["cached_prefix_length_used"]
    span, whole = at[inside[-1]] - at[inside[0]], at[-1] - at[0]
    said = " ".join(" ".join(spike_sentences(run)[2:]).split())
    rates = sum(tokens[inside]) / max(span, 1e-9), sum(tokens[rest]) / (whole - span)
    is_busy = len(inside) >= 10 and span > 0 and rates[0] > 1.5 * rates[1]
    assert (f"{rates[0]:,.0f} prompt tokens/s" in said) is bool(is_busy)
    hits = [sum(cached[own]) / sum(tokens[own]) for own in (inside, rest)]
    assert ("of their prompt tokens are cached" in said) is bool(hits[1] - hits[0] > 0.1)
    preempted = int(sum(columns["preemptions"][inside]))
    assert re.findall(r"preempted (\d+)", said) == [str(preempted)] * (preempted > 0)
    heaviest = max(inside, key=lambda row: (tokens[row] - cached[row], -row))
    assert re.findall(r"Request (\d+) .*? ([\d,]+) tokens", said) == [
        (str(100 + heaviest), f"{tokens[heaviest] - cached[heaviest]:,}")
    ]


@examples(80)
@given(st.integers(1, 9), st.integers(0, 6), st.integers(0, 9), st.integers(1, 4), st.data())
def test_the_worst_are_the_longest_waits_of_a_window_against_the_run(count, low, high, most, data):
    """Each cell by hand; ties by request; medians of the whole run whatever the window."""
    columns = flat(count)
    columns["request"] = np.array(data.draw(st.permutations(range(100, 100 + count))))
    columns["machine"] = np.arange(count) % 2
    for name in ("preemptions", "outcome", "cached_prefix_length_used"):
        columns[name] = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    for part in ("queue", "handover"):
        waits = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        delayed(columns, part, np.arange(count), np.array(waits) * 7_000_123)
    window = (low * 100 * MS, high * 100 * MS)
    inside = [row for row in range(count) if low <= row < high]
    run = written(columns)
    if not inside:
        with pytest.raises(
            UsageError, match=f"got {low / 10:g} s to {high / 10:g} s; .*is at {(count - 1) / 10:.3f} s"
        ):
            worst_rows(run, most, window)
        return
    ttft = [int(columns["first_token_ns"][row]) - row * 100 * MS for row in range(count)]
    usual = {part: float(np.median(columns[name])) for part, name in PARTS.items()}
    expected = []
    for row in sorted(inside, key=lambda row: (-ttft[row], columns["request"][row]))[:most]:
        grew = {part: columns[name][row] - usual[part] for part, name in PARTS.items()}
        part = next(part for part in PARTS if grew[part] == max(grew.values()))
        own = {name: int(columns[name][row]) for name in columns}
        expected.append(
            (
                own["request"],
                row / 10,
                round(ttft[row] / 1e6, 3),
                round(ttft[row] / float(np.median(ttft)), 1),
                part,
                round(own[PARTS[part]] / 1e6, 3),
                1000,
                own["cached_prefix_length_used"],
                OUTCOMES[own["outcome"]].replace("_", " ").lower(),
                "finished",
                row % 2,
                own["preemptions"],
            )
        )
    assert worst_rows(run, most, window) == expected
    assert worst_rows(run, count) == worst_rows(run, count, (0, count * 100 * MS))
    table = worst_table([run, written(flat(0))], most, window)
    assert table.rows == tuple(("A", *row) for row in expected)
    listed = json.loads(worst_requests(run, most, window, "json"))
    assert listed == {
        "spike": spike_sentences(run, window),
        "worst": [dict(zip(table.headings[1:], row, strict=True)) for row in expected],
    }
    text = worst_requests(run, most, window, "table").splitlines()
    assert [int(line.split()[0]) for line in text[-len(expected) :]] == [row[0] for row in expected]
