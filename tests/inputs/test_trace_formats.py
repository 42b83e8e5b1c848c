"""Each published format: what its rows become."""

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace
from kvcache_sim.workload.readers.csv_rows import SCHEMAS
from kvcache_sim.workload.readers.format import FORMATS, SIGNS
from kvcache_sim.workload.readers.json_rows import stated_block
from support.examples import examples
from support.shared_files import shared


def written(path, text):
    path.write_text(text)
    return path


def lines(path, rows):
    return written(path, "".join(json.dumps(row) + "\n" for row in rows))


def test_mooncake_sessions_wait_by_delay_and_after(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2], "session_id": "a"},
        {"delay": 1.5, "input_length": 700, "output_length": 1, "hash_ids": [1, 3], "session_id": "a"},
        {
            "delay": 2,
            "after": 0,
            "input_length": 9,
            "output_length": 1,
            "hash_ids": [4],
            "session_id": 7,
            "turn": 0,
        },
        {"timestamp": 5, "input_length": 9, "output_length": 1, "hash_ids": [5], "history_length": 4},
        {"timestamp": 6, "input_length": 9, "output_length": 1, "hash_ids": [6], "priority": -2},
        {"timestamp": 7, "input_length": 9, "output_length": 1, "hash_ids": [7], "priority": 3},
    ]
    trace = read_trace(lines(tmp_path / "t.jsonl", rows))
    assert trace.session.tolist() == [0, 0, 1, -1, -1, -1]
    assert trace.session_names == ["a", "7"]
    assert trace.turn.tolist() == [0, 1, 0, 0, 0, 0]
    assert trace.think_ns.tolist() == [-1, 1_500_000, 2_000_000, -1, -1, -1]
    assert trace.after.tolist() == [-1, -1, 0, -1, -1, -1]
    assert trace.history_tokens.tolist() == [-1, -1, -1, 4, -1, -1]
    assert trace.priority.tolist() == [0, 0, 0, 0, -2, 3]


def test_skipped_rows_do_not_move_what_others_wait_for(tmp_path):
    good = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
    waits = {"delay": 1, "after": 2, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
    path = lines(tmp_path / "t.jsonl", [good, {"bad": 1}, good, waits, {**waits, "after": 1}])
    trace = read_trace(path, settings=ReadSettings(on_bad_row="skip"))
    assert trace.after.tolist() == [-1, -1, 1, -1]
    with pytest.raises(TraceError, match="waits for one not above it; got 7"):
        read_trace(lines(tmp_path / "u.jsonl", [good, {**waits, "after": 7}]))


def test_bailian_chains_become_sessions(tmp_path):
    def row(chat, parent, t, n):
        ids = list(range(n // 16))
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": t,
            "input_length": n,
            "output_length": 3,
            "type": "text",
            "turn": 5,
            "hash_ids": ids,
        }

    rows = [
        row(10, -1, 0.25, 32),
        row(11, -1, 1, 32),
        row(12, 10, 1.5, 64),
        row(13, 99, 2, 16),
        row(14, 12, 3, 80),
    ]
    report = read_report(lines(tmp_path / "t.jsonl", rows))
    trace = report.trace
    assert report.format == "bailian"
    assert trace.block_size == 16
    assert trace.arrival_ns.tolist() == [250_000_000, 10**9, 1_500_000_000, 2 * 10**9, 3 * 10**9]
    assert trace.session.tolist() == [0, 1, 0, 2, 0]
    assert trace.turn.tolist() == [0, 0, 1, 0, 2]
    assert trace.session_names == ["10", "11", "13"]
    assert {f.kind: f.count for f in report.findings} == {"missing-parent": 1, "unknown-key": 5}
    for wrong, said in ((row(11, 10, 4, 16), "chat named twice"), (row(20, 20, 4, 16), "its own parent")):
        with pytest.raises(TraceError, match=f":6:13: .*{said}"):
            read_trace(lines(tmp_path / "u.jsonl", [*rows, wrong]))


CSV = {
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,1396,109\n",
        4_314_579_000,
    ),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
        '5,"ChatGPT",374,44,418,Conversation log\r\n45.5,GPT-4,1396,109,1505,API log\r\n',
        45_500_000_000,
    ),
    "vidur": ("arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,374,44\n0.25,1396.0,109\n", 250_000_000),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_rows_get_blocks_of_their_own(tmp_path, name):
    text, second = CSV[name]
    report = read_report(written(tmp_path / "t.csv", text))
    trace = report.trace
    assert report.format == name
    assert trace.input_tokens.tolist() == [374, 1396]
    assert trace.output_tokens.tolist() == [44, 109]
    assert int(trace.arrival_ns[1]) == second
    assert trace.id_offsets.tolist() == [0, 0, 2]
    assert trace.block_ids.tolist() == [0, 1]


#: Times of a CSV in ns since 1970, in order: some before the year 2000 and some in leap years.
TIMES = st.lists(st.integers(2 * 86_400 * 10**9, 9_000 * 10**15), min_size=1, max_size=6).map(sorted)
ROWS = st.tuples(
    st.integers(1, 1 << 20), st.integers(0, 1 << 20), st.sampled_from(["", "a", "b", "a b", "é,x"])
)


def date(at_ns, offset_min, short):
    """Return a time as a date with an offset from UTC, by Python's own calendar; ``short``: without what is 0."""
    zone = timezone(timedelta(minutes=offset_min))
    whole = datetime.fromtimestamp(at_ns // 10**9, zone)
    fraction = f".{at_ns % 10**9:09}".rstrip("0" if short else "").rstrip(".")
    return f"{whole:%Y-%m-%d %H:%M:%S}{fraction}" + (
        "Z" if short and not offset_min else whole.isoformat()[-6:]
    )


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(SCHEMAS)), TIMES, st.data())
def test_rows_that_were_written_as_csv_are_read_back(tmp_path, name, times, data):
    schema = SCHEMAS[name]
    given_rows = [data.draw(ROWS) for _ in times]
    names = [schema["time"], schema["input"], schema["output"]]
    names += [schema["session"]] if schema["session"] and data.draw(st.booleans()) else []
    order = data.draw(st.permutations([*names, "Log Type"]))
    zone, short = data.draw(st.sampled_from([0, 0, 330, -480, 1439])), data.draw(st.booleans())
    text = io.StringIO()
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    rows = csv.DictWriter(
        text, order, quoting=quoting, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"]))
    )
    rows.writeheader()
    for at_ns, (inputs, outputs, session) in zip(times, given_rows, strict=True):
        unit_ns = schema["time_unit_ns"]
        time = date(at_ns, zone, short) if not unit_ns else f"{Decimal(at_ns) / unit_ns:f}"
        cells = {schema["time"]: time, schema["input"]: f"{inputs}{'.0' * short}", schema["output"]: outputs}
        rows.writerow(
            {"Log Type": "x,y", **cells} | ({schema["session"]: session} if len(names) == 4 else {})
        )
    trace = read_trace(written(tmp_path / "t.csv", text.getvalue()), settings=ReadSettings(format=name))
    first = times[0] if not schema["time_unit_ns"] else 0
    assert trace.arrival_ns.tolist() == [at_ns - first for at_ns in times]
    assert trace.input_tokens.tolist() == [row[0] for row in given_rows]
    assert trace.output_tokens.tolist() == [row[1] for row in given_rows]
    sessions = [row[2] if len(names) == 4 else "" for row in given_rows]
    known = list(dict.fromkeys(filter(None, sessions)))
    assert trace.session_names == known
    assert trace.session.tolist() == [known.index(one) if one else -1 for one in sessions]
    assert trace.turn.tolist() == [sessions[:k].count(one) if one else 0 for k, one in enumerate(sessions)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1.0,0,5", ":3:5: num_prefill_tokens must be an integer ≥ 1; got 0"),
        ("1.0,5", ":3: unterminated row"),
        ("x,5,5", ":3:1: arrived_at is no time; got x"),
        ("1,5.5,5", ":3:3: num_prefill_tokens must be an integer ≥ 1; got 5.5"),
        ("nan,5,5", ":3:1: arrived_at is no time; got nan"),
        ("0.1,5,5", ":3:1: time goes back; got 0.1"),
        ('"1,5,5', ":3:1: unterminated quote"),
        ("1,2,3,4\n", ":3: wrong number of columns; got 4 columns; expected 3"),
    ],
)
def test_bad_csv_rows_are_refused_or_skipped(tmp_path, line, said):
    path = written(tmp_path / "t.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,5,5\n" + line)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert said in str(refused.value)
    assert len(read_trace(path, settings=ReadSettings(on_bad_row="skip"))) == 1


def test_a_follow_up_without_ids_repeats_its_history(tmp_path):
    def row(session, n):
        return {"timestamp": 0, "input_length": n, "output_length": 20, "session_id": session}

    path = lines(tmp_path / "t.jsonl", [row("a", 40), row("b", 40), row("a", 100), row("a", 50)])
    trace = read_trace(path, settings=ReadSettings(block_size=16))
    rows = [
        trace.block_ids[a:b].tolist() for a, b in zip(trace.id_offsets, trace.id_offsets[1:], strict=False)
    ]
    assert rows == [[0, 1], [2, 3], [0, 1, 4, 5, 6, 7], [8, 9, 10]]  # 50 tokens do not continue 120


def test_lmcache_counts_bytes(tmp_path):
    path = shared("traces/miniswe_b256bytes.jsonl")
    trace = read_trace(path, settings=ReadSettings(bytes_per_token=1))
    assert (len(trace), trace.block_size, len(trace.session_names)) == (402, 256, 20)
    assert int(trace.input_tokens.sum()) == 9_674_724
    four = read_trace(path)
    assert "estimated at 4 bytes a token" in four.warnings[-1]
    assert four.block_size == 64
    assert np.array_equal(four.block_ids, trace.block_ids)
    assert np.array_equal(four.input_tokens, trace.input_tokens // 4)
    assert [w for w in four.warnings if "fewer" in w] == []
    with pytest.raises(UsageError, match="must divide"):
        read_trace(path, settings=ReadSettings(bytes_per_token=3))


HASHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=3)
SECONDS = st.integers(0, 40).map(lambda quarters: quarters / 4)
#: A row of the session or of a sub-agent, or the launch of one.
ELEMENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "path": st.sampled_from(["", "/a", "/b"]),
            "t": SECONDS,
            "api": SECONDS,
            "think": st.none() | SECONDS,
            "in": st.integers(1, 900),
            "out": st.integers(0, 9),
            "hash": HASHES,
        }
    ),
    st.fixed_dictionaries(
        {"launch": st.sampled_from("ab"), "path": st.sampled_from(["", "/a"]), "t": SECONDS}
    ),
)


def weka_element(element):
    """Return an element as it stands in a file, with as many distinct ids as its prompt has blocks."""
    if "launch" in element:
        meta = {"t": element["t"], "agent_id": element["launch"]}
        return {"t": element["t"], "path": element["path"], "type": "subagent", "meta": meta}
    ranges, seen, left = [], set(), -(-element["in"] // 64)
    for low, more in element["hash"]:
        high = min(low + more, low + left - 1)
        if high >= low and not seen & set(range(low, high + 1)):
            seen |= set(range(low, high + 1))
            left -= high - low + 1
            ranges.append(f"{low}-{high}" if more else f"{low}")
    return {
        **element,
        "type": "n",
        "hash": ",".join(ranges or ["40"]),
    }  # a prompt without ids is another rule's


def weka_rows(sessions):
    """Return what each request becomes: (session, turn, arrival, think time, awaited row, ids), a small model."""
    found, names = [], {}
    for s, elements in enumerate(sessions):
        row_of, turns = {}, {}
        for k, one in enumerate(elements):
            if one["type"] == "subagent":
                continue
            agent = one["path"].strip("/")

            def earlier(until, path, elements=elements):
                rows = [j for j in range(until) if elements[j]["path"] == path and elements[j]["type"] == "n"]
                return rows[-1] if rows else None

            def gap(to, row, elements=elements):
                return max(0.0, to - elements[row]["t"] - elements[row]["api"])

            launches = (
                j for j, other in enumerate(elements) if other.get("meta", {}).get("agent_id") == agent
            )
            launch = next(launches, None)
            began = 0.0 if launch is None else elements[launch]["t"]
            turn = turns[agent] = turns.get(agent, -1) + 1
            sender = earlier(launch, elements[launch]["path"]) if turn == 0 and launch is not None else None
            before = earlier(k, one["path"])
            after, think = -1, one["think"]
            if sender in row_of:
                after, think = row_of[sender], gap(began, sender) + one["t"]
            elif turn == 0:
                think = -1e-9
            elif think is None:
                think = gap(one["t"], before)
            row_of[k] = len(found)
            name = names.setdefault((s, agent), len(names))
            ids = [(s, i) for part in one["hash"].split(",") if part for i in weka_range(part)]
            found.append((name, turn, round((began + one["t"]) * 1e9), round(think * 1e9), after, ids))
    return found


def weka_range(part):
    low, _, high = part.partition("-")
    return range(int(low), int(high or low) + 1)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(ELEMENTS, min_size=1, max_size=7), min_size=1, max_size=3))
@example(
    [
        [
            {"path": "/a", "t": 0.5, "api": 1.0, "think": None, "in": 64, "out": 5, "hash": []},
            {"path": "", "t": 0.0, "api": 2.0, "think": None, "in": 64, "out": 5, "hash": []},
            {"path": "", "t": 7.0, "launch": "a"},
        ]
    ]
)
def test_weka_rows_become_what_the_model_says(tmp_path, drawn):
    sessions = []
    for elements in drawn:
        launched = {one["launch"] for one in elements if "launch" in one}
        kept = [one for one in elements if "launch" in one or one["path"].strip("/") in {"", *launched}]
        sessions.append([weka_element(one) for one in kept])
    if not weka_rows(sessions):
        return
    named = [{"session": f"s{k}", "block_size": 64, "rows": rows} for k, rows in enumerate(sessions)]
    trace = read_trace(lines(tmp_path / "t.jsonl", named), settings=ReadSettings(time_order="keep"))
    expected = weka_rows(sessions)
    # a column that no row needs is empty
    after = trace.after if len(trace.after) else np.full(len(trace), -1)
    columns = trace.session, trace.turn, trace.arrival_ns, trace.think_ns, after
    read = [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]
    assert read == [row[:5] for row in expected]
    ids = [row[5] for row in expected]
    assert np.diff(trace.id_offsets).tolist() == [len(own) for own in ids]
    numbers = {}
    assert trace.block_ids.tolist() == [numbers.setdefault(one, len(numbers)) for own in ids for one in own]


@pytest.mark.parametrize(
    ("stated", "size"), [({"block_size": 16}, 16), ({"block_size": 1}, 1), ({"block_size": 0}, 64), ({}, 64)]
)
def test_weka_files_state_their_block_size(stated, size):
    """Anything else, or nothing, leaves the size of the published files."""
    for text in (
        json.dumps({"page_size": 3, **stated, "size": 5}),
        json.dumps({**stated, "rows": []}, indent=3),
    ):
        assert stated_block(text.encode(), ReadSettings()) == size
    assert stated_block(b'{"block_size" :\n 2097152, "block_size": 8}', ReadSettings()) == 1 << 21
    assert stated_block(b'{"block_size": 20971520}', ReadSettings()) == 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hash": "3-1"}, "not a range of block ids; got 3-1"),
        ({"hash": "1-4"}, "too many block ids"),
        ({"hash": "1,1"}, "stands twice"),
        ({"path": "/ghost"}, "never sent out"),
        ({"in": None}, "in is no number"),
        ({"t": -1}, "t is negative"),
    ],
)
def test_bad_weka_rows_are_refused(tmp_path, change, said):
    row = {"t": 0.0, "path": "", "type": "n", "in": 150, "out": 5, "api": 2.0, "think": 0.0, "hash": "1-2"}
    good = {"session": "s", "block_size": 64, "rows": [row]}
    bad = {"session": "u", "block_size": 64, "rows": [row, {**row, **change}]}
    path = lines(tmp_path / "t.jsonl", [bad, good])
    with pytest.raises(TraceError, match=said):
        read_trace(path)
    trace = read_trace(path, settings=ReadSettings(on_bad_row="skip"))
    assert trace.session_names == ["s"]
    assert trace.block_ids.tolist() == [0, 1]


def test_each_sign_is_of_the_format_of_its_name():
    assert [*FORMATS] == [*SIGNS]
    for name, sign in SIGNS.items():
        assert FORMATS[name].name == name
        assert FORMATS[name].detect is sign
