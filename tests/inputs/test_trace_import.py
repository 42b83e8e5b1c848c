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
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Logged, Naming, Notes
from kvcache_sim.workload.imports.write import KINDS, import_logs
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.readers.settings import ReadSettings
from support.chatml import chatml
from support.examples import examples

LOGS = Path(__file__).parents[1] / "logs"
TEXTS = ("careful", "whole sentences", "keeps what", "alice", "hello", "A tree", "chatcmpl")


def imported(path: Path, kind: str = "", skips: bool = False, salt: bytes = b"mine"):
    """Return the kind, the rows with ids numbered in order of appearance, and the notes."""
    notes = Notes()
    found = import_logs([str(path)], kind, Reading(Naming(16, salt), notes, skips))
    assert found is not None
    first: dict[int, int] = {}
    rows = [json.loads(line) for line in found.lines()]
    for row in rows:
        if "hash_ids" in row:
            row["hash_ids"] = [first.setdefault(id, len(first)) for id in row["hash_ids"]]
        row.pop("session_id", None)
    return found.kind.name, rows, notes


NAMES = sorted(path.name for path in LOGS.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_of_log_becomes_its_requests(name, tmp_path, snapshot):
    """Its rows, the first line and the number of those that are left out for a reason, and what is said once."""
    shown = []
    for path in (LOGS / name, tmp_path / f"{name}.gz"):
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress((LOGS / name).read_bytes()))
        kind, rows, notes = imported(path)
        shown.append([kind, *map(json.dumps, rows), *map(str, notes.left_out.items()), *notes.remarks])
    assert shown[0] == shown[1]
    assert "\n".join(shown[0]) == snapshot


def test_every_kind_has_a_log_here():
    assert {imported(LOGS / name)[0] for name in NAMES} == set(KINDS)


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
        (["whole"], [(0, 3, 4)], ["answers without --enable-log-outputs"]),
        (
            ["whole", "gone"],
            [(0, 3, 4)],
            ["answers without --enable-log-outputs", "requests that were aborted"],
        ),
        (["chat"], [(0, 7, 4)], ["answers without --enable-log-outputs", "texts are hashed"]),
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
        "gone": "Aborted request cmpl-1.",
        "whole": "Received request cmpl-1: prompt: 'max_tokens=9, prompt_token_ids: [1], ', params: "
        "SamplingParams(stop=['\\''], max_tokens=4), prompt_token_ids: [5, 6, 7], lora_request: None.",
        "chat": 'Received request cmpl-1: prompt: "<|im_start|>\\nit\'s\\n  hello", params: SamplingParams(max_tokens=4), '
        "prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.",
    }
    path = tmp_path / "v.log"
    whole = [text[line].replace("cmpl-1", "cmpl-0") for line in ("details", "received", "output")]
    path.write_text("".join(f"INFO 12-31 23:59:58 [x] {line}\n" for line in [*whole, *map(text.get, lines)]))
    _, found, notes = imported(path, "vllm")
    assert [(row["timestamp"], row["input_length"], row["output_length"]) for row in found] == [
        (0, 3, 2),
        *rows,
    ]
    always = ("the log's clock", "no block ids")
    others = [remark for remark in notes.remarks if not remark.startswith(always)]
    assert [remark.startswith(words) for remark, words in zip(others, said, strict=True)] == [True] * len(
        said
    )


@pytest.mark.parametrize("name", NAMES)
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
    trace = read_trace(tmp_path / "0.jsonl", settings=ReadSettings(block_size=16))
    assert len(trace) == len(imported(LOGS / name)[1])
    capsys.readouterr()


BODIES = {
    "top": lambda body: body,
    "body": lambda body: {"body": body},
    "kwargs": lambda body: {"kwargs": body},
    "request": lambda body: {"request": {"body": body, "method": "POST"}},
}
counts = st.none() | st.integers(1, 50)


STATUSES = [None, 200, 399, 400, "success", "failure", "error"]
SIZES = st.none() | st.integers(0, 80)
LOGGED = st.tuples(
    st.sampled_from(sorted(BODIES)),
    st.sampled_from(["text", "tokens", "list", "chat", "none"]),
    st.integers(0, 80),
    SIZES,
    st.tuples(counts, counts, st.none() | st.integers(0, 9)),
    st.booleans(),
    st.sampled_from(STATUSES),
    st.none() | st.integers(-2, 3),
    counts,
)


@examples(120)
@given(st.lists(LOGGED, max_size=4), st.none() | st.integers(1, 9))
def test_a_proxys_log_is_read_wherever_its_members_stand(tmp_path_factory, drawn, assumed):
    """Prompts of bytes, four to a token, or of tokens; counts of the server go before those of the texts."""
    drawn = [*drawn, ("top", "text", 16, None, (None, None, None), False, 200, None, 5)]
    path, expected, left, lines = tmp_path_factory.mktemp("log") / "l.jsonl", [], 0, []
    for n, (within, kind, size, answered, usage, flat, status, waited_s, most) in enumerate(drawn):
        prompt = {"text": "x" * size, "tokens": [1] * size, "list": ["x" * size], "none": None}.get(kind)
        chat = [{"role": "user", "content": [{"type": "text", "text": "x" * size}]}]
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
        length = len(chatml(("user", "x" * size))) if kind == "chat" else size
        whole = length + (answered or 0)
        tokens = (
            [-(-own // 4) for own in (length, whole)]
            if kind != "tokens"
            else [length, length + -(-(answered or 0) // 4)]
        )
        inputs = tokens[0] if usage[0] is None else usage[0]
        if usage[0] is not None and (usage[2] or 0) > inputs:
            inputs += usage[2]  # parts that exceed the prompt add up
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
    found = import_logs(
        [str(path)], "openai", Reading(Naming(16, b"s", None, 4), notes, answer_tokens=assumed)
    )
    rows = [json.loads(line) for line in found.lines()]
    assert all(row.pop("segments", [["user", 1]])[0][0] == "user" for row in rows)
    first = expected[0][0]
    found = [
        (
            row.pop("timestamp") + first,
            row.pop("input_length"),
            row.pop("output_length"),
            len(row.pop("hash_ids", [])),
            row,
        )
        for row in rows
    ]
    assert found == expected
    assert sum(count for count, _ in notes.left_out.values()) == left


#: Heads of each kind of log, and after -- heads that are not.
HEADS = {
    "aiperf": """
        {"metadata": {"credit_issued_ns": 1}}
        {"metadata": {"request_start_ns": 1}}
        --
        {"metadata": {}}
        {"credit_issued_ns": 1, "request_start_ns": 2}""",
    "openai": """
        {"time": 1, "prompt": ""}
        {"timestamp": 1, "messages": [], "usage": {}}
        {"timestamp": 1772442000, "messages": []}
        {"time": 1, "kwargs": {}}
        --
        {"time": 1}
        {"prompt": ""}
        {"messages": [], "body": {}}
        {"timestamp": 1, "messages": []}
        {"timestamp": "2026-03-02", "messages": [], "output_length": 4}""",
    "litellm": """
        {"startTime": 1, "call_type": "x"}
        [{"id": 1, "startTime": 1, "cache_hit": null}]
        {"data": [{"start_time": 1, "spend": 0
        --
        {"startTime": 1, "messages": []}
        {"messages": [{"call_type": 1, "startTime": 1}]""",
    "langfuse": """
        [{"traceId": "t", "type": "SPAN"}]
        {"data": [{"trace_id": "t", "usage_details": {}}], "meta": {}}
        {"meta": {}, "data": [{"traceId": "t", "usageDetails": {}}]}
        --
        {"traceId": "t"}
        {"type": "GENERATION"}""",
    "otel": """
        {"resourceSpans": [{"scopeSpans": [
        {"resource_spans": []}
        --
        {"spans": []}
        {"resourceLogs": []}""",
    "genai-perf": """
        {"service_kind": "openai", "experiments": [{"experiment":
        --
        {"service_kind": "openai"}""",
    "inference-perf": """
        [{"start_time": 1, "request": "{}", "info": null}]
        {"start_time": 1, "end_time": 2, "request": "
        --
        {"start_time": 1, "request": {}}""",
    "openai-batch": """
        {"custom_id": "c", "response": null, "error": {}}
        --
        {"custom_id": "c", "body": {}}""",
    "prometheus": """
        # TYPE vllm:x counter
        # HELP vllm:x y
        {"resultType": "matrix", "__name__": "vllm:x"}
        # HELP sglang:x y
        {"resultType": "matrix", "__name__": "sglang:x"}
        --
        vllm:x 1
        # TYPE x counter
        {"resultType": "matrix"}""",
    "sglang": """
        {"event": "request.finished"}
        [t] Receive: obj=G(
        [t] Finish: obj=G(
        --
        {"event": "x"}
        Start: obj=G(""",
    "kv-events": """
        ["BlockStored"]
        ["BlockRemoved"]
        ["AllBlocksCleared"]
        --
        ["BlockMoved"]""",
    "vllm": """
        INFO 12-31 23:59:58 [x] Received request r: params: S(
        DEBUG 12-31 23:59:58 Request r details: prompt: '', prompt_token_ids: [1], prompt_embeds shape: None
        --
        INFO 12-31 23:59:58 x
        Received request r: params: S(""",
    "lmcache-lookups": """
        {"timestamp": 1, "chunk_size": 256, "seq_len": 3, "chunk_hashes": []}
        --
        {"timestamp": 1, "chunk_hashes": []}""",
    "lmcache-log": """
        [2026-03-02 09:00:00,100] LMCache INFO: Reqid: a, Total tokens 5, LMCache hit tokens: 0, need to load: 0
        --
        [2026-03-02 09:00:00,100] LMCache INFO: Stored 1792 out of total 1792 tokens.
        Reqid: a, Total tokens 5, LMCache hit tokens: 0; Received request a: prompt: 'x'""",
    "sglang-batches": """
        [2026-03-02 09:00:00] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00
        --
        [2026-03-02 09:00:00] Decode batch. #running-req: 1, #token: 4000
        Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0 Finish: obj=G(""",
    "bench": """
        {"input_lens": [], "output_lens": []}
        {"total_input_tokens": 5, "request_throughput": 0.5}
        {"benchmarks": [{"requests": {"successful": []}}]}
        --
        {"total_input_tokens": 5}
        {"benchmarks": []}""",
    "dynamo-router": """
        {"worker_id": 7, "event": {"event_id": 1, "data": {"stored": {}}}}
        {"timestamp": 0, "event": {"worker_id": 7, "event": {"event_id": 1, "data": "cleared"}}}
        --
        {"event_id": 1, "data": {}}""",
    "dynamo": """
        {"schema": "dynamo.request.trace.v1"}
        --
        {"schema": "dynamo.request.trace.v2"}""",
    "claude-code": """
        {"parentUuid": null, "isSidechain": false, "sessionId": "s", "type": "user"}
        {"sessionId":"s","parentUuid":"u","type":"assistant","message":{"content":"cut
        --
        {"type": "user", "sessionId": "s"}
        {"messages": [{"content": "{\\"parentUuid\\": 1, \\"sessionId\\": 2}"}], "type": "x"}""",
    "codex": """
        {"timestamp": "t", "type": "session_meta", "payload": {}}
        {"type":"event_msg","payload":{"type":"token_count"}}
        --
        {"type": "session_meta"}
        {"type": "message", "payload": {}}""",
    "tracelab": """
        {"round_index": 0, "input_tokens_total": 9, "prefix_tokens": 0}
        --
        {"round_index": 0}""",
    "copilot": """
        {"session_id": "s", "turns": [{"llm_calls": []}]}
        --
        {"session_id": "s", "turns": [{"text": ""}]}""",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_head_of_a_log_says_its_kind(kind):
    yes, no = (part.split("\n        ") for part in HEADS[kind].strip().split("\n        --\n        "))
    assert [KINDS[kind].detect(head.encode()) for head in (*yes, *no)] == [True] * len(yes) + [False] * len(
        no
    )


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
