"""`kvsim trace import`: what each kind of log becomes, what is left out and counted, and where a bad line is."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imported_rows import imported
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
        "chat": 'Received request cmpl-1: prompt: "<|im_start|>\\nit\'s\\n  hello", '
        "params: SamplingParams(max_tokens=4), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.",
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
