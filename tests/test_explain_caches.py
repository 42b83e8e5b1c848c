"""``kvsim explain --session`` and ``--prefixes``: seed 000's structures of a finished run, on small
examples."""

from __future__ import annotations

import json

import pytest
from kvcache_sim.cli.main import run as kvsim

#: The conversation of test_seed_000_narrated: blocks of 16 tokens, one request a second.
CHAT = [
    ("chat", 40, 9, [1, 2, 30]),
    ("chat", 80, 16, [1, 2, 3, 4, 5]),
    ("chat", 100, 5, [1, 2, 3, 4, 5, 6, 70]),
    ("chat", 60, 2, [1, 2, 3, 80]),  # not above the 105 tokens that are cached
    ("other", 50, 1, [1, 2, 3, 90]),
]


def simulated(tmp_path, *options, rows=CHAT):
    trace = tmp_path / "chat.jsonl"
    trace.write_text(
        "".join(
            json.dumps({"timestamp": 1000 * k, "input_length": prompt, "output_length": output,
                        "hash_ids": ids, "session_id": session}) + "\n"
            for k, (session, prompt, output, ids) in enumerate(rows)
        )
    )  # fmt: skip
    out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    sets = ["--set", "trace.block_size=16", "--set", "cache.block_size=16"]
    assert kvsim(["simulate", str(trace), *sets, *options, "-o", str(out), "--quiet"]) == 0
    return out


def reported(capsys, run, *options):
    capsys.readouterr()
    assert kvsim(["explain", str(run), *options, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_a_session_turn_by_turn(tmp_path, capsys, accounting):
    run = simulated(tmp_path, "--causes", "--set", f"cache.accounting={accounting}")
    turns = reported(capsys, run, "--session", "chat")["turns"]
    assert [turn["request"] for turn in turns] == [0, 1, 2, 3]
    hits = {"detailed": [0, 48, 80, 48], "simplified": [0, 49, 96, 48]}[accounting]
    assert [turn["cached_prefix_length"] for turn in turns] == hits
    assert [turn["missed_tokens"] for turn in turns] == [
        prompt - hit for (_, prompt, *_), hit in zip(CHAT, hits, strict=False)
    ]
    assert [turn["events"] for turn in turns] == [
        ["MISS_FULL"],
        ["CONVERSATIONAL_HIT"],
        ["CONVERSATIONAL_HIT"],
        ["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT", "CROSS_REQUEST_HIT"],
    ]
    left = [turn["left"] for turn in turns]
    assert [(one["prompt_part_length"], one["response_part_length"]) for one in left] == [
        (40, 9), (80, 16), (100, 5), (60, 2),
    ]  # fmt: skip
    assert [one["total_tokens_in_cache"] for one in left] == [49, 96, 105, 62]
    assert left[3]["kv_block_ids"] == [1, 2, 3, 80]
    assert left[3]["associated_sequence_id"] == "3"
    assert left == sorted(left, key=lambda one: one["last_update_time"])
    for turn in turns:
        assert sum(turn["misses"].values()) == turn["missed_tokens"]
        assert sum(turn["cached_tokens"].values()) == turn["cached_prefix_length"]


def test_the_text_of_a_session_fits_a_terminal(tmp_path, capsys):
    run = simulated(tmp_path)
    capsys.readouterr()
    assert kvsim(["explain", str(run), "--session", "chat"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Session chat: 4 turns"
    assert lines[4].split() == ["1", "1", "1.000", "s", "80", "48", "32", "96", "0"]
    assert lines[5].strip() == "CONVERSATIONAL_HIT: 48 from gpu"
    assert lines[-1] == "causes of misses: run 'kvsim simulate' with --causes"


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_the_global_prefix_store_at_the_end(tmp_path, capsys, accounting):
    run = simulated(tmp_path, "--prefixes", "--set", f"cache.accounting={accounting}")
    entries = {entry["prefix_hash"]: entry for entry in reported(capsys, run, "--prefixes")["prefixes"]}
    # All five begin with blocks 1, 2 and 3: the first fills its third block with its answer.
    shared, longer = entries[3], entries[6]
    assert (shared["length"], shared["blocks"], shared["kv_block_ids"]) == (48, 3, [1, 2, 3])
    assert shared["hits"] == 4
    assert shared["last_access_time"] == pytest.approx(4.0, abs=0.1)
    assert (longer["length"], longer["kv_block_ids"]) == (96, [1, 2, 3, 4, 5, 6])
    assert longer["last_access_time"] == pytest.approx(2.0, abs=0.1)
    counts = [entry["reference_count"] for entry in entries.values()]
    if accounting == "detailed":
        assert set(counts) == {0}, "all requests have ended"
    else:
        assert sum(counts) > 0, "sessions hold what their last turns left"
    capsys.readouterr()
    assert kvsim(["explain", str(run), "--prefixes"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_keeping_prefixes_changes_no_digest(tmp_path):
    digests = [
        json.loads((simulated(tmp_path, *options) / "run.json").read_text())["digest"]
        for options in ((), ("--prefixes",))
    ]
    assert digests[0] == digests[1]


def test_an_unknown_session_is_one_line(tmp_path, capsys):
    run = simulated(tmp_path)
    capsys.readouterr()
    assert kvsim(["explain", str(run), "--session", "chta"]) == 2
    assert capsys.readouterr().err == (
        "--session: no such session; got 'chta'; expected one of 2, such as chat; did you mean 'chat'?\n"
    )


def test_semantics_without_a_prefix_store_refuse_to_keep_it(tmp_path, capsys):
    trace = tmp_path / "chat.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 16, "output_length": 1, "hash_ids": [1]}\n')
    options = ["--set", "cache.semantics=vllm", "--prefixes", "-o", str(tmp_path / "out")]
    assert kvsim(["simulate", str(trace), *options]) == 2
    assert "--prefixes: no global prefix store; got vllm" in capsys.readouterr().err
