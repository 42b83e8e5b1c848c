"""``kvsim session``: the screen, JSON and page of planned sessions, and lines for broken logs."""

import json
import re
import subprocess
from pathlib import Path

import kvcache_sim as kv
import pytest
import yaml
from kvcache_sim.cli.main import run
from support.agent_logs import Options, plan, play
from support.shared_files import shared

ROOT = Path(__file__).resolve().parents[2]
EVENTS = ("edit", "tools", "system", "compaction")


@pytest.fixture
def session(capsys):
    """Return a function that runs the verb and returns what it printed, and said on stderr in one line."""

    def ran(*arguments, rc=0):
        assert run(["session", *map(str, arguments)]) == rc
        out, err = capsys.readouterr()
        return out, " ".join(err.split())

    return ran


@pytest.fixture
def log(tmp_path):
    return play(plan(11, calls=40, events=EVENTS, lapses=2), "agent").write(tmp_path)


def test_the_screen_of_a_session(session, log, snapshot):
    out, _ = session(log)
    assert max(map(len, out.splitlines())) <= 80
    assert out == snapshot


def test_json_has_the_counts_of_each_call_and_its_cause(session, tmp_path):
    played = play(plan(12, calls=40, events=EVENTS, lapses=2), "agent")
    played.write(tmp_path)
    found = json.loads(session(tmp_path, "--format", "json")[0])
    calls = {call["id"]: call for call in found["calls"]}
    assert calls.keys() == {each.id for each in played.calls}
    for each in played.calls:
        call = calls[each.id]
        assert (call["measured_read"], call["measured_write"]) == (each.read, each.written)
        assert call["read"] + call["write"] + call["uncached"] == each.read + each.written + each.uncached
    planned = {each.id: each.cause for each in played.calls if each.cause not in ("first", "continue")}
    assert {name: calls[name]["cause"] for name in planned} == planned
    # dollars at Opus 4.6: read 0.5, written for 5 minutes 6.25, uncached 5, answers 25 a million tokens
    prices = []
    for each in played.calls:
        prices += [(each.read, 0.5), (each.written, 6.25), (each.uncached, 5), (each.output, 25)]
    assert found["measured_dollars"] == pytest.approx(sum(tokens * price for tokens, price in prices) / 1e6)
    assert found["exact_calls"] >= 0.9 * found["later_calls"]


def test_real_sessions_are_exact_in_nearly_all_calls_and_their_breaks_are_named(session):
    """The seven breaks of the table: two lapses, two compactions, three plain messages after a turn."""
    found = json.loads(session(shared("traces/claude_code"), "--format", "json")[0])
    assert found["later_calls"] - found["exact_calls"] <= 3
    assert {each["cause"]: each["calls"] for each in found["causes"]} == {
        "user turn": 3,
        "ttl": 2,
        "compaction": 2,
    }
    read = sum(call["measured_read"] for call in found["calls"])
    assert sum(call["read"] for call in found["calls"]) == pytest.approx(read, rel=0.003)


def test_a_page_is_the_same_bytes_and_has_no_text_of_the_log(session, log, tmp_path):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        out, _ = session(log, "-o", page, "--format", "json")
    html = pages[0].read_text()
    assert html == pages[1].read_text()
    texts = re.findall(r'"(?:content|text)": "(agent [a-z]+ \d+)', log.read_text())
    assert texts
    assert not any(text in html or text in out for text in texts)
    assert html.count("<svg") == 1
    found = json.loads(session(log, "-o", tmp_path / "t.html", "--format", "json", "--texts")[0])["calls"]
    shown = {call["cause"]: call["texts"] for call in found if "texts" in call}
    assert shown["system"]["was"].startswith("instructions of the day 0")
    assert shown["system"]["now"].startswith("instructions of the day 1")
    assert shown["tools"]["was"] != shown["tools"]["now"]
    assert "instructions of the day 1" in (tmp_path / "t.html").read_text()
    assert "exist" in session(log, "-o", pages[0], rc=6)[1]
    assert "not a page" in session(log, "-o", tmp_path / "a.txt", rc=2)[1]


def test_hits_and_machines_on_an_engine_are_those_of_the_imported_and_the_edited_trace(
    session, log, tmp_path
):
    config, trace, short = tmp_path / "s.yaml", tmp_path / "t.jsonl", tmp_path / "short.jsonl"
    config.write_text("tiers: {gpu: {capacity: 8000 blocks}}\nslo: {ttft: 60s}\n")
    out, _ = session(log, "-c", config, "--compact-at", "20k", "--format", "json")
    found = json.loads(out)["engine"]
    assert run(["trace", "import", str(log), "-o", str(trace)]) == 0
    edit = ["--trace-block-size", "16", "--compact-at", "20k", "-o", str(short)]
    assert run(["trace", "edit", str(trace), *edit]) == 0
    for each, path in ((found, trace), (found["what_if"]["--compact-at 20k"], short)):
        settings = ["-c", str(config), "--set", "trace.block_size=16"]
        assert run(["simulate", str(path), *settings, "-o", str(path) + ".out"]) == 0
        summary = json.loads(Path(str(path) + ".out", "summary.json").read_text())
        assert each["hit_tokens"] == summary["cache"]["hit_tokens"]
        assert each["ttft_ms"] == summary["latency"]["ttft"]
        assert (
            each["held_sessions"]
            == kv.capacity(path, config, sessions=True, **{"trace.block_size": 16}).sessions
        )
    assert "sessions at a time" in session(log, "-c", config)[0]


def broken(lines):
    """Yield logs that are broken, each in one way."""
    rows = [json.loads(line) for line in lines]
    answer = next(k for k, row in enumerate(rows) if row["type"] == "assistant")
    usage = rows[answer]["message"]["usage"]
    for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
        for value in (-1, 1.5, "many", 10**12, [3], True):
            changed = json.loads(lines[answer])
            changed["message"]["usage"] = {**usage, name: value}
            yield [*lines[:answer], json.dumps(changed), *lines[answer + 1 :]]
    for cut in (1, 20, len(lines[answer]) // 2, len(lines[answer]) - 2):
        yield [*lines[:answer], lines[answer][:cut], *lines[answer + 1 :]]
    for text in ("[1, 2]", "null", "7", '"text"', "{" * 4000, "\x00", '{"type": }'):
        yield [*lines[:answer], text, *lines[answer + 1 :]]
    yield [json.dumps({**row, "timestamp": "yesterday"}) for row in rows]
    yield [json.dumps({**row, "timestamp": None}) for row in rows]
    yield [json.dumps({**row, "message": None}) for row in rows]
    yield [line for line in lines if '"assistant"' not in line]
    yield []


def test_a_broken_log_is_one_line_with_its_location(session, tmp_path):
    lines = play(plan(1, calls=6), "s").write(tmp_path).read_text().splitlines()
    logs = list(broken(lines))
    assert len(logs) >= 40
    for number, each in enumerate(logs):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(line + "\n" for line in each))
        _, err = session(path, rc=3)
        assert re.match(rf"{re.escape(str(path))}(:\d+)*: .*[a-z]", err), err
        assert "Traceback" not in err


def test_a_log_of_a_user_is_read_with_its_price(session, log, tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text(
        'provider = "mine"\npolicy = "anthropic"\ndate = 2026-11-01\nsource = "a contract"\n'
        '[[model]]\nnames = ["claude-opus-4-6"]\ninput = 1\noutput = 0\nread = 1\nwrite_5m = 1\nwrite_1h = 1\n'
    )
    found = json.loads(session(log, "--price", table, "--format", "json")[0])
    prompts = sum(call["read"] + call["write"] + call["uncached"] for call in found["calls"])
    assert found["what_if"] == {f"--price {table}": pytest.approx(prompts / 1e6)}


def test_each_what_if_is_a_bill_and_says_what_it_takes_as_given(session, log):
    options = "--ttl 1h --ttl 5m --compact-at 30k --sort-tools --drop-results-older 3".split()
    found = json.loads(session(log, *options, "--format", "json")[0])
    bills = found["what_if"]
    names = {"--ttl 1h", "--ttl 5m", "--compact-at 30k", "--sort-tools", "--drop-results-older 3"}
    assert bills.keys() == names
    assert bills["--ttl 5m"] == pytest.approx(found["dollars"])
    assert bills["--sort-tools"] < found["dollars"]
    assert bills["--compact-at 30k"] < found["dollars"]
    text, _ = session(log, *options)
    assert all(name in text for name in names)
    assert "taken as given" in text
    assert max(map(len, text.splitlines())) <= 80
    best = json.loads(session(log, "--best", "--format", "json")[0])["what_if"]
    assert 0 < len(best) <= 3
    assert max(best.values()) < found["dollars"]


def test_python_has_the_bills_of_the_verb(session, log):
    found = json.loads(session(log, "--ttl", "1h", "--format", "json")[0])
    asked = kv.session(log)
    assert asked.dollars == pytest.approx(found["measured_dollars"])
    frame = asked.what_if(ttl="1h").to_pandas()
    assert frame["dollars"].tolist() == [found["what_if"]["--ttl 1h"]]
    assert asked.to_pandas()["read"].tolist() == [call["read"] for call in found["calls"]]
    assert str(asked) == session(log)[0].rstrip("\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--volume", "5 sessions/day"), "without effect"),
        (("--github",), "without effect"),
        (("--texts",), "without effect"),
        (("--fail-if", "+2%"), "without effect"),
        (("",), "LOG: log not found"),
        (("--against", "x", "--format", "json"), "without effect"),
        (("--against", "nowhere.jsonl"), "log not found"),
        (("-c", "nowhere.yaml"), "nowhere.yaml"),
        (("--against", "x", "--ttl", "1h"), "without effect"),
    ],
)
def test_options_that_cannot_work_are_refused(session, log, options, said):
    assert said in session(log, *options, rc=2)[1]


def test_the_actions_steps_fail_a_change_that_breaks_the_prefix(tmp_path, monkeypatch):
    action = yaml.safe_load((ROOT / ".github/actions/prefix-gate/action.yml").read_text())
    steps = plan(1, calls=20, events=("tools",))
    main = play(steps, "main", Options(events=frozenset())).write(tmp_path)
    new = play(steps, "new").write(tmp_path)
    (tmp_path / "kvsim").write_text(f'#!/bin/sh\nexec {ROOT}/.venv/bin/python -m kvcache_sim "$@"\n')
    (tmp_path / "kvsim").chmod(0o755)
    for log, code in ((new, 4), (main, 0)):
        given = {name: each.get("default", "") for name, each in action["inputs"].items()}
        given |= {"new": str(log), "main": str(main)}
        for step in action["runs"]["steps"]:
            env = {k: given[re.search(r"inputs\.([a-z-]+)", v)[1]] for k, v in step["env"].items()}
            env |= {"PATH": f"{tmp_path}:/usr/bin:/bin"}
            done = subprocess.run(["bash", "-e", "-c", step["run"]], env=env, capture_output=True, text=True)
            assert done.returncode == code, done.stderr
            assert done.stdout.startswith("::error" if code else "::notice")
