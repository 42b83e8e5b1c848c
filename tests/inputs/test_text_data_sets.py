"""Data sets of texts that are traces: variants of ShareGPT, batches, vLLM's custom data set, Mooncake's texts."""

import json

import pytest
from kvcache_sim.base.errors import TraceError
from kvcache_sim.cli.main import run
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace

BYTES = ReadSettings(bytes_per_token=1)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def conversation(member, roles, names, texts):
    said = [{roles: who, names: text} for who, text in zip(("user", "assistant") * 9, texts, strict=False)]
    return {member: said}


@pytest.mark.parametrize(
    ("member", "roles", "names"),
    [
        ("conversations", "from", "value"),
        ("conversations", "role", "content"),
        ("conversation", "role", "content"),
        ("items", "from", "value"),
        ("items", "role", "content"),
    ],
)
def test_variants_of_sharegpt_are_the_same_trace(tmp_path, member, roles, names):
    texts = (["x" * 40, "y" * 10, "z" * 30, "w" * 4], ["x" * 36, "w"])
    rows = [conversation(member, roles, names, own) for own in texts]
    read = read_report(lines(tmp_path / "t", rows), settings=BYTES)
    assert read.format == "sharegpt"
    assert read.trace.input_tokens.tolist() == [40, 80, 36]
    assert read.trace.output_tokens.tolist() == [10, 4, 1]
    assert read.trace.block_ids.tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1]
    (tmp_path / "p").write_text(json.dumps(rows, indent=2))
    assert read_trace(tmp_path / "p", settings=BYTES).block_ids.tolist() == read.trace.block_ids.tolist()


@pytest.mark.parametrize(
    ("times", "arrivals"),
    [
        (["2026-03-02T09:01:00.000+00:00", "2026-03-02T09:00:00.500+00:00"], [59.5, 0, 0]),
        ([1_772_442_060, 1_772_442_000.25], [59.75, 0, 0]),
        ([None, "2026-03-02T09:00:00"], [0, 0, 0]),
    ],
)
def test_a_conversation_starts_at_its_time_if_all_have_one(tmp_path, times, arrivals):
    texts = (["x", "y", "x", "y"], ["x", "y"])
    rows = [
        conversation("conversation", "role", "content", own) | {"timestamp": at, "conversation_hash": str(at)}
        for own, at in zip(texts, times, strict=True)
    ]
    trace = read_trace(lines(tmp_path / "t", rows))
    assert trace.think_ns.tolist() == [-1, 0, -1]
    starts = [arrivals[0], arrivals[1]]
    assert [trace.arrival_ns[0] / 1e9, trace.arrival_ns[2] / 1e9] == starts
    assert any(("sessions start at it" in text) == (None not in times) for text in trace.warnings)


def test_a_batch_has_tools_and_every_familys_bodies(tmp_path):
    """A chat with other tools shares nothing; embeddings are refused by name."""
    chat = {"messages": [{"role": "user", "content": "x" * 100}], "max_tokens": 7}
    tools = [{"type": "function", "function": {"name": "f" * 90}}]
    bodies = [chat, chat | {"tools": tools}, chat | {"tools": tools}]
    bodies += [{"prompt": "p" * 50, "max_tokens": 3}, {"prompt": [1, 2, 3], "max_tokens": 3}]
    bodies += [{"input": "i", "instructions": "s", "max_output_tokens": 2}]
    rows = [{"custom_id": str(n), "method": "POST", "url": "/v1/x", "body": b} for n, b in enumerate(bodies)]
    trace = read_trace(lines(tmp_path / "t", rows))
    assert trace.output_tokens.tolist() == [7, 7, 7, 3, 3, 2]
    ids = [
        trace.block_ids[a:b].tolist() for a, b in zip(trace.id_offsets, trace.id_offsets[1:], strict=False)
    ]
    assert ids[1] == ids[2]
    assert not set(ids[0]) & set(ids[1])
    assert trace.input_tokens[1] - trace.input_tokens[0] >= len(json.dumps(tools[0])) // 4
    assert trace.input_tokens.tolist()[3:5] == [13, 3]
    short = [{"custom_id": "r", "url": "/v1/responses", "body": {"input": "i", "max_output_tokens": 1}}]
    assert len(read_trace(lines(tmp_path / "s", short))) == 1
    bad = [{"custom_id": "e", "url": "/v1/embeddings", "body": {"model": "m", "input": ["a", "b"]}}]
    with pytest.raises(TraceError, match=":1: an embedding"):
        read_trace(lines(tmp_path / "t", bad))


def test_vllms_custom_data_set_has_prompts_and_lengths(tmp_path, capsys):
    rows = [{"prompt": "x" * 64, "output_tokens": 5}, {"prompt": "x" * 65, "output_tokens": None}]
    path = lines(tmp_path / "t", rows)
    report = read_report(path, settings=ReadSettings(answer_tokens=9))
    assert (report.format, report.trace.block_size) == ("vllm-custom", 16)
    assert report.trace.input_tokens.tolist() == [16, 17]
    assert report.trace.output_tokens.tolist() == [5, 9]
    assert report.trace.block_ids.tolist() == [0, 0]
    assert any("1 conversations without an answer" in text for text in read_trace(path).warnings)
    assert run(["trace", "import", str(path), "-o", str(tmp_path / "o")]) == 0
    assert "is a trace already" in capsys.readouterr().err
    for bad in (
        {"prompt": 1},
        {"prompt": ""},
        {"prompt": "x", "output_tokens": 0},
        {"prompt": [{"role": 1}]},
    ):
        with pytest.raises(TraceError, match=r":2: (no prompt|output_tokens is no count|not a message)"):
            read_trace(lines(tmp_path / "b", [rows[0], bad]))
        assert len(read_trace(tmp_path / "b", settings=ReadSettings(on_bad_row="skip"))) == 1


def test_mooncake_rows_may_hold_texts(tmp_path):
    """Turns of a session wait for the one before where they have a delay; times are ms."""
    chat = [{"role": "user", "content": "x" * 64}]
    rows = [
        {"timestamp": 0, "text_input": "x" * 64, "output_length": 5},
        {"timestamp": 500, "messages": chat, "output_length": 6, "session_id": "s"},
        {"delay": 20, "messages": chat, "output_length": 7, "session_id": "s"},
        {
            "timestamp": 900.5,
            "payload": {"messages": chat, "tools": []},
            "output_length": 8,
            "session_id": "s",
        },
    ]
    report = read_report(lines(tmp_path / "t", rows))
    trace = report.trace
    assert report.format == "mooncake-texts"
    assert trace.output_tokens.tolist() == [5, 6, 7, 8]
    assert trace.arrival_ns.tolist() == [0, 500_000_000, 500_000_000, 900_500_000]
    assert trace.think_ns.tolist() == [-1, -1, 20_000_000, -1]
    assert trace.session.tolist() == [-1, 0, 0, 0]
    assert trace.turn.tolist() == [0, 0, 1, 2]
    assert trace.block_ids.tolist() == [0, 1, 1, 1]
    unknown = lines(tmp_path / "u", [{"timestamp": 0, "text_input": "x"}])
    assert read_trace(unknown, settings=ReadSettings(answer_tokens=3)).output_tokens.tolist() == [3]
    for bad in ({}, {"output_length": 0}, {"text_input": ""}, {"timestamp": -1}, {"messages": {"a": 1}}):
        row = {"timestamp": 0, "text_input": "x", "output_length": 1} | bad
        row = {key: value for key, value in row.items() if key != "text_input" or "messages" not in bad}
        if not bad:
            row.pop("output_length")
        with pytest.raises(TraceError, match=":2: "):
            read_trace(lines(tmp_path / "b", [rows[0], row]))
