"""Edited contexts of a trace: against sessions that were played with the edit, and prompts worked by hand."""

import json

import pytest
from kvcache_sim.cli.main import run
from support.agent_logs import Options, plan, play


def imported(capsys, log):
    assert run(["trace", "import", str(log)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def edited(capsys, rows, path, *options, rc=0):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["trace", "edit", str(path), "--trace-block-size", "16", *options]) == rc
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], " ".join(err.split())


def hits(rows):
    """Return the blocks that an unbounded cache of prompts and answers finds for each row."""
    known, found = set(), []
    for row in rows:
        ids = row["hash_ids"][: row["input_length"] // 16]
        found.append(next((k for k, id in enumerate(ids) if id not in known), len(ids)))
        known.update(row["hash_ids"])
    return found


def lengths(rows):
    return [(row["input_length"], row["output_length"]) for row in rows]


@pytest.mark.parametrize("seed", [0, 8])
def test_prompts_are_those_of_a_session_that_compacted_itself(tmp_path, capsys, seed):
    steps = plan(seed, calls=30)
    log = play(steps).write(tmp_path)
    limit = 20_000
    played = play(steps, options=Options(compact_at=limit))
    rows, said = edited(capsys, imported(capsys, log), tmp_path / "t", "--compact-at", "10%")
    assert lengths(rows) == [(c.read + c.written + c.uncached, c.output) for c in played.calls]
    assert f"{len(played.summaries)} compactions" in said
    assert all(sum(tokens for _, tokens in row["segments"]) == row["input_length"] for row in rows)
    # the call that asks for a summary reads the session so far, the next one tools and system alone
    found = hits(rows)
    for number, row in enumerate(rows[:-1]):
        if row["output_length"] == 2000:
            assert found[number] >= rows[number - 1]["input_length"] // 16
            assert found[number + 1] == 12_000 // 16


@pytest.mark.parametrize("keep", [0, 2])
def test_prompts_are_those_of_a_session_that_dropped_its_results(tmp_path, capsys, keep):
    """One result a turn: neighbors of one kind are one segment of a trace."""
    steps = [step for step in plan(9, calls=30) if len(step.results) < 2]
    log = play(steps).write(tmp_path)
    rows, _ = edited(capsys, imported(capsys, log), tmp_path / "t", "--drop-results-older", str(keep))
    base = play(steps)
    results, expected = [], []
    for step, call in zip(steps, base.calls, strict=True):
        results += step.results
        dropped = results[: len(results) - keep]
        expected.append(call.read + call.written - sum(dropped) + 12 * len(dropped))
    assert [row["input_length"] for row in rows] == expected


def test_a_trace_that_no_edit_reaches_keeps_its_ids(tmp_path, capsys):
    given = imported(capsys, play(plan(2, calls=20, events=("compaction",))).write(tmp_path))
    rows, _ = edited(capsys, given, tmp_path / "t", "--compact-at", "900k", "--drop-results-older", "99")
    assert [row["hash_ids"] for row in rows] == [row["hash_ids"] for row in given]
    assert lengths(rows) == lengths(given)


def test_a_compaction_of_the_log_that_is_no_longer_due_is_dropped(tmp_path, capsys):
    """Until the log's own compaction the prompts are those of a session that compacted at 20,000 alone."""
    steps = plan(5, calls=40)
    both = play(steps, options=Options(compact_at=60_000))
    rows, _ = edited(capsys, imported(capsys, both.write(tmp_path)), tmp_path / "t", "--compact-at", "20k")
    alone = play(steps, options=Options(compact_at=20_000))
    expected = [call.read + call.written for call in alone.calls]
    differ = [k for k, row in enumerate(rows) if row["input_length"] != expected[k]]
    assert not differ or differ[0] > len(rows) // 2
    assert max(row["input_length"] for row in rows if row["output_length"] != 2000) <= 20_000


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"segments": None}, ("--compact-at", "1k"), "no segments, so nothing to edit by"),
        ({"segments": [["user", 1]]}, ("--compact-at", "1k"), "segments of another length"),
        ({"priority": 1}, ("--compact-at", "1k"), "a trace of other columns is not edited"),
        ({}, (), "nothing to edit"),
        ({}, ("--compact-at", "101%"), "not a length of prompts"),
    ],
)
def test_what_cannot_be_edited_is_refused(tmp_path, capsys, change, options, said):
    row = {
        "timestamp": 0,
        "input_length": 32,
        "output_length": 1,
        "hash_ids": [1, 2],
        "segments": [["user", 32]],
    }
    row = {name: value for name, value in {**row, **change}.items() if value is not None}
    _, err = edited(capsys, [row], tmp_path / "t", *options, rc=3 if "segments" in change else 2)
    assert said in err
