"""The curve of a long trace, read row by row: equal to the curve of the same trace read whole."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.replay.curve.hits import hit_curve, streamed_curve
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers import read as reading
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.readers.stream import RowStream
from kvcache_sim.workload.toolbox.write import mooncake_lines
from support.examples import examples
from support.small_traces import NAMES, tree_traces

pytestmark = pytest.mark.usefixtures("no_whole_traces")


def written(path, trace, name) -> str:
    rows = [json.loads(line) for line in mooncake_lines(trace)]
    for row in rows:
        row["hash_ids"] = [name(k) for k in row.get("hash_ids", [])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@examples(150)
@given(
    tree_traces(most_requests=60),
    st.sampled_from(sorted(NAMES)),
    st.sampled_from(["drop", "keep"]),
    st.sampled_from(["prompt", "computed", "all"]),
)
def test_the_curve_is_that_of_the_whole_trace(tmp_path_factory, trace, name, partial, outputs):
    outputs = "prompt" if partial == "keep" else outputs
    path = written(tmp_path_factory.getbasetemp() / "t.jsonl", trace, NAMES[name])
    settings = ReadSettings(block_size=trace.block_size)
    rows = reading.open_rows(path, settings)
    whole = reading.read_trace(path, settings=settings)
    request = ReplayRequest(whole, whole.block_size, 1, outputs=outputs, last_partial=partial)
    exact = hit_curve(blocks_of_prompts(request), "tail")
    assert isinstance(rows, RowStream)
    found = streamed_curve(rows, request)
    every = np.arange(exact.hit_blocks.last + 3)
    assert found.hit_blocks.at(every).tolist() == exact.hit_blocks.at(every).tolist()
    assert found.hit_tokens.at(every).tolist() == exact.hit_tokens.at(every).tolist()
    assert (found.hit_tokens.top, found.distinct_blocks) == (exact.hit_tokens.top, exact.distinct_blocks)
    assert found.totals == exact.totals
    assert rows.warnings == tuple(w for w in whole.warnings if "arrive" not in w and "requests" not in w)


def test_touches_are_numbered_anew(tmp_path):
    """20,000 requests over a loop of 300 prefixes and some that never return: more touches than the order holds."""
    rows = [[f"a{k % 300}", f"b{k % 300}", *([f"once {k}"] if k % 7 == 0 else [])] for k in range(20_000)]
    path = tmp_path / "t.jsonl"
    line = '{{"timestamp": {}, "input_length": {}, "output_length": 1, "hash_ids": {}}}\n'
    path.write_text("".join(line.format(k, 16 * len(r) + 1, json.dumps(r)) for k, r in enumerate(rows)))
    settings = ReadSettings(block_size=16)
    whole = reading.read_trace(path, settings=settings)
    request = ReplayRequest(whole, 16, 1)
    found = streamed_curve(reading.open_rows(path, settings), request)
    exact = hit_curve(blocks_of_prompts(request), "tail")
    every = np.arange(exact.hit_blocks.last + 3)
    assert found.hit_blocks.at(every).tolist() == exact.hit_blocks.at(every).tolist()
    assert found.distinct_blocks == exact.distinct_blocks


LINE = '{"timestamp": 0, "input_length": 64, "output_length": 1, "hash_ids": %s}\n'


def test_the_upper_bound_needs_the_whole_trace(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text(LINE % "[0, 1, 2, 3]" + LINE % "[0, 1, 4, 5]")
    points = []
    for belady in ([], ["--policy", "belady"]):
        assert run(["curve", str(path), "--trace-block-size", "16", *belady, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        points.append([point["lru"] for point in document["points"]])
        assert ("upper_bound" in document) == bool(belady)
    assert points[0] == points[1]


def test_a_trace_that_is_no_tree_is_read_whole(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text(LINE % "[0, 1, 2, 3]" + LINE % "[5, 1, 2, 3]")
    assert run(["curve", str(path), "--trace-block-size", "16", "--format", "json"]) == 0
    assert "belady" in json.loads(capsys.readouterr().out)["points"][0]


def test_memory_chooses_the_exact_curve_or_a_sample(tmp_path, capsys, monkeypatch):
    source, path = tmp_path / "t.jsonl", str(tmp_path / "t.parquet")
    source.write_text("".join(LINE % [k % 97, 1_000 + k, 5_000 + k, 9_000 + k] for k in range(300)))
    assert run(["trace", "convert", str(source), "--trace-block-size", "16", "-o", path]) == 0
    capsys.readouterr()
    asked = ["curve", path, "--format", "json"]
    for peak, chosen in ((0, []), (1 << 40, ["--sample", "0.5"])):
        monkeypatch.setattr("kvcache_sim.cli.reading.peak_bytes", lambda peak=peak: peak)
        documents = []
        for options in (["--memory", "1GiB"], chosen):
            assert run([*asked, *options]) == 0
            documents.append(json.loads(capsys.readouterr().out))
        assert documents[0] == documents[1]
        assert ("sample" in documents[0]) == bool(chosen)


@pytest.mark.parametrize(("most", "seed"), [(32_768, 0), (40_000, 1), (60_000, 2)])
def test_a_sample_of_fixed_size_is_the_largest_by_halves_that_fits(tmp_path, capsys, most, seed):
    path = tmp_path / "t.jsonl"
    rows = [range(k % 1_500 * 100, k % 1_500 * 100 + 100) for k in range(2_000)]
    path.write_text("".join(LINE.replace("64", "1600") % list(row) for row in rows))
    asked = ["curve", str(path), "--trace-block-size", "16", "--format", "json", "--seed", str(seed)]
    documents = []
    for sample in (str(most), "0.25", "0.125", "0.0625"):
        assert run([*asked, "--sample", sample]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    fixed, *halves = documents
    assert fixed["sample"]["ids"] <= most
    assert fixed == next(half for half in halves if half["sample"]["ids"] <= most)


def test_a_sample_of_fixed_size_is_exact_where_all_fits(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text(LINE % "[0, 1, 2, 3]" + LINE % "[0, 1, 4, 5]")
    asked = ["curve", str(path), "--trace-block-size", "16"]
    assert run([*asked, "--sample", "32768"]) == 0
    sampled = capsys.readouterr().out
    assert run(asked) == 0
    assert sampled == capsys.readouterr().out
    for others in (["32767"], ["40000", "--policy", "lfu"], ["0.5", "--order", "root"], ["1.0"], ["2.0"]):
        assert run([*asked, "--sample", *others]) == 2
