"""`kvsim trace import`: what each kind of log becomes, what is left out and counted, and where a bad line is."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.workload.chat_template import chat_prompt
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Logged, Naming, Notes
from kvcache_sim.workload.imports.write import KINDS, import_log
from kvcache_sim.workload.readers import read_trace
from support.examples import examples

LOGS = Path(__file__).parents[1] / "logs"
TEXTS = ("careful", "assistant", "keeps what", "alice", "hello", "A tree", "chatcmpl")


def imported(path: Path, kind: str = "", skips: bool = False, salt: bytes = b"mine"):
    """Return the kind, the rows with ids numbered in order of appearance, and the notes."""
    notes = Notes()
    found = import_log(str(path), kind, Reading(Naming(16, salt), notes, skips))
    assert found is not None
    first: dict[int, int] = {}
    rows = [json.loads(line) for line in found.lines()]
    for row in rows:
        if "hash_ids" in row:
            row["hash_ids"] = [first.setdefault(id, len(first)) for id in row["hash_ids"]]
        row.pop("session_id", None)
    return found.kind.name, rows, notes


def row(at: float, inputs: int, outputs: int, ids: list[int] | None = None, **more: float):
    named = {} if ids is None else {"hash_ids": ids}
    return {"timestamp": at, "input_length": inputs, "output_length": outputs, **named, **more}


EXPECTED = {
    "openai.jsonl": (
        "openai",
        [
            row(0, 53, 8, [0, 1, 2], named_length=61),
            row(5250, 79, 4, [0, 1, 2, 3, 4], named_length=83, cached_tokens=32),
            row(172810250, 30, 7, ttft_ms=250),
            row(172810750, 17, 12, [5]),
        ],
        [(3, 1), (4, 1)],
    ),
    "vllm.log": (
        "vllm",
        [row(0, 40, 8, [0, 1, 2], named_length=48), row(5000, 56, 9, [0, 1, 2])],
        [(4, 1)],
    ),
    "sglang.log": (
        "sglang",
        [
            row(0, 40, 8, [0, 1, 2], named_length=48, cached_tokens=0),
            row(2500, 56, 3, [0, 1, 2], cached_tokens=32),
        ],
        [(5, 1)],
    ),
    "sglang.jsonl": (
        "sglang",
        [row(0, 40, 8, [0, 1, 2], named_length=48, cached_tokens=0), row(2000, 56, 3, cached_tokens=32)],
        [],
    ),
    "dynamo.jsonl": (
        "dynamo",
        [row(0, 40, 4, [0, 1], ttft_ms=40), row(950, 70, 9, [0, 1, 2, 3], cached_tokens=32)],
        [(2, 1)],
    ),
    "aiperf.jsonl": (
        "aiperf",
        [row(0, 600, 10, cached_tokens=0, ttft_ms=31.5), row(195, 700, 20, cached_tokens=512, ttft_ms=9.25)],
        [(1, 1), (4, 1)],
    ),
    "kv_events.jsonl": (
        "kv-events",
        [
            row(0, 81, 16, [0, 1, 2, 3, 4, 5], named_length=97, cached_tokens=0),
            row(9000, 129, 1, [0, 1, 2, 3, 4, 5, 6, 7], cached_tokens=96),
            row(11000, 49, 1, [0, 1, 8], cached_tokens=16),
        ],
        [(5, 1), (7, 1)],
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_kind_of_log_becomes_its_requests(name, tmp_path):
    kind, rows, left = EXPECTED[name]
    for path in (LOGS / name, tmp_path / f"{name}.gz"):
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress((LOGS / name).read_bytes()))
        found, got, notes = imported(path)
        assert (found, got) == (kind, rows)
        assert [(first, count) for count, first in notes.left_out.values()] == left


#: What is said of each log, by its first words.
REMARKS = {
    "openai.jsonl": ["answers that the log does not have", "texts are hashed in blocks of 16 tokens"],
    "vllm.log": ["answers without --enable-log-outputs", "the log's clock has whole seconds"],
    "sglang.jsonl": ["requests without a whole text or input_ids"],
    "aiperf.jsonl": ["without payloads"],
    "kv_events.jsonl": ["requests are what events show of them"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_log_lacks_is_said_once(name):
    said = list(imported(LOGS / name)[2].remarks)
    expected = REMARKS.get(name, [])
    assert len(said) == len(expected)
    assert all(text.startswith(words) for text, words in zip(said, expected, strict=True))


@pytest.mark.parametrize(
    ("lines", "rows", "said"),
    [
        (["details", "received", "output"], [(0, 3, 2)], []),
        (["details", "received"], [(0, 3, 9)], ["answers without --enable-log-outputs"]),
        (["details", "received", "output", "aborted"], [(0, 3, 2)], ["requests that were aborted"]),
        (["details", "received", "delta", "delta"], [(0, 3, 4)], []),
        (["received", "output"], [], []),
        (["details", "output"], [], []),
        (["details", "pooling"], [], []),
        (["output", "aborted", "details", "received"], [(0, 3, 9)], ["answers without --enable-log-outputs"]),
    ],
)
def test_lines_of_vllms_log_make_a_request_together(tmp_path, lines, rows, said):
    """Lines about a request before the one that introduces it count for nothing."""
    text = {
        "details": "Request cmpl-1 details: prompt: 'x', prompt_token_ids: [5, 6, 7], prompt_embeds shape: None.",
        "received": "Received request cmpl-1: params: SamplingParams(n=1, max_tokens=9, x), lora_request: None.",
        "pooling": "Received request cmpl-1: params: PoolingParams(x), lora_request: None.",
        "output": "Generated response cmpl-1 details: output_token_ids: [8, 9]",
        "delta": "Generated response cmpl-1 (streaming delta) details: output_token_ids: [8, 9]",
        "aborted": "Request cmpl-1 aborted.",
    }
    path = tmp_path / "v.log"
    whole = [text[line].replace("cmpl-1", "cmpl-0") for line in ("details", "received", "output")]
    path.write_text("".join(f"INFO 12-31 23:59:58 [x] {line}\n" for line in [*whole, *map(text.get, lines)]))
    _, found, notes = imported(path, "vllm")
    assert [(row["timestamp"], row["input_length"], row["output_length"]) for row in found] == [
        (0, 3, 2),
        *rows,
    ]
    others = [remark for remark in notes.remarks if not remark.startswith("the log's clock")]
    assert [remark.startswith(words) for remark, words in zip(others, said, strict=True)] == [True] * len(
        said
    )


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, (40, 4)),
        ({"request_received_ms": None}, None),
        ({"request_received_ms": -1}, None),
        ({"request_received_ms": 0}, (40, 4)),
        ({"output_tokens": None}, None),
        ({"output_tokens": 0}, (40, 0)),
        ({"replay": None}, None),
        ({"replay": None, "input_tokens": 7}, (7, 4)),
        ({"replay": None, "input_tokens": 0}, None),
        ({"input_tokens": 7}, (40, 4)),
        ({"replay": {"input_length": 0}}, None),
    ],
)
def test_a_request_of_dynamo_needs_an_arrival_and_both_counts(tmp_path, change, counts):
    row = json.loads((LOGS / "dynamo.jsonl").read_text().splitlines()[0])
    path = tmp_path / "d.jsonl"
    path.write_text(
        json.dumps(row) + "\n" + json.dumps({**row, "request": {**row["request"], **change}}) + "\n"
    )
    _, rows, notes = imported(path)
    found = [(row["input_length"], row["output_length"]) for row in rows]
    assert sorted(found) == sorted([(40, 4), counts] if counts else [(40, 4)])
    assert list(notes.left_out.values()) == ([] if counts else [(1, 2)])


def test_every_kind_has_a_log_here():
    assert {kind for kind, _, _ in EXPECTED.values()} | {"prometheus"} == set(KINDS)


@pytest.mark.parametrize("name", EXPECTED)
def test_no_text_reaches_the_trace_and_a_salt_keeps_the_ids(name, tmp_path, capsys):
    salt = tmp_path / "salt"
    salt.write_bytes(b"mine")
    traces = []
    for k, options in enumerate((["--salt-file", str(salt)], ["--salt-file", str(salt)], [])):
        out = tmp_path / f"{k}.jsonl"
        assert run(["trace", "import", str(LOGS / name), "-o", str(out), *options]) == 0
        traces.append(out.read_text())
    assert traces[0] == traces[1]
    if "hash_ids" in traces[0]:
        assert traces[0] != traces[2]
    assert not [text for text in TEXTS if text in traces[0]]
    trace = read_trace(tmp_path / "0.jsonl")
    assert len(trace) == len(EXPECTED[name][1])
    capsys.readouterr()


BODIES = {
    "top": lambda body: body,
    "body": lambda body: {"body": body},
    "kwargs": lambda body: {"kwargs": body},
    "request": lambda body: {"request": {"body": body, "method": "POST"}},
}
counts = st.none() | st.integers(1, 50)


@examples(120)
@given(st.lists(st.tuples(
    st.sampled_from(sorted(BODIES)), st.sampled_from(["text", "tokens", "list", "chat", "none"]), st.integers(0, 80),
    st.none() | st.integers(0, 80), st.tuples(counts, counts, st.none() | st.integers(0, 9)), st.booleans(),
    st.sampled_from([None, 200, 399, 400, "success", "failure", "error"]), st.none() | st.integers(-2, 3), counts,
), max_size=4), st.none() | st.integers(1, 9))  # fmt: skip
def test_a_proxys_log_is_read_wherever_its_members_stand(tmp_path_factory, drawn, assumed):
    """Prompts of bytes, four to a token, or of tokens; counts of the server go before those of the texts."""
    drawn = [*drawn, ("top", "text", 16, None, (None, None, None), False, 200, None, 5)]
    path, expected, left, lines = tmp_path_factory.mktemp("log") / "l.jsonl", [], 0, []
    for n, (within, kind, size, answered, usage, flat, status, waited_s, most) in enumerate(drawn):
        prompt = {"text": "x" * size, "tokens": [1] * size, "list": ["x" * size], "none": None}.get(kind)
        chat = [{"role": "user", "content": [{"type": "text", "text": "x" * size}, {"type": "image_url"}]}]
        body = (
            {"messages": chat}
            if kind == "chat"
            else {"prompt": prompt}
            if prompt is not None
            else {"input": "x"}
        )
        body |= {} if most is None else {"max_tokens": most}
        row = BODIES[within](body) | {"time": 1000 + n, "status": status}
        names = ("prompt_tokens", "completion_tokens")
        counted = dict(zip(names, usage[:2], strict=True)) | {
            "prompt_tokens_details": {"cached_tokens": usage[2]}
        }
        said = {} if answered is None else {"choices": [{"message": {"content": "y" * answered}}]}
        row["output" if flat else "response"] = said if flat else {"body": said | {"usage": counted}}
        row |= {"usage": counted} if flat else {}
        row |= {} if waited_s is None else {"completionStartTime": 1000 + n + waited_s}
        lines.append(json.dumps(row) + "\n")
        length = len(chat_prompt([("user", "x" * size)])) if kind == "chat" else size
        whole = length + (answered or 0)
        tokens = (
            [-(-own // 4) for own in (length, whole)]
            if kind != "tokens"
            else [length, length + -(-(answered or 0) // 4)]
        )
        inputs = tokens[0] if usage[0] is None else usage[0]
        outputs = (
            usage[1]
            if usage[1] is not None
            else tokens[1] - tokens[0]
            if answered is not None
            else most or assumed
        )
        if status in (400, "failure", "error") or kind == "none" or outputs is None or not length:
            left += 1
            continue
        agree = inputs == tokens[0] and tokens[1] > tokens[0]
        named = min(tokens[1], inputs + outputs) if agree else min(tokens[0], inputs)
        more = {} if usage[2] is None else {"cached_tokens": usage[2]}
        more |= {"ttft_ms": 1000 * waited_s} if waited_s is not None and waited_s >= 0 else {}
        more |= {"named_length": named} if agree else {}
        expected.append((1000 * (1000 + n), inputs, outputs, named // 16, more))
    path.write_text("".join(lines))
    notes = Notes()
    found = import_log(str(path), "openai", Reading(Naming(16, b"s"), notes, answer_tokens=assumed))
    rows = [json.loads(line) for line in found.lines()]
    first = expected[0][0]
    own = ("timestamp", "input_length", "output_length", "hash_ids")
    assert [
        (row["timestamp"] + first, row["input_length"], row["output_length"], len(row.get("hash_ids", [])),
         {name: value for name, value in row.items() if name not in own})
        for row in rows
    ] == expected  # fmt: skip
    assert sum(count for count, _ in notes.left_out.values()) == left


HEADS = {
    "aiperf": (['{"metadata": {"credit_issued_ns": 1}}', '{"metadata": {"request_start_ns": 1}}'],
               ['{"metadata": {}}', '{"credit_issued_ns": 1, "request_start_ns": 2}']),
    "openai": (['{"time": 1, "prompt": ""}', '{"timestamp": 1, "messages": []}', '{"time": 1, "kwargs": {}}'],
               ['{"time": 1}', '{"prompt": ""}', '{"messages": [], "body": {}}']),
    "prometheus": (["# TYPE vllm:x counter", "# HELP vllm:x y", '{"resultType": "matrix", "__name__": "vllm:x"}'],
                   ["vllm:x 1", "# TYPE x counter", '{"resultType": "matrix"}']),
    "sglang": (['{"event": "request.finished"}', "[t] Receive: obj=G(", "[t] Finish: obj=G("], ['{"event": "x"}', "Start: obj=G("]),
    "kv-events": (['["BlockStored"]', '["BlockRemoved"]', '["AllBlocksCleared"]'], ['["BlockMoved"]']),
    "vllm": (["INFO 12-31 23:59:58 [x] Received request r: params: S(",
              "DEBUG 12-31 23:59:58 Request r details: prompt: '', prompt_token_ids: [1], prompt_embeds shape: None"],
             ["INFO 12-31 23:59:58 x", "Received request r: params: S("]),
    "dynamo": (['{"schema": "dynamo.request.trace.v1"}'], ['{"schema": "dynamo.request.trace.v2"}']),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_head_of_a_log_says_its_kind(kind):
    yes, no = HEADS[kind]
    assert [KINDS[kind].detect(head.encode()) for head in (*yes, *no)] == [True] * len(yes) + [False] * len(
        no
    )


@examples(60)
@given(st.lists(st.tuples(
    st.booleans(), st.booleans(), st.integers(0, 40), st.integers(0, 20), st.none() | st.integers(0, 9),
    st.none() | st.sampled_from([0.25, 2.0, 9000.0]), st.booleans(),
), max_size=5))  # fmt: skip
def test_sglangs_requests_arrive_when_they_were_received_or_their_latency_before_their_end(
    tmp_path_factory, drawn
):
    """Logged as JSON and as text: tokens 0, 1, … of prompts, and answers that the log has whole or not."""
    drawn = [*drawn, (True, True, 20, 12, None, None, True)]
    logs, expected, left = {"json": [], "text": []}, [], 0
    for n, (received, finished, inputs, outputs, cached, latency, whole) in enumerate(drawn):
        start, end = 1000 + 10 * n, 1005 + 10 * n
        obj, ids = {"rid": f"r{n}", "input_ids": [*range(inputs)]}, [*range(100, 100 + outputs - (not whole))]
        meta = {"prompt_tokens": inputs, "completion_tokens": outputs}
        meta |= {} if cached is None else {"cached_tokens": cached}
        meta |= {} if latency is None else {"e2e_latency": latency}
        date = ["1970-01-01 00:{:02}:{:02}".format(*divmod(at, 60)) for at in (start, end)]
        own = f"obj=GenerateReqInput(rid='r{n}', input_ids={obj['input_ids']}, x=None)"
        if received:
            logs["json"].append(
                json.dumps({"timestamp": date[0], "event": "request.received", "rid": f"r{n}", "obj": obj})
            )
            logs["text"].append(f"[{date[0]}] Receive: {own}")
        if finished:
            out = {"output_ids": ids, "meta_info": meta}
            logs["json"].append(
                json.dumps(
                    {
                        "timestamp": date[1],
                        "event": "request.finished",
                        "rid": f"r{n}",
                        "obj": obj,
                        "out": out,
                    }
                )
            )
            logs["text"].append(f"[{date[1]}] Finish: {own}, out={out}")
        logs["json"].append('{"event": "other"}')
        logs["text"].append("a line of another kind")
        if not finished or not inputs or (not received and latency is None):
            left += received or finished
            continue
        names = whole and outputs > 0
        named = inputs + outputs if names else inputs
        at_s = start if received else max(end - latency, 0)
        expected.append(
            row(1000 * at_s, inputs, outputs, named // 16)
            | ({} if cached is None else {"cached_tokens": cached})
            | ({"named_length": named} if names else {})
        )
    expected.sort(key=lambda each: each["timestamp"])
    for name, lines in logs.items():
        path = tmp_path_factory.mktemp("log") / name
        path.write_text("\n".join(lines))
        _, rows, notes = imported(path, "sglang")
        first = expected[0]["timestamp"]
        found = [
            each | {"timestamp": each["timestamp"] + first, "hash_ids": len(each.get("hash_ids", []))}
            for each in rows
        ]
        assert found == expected
        assert sum(count for count, _ in notes.left_out.values()) == left


@examples(80)
@given(st.lists(st.tuples(
    st.sampled_from([None, "error", "cancelled", "warmup", "profiling"]), st.tuples(counts, counts), st.tuples(counts, counts),
    st.none() | st.integers(0, 80), st.tuples(counts, counts), st.none() | st.integers(0, 9), st.none() | st.floats(0, 99),
), max_size=5))  # fmt: skip
def test_aiperfs_requests_have_the_counts_of_usage_then_of_sequences_then_of_their_payload(
    tmp_path_factory, drawn
):
    drawn = [*drawn, ("profiling", (40, None), (None, 6), None, (None, None), None, None)]
    lines, expected, left = [], [], 0
    for n, (phase, usage, sequence, size, limits, cached, ttft) in enumerate(drawn):
        start_ns = 10**18 + n * 10**9
        metadata = {
            "request_start_ns": start_ns,
            "benchmark_phase": phase,
            "was_cancelled": phase == "cancelled",
        }
        names = (
            "usage_prompt_tokens",
            "usage_completion_tokens",
            "input_sequence_length",
            "output_sequence_length",
        )
        metrics = {
            name: {"value": own}
            for name, own in zip(names, (*usage, *sequence), strict=True)
            if own is not None
        }
        metrics |= {} if cached is None else {"usage_prompt_cache_read_tokens": {"value": cached}}
        metrics |= {} if ttft is None else {"time_to_first_token": {"value": ttft, "unit": "ms"}}
        payload = {"prompt": "x" * (size or 0), "max_completion_tokens": limits[0], "max_tokens": limits[1]}
        row_ = {"metadata": metadata, "metrics": metrics} | (
            {"error": {"code": 5}} if phase == "error" else {}
        )
        lines.append(json.dumps(row_ | ({} if size is None else {"payload": payload})))
        inputs, outputs = (
            first if first is not None else second for first, second in zip(usage, sequence, strict=True)
        )
        if outputs is None and size is not None:
            outputs = limits[0] if limits[0] is not None else limits[1]
        if phase in ("error", "cancelled", "warmup") or outputs is None or (inputs is None and size is None):
            left += 1
            continue
        tokens = -(-(size or 0) // 4)
        more = ({} if cached is None else {"cached_tokens": cached}) | (
            {} if ttft is None else {"ttft_ms": pytest.approx(ttft)}
        )
        inputs = tokens if inputs is None else inputs
        expected.append(
            {
                "timestamp": start_ns / 1e6,
                "input_length": inputs,
                "output_length": outputs,
                "blocks": min(tokens, inputs) // 16,
            }
            | more
        )
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    path.write_text("\n".join(lines))
    _, rows, notes = imported(path, "aiperf")
    for own in rows:
        own["blocks"] = len(own.pop("hash_ids", []))
        own["timestamp"] += expected[0]["timestamp"]
    assert rows == expected
    assert sum(count for count, _ in notes.left_out.values()) == left


# -- metrics


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
        names = (
            "request_prompt_tokens_sum",
            "request_generation_tokens_sum",
            "request_prompt_tokens_count",
            "prefix_cache_hits_total",
            "prefix_cache_queries_total",
        )
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
            sizes = (max(100 * tokens, 1), max(10 * tokens, 1)) if ended else (1, 1)
            expected.append((10**9 * (start - 1_795_428_000) + at_ns, *sizes))
    assume(expected)
    path.write_text("".join(lines))
    _, rows, notes = imported(path, "prometheus")
    first = expected[0][0]
    assert [(row["timestamp"], row["input_length"], row["output_length"]) for row in rows] == [
        (pytest.approx((at_ns - first) / 1e6, abs=1e-5), inputs, outputs)
        for at_ns, inputs, outputs in expected
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


def test_a_generated_workload_follows_the_curve(tmp_path, capsys):
    curve = tmp_path / "curve.jsonl"
    assert run(["trace", "import", str(LOGS / "metrics.txt"), "-o", str(curve)]) == 0
    arrivals = f"{{process: trace, path: {curve}, bin: 15s}}"
    assert run(["trace", "generate", "diverse", "--set", f"arrivals={arrivals}", "--set", "requests=50"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 50
    assert rows[-1]["timestamp"] == pytest.approx(50 / (13 / 15) * 1000, rel=0.4)


# -- what is wrong


def test_bad_rows_are_skipped_and_counted_when_asked(tmp_path, capsys):
    path = tmp_path / "log"
    good = '{"time": 5, "prompt": "x", "max_tokens": 3}\n'
    path.write_text(good + "{\n" + good + '{"time": "soon", "prompt": "x", "max_tokens": 3}\n[\n')
    assert run(["trace", "import", str(path), "--on-bad-row", "skip"]) == 0
    done = capsys.readouterr()
    assert len(done.out.splitlines()) == 2
    said = " ".join(done.err.split())
    assert f"{path}:2: 2 left out: a bad row: not JSON" in said
    assert f"{path}:4: 1 left out: a bad row: no time" in said


def test_a_trace_is_taken_as_it_is(tmp_path, capsys):
    source, out = tmp_path / "t.jsonl", tmp_path / "o.jsonl"
    source.write_text('{"timestamp": 3, "input_length": 1024, "output_length": 5, "hash_ids": [7, 8]}\n')
    assert run(["trace", "import", str(source), "-o", str(out)]) == 0
    assert json.loads(out.read_text())["hash_ids"] == [7, 8]
    assert "is a trace already" in capsys.readouterr().err


# -- times and names


def test_bytes_that_stand_for_tokens_count_on_into_the_answer():
    """The next turn's prompt begins with the last prompt and answer, wherever a token's bytes end."""
    for cut in range(60, 68):
        text = "".join(chr(97 + k % 26) for k in range(200))
        first = Naming(4, b"s").named(Logged(0, text[:cut], text[cut:160]))
        second = Naming(4, b"s").named(Logged(0, text, None))
        assert first.ids == second.ids[: len(first.ids)]
        assert len(first.ids) == 10


def test_an_imported_trace_is_simulated(tmp_path):
    trace = tmp_path / "t.jsonl"
    assert run(["trace", "import", str(LOGS / "kv_events.jsonl"), "-o", str(trace)]) == 0
    command = ["simulate", str(trace), "--set", "trace.block_size=16", "-o", str(tmp_path / "run"), "-q"]
    assert run(command) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["requests"]["arrived"] == 3
    shutil.rmtree(tmp_path / "run")


def test_standard_input_is_a_log_too():
    done = subprocess.run(
        [sys.executable, "-m", "kvcache_sim", "trace", "import", "-"],
        input=(LOGS / "vllm.log").read_bytes(),
        capture_output=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 2


# -- chats without answers

CHAT = {"messages": [{"role": "user", "content": "What does a radix tree store?"}]}
TIMED = {**CHAT, "timestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(("row", "verb"), [(CHAT, "convert"), (TIMED, "import"), ({"body": CHAT}, "convert")])
@pytest.mark.parametrize(
    "argv", [["simulate"], ["curve"], ["trace", "check"], ["trace", "stats"], ["trace", "tokens"]]
)
def test_chats_without_answers_name_their_line_and_the_command_that_converts_them(
    row, verb, argv, tmp_path, monkeypatch, capsys
):
    """The command of the refusal runs as printed, and its trace runs with the command printed next."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my chats.jsonl").write_text(f"\n{json.dumps(row)}\n{json.dumps(row)}\n")
    assert run([*argv, "my chats.jsonl"]) == 3
    done = capsys.readouterr()
    (line,) = (done.out + done.err).splitlines()[:1]
    assert re.match(
        r"(?:/.*)?my chats\.jsonl:2: chats \(messages\) without an answer; got prompts alone;", line
    )
    command = re.search(r"(kvsim trace .*) assumes one$", line)[1]
    assert command.startswith(f"kvsim trace {verb} ")
    assert run(shlex.split(command)[1:]) == 0
    (following,) = (said for said in capsys.readouterr().err.splitlines() if said.startswith("next: kvsim "))
    assert run([*shlex.split(following)[2:], "-o", "out", "-q"]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["requests"]["finished"] == 2


def test_times_of_chats_are_kept_by_import_and_their_loss_is_said_elsewhere(tmp_path, capsys):
    rows = [{**TIMED, "timestamp": f"2026-01-01T00:00:0{s}Z", "max_tokens": 7} for s in (0, 4)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run(["trace", "import", str(tmp_path / "log.jsonl")]) == 0
    taken = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["timestamp"], row["output_length"]) for row in taken] == [(0, 7), (4000, 7)]
    assert run(["trace", "stats", str(tmp_path / "log.jsonl")]) == 0
    assert "times are not read (kvsim trace import keeps them)" in " ".join(capsys.readouterr().err.split())
