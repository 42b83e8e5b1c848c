"""The gate of pull requests: edits of request bodies that break a prompt's prefix, and edits that do not."""

import copy
import json

import pytest
from kvcache_sim.cli.main import run
from support.agent_logs import Block, Options, Provider, plan, play

CACHE = {"type": "ephemeral"}


def text(name, tokens):
    return (name + " ").ljust(4 * tokens, "x")


def session():
    """Return four requests of an agent: tools 3,000, system 1,500, then a question and three results of 700."""
    tools = [
        {
            "name": f"tool{k}",
            "description": text(f"does {k}", 480),
            "input_schema": {"type": "object", "properties": {}},
        }
        for k in range(6)
    ]
    body = {"model": "claude-sonnet-4-6", "max_tokens": 1000, "tools": tools, "messages": []}
    body["system"] = [{"type": "text", "text": text("be brief", 1500), "cache_control": CACHE}]
    messages = [{"role": "user", "content": [{"type": "text", "text": text("look at the log", 200)}]}]
    bodies = []
    for turn in range(4):
        each = copy.deepcopy({**body, "messages": messages})
        each["messages"][-1]["content"][-1]["cache_control"] = CACHE
        bodies.append(each)
        use = {
            "type": "tool_use",
            "id": f"t{turn}",
            "name": "tool1",
            "input": {"path": text(f"file {turn}", 40)},
        }
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": text(f"lines {turn}", 700)}
        messages = [*messages, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return bodies


def every(change):
    return lambda bodies: [change(body, number) for number, body in enumerate(bodies)]


def later(change):
    """Change the third request and those after it."""
    return lambda bodies: [change(body, number) for number, body in enumerate(bodies[2:])]


def swap(body, _):
    body["tools"][1], body["tools"][2] = body["tools"][2], body["tools"][1]


def say(words):
    def change(body, number):
        body["system"][0]["text"] = words.format(number) + body["system"][0]["text"]

    return change


def put(**members):
    return lambda body, _: body.update(members)


def describe(body, _):
    body["tools"][3]["description"] += "."


def reorder_keys(body, _):
    body["tools"][4] = dict(reversed(body["tools"][4].items()))


def reword_first(body, _):
    body["messages"][0]["content"][0]["text"] += " again"


def drop_result(body, _):
    body["messages"][2]["content"][0]["content"] = "dropped"


def forget(body, _):
    del body["messages"][1:3]


def unmark(body, _):
    del body["system"][0]["cache_control"]
    del body["messages"][-1]["content"][-1]["cache_control"]


def remember(body, number):
    body["system"].append({"type": "text", "text": text(f"found {number}", 100), "cache_control": CACHE})


BREAKING = [
    ("tools[1]", every(swap)),
    ("tools[1]", later(swap)),
    ("system[0]", every(say("It is 10:{:02}. "))),
    ("system[0]", every(say("Today is Monday. "))),
    ("system[0]", later(say("Session {}. "))),
    ("system[0]", every(say(" "))),
    ("tools[3]", later(describe)),
    ("tools[3]", every(describe)),
    ("tools[4]", every(reorder_keys)),
    ("tools[5]", later(lambda body, _: body["tools"].pop())),
    ("tools[0]", later(lambda body, _: body["tools"].pop(0))),
    ("tools[0]", every(lambda body, _: body["tools"].insert(0, {"name": "new", "description": "new"}))),
    ("tools[6]", later(lambda body, _: body["tools"].append({"name": "new", "description": "new"}))),
    ("model", later(put(model="claude-sonnet-4-5"))),
    ("messages[0]", later(reword_first)),
    ("messages[2]", later(drop_result)),
    ("messages[1]", later(forget)),
    ("cache_control", every(unmark)),
    ("thinking", later(put(thinking={"type": "enabled", "budget_tokens": 2000}))),
    ("tool_choice", later(put(tool_choice={"type": "any"}))),
    ("system[", every(remember)),
]


def reword_last(bodies):
    bodies[-1]["messages"][-1]["content"][-1]["content"] = text("other lines", 700)


def reword_question(bodies):
    for body in bodies:
        body["messages"][0]["content"][0]["text"] = text("read the log", 200)


def as_text(bodies):
    """A message's content as a text is the same prompt."""
    for body in bodies[1:]:
        body["messages"][0]["content"] = body["messages"][0]["content"][0]["text"]


HARMLESS = [
    lambda bodies: None,
    reword_last,
    reword_question,
    as_text,
    every(put(max_tokens=4000)),
    later(put(max_tokens=4000)),
    every(put(temperature=0.2)),
    later(put(top_p=0.9, top_k=5)),
    every(put(metadata={"user_id": "u1"})),
    every(lambda body, number: body.update(metadata={"user_id": f"u{number}"})),
    every(put(stream=True)),
    later(put(stop_sequences=["STOP"])),
    every(put(service_tier="auto")),
    every(lambda body, _: body["tools"][5].update(cache_control=CACHE)),
    later(lambda body, _: body["tools"][5].update(cache_control=CACHE)),
    every(lambda body, _: body["messages"].reverse() or body["messages"].reverse()),
    lambda bodies: bodies[-1]["messages"][-1]["content"].append({"type": "text", "text": "thanks"}),
    lambda bodies: bodies[0].update(max_tokens=1),
    every(lambda body, _: body.update(dict(sorted(body.items())))),
    every(
        put(system=[{"type": "text", "text": text("be brief", 1500), "cache_control": CACHE | {"ttl": "5m"}}])
    ),
]


def written(folder, bodies):
    folder.mkdir()
    for number, body in enumerate(bodies):
        (folder / f"{number}.json").write_text(json.dumps(body))
    return str(folder)


@pytest.fixture
def gate(tmp_path, capsys):
    def judged(new, *options):
        sides = written(tmp_path / "new", new), written(tmp_path / "main", session())
        code = run(["session", sides[0], "--against", sides[1], *options])
        return code, " ".join(capsys.readouterr().out.split())

    return judged


@pytest.mark.parametrize(("first", "change"), BREAKING)
def test_an_edit_that_breaks_the_prefix_fails_and_is_named(gate, first, change):
    bodies = session()
    change(bodies)
    code, said = gate(bodies)
    assert (code, f"first difference: {first}" in said or first in said) == (4, True), said


@pytest.mark.parametrize("change", HARMLESS)
def test_an_edit_that_breaks_nothing_passes(gate, change):
    bodies = session()
    change(bodies)
    code, said = gate(bodies)
    assert code == 0, said


def blocks(body):
    """Return the blocks of a body with 4 bytes a token, and how many blocks end at each breakpoint."""
    parts = [("tools", tool) for tool in body["tools"]] + [("system", part) for part in body["system"]]
    parts += [(message["role"], part) for message in body["messages"] for part in message["content"]]
    found = []
    for kind, part in parts:
        bare = {name: value for name, value in part.items() if name != "cache_control"}
        said = json.dumps(bare) if kind == "tools" else part.get("text", part.get("content"))
        said = json.dumps(part["input"])[10:-2] + part["name"] if said is None else said
        found.append(Block(kind, json.dumps(bare), -(-len(said) // 4)))
    return found, [number + 1 for number, (_, part) in enumerate(parts) if "cache_control" in part]


def not_read(bodies, main):
    """Return the tokens that a small provider does not read of bodies, after main's tools and system."""
    provider, total = Provider(), 0
    for number, body in enumerate([main[0], *bodies]):
        prompt, marks = blocks(body)
        if number == 0:
            prompt, marks = prompt[:-1], [marks[0]]
        _, written, uncached = provider.serve(
            body["model"], prompt, marks, (20.0 * number, 20.0 * number + 1), 300
        )
        total += (written + uncached) if number else 0
    return total


@pytest.mark.parametrize("number", [0, 2, 4, 6, 10, 14, 15])
def test_tokens_are_those_of_a_small_providers_replay(gate, number):
    bodies = session()
    BREAKING[number][1](bodies)
    _, said = gate(bodies)
    lost = not_read(bodies, session()) - not_read(session(), session())
    assert (f"{lost:,} tokens a session are no longer read" in said) == (lost > 0), (lost, said)


def test_dollars_a_month_and_annotations(gate):
    """2,000 sessions a day are 60,000 a month."""
    bodies = session()
    every(say("It is 10:{:02}. "))(bodies)
    code, said = gate(bodies, "--volume", "2000 sessions/day", "--github")
    tokens = 60_000 * (not_read(bodies, session()) - not_read(session(), session()))
    assert code == 4
    assert said.startswith("::error title=prompt cache::a session costs ")
    assert f"a month of 60,000 sessions: ${3.45 * tokens / 1e6:,.2f}"[:-4] in said
    assert f"{tokens:,} tokens no longer read" in said


def test_logs_are_compared_by_the_bill_of_a_session(tmp_path, capsys):
    steps = plan(1, calls=20, events=("tools",))
    main = play(steps, "main", Options(events=frozenset())).write(tmp_path)
    broken = play(steps, "new").write(tmp_path)
    assert run(["session", str(main), "--against", str(main)]) == 0
    assert run(["session", str(broken), "--against", str(main)]) == 4
    assert "tools" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fail-if", "2"), "not a rise of the bill"),
        (("--volume", "many"), "not a volume"),
        (("--volume", "_ sessions/day"), "not a volume"),
        (("--volume", "0 sessions/day"), "not a volume"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, capsys, options, said):
    sides = written(tmp_path / "new", session()), written(tmp_path / "main", session())
    assert run(["session", sides[0], "--against", sides[1], *options]) == 2
    assert said in capsys.readouterr().err
