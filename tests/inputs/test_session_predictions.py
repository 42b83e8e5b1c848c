"""A provider's cache of agents' calls: worked examples, real logs, and what a prediction rests on."""

import msgspec
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.extras.session.calls import Call, Conversation, Counts, History, Label, Segment
from kvcache_sim.extras.session.load import load_calls
from kvcache_sim.extras.session.predict import Settings, predict
from kvcache_sim.model.prices import PICODOLLARS, Tokens, price_table
from support.agent_logs import Options, plan, play
from support.shared_files import shared

TABLE = price_table()
LOGS = "traces/claude_code"


def blocks(text: str) -> tuple[Segment, ...]:
    """Return blocks of `kind:name:tokens kind:name:tokens`."""
    return tuple(
        Segment(kind, name, 0, int(size)) for kind, name, size in (each.split(":") for each in text.split())
    )


def call(name: str, start_s: float, added: str, answer: str = "", **changes) -> Call:
    whose = Conversation("anthropic", "", "s", "s")
    start = round(start_s * NS_PER_S)
    given = {"model": "claude-opus-4-5", "counts": None, **changes}
    return Call(
        name,
        start,
        start + NS_PER_S // 2,
        conversation=whose,
        added=blocks(added),
        answer=blocks(answer),
        **given,
    )


def rows(calls, **settings):
    return [(each.read, each.written, each.cause) for each in predict(calls, TABLE, Settings(**settings))]


def lapse(last_s: float) -> list[Call]:
    opus = {"model": "claude-opus-4-8"}  # whose minimum is 1,024
    return [
        call("1", 0, "tools:t:3000 system:s:2000 user:u1:100", "assistant:a1:400", **opus),
        call("2", 20, "tool_result:r1:1500", "assistant:a2:300", history=History("1"), **opus),
        call("3", 200, "tool_result:r2:700", "assistant:a3:200", history=History("2"), **opus),
        call("4", last_s, "user:u2:50", history=History("3"), **opus),
    ]


@pytest.mark.parametrize(
    ("last_s", "ttl", "last", "dollars"),
    [
        (501, "", (0, 8250, "ttl"), "0.1076125"),
        (501, "1h", (8000, 250, "continue"), "0.0925500"),
        (499, "", (8000, 250, "continue"), "0.0616125"),
    ],
)
def test_a_lapse_costs_what_the_worked_example_says(last_s, ttl, last, dollars):
    found = rows(lapse(last_s), ttl=ttl)
    assert found == [(0, 5100, "first"), (5100, 1900, "continue"), (7000, 1000, "continue"), last]
    price = TABLE.row("claude-opus-4-8", 0)[1]
    written = {ttl or "5m": sum(row[1] for row in found)}
    cost = price.picodollars(Tokens(sum(row[0] for row in found), 0, written))
    assert f"{cost / PICODOLLARS:.7f}" == dollars


@pytest.mark.parametrize(
    ("tools", "settings", "expected"),
    [
        (11, {}, (21_000, 45_500, "look-back")),
        (11, {"marks_before": True}, (61_000, 5_500, "continue")),
        (9, {}, (61_000, 4_500, "continue")),
        (10, {}, (61_000, 5_000, "continue")),
        (10, {"counts_own_block": True}, (21_000, 45_000, "look-back")),
    ],
)
def test_a_breakpoint_looks_back_twenty_blocks(tools, settings, expected):
    uses = " ".join(f"tool_call:use{k}:50" for k in range(tools))
    results = " ".join(f"tool_result:result{k}:450" for k in range(tools))
    first = call("1", 0, "system:s:21000 user:u:40000", uses)
    assert rows([first, call("2", 9, results, history=History("1"))], **settings)[1] == expected


def test_an_edit_costs_all_behind_the_last_breakpoint_in_front_of_it():
    results = " ".join(f"tool_result:r{k}:1000" for k in range(50))
    later = " ".join(f"tool_result:r{k}:1000" for k in range(20, 50))
    first = call("1", 0, f"system:s:10000 {results}")

    def costs(at_s):
        """Return the second and third call's, in base tokens: as they are, and without a result of 10,000."""
        found = []
        for added, kept in ("tool_result:new:1000", None), (f"{later} tool_result:new:1000", 11):
            second = call("2", at_s, added, history=History("1", kept))
            third = call("3", at_s + 9, "tool_result:next:100", history=History("2"))
            found.append(
                [round(read * 0.1 + written * 1.25) for read, written, _ in rows([first, second, third])[1:]]
            )
        return found

    (whole, after), (edited, saving) = costs(9)
    assert (whole, edited) == (7_250, 52_250)
    assert (edited - whole) / (after - saving) == 45  # later calls that win it back
    assert [first for first, _ in costs(999)] == [76_250, 63_750]  # after a lapse it is free


def test_openai_reads_whole_steps_of_what_two_prompts_share():
    gpt = {"model": "gpt-5.2"}
    lengths = [(1400, 900, 1280), (1100, 900, 1024), (1000, 500, 0)]
    for number, (same, rest, read) in enumerate(lengths):
        first = call("1", 0, f"system:s:{same} user:u:{1500 - same}", **gpt)
        second = call("2", 9, f"system:s:{same} user:other{number}:{rest}", **gpt)
        found = predict([first, second], TABLE)[1]
        assert (found.read, found.uncached, found.written) == (read, same + rest - read, 0)
    price = TABLE.row("gpt-5.2", 0)[1]
    assert price.picodollars(Tokens(1280, 1020)) == 2_009_000_000


def test_real_sessions_read_what_is_predicted():
    calls = {each.id: each for each in load_calls([str(shared(LOGS))]).calls}
    found = [each for each in predict(list(calls.values()), TABLE) if each.cause != "first"]
    exact = sum(each.read == calls[each.id].counts.read for each in found)
    assert (exact, len(found)) == (318, 321)  # the compactions' two calls continue a conversation here
    breaks = [each.cause for each in found if each.is_break]
    assert breaks == ["user turn", "compaction", "user turn", "ttl", "compaction", "ttl", "user turn"]
    read, measured = sum(each.read for each in found), sum(calls[each.id].counts.read for each in found)
    assert abs(read - measured) < 0.003 * measured


@pytest.mark.parametrize("at", [18, 61, 103, 149])
def test_a_prediction_rests_on_totals_from_its_own_call_on(at):
    calls = list(load_calls([str(shared(f"{LOGS}/main_1h.jsonl"))]).calls)
    known = predict(calls, TABLE)[at]
    hidden = [
        msgspec.structs.replace(each, counts=Counts(0, each.counts.prompt), label=None) for each in calls[at:]
    ]
    found = predict([*calls[:at], *hidden], TABLE)[at]
    assert (found.read, found.written, found.uncached) == (known.read, known.written, known.uncached)


@pytest.mark.parametrize("event", ["model", "tools", "system", "edit", "compaction"])
def test_planted_breaks_are_named_and_no_other_call_is_one(event, tmp_path):
    for seed in range(3):
        session = play(
            plan(seed, events=[event], lapses=1), f"{event}{seed}", Options(labels=True, minimum=4096)
        )
        path = session.write(tmp_path)
        found = {each.id: each for each in predict(load_calls([str(path)]).calls, TABLE)}
        served = [each for each in session.calls if each.id in found]
        assert [found[each.id].cause for each in served] == [each.cause for each in served]
        inexact = [each.cause for each in served if found[each.id].read != each.read]
        assert set(inexact) <= {event} & {"edit"}  # no line of the log shows the edit


def test_a_label_is_the_last_resort():
    base = [call("1", 0, "system::0", counts=Counts(0, 3, 30_000))]
    base[0] = msgspec.structs.replace(base[0], added=(Segment("system"), *blocks("user:u:20")))
    for label, event, cause, is_by_label in [
        (Label("system_changed", 9), "", "system", True),
        (Label(""), "", "concurrent", False),
        (None, "", "concurrent", False),
        (None, "edit", "edit", False),
    ]:
        after = call(
            "2",
            4,
            "tool_result:r:100",
            history=History("1", None, event),
            counts=Counts(0, 3, 30_100),
            label=label,
        )
        found = predict([*base, after], TABLE)[1]
        assert (found.cause, found.is_by_label) == (cause, is_by_label)
        assert found.lost_tokens == 30_000


def side(name: str, start_s: float, read: int, written: int) -> Call:
    """Return the first call of a sub-agent whose log has neither tools nor system."""
    made = call(name, start_s, f"user:{name}:1000", counts=Counts(read, 3, written))
    conversation = Conversation("anthropic", "", "s", f"s {name}", is_side=True)
    return msgspec.structs.replace(made, conversation=conversation, added=(Segment("system"), *made.added))


def test_sub_agents_read_what_the_first_of_them_wrote_once_its_answer_has_begun():
    agents = [
        side("a", 0, 0, 8000),
        side("b", 0.2, 0, 8000),
        side("c", 9, 7003, 997),
        side("d", 20, 7003, 900),
    ]
    assert [each.read for each in predict(agents, TABLE)] == [0, 0, 7003, 7003]


def test_a_prompt_below_the_minimum_leaves_nothing():
    calls = [call("1", 0, "system:s:3000"), call("2", 9, "user:u:500", history=History("1"))]
    calls.append(call("3", 18, "user:v:5000", history=History("2")))
    calls.append(call("4", 27, "user:w:10", history=History("3")))
    assert rows(calls) == [
        (0, 0, "first"),
        (0, 0, "below minimum"),
        (0, 8500, "below minimum"),
        (8500, 10, "continue"),
    ]


@pytest.mark.parametrize(
    ("gap_s", "read", "cause"), [(300, 0, "ttl"), (305, 8000, "continue"), (305, 0, "ttl")]
)
def test_between_300_and_310_seconds_no_rule_decides(gap_s, read, cause):
    first = call("1", 0, "system:s:8000", counts=Counts(0, 0, 8000))
    counts = Counts(read, 0, 8100 - read)
    found = predict([first, call("2", gap_s, "user:u:100", history=History("1"), counts=counts)], TABLE)[1]
    assert found.cause == (cause if gap_s > 300 else "tools")  # at 300 s it is still kept
    assert found.doubt == ("300 to 310 s" if gap_s > 300 else "named by exclusion")


@pytest.mark.parametrize(
    ("model", "last"),
    [("claude-sonnet-4-5", (5100, 650, "user turn")), ("claude-opus-4-8", (6000, 50, "continue"))],
)
def test_a_message_of_the_user_removes_earlier_thinking_of_older_models(model, last):
    calls = [call("1", 0, "system:s:5000 user:u:100", "thinking:t:300 tool_call:c:200", model=model)]
    calls.append(call("2", 9, "tool_result:r:400", history=History("1"), model=model))
    calls.append(call("3", 18, "user:v:50", history=History("2"), model=model))
    assert rows(calls)[2] == last


def test_what_is_left_after_a_lapse_is_learned():
    counts = [Counts(0, 3, 20_000), Counts(12_834, 3, 7_266), Counts(12_834, 3, 7_366)]
    calls = [call("1", 0, "system:s:20000", counts=counts[0])]
    calls += [
        call(str(k + 1), 999 * k, f"user:u{k}:100", history=History(str(k)), counts=counts[k]) for k in (1, 2)
    ]
    assert [(each.read, each.cause) for each in predict(calls, TABLE)] == [
        (0, "first"),
        (0, "ttl"),
        (12_834, "ttl"),
    ]


@pytest.mark.parametrize(("read", "cause"), [(0, "tools"), (4000, "system"), (9000, "edit")])
def test_what_is_left_names_the_part_that_changed(read, cause):
    first = call("1", 0, "user:u:100", counts=Counts(8000, 0, 2000))
    first = msgspec.structs.replace(first, added=(Segment("system"), *first.added))
    counts = Counts(read, 0, 10_100 - read)
    second = call("2", 90, "tool_result:r:100", history=History("1"), counts=counts)
    assert predict([first, second], TABLE)[1].cause == cause


def test_a_price_holds_from_its_day_on_and_by_the_length_of_the_prompt():
    day = 1_791_331_200 * NS_PER_S  # 2026-10-07
    before, after = (TABLE.row("claude-sonnet-5-5", at)[1] for at in (day - 1, day))
    assert (before.picodollars(Tokens(1000, 0)), after.picodollars(Tokens(1000, 0))) == (
        200_000_000,
        100_000_000,
    )
    haiku = TABLE.row("claude-haiku-5-5", day)[1]
    assert haiku.picodollars(Tokens(0, 100_000)) == 100_000 * 100_000
    assert haiku.picodollars(Tokens(0, 100_001)) == 100_001 * 500_000
    assert TABLE.row("us.anthropic.claude-opus-4-6-v1:0", day)[1].minimum_tokens == 4096
    assert TABLE.row("claude-opus-4-99", day) is None


def test_prices_of_a_file_come_first_and_keep_the_rules_of_the_provider(tmp_path):
    path = tmp_path / "own.toml"
    head = 'provider = "anthropic"\npolicy = "anthropic"\ndate = 2026-11-01\nsource = "a contract"\n'
    path.write_text(head + '[[model]]\nnames = ["claude-opus-4-6"]\ninput = 4\noutput = 20\nread = 0.05\n')
    rules, price = price_table([path]).row("claude-opus-4-6", 0)
    assert (price.input, rules.look_back_blocks, rules.minimum(price)) == (4, 20, 1024)
    path.write_text(head + "[[model]]\nnames = 7\n")
    with pytest.raises(UsageError, match="not a table of prices"):
        price_table([path])


def session(name: str, folder: str, start_s: float, counts: list[Counts], **changes) -> list[Call]:
    """Return calls of a session without tools and system in its log, 10 s apart."""
    found = []
    for k, each in enumerate(counts):
        history = {"history": History(f"{name}{k - 1}")} if k else {}
        made = call(f"{name}{k}", start_s + 10 * k, f"user:{name}{k}:100", counts=each, **history, **changes)
        whose = Conversation("anthropic", "", name, name, folder=folder)
        head = () if k else (Segment("system"),)
        found.append(msgspec.structs.replace(made, conversation=whose, added=(*head, *made.added)))
    return found


@pytest.mark.parametrize(("folder", "read"), [("/a", 5000), ("/b", 0)])
def test_a_folders_tools_and_system_are_its_own_until_counts_show_that_they_are_shared(folder, read):
    """While b's other session lives, a's third call comes after a lapse of its own."""
    first = session("a", "/a", 0, [Counts(0, 0, 5100)])
    other = session("b", folder, 200, [Counts(read, 0, 5100 - read), Counts(5100, 0, 100)])
    later = call("a1", 400, "user:x:100", history=History("a0"), counts=Counts(read, 0, 5200 - read))
    later = msgspec.structs.replace(later, conversation=first[0].conversation)
    found = {each.id: each for each in predict([*first, *other, later], TABLE)}
    assert (found["a1"].read, found["a1"].cause) == (read, "ttl")


@pytest.mark.parametrize(
    ("label", "second", "later"), [("tools_changed", 0, 5000), ("messages_changed", 5000, 5000)]
)
def test_a_change_that_only_a_label_shows_is_one_break_and_stays(label, second, later):
    """Call 2 writes another prompt; a plain compaction later reads the tools and system of that one."""
    counts = [Counts(5000, 0, 100), Counts(second, 0, 5300 - second), Counts(5300, 0, 100)]
    calls = session("a", "/a", 0, counts)
    calls[1] = msgspec.structs.replace(calls[1], label=Label(label, 9))
    anew = call(
        "a3", 30, "user:summary:50", history=History("a2", 1, "compaction"), counts=Counts(later, 0, 50)
    )
    calls.append(msgspec.structs.replace(anew, conversation=calls[0].conversation))
    found = predict(calls, TABLE)
    named = {"tools_changed": "tools", "messages_changed": "edit"}[label]
    assert [each.cause for each in found] == ["first", named, "continue", "compaction"]
    assert found[3].read == later


@pytest.mark.parametrize(
    ("label", "cause"),
    [(None, "concurrent"), (Label(""), "concurrent"), (Label("messages_changed", 9), "edit")],
)
def test_a_call_that_reads_what_the_call_before_the_last_left_came_too_soon(label, cause):
    counts = [Counts(5000, 0, 100), Counts(5100, 0, 100), Counts(5200, 0, 100), Counts(5200, 0, 200)]
    calls = session("a", "/a", 0, counts)
    calls[3] = msgspec.structs.replace(calls[3], label=label)
    assert [each.cause for each in predict(calls, TABLE)][1:] == ["continue", "continue", cause]
