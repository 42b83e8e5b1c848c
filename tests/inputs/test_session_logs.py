"""Logs of agents as calls: counts, times and links, against the tables of real logs and planned sessions."""

import csv
from datetime import datetime

import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.extras.session.load import load_calls
from support.agent_logs import Options, Provider, plan, play
from support.shared_files import shared

MAIN = ("main_5m", "main_1h", "agent_haiku", "main_5m.agent_1")


def stamp_ns(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1_000_000


@pytest.mark.parametrize("name", MAIN)
def test_each_call_of_a_real_log_has_the_counts_and_times_of_its_table(name):
    log = shared(f"traces/claude_code/{name}.jsonl")
    with open(log.with_suffix(".calls.csv")) as file:
        rows = list(csv.DictReader(file))
    calls = load_calls([str(log)]).calls
    found = [
        (c.counts.uncached, c.counts.read, c.counts.write_5m, c.counts.write_1h, c.start_ns, c.first_ns)
        for c in calls
    ]
    counts = ("input", "read", "write_5m", "write_1h")
    assert found == [
        (*(int(row[k]) for k in counts), stamp_ns(row["t_input"]), stamp_ns(row["t_first"])) for row in rows
    ]
    assert [len(c.added) for c in calls[1:20]] == [
        int(row["blocks"]) - len(before.answer) for row, before in zip(rows[1:20], calls, strict=False)
    ]


def test_a_compactions_own_call_continues_its_session_and_the_session_begins_anew():
    calls = {call.id: call for call in load_calls([str(shared("traces/claude_code"))]).calls}
    by_event = [call for call in calls.values() if call.history.event == "compaction"]
    assert [(call.history.kept, call.counts.prompt) for call in by_event] == [(1, 33960), (1, 36081)]
    asked = [
        c for c in calls.values() if c.conversation.is_side and c.history.before and c.counts.prompt > 150_000
    ]
    assert [calls[call.history.before].counts.prompt for call in asked] == [166_759, 164_831]


def prompt_names(calls, call):
    """Return the names of all blocks of a prompt, by its history."""
    if not call.history.before:
        return [block.name for block in call.added]
    before = calls[call.history.before]
    blocks = prompt_names(calls, before) + [block.name for block in before.answer]
    kept = len(blocks) if call.history.kept is None else call.history.kept
    return blocks[:kept] + [block.name for block in call.added]


@pytest.fixture
def logs(tmp_path):
    """Return a function that writes a planned session and returns its calls by id."""

    def written(session):
        session.write(tmp_path)
        return {call.id: call for call in load_calls([str(tmp_path)]).calls}

    return written


def test_planned_sessions_have_their_counts_labels_and_links(logs):
    events = ("edit", "model", "tools", "system", "parameters", "compaction")
    session = play(plan(3, events=events, lapses=2))
    calls = logs(session)
    assert {
        c.id: (c.counts.read, c.counts.written, c.counts.uncached, c.counts.output) for c in calls.values()
    } == {s.id: (s.read, s.written, s.uncached, s.output) for s in session.calls}
    labels = {
        "edit": "messages_changed",
        "tools": "tools_changed",
        "model": "model_changed",
        "parameters": "unavailable",
    }
    for served in session.calls:
        if served.cause in labels:
            assert calls[served.id].label.kind == labels[served.cause]


def test_prompts_differ_where_tools_or_system_do_and_nowhere_else(logs):
    """Five tools and a system text: a reordered tool is another first block, a new date another sixth."""
    session = play(plan(4, calls=12, events=("tools", "system")))
    calls = logs(session)
    for before, call in zip(session.calls, session.calls[1:], strict=False):
        was, now = (prompt_names(calls, calls[each.id]) for each in (before, call))
        differs = next((k for k, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), None)
        assert differs == {"tools": 0, "system": 5}.get(call.cause)
        assert len(now) > len(was)


def test_a_session_resumed_in_another_log_is_counted_once(tmp_path):
    session = play(plan(5, calls=6))
    path = session.write(tmp_path)
    (tmp_path / "again.jsonl").write_text(
        path.read_text().replace('"sessionId": "s"', '"sessionId": "again"')
    )
    found = load_calls([str(tmp_path / "*.jsonl")])
    assert len(found.calls) == 6
    assert "6 calls are copies of another session's: counted once" in found.said


def test_sub_agents_are_conversations_of_their_session(tmp_path):
    provider = Provider()
    main = play(plan(6, calls=4), "s", provider=provider)
    side = play(plan(7, calls=3), "s", Options(tools=4000), provider, start_s=30.0)
    for line in side.lines:
        line |= {"isSidechain": True, "agentId": "a1"}
    main.write(tmp_path)
    side.name = "s-agent"
    side.write(tmp_path)
    chains = {c.conversation.chain: c.conversation for c in load_calls([str(tmp_path)]).calls}
    assert {each.session for each in chains.values()} == {"s"}
    assert sorted(each.is_side for each in chains.values()) == [False, True]


def test_a_second_snapshot_that_has_the_tools_too_is_no_change(tmp_path):
    session = play(plan(3, calls=6), "s")
    first, line = session.lines[0], session.lines[4]
    session.lines.insert(4, {**first, "uuid": "later", "parentUuid": line["parentUuid"]})
    first["attachment"] = {**first["attachment"], "tools": None}
    calls = load_calls([str(session.write(tmp_path))]).calls
    assert [call.history.kept for call in calls] == [None] * 6
    assert [block.kind for block in calls[0].added] == ["tools"] * 5 + ["system", "user"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"timestamp": 0, "input_length": 16, "output_length": 1, "hash_ids": [1]}\n',
            "no agent's log; got a trace",
        ),
        ("", "an empty log"),
        ('{"type": "user", "sessionId": "s", "parentUuid": null}\n', "no calls"),
    ],
)
def test_what_is_no_agents_log_is_refused(tmp_path, text, said):
    (tmp_path / "log").write_text(text)
    with pytest.raises(KvsimError, match=said):
        load_calls([str(tmp_path / "log")])
