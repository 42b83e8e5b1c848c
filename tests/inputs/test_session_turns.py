"""Sessions of Mooncake rows: later rows are their new turn alone or whole prompts, by their ids or as stated."""

import itertools
import json
import random

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.workload.readers.read import open_rows, open_windows, read_report
from kvcache_sim.workload.readers.settings import ReadSettings

PLAIN = ReadSettings(block_size=512, missing_ids="leave")


def row(session, tokens, answer, ids, **more):
    head = {"session_id": session, "input_length": tokens, "output_length": answer, "hash_ids": ids}
    return head | (more or {"delay": 500})


#: Prompts of 2,000, 2,000 + 100 + 600 and 2,700 + 150 + 1,100 tokens; the second session's first turn is equal.
NEW_TURNS = [
    row("a", 2000, 100, [0, 1, 2, 3], timestamp=0),
    row("a", 600, 150, [11, 12]),
    row("a", 1100, 80, [20, 21, 22]),
    row("b", 2000, 60, [0, 1, 2, 3], timestamp=700),
    row("b", 512, 40, [11]),
]
WHOLE = [
    row("a", 1024, 50, [0, 1], timestamp=0),
    row("a", 1536, 80, [0, 1, 2]),
    row("b", 900, 30, [20, 21], timestamp=5),
    row("b", 2048, 40, [20, 22, 23, 24]),
]


def read(tmp_path, rows, settings=PLAIN, opened=None):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return opened(path, settings) if opened else read_report(path, settings=settings)


def ids(trace):
    bounds = trace.id_offsets.tolist()
    return [trace.block_ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]


@pytest.mark.parametrize("opened", [None, open_rows, open_windows])
def test_prompts_and_answers_so_far_are_joined_and_cut_anew(tmp_path, opened):
    found = read(tmp_path, NEW_TURNS, opened=opened)
    trace = found if opened else found.trace
    assert trace.input_tokens.tolist() == [2000, 2700, 3950, 2000, 2572]
    a, b, c, d, e = ids(trace)
    assert a == d
    assert len(a) == 4
    assert [len(row) for row in (b, c, e)] == [5, 7, 5]  # whole blocks of 2,700, 3,950 and 2,572 tokens
    assert b[:3] == c[:3] == e[:3] == a[:3]
    assert b == c[:5]
    assert not {*b[3:], *c[3:]} & {*e[3:], a[3]}  # answers are private to their session
    assert trace.history_tokens.tolist() == [-1, 2100, 2850, -1, 2060]
    assert "3 later rows of sessions hold the new turn alone" in trace.warnings[0]


def test_whole_prompts_stay_and_the_meaning_is_named(tmp_path):
    found = read(tmp_path, WHOLE)
    assert found.trace.input_tokens.tolist() == [1024, 1536, 900, 2048]
    assert ids(found.trace) == [[0, 1], [0, 1, 2], [3, 4], [3, 5, 6, 7]]
    (note,) = found.findings
    assert (note.kind, note.count) == ("whole-turns", 2)


@pytest.mark.parametrize(
    "rows",
    [
        [one | {"turn": 0} for one in NEW_TURNS],  # kvsim's own rows number their turns
        [one | {"session_id": f"s{n}", "timestamp": n} for n, one in enumerate(NEW_TURNS)],
        [one | {"timestamp": n} for n, one in enumerate(NEW_TURNS) if "delay" not in one],
    ],
)
def test_other_rows_are_as_they_stand(tmp_path, rows):
    trace = read(tmp_path, [one | {"turn": n} if "turn" in one else one for n, one in enumerate(rows)]).trace
    assert trace.input_tokens.tolist() == [one["input_length"] for one in rows]
    assert not trace.warnings


def test_a_stated_meaning_comes_before_the_ids(tmp_path):
    forced = read(tmp_path, WHOLE, ReadSettings(block_size=512, turns="delta")).trace
    assert forced.input_tokens.tolist() == [1024, 1024 + 50 + 1536, 900, 900 + 30 + 2048]
    kept = read(tmp_path, NEW_TURNS, ReadSettings(block_size=512, turns="whole")).trace
    assert kept.input_tokens.tolist() == [2000, 600, 1100, 2000, 512]
    assert not kept.warnings
    with pytest.raises(UsageError, match="no later row"):
        read(tmp_path, NEW_TURNS[:1], ReadSettings(turns="delta"))
    with pytest.raises(UsageError, match="bailian"):
        read(tmp_path, [{"chat_id": 1, "parent_chat_id": -1, **NEW_TURNS[0]}], ReadSettings(turns="delta"))


def test_a_new_turn_may_repeat_an_id_behind_another_one(tmp_path):
    """Ids of new turns name texts: what follows another id in another session is no broken chain."""
    rows = [*NEW_TURNS, row("c", 1024, 5, [50, 51], timestamp=900), row("c", 1024, 5, [60, 11])]
    assert [found.kind for found in read(tmp_path, rows).findings] == ["new-turns"]


def test_joined_prompts_hold_what_a_client_would_have_sent(tmp_path):
    """A small model: tokens of prompts are pairs of id and offset, those of answers are private."""
    rng = random.Random(5)
    rows, sent, said, expected = [], {}, {}, []
    for n in range(60):
        name = rng.choice("abcdef")
        tokens = rng.randint(1, 70)
        new = list(range(100 * n, 100 * n + -(-tokens // 16)))
        more = {} if name in sent else {"timestamp": n}
        if not more and rng.random() < 0.5:
            new = new[: tokens // 16]  # the partial last block may have no id
        if not new:
            new, tokens = [100 * n], 16
        rows.append(row(name, tokens, rng.randint(1, 30), new, **more))
        stream = sent.setdefault(name, [])
        stream += [(new[min(t // 16, len(new) - 1)], t) for t in range(tokens)]
        expected.append(tuple(stream))
        said[n] = [(name, n, t) for t in range(rows[-1]["output_length"])]
        stream += said[n]
    trace = read(tmp_path, rows, ReadSettings(block_size=16, missing_ids="leave")).trace
    assert trace.input_tokens.tolist() == [len(stream) for stream in expected]
    blocks = ids(trace)
    for one, other in ((rng.randrange(60), rng.randrange(60)) for _ in range(900)):
        common = sum(a == b for a, b in zip(blocks[one], blocks[other], strict=False))
        whole = min(len(expected[one]), len(expected[other])) // 16
        same = [k for k in range(whole) if expected[one][: 16 * k + 16] != expected[other][: 16 * k + 16]]
        wanted = same[0] if same else whole
        assert one == other or common == wanted


def test_a_written_trace_is_read_as_whole_prompts(tmp_path, capsys):
    read(tmp_path, NEW_TURNS)
    source, jsonl, parquet = (str(tmp_path / name) for name in ("t.jsonl", "w.jsonl", "w.parquet"))
    for target in (jsonl, parquet):
        assert run(["trace", "convert", source, "-o", target]) == 0
    assert run(["trace", "convert", source]) == 0
    first = capsys.readouterr().out
    for target in (jsonl, parquet):
        assert run(["trace", "convert", target]) == 0
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == (first, "")
    assert run(["cachesim", source, "--capacity", "900", "--turns", "whole"]) == 0
    assert "new turn" not in capsys.readouterr().err


def test_a_member_is_written_once(tmp_path, capsys):
    """Bailian's ``turn`` counts from chats before the trace; a written row's counts from its session's first."""
    chats = [{"chat_id": 6, "parent_chat_id": 5, "turn": 4, "type": "a", **row(9, 16, 1, [1], timestamp=0)}]
    read(tmp_path, chats)
    target = str(tmp_path / "w.jsonl")
    for source, parquet in ((str(tmp_path / "t.jsonl"), ".parquet"), (target + ".parquet", "")):
        assert run(["trace", "convert", source, "-o", target + parquet]) == 0
    pairs = json.loads((tmp_path / "w.jsonl").read_text(), object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names)
    assert ("turn", 0) in pairs
    assert {"source_turn": 4, "source_session_id": 9, "type": "a"}.items() <= dict(pairs, hash_ids=0).items()
