"""``kvsim trace tokens``: files, summaries and refusals; the same bytes from any number of workers."""

import contextlib
import hashlib
import json
import random
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from kvcache_sim.base import rng
from kvcache_sim.base.output import new_file
from kvcache_sim.cli.main import run
from kvcache_sim.workload.tokens import PromptConfig, token_source
from kvcache_sim.workload.tokens.collisions import shared_blocks
from kvcache_sim.workload.tokens.output import JsonlSink
from support.product.traces import token_batches
from support.shared_files import shared
from support.token_rows import Row, trace_of

FULL_TRACE = "759fd19322ac68650558eae3847b580ad7540f8f148cad01ee1ae8ad2f65d675"
BASE_SEED = rng.derive_seed(42, "dataset.prompt.corpus")


@pytest.fixture
def trace_file(tmp_path):
    """Rows with ids, tails, sessions, and none of them; 512-token blocks."""
    rows = []
    for k in range(40):
        row = {"timestamp": k, "input_length": 1024 + 300, "output_length": 4, "hash_ids": [7, 8, 100 + k]}
        if k % 3 == 0:
            row |= {"input_length": 1700, "hash_ids": [7, 8], "session_id": f"chat {k % 4} ✓"}
        if k % 7 == 0:
            row |= {"input_length": 900, "hash_ids": []}
        rows.append(row)
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def kvsim(*arguments) -> int:
    return run(["trace", "tokens", *map(str, arguments)])


def summary_of(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


def test_the_command_prints_the_golden_digest(capsysbinary):
    trace = shared("traces/conversation_trace.jsonl")
    assert kvsim(trace, "--scope", "aiperf", "--offsets", "--corpus-size", 1_000_000, "--seed", 42) == 0
    assert hashlib.sha256(capsysbinary.readouterr().out).hexdigest() == FULL_TRACE


def test_every_file_holds_the_same_tokens_from_any_number_of_workers(trace_file, tmp_path, capsys):
    digests, flat = set(), None
    for workers in (1, 2, 3):
        for suffix in ("npy", "parquet", "jsonl"):
            path = tmp_path / f"{workers}.{suffix}"
            assert kvsim(trace_file, "--workers", workers, "-o", path, "--json", "--corpus-size", 5000) == 0
            summary = summary_of(capsys)
            digests.add(summary["tokens_sha256"])
            counts = summary["workers"]
            assert len({count["pid"] for count in counts}) == workers
            assert sum(count["rows"] for count in counts) == summary["rows"] == 40
            assert all(count["ids"] for count in counts)
        flat = np.load(tmp_path / f"{workers}.npy")
        table = pq.read_table(tmp_path / f"{workers}.parquet")
        lines = [json.loads(line) for line in (tmp_path / f"{workers}.jsonl").read_text("utf-8").splitlines()]
        assert table.column("row").to_pylist() == [line["row"] for line in lines] == list(range(40))
        rows = table.column("tokens").to_pylist()
        assert rows == [line["tokens"] for line in lines]
        assert np.concatenate(rows).tolist() == flat.tolist()
        assert table.column("session").to_pylist() == [line.get("session") for line in lines]
        assert table.column("turn").to_pylist() == [line.get("turn") for line in lines]
        assert len({tuple(row) for row in rows}) == 40
    assert digests == {hashlib.sha256(flat.astype("<u4")).hexdigest()}


def test_lines_on_standard_output_are_pure(trace_file, capsysbinary):
    assert kvsim(trace_file, "-o", "-") == 0
    shown = capsysbinary.readouterr()
    assert [json.loads(line)["row"] for line in shown.out.splitlines()] == list(range(40))
    assert b"tokens_sha256: " in shown.err


def test_offsets_are_in_order_of_first_appearance(trace_file, tmp_path, capsysbinary):
    assert kvsim(trace_file, "--offsets", "--workers", 2, "--corpus-size", 100) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    seeds = {name: rng.hash_id_seed(BASE_SEED, name) for name in (line.split(":")[0] for line in lines)}
    assert lines[0].startswith("7:")
    assert lines == [f"{name}:{rng.RandomGenerator(seed).randrange(100)}" for name, seed in seeds.items()]
    assert kvsim(trace_file, "--offsets", "-o", tmp_path / "starts.txt", "--corpus-size", 100) == 0
    assert (tmp_path / "starts.txt").read_text().splitlines() == lines


def test_without_a_seed_one_is_drawn_and_said(trace_file, capsys):
    assert kvsim(trace_file, "--seed", "none", "--json", "--workers", 2) == 0
    shown = capsys.readouterr()
    drawn = json.loads(shown.out)
    assert f"this run is --seed {drawn['seed']}\n" in shown.err
    assert kvsim(trace_file, "--seed", drawn["seed"], "--json") == 0
    assert summary_of(capsys)["tokens_sha256"] == drawn["tokens_sha256"]


def test_a_corpus_of_real_tokens(trace_file, tmp_path, capsys):
    real = np.arange(3000, dtype=np.int64) * 5 + 1
    np.save(tmp_path / "corpus.npy", real)
    (tmp_path / "corpus.txt").write_text(" ".join(map(str, real)))
    digests = set()
    for name in ("corpus.npy", "corpus.txt"):
        assert (
            kvsim(trace_file, "--corpus", tmp_path / name, "-o", tmp_path / "t.npy", "--force", "--json") == 0
        )
        digests.add(summary_of(capsys)["tokens_sha256"])
    assert kvsim(trace_file, "--corpus-size", 3000, "-o", tmp_path / "n.npy") == 0
    assert np.array_equal(np.load(tmp_path / "t.npy"), real[np.load(tmp_path / "n.npy")])
    assert len(digests) == 1


def test_shared_content_is_counted_and_the_collision_free_content_has_none(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            json.dumps({"timestamp": k, "input_length": 512, "output_length": 1, "hash_ids": [k]}) + "\n"
            for k in range(400)
        )
    )
    for content in ("parity", "collision-free"):
        out = tmp_path / f"{content}.npy"
        assert kvsim(trace, "--corpus-size", 1000, "--content", content, "-o", out, "--json") == 0
        blocks = [tuple(block) for block in np.load(out).reshape(400, 512).tolist()]
        shared_count = sum(1 for block in blocks if blocks.count(block) > 1)
        assert summary_of(capsys)["blocks_sharing_content"] == shared_count
        assert (shared_count == 0) == (content == "collision-free")


def test_windows_that_read_alike_share_content():
    config = PromptConfig([1, 2, 1, 2, 1, 2, 9], 4)
    starts, sizes = np.array([0, 2, 1, 0], np.uint32), np.array([4, 4, 4, 3])
    assert shared_blocks(starts, sizes, config) == 2
    assert shared_blocks(starts, sizes, PromptConfig(7, 4)) == 0


def test_nothing_is_overwritten_or_left_half_written(trace_file, tmp_path, capsys):
    out = tmp_path / "tokens.npy"
    out.write_text("mine")
    assert kvsim(trace_file, "-o", out) == 6
    assert kvsim(trace_file, "-o", tmp_path, "--force") == 2  # a directory's name has no suffix
    assert out.read_text() == "mine"
    with contextlib.suppress(ZeroDivisionError), new_file(out, overwrite=True) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert out.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens.npy", "trace.jsonl"]
    assert kvsim(trace_file, "-o", out, "--force") == 0
    assert np.load(out).dtype == np.uint32


def test_hostile_sessions_are_escaped(tmp_path):
    trace = trace_of([Row(10, [], 'a"}\n</script>\\', 0)], 4)
    with new_file(tmp_path / "t.jsonl", overwrite=False) as file:
        for batch in token_batches(trace, PromptConfig(100, 4), BASE_SEED):
            JsonlSink(file, trace).write(batch)
    assert json.loads((tmp_path / "t.jsonl").read_text())["session"] == 'a"}\n</script>\\'


def test_memory_does_not_grow_with_the_tokens():
    """50 and 100 million tokens need the same memory: the trace and one buffer."""
    peaks = []
    for count in (500, 1000):
        rows = [Row(100_000, [k]) for k in range(count)]
        trace = trace_of(rows, 100_000)
        with token_source(trace, PromptConfig(1_000_000, 100_000), BASE_SEED, 1) as source:
            tracemalloc.start()
            total = sum(len(batch.tokens) for batch in source.batches())
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert total == count * 100_000
    assert max(peaks) < 2_000_000


def test_ids_are_integers_of_any_size_and_sign(tmp_path, capsysbinary):
    """The document's edge cases (zero, negative, large): the definition in arbitrary precision, id by id."""
    ids = [-1, 10**30, 0, 2**64 - 1, 2**64, -(2**63) - 1, 7]
    rows = (ids[:6], [-1, 2**64 - 1, 7])
    path = tmp_path / "wide.jsonl"
    path.write_text(
        "".join(
            f'{{"timestamp": {k}, "input_length": {512 * len(row)}, "output_length": 1, "hash_ids": {row}}}\n'
            for k, row in enumerate(rows)
        )
    )
    assert kvsim(str(path), "--offsets") == 0
    offsets = [line.split(b":") for line in capsysbinary.readouterr().out.splitlines()]

    def start(hash_id: int) -> int:
        text = f"{BASE_SEED}:hash_id:{hash_id}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return random.Random(seed).randrange(1_000_000)

    assert [(int(name), int(offset)) for name, offset in offsets] == [(name, start(name)) for name in ids]
    assert kvsim(str(path), "-o", "-", "--quiet") == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    generator = rng.HashIdRandomGenerator(BASE_SEED)
    tokens = {}
    for name in ids:
        generator.reseed_for_hash_id(name)
        first = generator.randrange(1_000_000)
        tokens[name] = [(first + k) % 1_000_000 for k in range(512)]
    for line, row in zip(lines, rows, strict=True):
        assert line["tokens"] == [token for name in row for token in tokens[name]]


@pytest.mark.parametrize(
    ("hash_ids", "message"),
    [
        ('[-1, "-1"]', "block ids of two kinds in one trace"),
        ('["-1", -1]', "block ids of two kinds in one trace"),
        ("[-1, 1e30]", "block id that is no integer"),
        ("[-1, 2.0]", "block id that is no integer"),
        ("[-0, 0]", "a block id stands twice"),
    ],
)
def test_of_ids_only_integers_of_one_kind_are_taken(hash_ids, message, tmp_path, capsys):
    path = tmp_path / "wide.jsonl"
    path.write_text(f'{{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": {hash_ids}}}\n')
    assert kvsim(str(path), "--offsets") == 3
    assert message in capsys.readouterr().err
