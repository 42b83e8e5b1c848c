"""``kvsim explain --session``, ``--prefixes`` and ``--request``: seed 000's structures of a finished run, and moments."""

import json
import statistics
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_time_ns
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.report.explain.explanation import explanation
from kvcache_sim.report.pictures.waterfall import PARTS
from support.examples import examples

#: The conversation of test_seed_000_narrated: blocks of 16 tokens, one request a second.
CHAT = [
    ("chat", 40, 9, [1, 2, 30]),
    ("chat", 80, 16, [1, 2, 3, 4, 5]),
    ("chat", 100, 5, [1, 2, 3, 4, 5, 6, 70]),
    ("chat", 60, 2, [1, 2, 3, 80]),  # not above the 105 tokens that are cached
    ("other", 50, 1, [1, 2, 3, 90]),
]


def simulated(tmp_path, *options, rows=CHAT):
    trace = tmp_path / "chat.jsonl"
    trace.write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": 1000 * k,
                    "input_length": prompt,
                    "output_length": output,
                    "hash_ids": ids,
                    "session_id": session,
                }
            )
            + "\n"
            for k, (session, prompt, output, ids) in enumerate(rows)
        )
    )
    out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    sets = ["--set", "trace.block_size=16", "--set", "cache.block_size=16"]
    assert kvsim(["simulate", str(trace), *sets, *options, "-o", str(out), "--quiet"]) == 0
    return out


def reported(capsys, run, *options):
    capsys.readouterr()
    assert kvsim(["explain", str(run), *options, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_a_session_turn_by_turn(tmp_path, capsys, accounting):
    run = simulated(tmp_path, "--causes", "--set", f"cache.accounting={accounting}")
    turns = reported(capsys, run, "--session", "chat")["turns"]
    assert [turn["request"] for turn in turns] == [0, 1, 2, 3]
    hits = {"detailed": [0, 48, 80, 48], "simplified": [0, 49, 96, 48]}[accounting]
    assert [turn["cached_prefix_length"] for turn in turns] == hits
    assert [turn["missed_tokens"] for turn in turns] == [
        prompt - hit for (_, prompt, *_), hit in zip(CHAT, hits, strict=False)
    ]
    assert [turn["events"] for turn in turns] == [
        ["MISS_FULL"],
        ["CONVERSATIONAL_HIT"],
        ["CONVERSATIONAL_HIT"],
        ["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT", "CROSS_REQUEST_HIT"],
    ]
    left = [turn["left"] for turn in turns]
    assert [(one["prompt_part_length"], one["response_part_length"]) for one in left] == [
        (40, 9),
        (80, 16),
        (100, 5),
        (60, 2),
    ]
    assert [one["total_tokens_in_cache"] for one in left] == [49, 96, 105, 62]
    assert left[3]["kv_block_ids"] == [1, 2, 3, 80]
    assert left[3]["associated_sequence_id"] == "3"
    assert left == sorted(left, key=lambda one: one["last_update_time"])
    for turn in turns:
        assert sum(turn["misses"].values()) == turn["missed_tokens"]
        assert all(turn["misses"].values())  # causes without tokens are left out
        assert sum(turn["cached_tokens"].values()) == turn["cached_prefix_length"]


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_the_global_prefix_store_at_the_end(tmp_path, capsys, accounting):
    run = simulated(tmp_path, "--prefixes", "--set", f"cache.accounting={accounting}")
    entries = {entry["prefix_hash"]: entry for entry in reported(capsys, run, "--prefixes")["prefixes"]}
    # All five begin with blocks 1, 2 and 3: the first fills its third block with its answer.
    shared, longer = entries[3], entries[6]
    assert (shared["length"], shared["blocks"], shared["kv_block_ids"]) == (48, 3, [1, 2, 3])
    assert shared["hits"] == 4
    assert shared["last_access_time"] == pytest.approx(4.0, abs=0.1)
    assert (longer["length"], longer["kv_block_ids"]) == (96, [1, 2, 3, 4, 5, 6])
    assert longer["last_access_time"] == pytest.approx(2.0, abs=0.1)
    counts = [entry["reference_count"] for entry in entries.values()]
    if accounting == "detailed":
        assert set(counts) == {0}, "all requests have ended"
    else:
        assert sum(counts) > 0, "sessions hold what their last turns left"
    capsys.readouterr()
    assert kvsim(["explain", str(run), "--prefixes"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_keeping_prefixes_changes_no_digest(tmp_path):
    digests = [
        json.loads((simulated(tmp_path, *options) / "run.json").read_text())["digest"]
        for options in ((), ("--prefixes",))
    ]
    assert digests[0] == digests[1]


def test_an_unknown_session_is_one_line(tmp_path, capsys):
    run = simulated(tmp_path)
    capsys.readouterr()
    assert kvsim(["explain", str(run), "--session", "chta"]) == 2
    assert capsys.readouterr().err == (
        "--session: no such session; got 'chta'; expected one of 2, such as chat; did you mean 'chat'?\n"
    )


def test_semantics_without_a_prefix_store_refuse_to_keep_it(tmp_path, capsys):
    trace = tmp_path / "chat.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 16, "output_length": 1, "hash_ids": [1]}\n')
    options = ["--set", "cache.semantics=vllm", "--prefixes", "-o", str(tmp_path / "out")]
    assert kvsim(["simulate", str(trace), *options]) == 2
    assert "--prefixes: no global prefix store; got vllm" in capsys.readouterr().err


#: Kind of an event → what its moment begins with; None: no moment.
MOMENTS = {
    "admit": "is admitted on machine {machine}",
    "preempt": "is preempted",
    "prefix_cache_event": "look-up: {detail}, {tokens:,} tokens cached",
    "prefill_start": "prefill starts: {tokens:,} tokens to compute",
    "transfer": "{blocks:,} blocks over {detail}, {duration}",
    "first_token": "first token",
    "finish": "last token",
    "commit": None,
}


@st.composite
def logged_runs(draw):
    """A run of few requests in parts of TTFT, and its events, logged or not."""
    n = draw(st.integers(1, 5))
    parts = {column: draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)) for column in PARTS.values()}
    rows = {"request": list(range(n)), **parts}
    for name, few in (("arrival_ns", 9), ("preemptions", 2), ("input_tokens", 5000), ("output_tokens", 5000)):
        rows[name] = draw(st.lists(st.integers(0, few), min_size=n, max_size=n))
    rows["status"] = [int(draw(st.integers(0, 3)) == 0) for _ in range(n)]
    rows["first_token_ns"] = [rows["arrival_ns"][k] + sum(one[k] for one in parts.values()) for k in range(n)]
    rows["finish_ns"] = [at + draw(st.integers(0, 9)) for at in rows["first_token_ns"]]
    fields = ("request", "machine", "tokens", "blocks", "duration_ns")
    events = []
    for _ in range(draw(st.integers(0, 8))):
        event = {name: draw(st.integers(0, 4)) for name in fields}
        kind = draw(st.sampled_from([*MOMENTS]))
        if event["request"] < n and rows["status"][event["request"]] == 0:
            ends = {"first_token": "first_token_ns", "finish": "finish_ns"}
            at = rows[ends.get(kind, "arrival_ns")][event["request"]] + (
                kind not in ends and draw(st.integers(0, 20))
            )
            events.append({**event, "kind": kind, "detail": draw(st.sampled_from(("a", "b"))), "time_ns": at})
    return rows, sorted(events, key=lambda event: event["time_ns"])


@examples(100)
@given(logged_runs(), st.booleans())
def test_a_request_is_explained_moment_by_moment_and_what_made_it_slow(case, has_window):
    rows, events = case
    window_tokens = 1 + rows["input_tokens"][0] // 2 * 2 if has_window else None
    columns = {name: np.array(values, np.int64) for name, values in rows.items()}
    done = columns["status"] == 0
    logged = {
        name: np.array([event[name] for event in events], np.int64)
        for name in ("request", "machine", "tokens", "blocks", "duration_ns", "time_ns")
    }
    for name in ("kind", "detail"):
        words = tuple(sorted({event[name] for event in events}, reverse=True))
        logged[name] = CodedText(np.array([words.index(event[name]) for event in events], np.int32), words)
    run = SimpleNamespace(
        requests=columns,
        finished={name: values[done] for name, values in columns.items()},
        events=logged,
        scenario={"replica": {"max_model_len": window_tokens}} if window_tokens else {},
    )
    for request in range(len(done)):
        own = {name: values[request] for name, values in rows.items()}
        moments, reasons = explanation(run, request)
        arrives = f"arrives: {own['input_tokens']:,} prompt tokens, {own['output_tokens']:,} to generate"
        if own["status"]:
            too_long = window_tokens and own["input_tokens"] >= window_tokens
            assert moments[0] == (0, arrives)
            assert [at for at, _ in moments] == [0, 0]
            assert (
                f"max_model_len ({window_tokens:,})" if too_long else "needs more blocks than a gpu has"
            ) in moments[1].text
            assert reasons == []
            continue
        expected = [(0, arrives)]
        for event in events:
            text = MOMENTS[event["kind"]]
            if event["request"] == request and text:
                said = text.format(**event, duration=format_time_ns(event["duration_ns"]))
                expected.append((event["time_ns"] - own["arrival_ns"], said))
        for name, column in (("first token", "first_token_ns"), ("last token", "finish_ns")):
            if all(text != name for _, text in expected):
                expected.append((own[column] - own["arrival_ns"], name))
        expected.sort(key=lambda moment: moment[0])
        assert [at for at, _ in moments] == [at for at, _ in expected]
        assert all(text.startswith(said) for (_, text), (_, said) in zip(moments, expected, strict=True))
        others = [sum(rows[column][k] for column in PARTS.values()) for k in np.flatnonzero(done)]
        ttft = sum(own[column] for column in PARTS.values())
        median = {
            part: statistics.median(np.array(rows[column])[done].tolist()) for part, column in PARTS.items()
        }
        excess = {part: own[column] - median[part] for part, column in PARTS.items()}
        worst = max(excess, key=excess.get)
        share = 100 * sum(other <= ttft for other in others) / len(others)
        sentences = [
            f"TTFT {format_time_ns(ttft)}: slower than {share:.1f} % of requests (median {format_time_ns(statistics.median(others))})."
        ]
        if ttft > statistics.median(others) and excess[worst] > 0:
            figures = f"{format_time_ns(own[PARTS[worst]])} (median {format_time_ns(median[worst])})"
            sentences.append(f"Most of the difference is {worst}: {figures}.")
        if own["preemptions"]:
            sentences.append(f"It was preempted {('1 time', '2 times')[own['preemptions'] - 1]}.")
        assert reasons == sentences
    for absent in (-1, len(done)):
        with pytest.raises(UsageError, match=f"expected 0 to {len(done) - 1}"):
            explanation(run, absent)
