"""Block ids are integers of any size and sign: names alone, whose values change no result."""

import json

import kvcache_sim
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.readers.settings import ReadSettings

HUGE = 10**30
#: Prompts that share beginnings, by their ids.
PROMPTS = ([0, -1, 5], [0, -1, HUGE], [0, -1, HUGE, -HUGE], [7, 2**64, 2**63], [7, 2**64, 1], [0, -1, 5, 8])
ROW = '{{"timestamp": {}, "input_length": {}, "output_length": 3, "session_id": "s{}", "hash_ids": {}}}\n'.format


@pytest.fixture
def files(tmp_path):
    """A trace with such ids, and the same trace with its ids numbered from 10 on."""
    numbers: dict[int, int] = {}
    small = [[numbers.setdefault(name, len(numbers) + 10) for name in ids] for ids in PROMPTS]
    for name, prompts in (("any", PROMPTS), ("small", small)):
        rows = [ROW(100 * k, 512 * len(ids), k % 2, ids) for k, ids in enumerate(prompts)]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    return tmp_path / "any.jsonl", tmp_path / "small.jsonl"


@pytest.mark.parametrize(
    "verb",
    [
        "curve FILE --format json",
        *(f"cachesim FILE --policy {policy} --capacity 3 --format json" for policy in ("lru", "vllm", "lfu")),
        "trace stats FILE --format json",
        "trace check FILE",
    ],
)
def test_every_verb_takes_them_for_names(files, verb, capsys):
    """All figures are equal but for digests of the file and a list of ids by name."""
    found = []
    for file in files:
        assert kvsim(verb.replace("FILE", str(file)).split()) == 0
        out = capsys.readouterr().out.replace(str(file), "FILE")
        values = json.loads(out) if "json" in verb else {"out": out}
        own = [k for k in values if "sha256" in k or k in ("trace", "source", "final_free_queue_first5")]
        found.append({k: v for k, v in values.items() if k not in own})
    assert found[0] == found[1]


def test_a_run_depends_on_which_ids_are_equal_alone(files):
    runs = [kvcache_sim.simulate(str(file)) for file in files]
    assert runs[0].summary["digest"] == runs[1].summary["digest"]
    assert runs[0].summary["cache"]["hit_tokens"]["gpu"] > 0


def test_written_traces_keep_them(files, tmp_path):
    written = tmp_path / "written.jsonl"
    assert kvsim(["trace", "head", str(files[0]), "-n", "6", "-o", str(written)]) == 0
    assert [json.loads(line)["hash_ids"] for line in written.read_text().splitlines()] == list(PROMPTS)


def test_rows_without_ids_get_names_that_no_row_has(files):
    with files[0].open("a") as out:
        out.write('{"timestamp": 900, "input_length": 700, "output_length": 3}\n')
    trace = read_trace(files[0])
    names = list(trace.id_names)
    assert len(set(names)) == len(names) == trace.distinct_ids
    assert all(isinstance(name, int) for name in names)


def test_columns_of_python_and_agentic_rows_take_them(tmp_path):
    rows = [
        '{"request_id": "a", "input_length": 64, "output_length": 1, "hash_ids": [-1]}\n',
        f'{{"request_id": "b", "input_length": 128, "output_length": 1, "hash_ids": [-1, {HUGE}], '
        '"wait_for": ["a"]}\n',
    ]
    path = tmp_path / "agents.jsonl"
    path.write_text("".join(rows))
    agents = read_trace(path, settings=ReadSettings(block_size=64, format="dynamo-agentic"))
    lengths = {"input_length": [512, 1024], "output_length": [1, 1], "hash_ids": [[-1], [-1, HUGE]]}
    columns = kvcache_sim.make_trace({"timestamp": [0, 1]} | lengths)
    for trace in (agents, columns):
        assert trace.block_ids.tolist() == [0, 0, 1]
        assert list(trace.id_names) == [-1, HUGE]
