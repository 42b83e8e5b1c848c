"""Sessions, the prefix store and single requests of a finished run, as ``kvsim explain`` reports them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.explain.explanation import explanation
from kvcache_sim.report.pictures.waterfall import PARTS
from report.finished_rows import written
from support.examples import examples
from support.request_rows import rows

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
    lines = [
        {"timestamp": 1000 * k, "input_length": prompt, "output_length": output, "hash_ids": ids}
        | {"session_id": session}
        for k, (session, prompt, output, ids) in enumerate(rows)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
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


#: Events that are no moment of a request, and the columns of those that are there even if they were not logged.
UNSEEN = ("commit", "step")
ENDS = {"first_token": "first_token_ns", "finish": "finish_ns"}


@st.composite
def logged_runs(draw):
    """Return the columns of a few requests in parts of TTFT, and their events, logged or not, in order of time."""
    n = draw(st.integers(1, 5))

    def each(most):
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))

    parts = {column: each(5) for column in PARTS.values()}
    columns = rows(
        n, **parts, arrival_ns=each(9), preemptions=each(2), status=each(3) == 0, input_tokens=each(5000)
    )
    columns["first_token_ns"] = columns["arrival_ns"] + sum(parts.values())
    columns["finish_ns"] = columns["first_token_ns"] + each(9)
    events = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["admit", "preempt", "prefill_start", "transfer", *ENDS, *UNSEEN]))
        request = draw(st.integers(0, n - 1))
        at_ns = columns[ENDS.get(kind, "arrival_ns")][request] + (
            kind not in ENDS and draw(st.integers(0, 20))
        )
        if not columns["status"][request]:
            events.append({"kind": kind, "request": request, "time_ns": int(at_ns)})
    return columns, sorted(events, key=lambda event: event["time_ns"])


@examples(100)
@given(logged_runs(), st.integers(0, 5001))
def test_a_request_is_explained_moment_by_moment_and_what_made_it_slow(case, context):
    """By the times of its moments, the share of requests that it is slower than, and the part that grew most."""
    columns, events = case
    scenario = f"replica: {{max_model_len: {context}}}\n" if context else ""
    run = written(columns, logged=events, scenario=scenario)
    done = np.flatnonzero(columns["status"] == 0)
    waits = {part: columns[column][done] for part, column in PARTS.items()}
    ttfts = sum(waits.values())
    for request in range(len(columns["status"])):
        arrival_ns = columns["arrival_ns"][request]
        moments, reasons = explanation(run, request)
        times = [at_ns for at_ns, _ in moments]
        if columns["status"][request]:
            is_long = 0 < context <= columns["input_tokens"][request]
            assert (times, reasons, "max_model_len" in moments[1].text) == ([0, 0], [], is_long)
            continue
        own = [event for event in events if event["request"] == request and event["kind"] not in UNSEEN]
        unlogged = [column for kind, column in ENDS.items() if all(event["kind"] != kind for event in own)]
        expected = [0, *(event["time_ns"] - arrival_ns for event in own)]
        assert times == sorted(expected + [columns[column][request] - arrival_ns for column in unlogged])
        own_row = int(np.flatnonzero(done == request)[0])
        share = 100 * np.mean(ttfts <= ttfts[own_row])
        assert f"slower than {share:.1f} % of requests" in reasons[0]
        grew = {part: own[own_row] - np.median(own) for part, own in waits.items()}
        worst = max(grew, key=grew.get)
        is_slow = bool(ttfts[own_row] > np.median(ttfts) and grew[worst] > 0)
        assert any(f" {worst}: " in line for line in reasons[1:]) is is_slow
        assert len(reasons) == 1 + is_slow + bool(columns["preemptions"][request])
    for absent in (-1, len(columns["status"])):
        with pytest.raises(UsageError, match=f"expected 0 to {len(columns['status']) - 1}"):
            explanation(run, absent)
