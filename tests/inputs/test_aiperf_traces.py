"""AIPerf's traces of agents: dependencies, prompts and refusals, on small hand-written traces."""

import json
import random

import pytest
from aiperf_files import CHARACTERS, MS, S, read, shared, waits
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.answers_unknown import ANSWER_TOKENS
from kvcache_sim.workload.readers.read import read_report
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.toolbox.write import mooncake_lines
from kvcache_sim.workload.trace import OPEN_LOOP

# --- weka ---------------------------------------------------------------------------------------------------


def asked(t, tokens, ids, out=5, **more):
    return {"t": t, "type": "s", "model": "m", "in": tokens, "out": out, "hash_ids": ids, **more}


def agent(t, name, requests, **more):
    head = {"t": t, "type": "subagent", "agent_id": name, "subagent_type": "x", "status": "completed"}
    return {**head, "models": ["m"], "requests": requests, **more}


def weka(requests, name="x", **more):
    head = {"id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local"}
    return {**head, "requests": requests, **more}


def tiered():
    """Three sub-agents of the first turn: A joins the second, B the third, C no turn; D is between the
    last two."""
    return [
        asked(0.0, 128, [1, 2], api_time=2.0),
        agent(
            2.5,
            "A",
            [asked(2.5, 64, [1], api_time=1.0), asked(4.0, 128, [1, 9], api_time=1.5)],
            duration_ms=3500,
        ),
        agent(2.5, "B", [asked(0.5, 64, [7], api_time=9.0)]),
        agent(2.5, "C", [asked(3.0, 64, [8], api_time=99.0)], status="async_launched"),
        asked(6.0, 192, [1, 2, 3], api_time=1.0, think_time=0.1),
        # recorded to the same microsecond, D's end is the last turn's begin
        agent(7.0, "D", [asked(7.25, 64, [1], api_time=12.7500004)]),
        asked(20.0, 193, [1, 2, 3, 4], api_time=None, stop="end_turn"),
    ]


def test_tiers_of_sub_agents(tmp_path):
    made = read(tmp_path, [weka(tiered(), tool_tokens=64, system_tokens=0, totals={})])
    trace = made.trace
    assert made.format == "aiperf-weka"
    names = [trace.session_id(session) for session in trace.session.tolist()]
    a, b, c, d = (f"x::sa:{name}" for name in "ABCD")
    assert names == ["x", a, a, b, c, "x", d, "x"]
    assert trace.turn.tolist() == [0, 0, 1, 0, 0, 1, 0, 2]
    assert waits(trace) == [[], [0], [1], [0], [0], [0, 2], [5], [5, 3, 6]]
    # B's only request is timed from its marker: it starts at 3.0 s and ends at 12.0 s
    think_s = [None, 0.5, 4.0 - 3.5, 1.0, 1.0, 6.0 - 5.5, 0.25, 0.0]
    assert trace.think_ns.tolist() == [OPEN_LOOP if s is None else round(s * S) for s in think_s]
    assert trace.input_tokens.tolist() == [128, 64, 128, 64, 64, 192, 64, 193]
    assert shared(trace, 0, 7) == 2
    assert shared(trace, 2, 6) == 1


def test_a_weka_trace_runs_to_the_nanosecond(tmp_path):
    """A request of n new tokens and k of an answer, alone: (1 ms + n us) + (k - 1) (1 ms + 3 us)."""
    requests = [
        asked(0.0, 128, [1, 2], out=2, api_time=0.5),
        agent(0.6, "A", [asked(0.6, 64, [5], out=3, api_time=0.1)]),
        asked(1.0, 192, [1, 2, 3], out=1),
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(weka(requests), indent=1))
    text = (
        f"trace: {{path: {path}}}\ncache: {{block_size: 64}}\ntiers: {{gpu: {{capacity: 99 blocks}}}}\n"
        "replica: {step_time: 'linear:base=1ms,token=1us,decode=2us'}\n"
    )
    scenario = scenario_from_text(text, "s", tmp_path)
    rows = execute(scenario, read_requests(scenario), RunOptions()).run.requests
    step = MS + 3000
    first_end = MS + 128_000 + step
    sub = first_end + 100 * MS
    sub_end = sub + MS + 64_000 + 2 * step
    last = sub_end + 300 * MS  # recorded: 1.0 s − the end of A at 0.7 s
    assert rows["arrival_ns"].tolist() == [0, sub, last]
    assert rows["finish_ns"].tolist() == [first_end, sub_end, last + MS + 64_000]


@pytest.mark.parametrize("seed", range(12))
def test_drawn_sessions_against_a_walk_of_their_own(tmp_path, seed):
    """Times are whole us, of which one counts as none: a turn comes after the turn before it and each
    sub-agent that was done when it came; requests of a sub-agent come one after the other."""
    draw = random.Random(seed)
    entries, expected, running = [], [], []
    now, before = draw.randrange(3), None

    def row(at, lasts, blocks=1):
        return asked(at / 1e6, blocks, list(range(blocks)), 0, api_time=lasts / 1e6)

    for turn in range(6):
        lasts = draw.randrange(5)
        done = [one for one in running if one[0] <= now + 1]
        running = [one for one in running if one[0] > now + 1]
        ends = [before[1] if before else 0, *(one[2] for one in done)]
        after = [before[0], *(one[1] for one in done)] if before else []
        before = len(expected), now + lasts
        expected.append(("x", now, after, max(0, now - max(ends))))
        entries.append(row(now, lasts, turn + 1))
        for k in range(draw.randrange(4)):
            marker, name = now + draw.randrange(4), f"{turn}.{k}"
            inner = [(draw.randrange(12), draw.randrange(5)) for _ in range(draw.randrange(4))]
            duration = draw.choice([None, 0, 3, 9])
            lasting = {} if duration is None else {"duration_ms": duration / 1e3}
            entries.append(agent(marker / 1e6, name, [row(*one) for one in inner], **lasting))
            timed = sorted(
                ((at + marker if at + 1 < marker else at, own) for at, own in inner), key=lambda one: one[0]
            )
            last, end = before
            for at, own in timed:
                expected.append((f"x::sa:{name}", at, [last], max(0, at - end)))
                last, end = len(expected) - 1, at + own
            if timed:
                recorded = max(at + own for at, own in timed) if duration is None else marker + duration
                running.append((recorded, last, end))
        now += max(lasts - 1, 0) + draw.randrange(5)
    trace = read(tmp_path, [weka(entries, block_size=1)]).trace
    found = zip(
        trace.session.tolist(), trace.arrival_ns.tolist(), waits(trace), trace.think_ns.tolist(), strict=True
    )
    named = [(trace.session_id(one), *rest) for one, *rest in found]
    assert named == [
        (name, at * 1000, after, gap * 1000 if after else OPEN_LOOP) for name, at, after, gap in expected
    ]


def test_turns_of_agents_side_by_side_are_sessions_by_their_ids(tmp_path):
    """A request continues the longest chain that it extends, which has ended, on its model; else it starts
    a session after the request that ended last."""
    other = {"model": "h"}
    requests = [
        asked(0.0, 128, [1, 2], api_time=1.0),
        asked(2.0, 100, [1, 30], api_time=4.0),  # shares a block: a chain of its own, its last block partial
        asked(3.0, 192, [1, 2, 3], api_time=1.0),
        asked(5.0, 192, [1, 2, 3], api_time=1.0, **other),  # another model
        asked(6.5, 192, [1, 31, 32], api_time=2.0),  # extends the one whole block of the second chain
        asked(7.0, 256, [1, 2, 3, 4], api_time=9.0),
        asked(8.0, 320, [1, 2, 3, 4, 5], api_time=1.0),  # before its predecessor has ended
        asked(20.0, 384, [1, 2, 3, 4, 5, 6]),  # extends two chains: the longer
    ]
    made = read(tmp_path, [weka(requests)])
    trace = made.trace
    names = [trace.session_id(session).removeprefix("x::lane:") for session in trace.session.tolist()]
    assert names == ["x", "1", "x", "2", "1", "x", "3", "3"]
    assert waits(trace) == [[], [0], [0], [2], [1], [2], [3], [6]]
    assert trace.think_ns.tolist()[1:] == [round(s * S) for s in (1, 2, 1, 0.5, 3, 2, 11)]
    assert [(own.kind, own.count) for own in made.findings] == [("lanes", 3)]
    first = [asked(0.0, 64, [1], api_time=5.0), asked(1.0, 64, [2]), asked(2.0, 30, [3]), asked(9.0, 64, [3])]
    alone = read(tmp_path, [weka(first)]).trace
    assert waits(alone) == [[], [], [1], [0]]
    assert alone.arrival_ns.tolist()[:2] == [0, S]


def test_a_trace_whose_turns_wait_for_several_is_written_as_dynamos_rows(tmp_path):
    made = read(tmp_path, [weka(tiered())]).trace
    (tmp_path / "w.jsonl").write_text("".join(mooncake_lines(made)))
    again = read_report(tmp_path / "w.jsonl", settings=ReadSettings(block_size=64))
    assert again.format == "dynamo-agentic"
    assert waits(again.trace) == waits(made)
    for name in ("input_tokens", "output_tokens", "block_ids", "id_offsets", "session", "turn", "think_ns"):
        assert getattr(again.trace, name).tolist() == getattr(made, name).tolist()
    assert again.trace.session_names == made.session_names


def test_ids_are_local_to_a_trace_and_orphans_are_reported(tmp_path):
    one, two = weka([asked(0, 64, [1])]), weka([agent(0, "A", []), asked(1, 64, [1], out=0)], "y")
    assert read(tmp_path, [one]).findings == ()
    made = read(tmp_path, [one, two])
    assert shared(made.trace, 0, 1) == 0
    assert made.trace.arrival_ns.tolist() == [0, S]
    assert [(own.kind, own.count, own.line) for own in made.findings] == [("orphans", 1, 0)]
    kept = read(tmp_path, [one], ReadSettings(keep_unknown=True)).trace
    assert kept.extra == ['"model": "m"']


# --- turns --------------------------------------------------------------------------------------------------


def test_turns_hold_what_was_said_before_and_come_after_a_delay(tmp_path):
    lines = [
        {
            "session_id": "a",
            "turns": [
                {"role": "system", "text": "SYS"},
                {"text": "one", "output_length": 4},
                {"texts": ["tw", "o"], "delay": 1500},
            ],
        },
        {"turns": [{"text": "SYSx", "timestamp": 250, "output_length": 1}]},
        {
            "session_id": "a",
            "turns": [{"texts": [{"name": "f", "contents": ["th", "ree"]}], "delay": 2, "output_length": 9}],
        },
    ]
    made = read(tmp_path, lines, CHARACTERS)
    trace = made.trace
    assert made.format == "aiperf-multi-turn"
    assert trace.input_tokens.tolist() == [6, 6 + 4 + 3, 4, 6 + 4 + 3 + ANSWER_TOKENS + 5]
    assert trace.output_tokens.tolist() == [4, ANSWER_TOKENS, 1, 9]
    assert waits(trace) == [[], [0], [], [1]]
    assert trace.think_ns.tolist() == [OPEN_LOOP, 1500 * MS, OPEN_LOOP, 2 * MS]
    assert trace.arrival_ns.tolist()[2] == 250 * MS
    assert shared(trace, 0, 1) == 6
    assert shared(trace, 1, 3) == 13
    assert shared(trace, 0, 2) == 3
    assert [trace.session_id(s) for s in trace.session.tolist()] == ["a", "a", "line 2", "a"]
    assert any("1 turns do not limit their answers: 256" in line for line in trace.warnings)


def test_a_system_turn_that_says_more_than_text_is_a_request(tmp_path):
    for turns, tokens in (
        ([{"role": "system", "text": "SYS", "delay": 1}, {"text": "x"}], [3, 3 + ANSWER_TOKENS + 1]),
        ([{"role": "system", "text": "SYS"}], [3]),
        ([{"role": "system", "text": "S"}, {"role": "system", "text": "T"}], [1, 2 + ANSWER_TOKENS]),
    ):
        trace = read(tmp_path, [{"session_id": "a", "turns": turns}], CHARACTERS).trace
        assert trace.input_tokens.tolist() == tokens


# --- graphs of conversations --------------------------------------------------------------------------------


def said(text, tokens=2, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, **more}


def conversation(name, *turns, **more):
    return {"session_id": name, "turns": list(turns), **more}


def sessions(trace):
    return [trace.session_id(session) for session in trace.session.tolist()]


def test_spawned_conversations_begin_afresh_and_are_waited_for(tmp_path):
    lines = [
        conversation(
            "root",
            said("plan", spawns=["s1", {"children": ["s2"], "join_at": 2}]),
            said("go", delay=200),
            said("merge", 1, spawns=["late"]),
        ),
        conversation("s1", said("search"), said("more", delay=5)),
        conversation("s2", said("read", delay=7)),
        conversation("late", said("bye")),
        conversation("other", said("planet", delay=3), pre_session_spawns=["early"]),
        conversation("early", said("hi")),
    ]
    made = read(tmp_path, lines, CHARACTERS)
    trace = made.trace
    assert made.format == "aiperf-dag"
    assert sessions(trace) == ["root", "s1", "s1", "s2", "root", "root", "late", "early", "other"]
    assert waits(trace) == [[], [0], [1], [0], [0, 2], [4, 3], [5], [], []]
    ms = [None, 0, 5, 7, 200, 0, 0, None, None]
    assert trace.think_ns.tolist() == [OPEN_LOOP if one is None else one * MS for one in ms]
    assert trace.arrival_ns.tolist()[7:] == [0, 3 * MS]
    assert trace.input_tokens.tolist() == [4, 6, 6 + 2 + 4, 4, 4 + 2 + 2, 8 + 2 + 5, 3, 2, 6]
    assert [shared(trace, 0, k) for k in (4, 5, 8)] == [4, 4, 4]
    assert shared(trace, 4, 5) == 8


def test_forked_conversations_continue_from_their_parents(tmp_path):
    lines = [
        conversation(
            "root", said("plan", forks=[{"child": "bg", "background": True}]), said("on", forks=["f1", "f2"])
        ),
        conversation("bg", said("b")),
        conversation("f1", said("x", tools=[{"a": 1}])),
        conversation("f2", said("y"), said("z")),
    ]
    trace = read(tmp_path, lines, CHARACTERS).trace
    assert sessions(trace) == ["root", "bg", "root", "f1", "f2", "f2"]
    assert waits(trace) == [[], [0], [0], [2], [2], [4]]
    tools = len(json.dumps([{"a": 1}]))
    assert trace.input_tokens.tolist() == [4, 4 + 2 + 1, 8, tools + 8 + 2 + 1, 11, 11 + 2 + 1]
    assert shared(trace, 1, 2) == 6  # the prompt and its answer
    assert shared(trace, 2, 4) == 8
    assert shared(trace, 2, 3) == 0  # its tools stand before all


def test_rounds_of_conversations_without_a_request_of_their_own(tmp_path):
    lines = [
        {"session_id": "o", "orchestrator": True, "spawns": ["a", "b"], "rounds": 2, "think_time_ms": 10},
        conversation("a", said("aa"), said("more")),
        conversation("b", said("bb", delay=1)),
        {
            "session_id": "p",
            "orchestrator": True,
            "rounds": [{"spawns": ["c"]}, {"spawns": ["d"], "think_time_ms": 4}],
        },
        conversation("c", said("cc")),
        conversation("d", said("d1"), said("dd"), context_mode="message_array_with_responses"),
        conversation("q", said("q", spawns=["r"]), said("q2")),
        {"session_id": "r", "orchestrator": True, "spawns": ["s"]},
        conversation("s", said("s")),
    ]
    trace = read(tmp_path, lines, CHARACTERS).trace
    assert sessions(trace) == ["a", "a", "b", "a#2", "a#2", "b#2", "c", "d", "d", "q", "s", "q"]
    assert waits(trace) == [[], [0], [], [1, 2], [3], [1, 2], [], [6], [7], [], [9], [9]]
    assert trace.arrival_ns[[0, 2]].tolist() == [10 * MS, 11 * MS]
    assert trace.think_ns[[3, 5, 7]].tolist() == [10 * MS, 11 * MS, 4 * MS]
    assert shared(trace, 0, 3) == 2
    assert shared(trace, 1, 4) == 2  # answers of two copies differ
    assert trace.input_tokens[8] == 2  # all of its prompt in one turn


@pytest.mark.parametrize("seed", range(10))
def test_drawn_graphs_against_a_walk_of_their_own(tmp_path, seed):
    """Every conversation is of a tree: a request comes after its turn before, what it joins, or the
    request that started it."""
    draw = random.Random(seed)
    count = draw.randint(2, 12)
    lines = [
        conversation(
            f"c{k}",
            *(said("w" * draw.randint(1, 5), delay=draw.randint(0, 9)) for _ in range(draw.randint(1, 4))),
        )
        for k in range(count)
    ]
    expected: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for line in lines:
        for index in range(len(line["turns"])):
            expected[line["session_id"], index] = {(line["session_id"], index - 1)} if index else set()
    for child in range(1, count):
        parent = lines[draw.randrange(child)]
        index, turns = draw.randrange(len(parent["turns"])), len(parent["turns"])
        own, last = (f"c{child}", 0), (f"c{child}", len(lines[child]["turns"]) - 1)
        expected[own] = {(parent["session_id"], index)}
        turn = parent["turns"][index]
        if draw.random() < 0.4:
            turn.setdefault("forks", []).append({"child": own[0], "background": True})
            continue
        join = draw.choice([None, *range(index + 1, turns)])
        turn.setdefault("spawns", []).append({"children": [own[0]], "join_at": join} if join else own[0])
        if (join or index + 1) < turns:
            expected[parent["session_id"], join or index + 1].add(last)
    draw.shuffle(lines)
    trace = read(tmp_path, lines, CHARACTERS).trace
    index = [
        (trace.session_id(s), t) for s, t in zip(trace.session.tolist(), trace.turn.tolist(), strict=True)
    ]
    assert len(index) == len(expected)
    assert {index[k]: {index[j] for j in own} for k, own in enumerate(waits(trace))} == expected


def test_a_graph_runs_and_an_answer_is_found_again(tmp_path):
    lines = [conversation("a", said("x" * 64, 33), said("y" * 16, 1, delay=1))]
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = f"trace: {{path: {path}, bytes_per_token: 1}}\ncache: {{block_size: 16}}\n"
    scenario = scenario_from_text(text, "s", tmp_path)
    rows = execute(scenario, read_requests(scenario), RunOptions()).run.requests
    assert rows["cached_prefix_length_used"].tolist() == [0, 96]
    assert rows["arrival_ns"][1] == rows["finish_ns"][0] + MS


def test_conversations_are_at_most_100_within_each_other(tmp_path):
    lines = [conversation(f"c{k}", said("x", spawns=[f"c{k + 1}"])) for k in range(120)]
    with pytest.raises(KvsimError, match="at most 100 within each other"):
        read(tmp_path, [*lines, conversation("c120", said("x"))], ReadSettings(format="aiperf-dag"))
