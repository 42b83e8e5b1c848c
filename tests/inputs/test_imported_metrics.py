"""Scrapes of an engine's metrics become a load curve."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from imported_rows import imported
from kvcache_sim.base.errors import TraceError
from kvcache_sim.cli.main import run
from support.examples import examples

LOGS = Path(__file__).parents[1] / "logs"


def test_an_answer_of_prometheus_gives_the_same_curve(tmp_path):
    series: dict[str, list[list[object]]] = {}
    date = 0
    for line in (LOGS / "metrics.txt").read_text().splitlines():
        if line.isdigit():
            date = int(line)
        elif line.startswith("vllm:"):
            name, value = line.rsplit(" ", 1)
            series.setdefault(name, []).append([date, value])
    result = [
        {"metric": {"__name__": key.split("{")[0], "labels": key}, "values": values}
        for key, values in series.items()
    ]
    path = tmp_path / "range.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    assert imported(path)[:2] == imported(LOGS / "metrics.txt")[:2]


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 30), *(st.integers(0, 5) for _ in range(5))), min_size=1, max_size=5)
)
def test_a_load_curve_is_what_came_in_each_interval(tmp_path_factory, intervals):
    """Finished requests and the growth of the open ones came; those that went unfinished are made up for later."""
    path = tmp_path_factory.mktemp("m") / "m.txt"
    at_s, stop, length, running, waiting = 1_795_428_000, 0, 0, 0, 0
    totals, lines, expected, debt, hits = [0] * 5, [], [], 0, 0

    def scrape() -> None:
        names = """
            request_prompt_tokens_sum request_generation_tokens_sum request_prompt_tokens_count
            prefix_cache_hits_total prefix_cache_queries_total
        """.split()
        lines.append(f"{at_s}\n# TYPE vllm:x counter\n")
        lines.extend(
            f'vllm:request_success_total{{finished_reason="{reason}"}} {n}\n'
            for reason, n in (("stop", stop), ("length", length))
        )
        lines.extend(f"vllm:{name} {n}\n" for name, n in zip(names, totals, strict=True))
        lines.append(
            f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\nvllm:other_total 7\n"
        )

    scrape()
    for seconds, by_stop, by_length, tokens, now_running, now_waiting in intervals:
        ended, opened = by_stop + by_length, now_running + now_waiting - running - waiting
        stop, length, running, waiting = stop + by_stop, length + by_length, now_running, now_waiting
        totals = [
            own + more
            for own, more in zip(
                totals, (100 * tokens * ended, 10 * tokens * ended, ended, tokens, 2 * tokens), strict=True
            )
        ]
        start, at_s = at_s, at_s + seconds
        scrape()
        hits += tokens
        came = ended + opened + debt
        debt = min(came, 0)
        for k in range(came):
            at_ns = (2 * k + 1) * seconds * 10**9 // (2 * came)
            sizes = (100 * tokens, 10 * tokens) if ended else None
            expected.append((10**9 * (start - 1_795_428_000) + at_ns, sizes))
    assume(expected and (stop or length))
    path.write_text("".join(lines))
    _, rows, notes = imported(path, "prometheus")
    first = expected[0][0]
    overall = [total / (stop + length) for total in totals[:2]]  # where nothing finished in between
    assert [(row["timestamp"], row["input_length"], row["output_length"]) for row in rows] == [
        (pytest.approx((at_ns - first) / 1e6, abs=1e-5), *(max(round(size), 1) for size in sizes or overall))
        for at_ns, sizes in expected
    ]
    assert any("hit rate over this time: 50.0%" in text for text in notes.remarks) == (hits > 0)
    assert f"{len(intervals) + 1} scrapes over {at_s - 1_795_428_000} s" in " ".join(notes.remarks)


def test_a_counter_that_fell_counts_from_nought(tmp_path):
    sample = 'vllm:request_success_total{{finished_reason="{}"}} {}\n'
    lines = ["# TYPE vllm:x counter\n"]
    for n, values in enumerate(((100, 50), (110, 50), (4, 49), (4, 60))):  # 10 finish, then 4 + 49, then 11
        lines.append(f"{1795428000 + 10 * n}\n")
        lines += [
            sample.format(reason, value) for reason, value in zip(("stop", "length"), values, strict=True)
        ]
    path = tmp_path / "m.txt"
    path.write_text("".join(lines))
    _, rows, notes = imported(path)
    assert len(rows) == 10 + 4 + 49 + 11
    assert any("started anew" in text for text in notes.remarks)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("vllm:request_success_total 1", "vllm:request_success_total 1", "no request finished between"),
        ("vllm:request_success_total 1", "vllm:request_success_total NaN", "not a value; got NaN"),
        ("vllm:request_success_total 1", "vllm:request_success_total 1e12", "too many requests"),
        (
            "vllm:prompt_tokens_total 1",
            "vllm:prompt_tokens_total 9",
            "not the finished requests of one engine",
        ),
        ("sglang:num_requests_total 1\nvllm:request_success_total 1", "", "of one engine"),
    ],
)
def test_scrapes_without_a_curve_are_refused(first, then, said, tmp_path):
    (tmp_path / "m.txt").write_text(f"1795428000\n{first}\n1795428010\n{then}\n")
    with pytest.raises(TraceError, match=said):
        imported(tmp_path / "m.txt")


def test_a_generated_workload_follows_the_curve(tmp_path, capsys):
    curve = tmp_path / "curve.jsonl"
    assert run(["trace", "import", str(LOGS / "metrics.txt"), "-o", str(curve)]) == 0
    arrivals = f"{{process: trace, path: {curve}, bin: 15s}}"
    assert run(["trace", "generate", "diverse", "--set", f"arrivals={arrivals}", "--set", "requests=50"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 50
    assert rows[-1]["timestamp"] == pytest.approx(50 / (13 / 15) * 1000, rel=0.4)
