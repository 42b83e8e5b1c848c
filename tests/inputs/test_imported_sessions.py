"""Sessions of agents as traces: what each prompt keeps of the one before, answers, sharing, folders."""

import json
import random
import shutil
import tempfile
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from session_logs import DAY, Claude, hits, imported
from support.shared_files import shared


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # the answer and what follows it are new; lines of one message are one call
        (
            lambda s: (
                s.user(40).answer("a", 0, 0, 160).answer("a", 0, 0, 160).user(8).answer("b", 0, 160, 32)
            ),
            [0, 160],
        ),
        # a lapse: the provider read nothing, the prompt is the same
        (lambda s: s.user(40).answer("a", 0, 0, 160).user(8).answer("b", 0, 0, 192), [0, 160]),
        # a compaction keeps what was read; where nothing was, tools and system
        (lambda s: s.user(40).answer("a", 0, 0, 320).compact().user(9).answer("b", 0, 96, 32), [0, 96]),
        (lambda s: s.user(640).answer("a", 0, 0, 320).compact().user(9).answer("b", 0, 0, 200), [0, 160]),
        # shorter without a word: edited as far as was read
        (lambda s: s.user(40).answer("a", 0, 0, 320).user(8).answer("b", 0, 64, 128), [0, 64]),
        # more than 32 tokens after the last breakpoint were never cached
        (lambda s: s.user(40).answer("a", 80, 0, 160).user(8).answer("b", 0, 160, 240), [0, 160]),
        (lambda s: s.user(40).answer("a", 16, 0, 160).user(8).answer("b", 0, 160, 240), [0, 176]),
        # another model has another cache
        (
            lambda s: (
                s.user(40).answer("a", 0, 0, 160).answer("b", 0, 0, 192, model="n").answer("c", 0, 160, 96)
            ),
            [0, 0, 160],
        ),
        # the client's own lines, and answers without counts, are no calls
        (lambda s: s.user(40).answer("a", 0, 0, 160).answer("x", 0, 0, 0, model="<synthetic>"), [0]),
    ],
)
def test_a_prompt_of_claude_code_keeps_of_the_last_what_the_counts_say(tmp_path, capsys, calls, expected):
    session = calls(Claude())
    rows, _ = imported(capsys, session.write(tmp_path / "log"))
    assert hits(rows) == expected
    assert {row["session_id"] for row in rows} == {rows[0]["session_id"]}


@pytest.mark.parametrize(
    ("kind", "missed", "expected"),
    [("tools_changed", 300, 20), ("messages_changed", 100, 220), ("unavailable", None, 304)],
)
def test_a_cause_that_the_provider_names_cuts_the_prompt_where_it_says(
    tmp_path, capsys, kind, missed, expected
):
    reason = {"type": kind, **({"cache_missed_input_tokens": missed} if missed else {})}
    session = Claude().user(40).answer("a", 0, 0, 304).user(8)
    session.answer("b", 0, 0, 320, diagnostics={"cache_miss_reason": reason})
    rows, said = imported(capsys, session.write(tmp_path / "log"))
    assert hits(rows)[1] == expected // 16 * 16
    assert f"causes of misses that the provider named: 1 {kind}" in said


def test_a_rewound_conversation_continues_from_the_earlier_call(tmp_path, capsys):
    session = Claude().user(40).answer("a", 0, 0, 160)
    after = session.last
    session.user(8).answer("b", 0, 160, 160).user(8, parentUuid=after).answer("c", 0, 160, 176)
    assert hits(imported(capsys, session.write(tmp_path / "log"))[0]) == [0, 160, 160]


def test_answers_are_as_long_as_the_next_prompt_grew(tmp_path, capsys):
    """20 of 80 bytes of growth are the answer's: 16 of 64 tokens; the last answer has 4 bytes a token less."""
    session = (
        Claude().user(160).answer("a", 0, 0, 96, size=20).user(60).answer("b", 0, 96, 64, size=10, output=3)
    )
    session.user(4).answer("c", 0, 160, 8, size=10, stop_reason="end_turn", output=77)
    rows, said = imported(capsys, session.write(tmp_path / "log"))
    assert [row["output_length"] for row in rows] == [16, 6, 77]
    assert [row["named_length"] for row in rows] == [112, 166, 245]
    assert rows[1]["hash_ids"][:7] == rows[0]["hash_ids"]
    assert "output_tokens of unfinished lines is no length" in said


# -- several logs


def agent(name, read, written):
    return Claude(isSidechain=True, agentId=name).user(40).answer(f"m{name}", 0, read, written)


def test_sub_agents_share_what_the_provider_read_and_no_more(tmp_path, capsys):
    """The second read of the first, which wrote all; the third what the second read; a fork the whole session."""
    main = Claude().user(40).answer("a", 0, 0, 320).user(8).answer("b", 0, 320, 64)
    for number, log in enumerate(
        (main, agent("1", 0, 160), agent("2", 96, 64), agent("3", 96, 160), agent("4", 384, 16))
    ):
        for line in log.lines:
            line["timestamp"] = line["timestamp"].replace("T09:", f"T1{number}:")
        log.write(tmp_path / f"{number}.jsonl")
    rows, said = imported(capsys, tmp_path)
    assert hits(rows) == [0, 320, 0, 96, 96, 384]
    assert len({row["session_id"] for row in rows}) == 5
    assert f"{tmp_path}/0.jsonl: claude-code, 2 requests" in said


def test_sidechains_within_a_session_are_conversations_of_their_own(tmp_path, capsys):
    main = Claude().user(40).answer("a", 0, 0, 320)
    side = {"isSidechain": True}
    main.user(40, **side).answer("s", 0, 0, 320)
    main.lines[-1].update(side)
    main.last = main.lines[1]["uuid"]
    main.user(8).answer("b", 0, 320, 32)
    rows, _ = imported(capsys, main.write(tmp_path / "log"))
    assert hits(rows) == [0, 0, 320]
    assert len({row["session_id"] for row in rows}) == 2


def test_a_session_continues_in_a_rotated_log_and_copies_of_calls_count_once(tmp_path, capsys):
    session = (
        Claude()
        .user(40)
        .answer("a", 0, 0, 160)
        .user(8)
        .answer("b", 0, 160, 160)
        .user(8)
        .answer("c", 0, 320, 32)
    )
    session.write(tmp_path / "whole")
    first, second = Claude(), Claude()
    first.lines, second.lines = session.lines[:4], session.lines[2:]
    paths = first.write(tmp_path / "log.2"), second.write(tmp_path / "log.1")
    rows, said = imported(capsys, *paths)
    whole, _ = imported(capsys, tmp_path / "whole")
    assert hits(rows) == hits(whole) == [0, 160, 320]
    assert "1 calls are copies" in said


def test_a_folder_has_one_clock_and_its_other_files_are_named(tmp_path, capsys):
    Claude().user(40).answer("a", 0, 0, 160).write(tmp_path / "b.jsonl")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "chat.jsonl").write_text(
        '{"time": "2026-03-02T09:00:03Z", "prompt": "abcd", "max_tokens": 3}\n'
    )
    (tmp_path / "notes.md").write_text("# plan\n")
    (tmp_path / "empty.log").write_text("")
    rows, said = imported(capsys, tmp_path)
    assert [(row["timestamp"], row["input_length"]) for row in rows] == [(0, 160), (2000, 1)]
    assert "claude-code, 1 requests" in said
    assert "openai, 1 requests" in said
    assert "2 files are no such logs: empty.log, notes.md" in said
    assert len(imported(capsys, tmp_path, "--from", "openai")[0]) == 1


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["trace", "log"], "a trace among logs"),
        (["log", "none"], "log not found"),
        (["folder"], "no requests"),
        (["log", "of.1970"], "no clock in common"),
    ],
)
def test_among_several_each_must_be_a_log(tmp_path, capsys, names, said):
    Claude().user(4).answer("a", 0, 0, 16).write(tmp_path / "log")
    (tmp_path / "trace").write_text('{"timestamp": 0, "input_length": 9, "output_length": 1}\n')
    (tmp_path / "of.1970").write_text('{"time": 5, "prompt": "x", "max_tokens": 3}\n')
    (tmp_path / "folder").mkdir()
    assert run(["trace", "import", *(str(tmp_path / name) for name in names)]) != 0
    assert said in " ".join(capsys.readouterr().err.split())


# -- Codex, TraceLab, Copilot


def rollout(*counts):
    """Return lines of a session of Codex: a count is (prompt, cached, answer), "compacted" or "empty"."""
    lines, total = [{"type": "session_meta", "payload": {"id": "c"}}], 0
    for each in counts:
        if each == "compacted":
            lines.append({"type": "compacted", "payload": {"message": "m"}})
            continue
        lines.append(
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "x"}}
        )
        total += 0 if each == "empty" else each[0]
        last = (
            None
            if each == "empty"
            else dict(zip(("input_tokens", "cached_input_tokens", "output_tokens"), each, strict=True))
        )
        info = {"last_token_usage": last, "total_token_usage": {"input_tokens": total}} if last else None
        lines.append({"type": "event_msg", "payload": {"type": "token_count", "info": info}})
    return [{"timestamp": f"{DAY}00:{k:02}.000Z", **line} for k, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(160, 0, 16), (240, 128, 9)], [0, 160]),
        ([(160, 0, 16), "empty", (240, 0, 9)], [0, 160]),
        ([(160, 0, 16), "compacted", (96, 64, 9)], [0, 64]),
        ([(320, 0, 16), (240, 128, 9)], [0, 128]),
    ],
)
def test_a_prompt_of_codex_keeps_of_the_last_what_the_counts_say(tmp_path, capsys, counts, expected):
    path = tmp_path / "log"
    lines = rollout(*counts)
    path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, lines[-1])))
    rows, said = imported(capsys, path)
    assert hits(rows) == expected
    assert [row["output_length"] for row in rows] == [each[2] for each in counts if isinstance(each, tuple)]
    assert "left out: counts of no new call" in said


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sessions_of_counts_hit_what_was_served_in_whole_blocks(data):
    """A model: prompt n shares its first ``prefix_tokens`` with prompt n - 1, rows in any order of lines."""
    lines, expected = [], {}
    for session in range(data.draw(st.integers(1, 3))):
        last = 0
        for index in range(data.draw(st.integers(1, 5))):
            prefix = data.draw(st.integers(0, last))
            total = prefix + data.draw(st.integers(1 if prefix == 0 else 0, 200))
            stamp = f"{DAY}{session:02}:{index:02}.000Z"
            counts = {"input_tokens_total": total, "prefix_tokens": prefix, "output_tokens": 4}
            events = [{"event_type": "user_message", "timestamp": stamp}]
            lines.append(
                {"session_id": f"s{session}", "round_index": index, **counts, "timing_events": events}
            )
            expected[session, index] = prefix // 16 * 16
            last = total
    random.Random(data.draw(st.integers())).shuffle(lines)
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "log"), Path(folder, "out")
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert run(["trace", "import", str(log), "-o", str(out)]) == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert hits(rows) == [expected[key] for key in sorted(expected)]


FORMS = {
    "lines": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "array": lambda rows: json.dumps(rows, indent=2),
    "records": lambda rows: (
        "# a title\n\n"
        + "".join(f"===== record {k:04} =====\n{json.dumps(row, indent=2)}\n\n" for k, row in enumerate(rows))
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["claude_code", "codex", "tracelab", "copilot"])
def test_records_are_read_from_lines_arrays_and_as_they_are_printed(tmp_path, capsys, name, form):
    log = Path(__file__).parents[1] / "logs" / f"{name}.jsonl"
    path = tmp_path / "log"
    path.write_text(FORMS[form]([json.loads(line) for line in log.read_text().splitlines()]))
    (rows, _), (same, _) = imported(capsys, path), imported(capsys, log)
    plain = [[{**row, "hash_ids": 0, "session_id": 0} for row in found] for found in (rows, same)]
    assert plain[0] == plain[1]
    assert hits(rows) == hits(same)


@pytest.mark.parametrize(
    ("name", "member", "value", "said"),
    [
        ("claude_code", "message.usage.input_tokens", -1, "input_tokens is no count"),
        (
            "claude_code",
            "message.usage.cache_read_input_tokens",
            1e9,
            "cache_read_input_tokens is no prompt's",
        ),
        ("claude_code", "message.usage.input_tokens", "many", "input_tokens is no count"),
        ("codex", "payload", [1], "no line of a Codex session"),
        ("codex", "payload.info.last_token_usage.input_tokens", True, "input_tokens is no count"),
        ("tracelab", "prefix_tokens", 7, "the counts do not add up"),
        ("tracelab", "session_id", None, "no row of TraceLab's round_trace"),
        ("tracelab", "timing_events", "soon", "no time"),
        ("copilot", "turns", 5, "no Copilot session"),
        ("copilot", "turns.0.llm_calls", "x", "no Copilot session"),
        ("copilot", "turns.0.llm_calls.0.timestamp", {}, "no time of a call"),
    ],
)
def test_a_line_that_cannot_be_a_call_is_named_with_its_number(tmp_path, capsys, name, member, value, said):
    log = Path(__file__).parents[1] / "logs" / f"{name}.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    *keys, last = (int(key) if key.isdigit() else key for key in member.split("."))
    inner = [
        reduce(lambda at, key: at[key] if isinstance(at, list) else (at or {}).get(key), keys, row)
        for row in rows
    ]
    number, found = next((k, at) for k, at in enumerate(inner, 1) if isinstance(at, dict) and last in at)
    found[last] = value
    path = tmp_path / "log"
    path.write_text(FORMS["lines"](rows))
    _, err = imported(capsys, path, rc=3)
    assert f"{path}:{number}: {said}" in err


# -- real sessions

CLAUDE = {  # calls, prompts, read, later calls that find what the call before left
    "main_5m": (139, 12_098_281, 11_618_567, 137),
    "main_1h": (152, 15_121_271, 14_771_617, 150),
    "main_5m.agent_1": (12, 675_466, 604_156, 11),
    "main_1h.agent_1": (3, 76_350, 34_159, 2),
    "agent_haiku": (18, 497_515, 457_858, 17),
}


@pytest.mark.parametrize("name", CLAUDE)
def test_real_sessions_have_the_providers_sums_and_continue_where_it_read(name, capsys):
    rows, _ = imported(capsys, shared(f"traces/claude_code/{name}.jsonl"))
    table = shared(f"traces/claude_code/{name}.calls.csv").read_text().splitlines()
    column = table[0].split(",").index("carried")
    carried = [int(line.split(",")[column]) for line in table[1:]]
    found = [abs(got - left) <= 32 for got, left in zip(hits(rows)[1:], carried[1:], strict=True)]
    sums = [sum(row[name] for row in rows) for name in ("input_length", "cached_tokens")]
    assert (len(rows), *sums, sum(found)) == CLAUDE[name]


def test_a_compactions_own_call_reads_its_session(tmp_path, capsys):
    for name in ("main_5m", "main_5m.compact_1"):
        shutil.copy(shared(f"traces/claude_code/{name}.jsonl"), tmp_path / f"{name}.jsonl")
    rows, _ = imported(capsys, tmp_path)
    [call] = [k for k, row in enumerate(rows) if row["input_length"] == 173_514]
    assert (rows[call]["cached_tokens"], hits(rows)[call]) == (164_830, 164_830 // 16 * 16)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude_session.jsonl", (10, 418_193, 394_068, 9_423)),
        ("claude_trace.json", (10, 418_193, 394_068, 9_423)),
        ("codex_rollout.jsonl", (9, 95_819, 79_488, 1_912)),
        ("codex_trace.json", (9, 95_819, 79_488, 1_912)),
        *(
            (f"round_trace.{form}", (19, 514_012, 473_556, 11_335))
            for form in ("sanitized.jsonl", "derived.jsonl")
        ),
        ("round_trace.derived.expanded.json", (19, 514_012, 473_556, 11_335)),
    ],
)
def test_tracelabs_examples_have_their_sums_in_every_form(name, expected, capsys):
    rows, _ = imported(capsys, shared(f"traces/tracelab/{name}"))
    names = ("input_length", "cached_tokens", "output_length")
    assert (len(rows), *(sum(row[name] for row in rows) for name in names)) == expected
