"""Traces written while they are read: byte for byte what is written of the same trace read whole."""

import json
import random
import time
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from kvcache_sim.cli import reading as progress
from kvcache_sim.cli.main import run
from kvcache_sim.workload import rows as row_parts
from kvcache_sim.workload.readers import ReadSettings, stream
from kvcache_sim.workload.readers import read as reading
from kvcache_sim.workload.toolbox import windowed
from support.examples import examples
from support.small_traces import NAMES

VERBS = (
    ["convert"],
    ["rechunk", "--to", "128"],
    ["rechunk", "--to", "1"],
    ["repeat", "-n", "3", "--gap", "5ms"],
)


def made(rng: random.Random, name) -> list[str]:
    """Lines of 65 to 200 rows over a small prefix tree: more than are read at a time."""
    tree, out, names = {(): None}, [], []
    for k in range(rng.randint(65, 200)):
        path = tuple(rng.choices((0, 1), k=rng.randint(0, 4)))
        ids = [tree.setdefault(path[: d + 1], name(len(tree))) for d in range(len(path))]
        low = max(1, (len(ids) - 1) * 512 + 1)
        row = {"input_length": rng.randint(low, max(low, len(ids) * 512)), "output_length": k % 3}
        row |= {"hash_ids": ids} if ids else {}
        session = rng.choice([None, "a", "é\n", f"s{k}"])
        row |= {"session_id": session} if session else {}
        waits = session in names and rng.random() < 0.5
        row |= {"delay": k / 1000} if waits else {"timestamp": 1.5 * k}
        row |= {"after": rng.randrange(k)} if waits and rng.random() < 0.5 else {}
        row |= rng.choice([{}, {}, {"priority": 2}, {"kind": [1], "x": "é"}, {"abort_after": 2.5}])
        names.append(session)
        out.append(json.dumps(row) + "\n")
    return out


@pytest.fixture
def windows(monkeypatch):
    """A function that sets the block ids of a part: none are read whole up to so many."""

    def set_references(references: int) -> None:
        monkeypatch.setattr(reading, "PART_REFERENCES", references)
        for module in (stream, windowed, row_parts):
            monkeypatch.setattr(module, "PART_REFERENCES", min(references, 1 << 20))

    return set_references


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 32), st.sampled_from(sorted(NAMES)), st.sampled_from(VERBS), st.integers(1, 40))
def test_what_is_written_in_windows_is_what_is_written_whole(tmp_path, windows, seed, name, verb, part):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(made(random.Random(seed), NAMES[name])))
    written = {}
    for references in (1 << 40, part):
        windows(references)
        out = tmp_path / f"{references}.jsonl.gz"
        assert run(["trace", verb[0], str(path), *verb[1:], "-o", str(out), "--force"]) == 0
        written[references] = out.read_bytes()
    assert written[part] == written[1 << 40]


HOUR_MS, YEAR_MS = 3_600_000, 31_557_600_000


@pytest.mark.parametrize(
    ("times_ms", "note"),
    [
        ([5] * 70, "all 70 requests arrive at the same time"),
        ([5], ""),
        (range(1, 100), ""),
        (range(1, 101), "1,000 requests/s on average: the times look like seconds read as ms"),
        (range(10, 1020, 10), ""),
        (range(HOUR_MS, 101 * HOUR_MS, HOUR_MS), ""),
        (
            range(5, 5 + 100 * (HOUR_MS + 9), HOUR_MS + 9),
            "one request in 3,600 s on average: the times look like us or ns read as ms",
        ),
        ([YEAR_MS, YEAR_MS + 1], ""),
        (
            [2 * YEAR_MS, 2 * YEAR_MS + 1],
            "the first request arrives 2.0 years after time 0: the times look like dates",
        ),
    ],
)
def test_odd_arrivals_are_named_alike_whole_and_in_parts(tmp_path, windows, times_ms, note):
    path, line = (
        tmp_path / "t.jsonl",
        '{"timestamp": %d, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n',
    )
    path.write_text("".join(line % at for at in times_ms))
    notes = [f"{path}: {note}"] if note else []
    assert list(reading.read_trace(path).warnings) == notes
    windows(3)
    rows = reading.open_windows(path, ReadSettings())
    if len(times_ms) > 3:
        assert sum(len(part) for part in rows) == rows.requests == len(times_ms)
        assert rows.last_ns == max(times_ms) * 10**6
    assert list(rows.warnings) == notes


def test_a_file_that_changes_while_it_is_repeated_is_refused(tmp_path, windows):
    path, line = (
        tmp_path / "t.jsonl",
        '{"timestamp": %d, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n',
    )
    windows(3)

    def read(rows):
        path.write_text("".join(line % k for k in range(rows)))
        return reading.open_windows(path, ReadSettings())

    assert len([*windowed.repeated(read(200), lambda: read(200), 2, 0).lines()]) == 400
    with pytest.raises(TraceError, match="the file changed while it was repeated"):
        [*windowed.repeated(read(200), lambda: read(199), 2, 0).lines()]


def test_progress_is_shown_where_a_file_is_written(tmp_path, capsys, windows, monkeypatch):
    source, path = tmp_path / "a.jsonl", str(tmp_path / "a.parquet")
    source.write_text("".join(made(random.Random(1), NAMES["numbers"])))
    windows(64)
    assert run(["trace", "convert", str(source), "-o", path]) == 0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 20))
    for verb, *own in VERBS:
        capsys.readouterr()
        assert run(["trace", verb, path, *own, "-o", str(tmp_path / "b.jsonl"), "--force"]) == 0
        copies = capsys.readouterr().err.count("M references, 0.0 M/s")
        assert copies == (3 if verb == "repeat" else 1)
        assert run(["trace", verb, path, *own]) == 0
        assert "M references" not in capsys.readouterr().err
