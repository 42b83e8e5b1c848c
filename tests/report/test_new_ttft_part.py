"""A part of TTFT is a row of the table and its time, in the files that ARCHITECTURE.md names.

Done in a copy of the tree: of 50 ms between client and scheduler the made-up part takes 40. The first build of its
core takes some CPU minutes.
"""

import gzip
import json
import re

import pyarrow.parquet as pq
import pytest
from support.changed_tree import ChangedTree
from support.tiered_scenario import BASE

MS = 10**6
CORE, SPEC = "rust/core/src/machine", "python/kvcache_sim/spec"
TABLE = "python/kvcache_sim/metrics/ttft_parts.py"
ROW = '    TtftPart("tokenize", "waiting for the tokenizer", "#0b6e4f", False),\n'


def with_a_part(tree: ChangedTree) -> None:
    """Add a part between client and queue, in core and specification."""
    tree.insert(TABLE, '    TtftPart(\n        "queue"', ROW)
    tree.insert(f"{CORE}/request.rs", "    pub queue_ns: u64,", "    pub tokenize_ns: u64,\n")
    tree.replace(
        f"{CORE}/request.rs",
        "let before_prefill = self.client_ns +",
        "let before_prefill = self.tokenize_ns + self.client_ns +",
    )
    tree.replace(
        f"{CORE}/replica.rs",
        "s.ttft.client_ns += now_ns - s.since_ns;",
        "s.ttft.tokenize_ns = (now_ns - s.since_ns).min(40_000_000);\n"
        "        s.ttft.client_ns += now_ns - s.since_ns - s.ttft.tokenize_ns;",
    )
    column = '        "tokenize_ns" => |of, _| fit::<i64>(of.request.ttft.tokenize_ns),\n'
    tree.insert(f"{CORE}/rows.rs", '        "queue_ns" =>', column)


def with_its_time_in_the_specification(tree: ChangedTree) -> None:
    tree.replace(
        f"{SPEC}/request.py",
        "self.client_ns = self.queue_ns",
        "self.tokenize_ns = self.client_ns = self.queue_ns",
    )
    tree.replace(f"{SPEC}/records.py", '"client_ns", "queue_ns"', '"client_ns", "tokenize_ns", "queue_ns"')
    tree.replace(
        f"{SPEC}/records.py",
        "s.client_ns, s.since_ns = now - s.since_ns, now",
        "s.tokenize_ns = min(now - s.since_ns, 40_000_000)\n"
        "        s.client_ns, s.since_ns = now - s.since_ns - s.tokenize_ns, now",
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = ChangedTree("new-ttft-part")
    with_a_part(tree)
    tree.build()
    text = BASE.replace("replica: {max_num_seqs: 4}", "replica: {max_num_seqs: 4, client_offset: 50ms}")
    (tree.path / "s.yaml").write_text(text)
    return tree


@pytest.fixture(scope="module")
def run(tree):
    """The run of the core; the specification does not know the part yet, and says so."""
    shown = tree.kvsim("simulate", "-c", "s.yaml", "-o", "native", "--record", "all")
    assert "client + tokenize +" in " ".join(shown.split())
    refused = tree.kvsim("simulate", "-c", "s.yaml", "-o", "spec", "--engine", "spec", code=2)
    assert "the specification has no part 'tokenize' of TTFT" in refused
    with_its_time_in_the_specification(tree)
    return tree.path / "native"


def test_the_part_has_its_column_and_its_time(run):
    table = pq.read_table(run / "requests.parquet").to_pydict()
    assert set(table["tokenize_ns"]) == {40 * MS}
    assert set(table["client_ns"]) == {10 * MS}
    parts = json.loads((run / "summary.json").read_text())["latency"]["ttft_parts"]
    assert list(parts)[:3] == ["client", "tokenize", "queue"]
    assert (parts["client"]["avg"], parts["tokenize"]["avg"]) == (10, 40)


def test_core_and_specification_agree(tree, run):
    tree.kvsim("simulate", "-c", "s.yaml", "-o", "spec", "--engine", "spec")
    own, other = (json.loads((tree.path / name / "summary.json").read_text()) for name in ("native", "spec"))
    assert own["digest"] == other["digest"]
    assert own["latency"] == other["latency"]


def test_it_is_drawn(tree, run):
    tree.kvsim("plot", "native", "waterfall", "-o", "w.html")
    assert "tokenize, ms" in (tree.path / "w.html").read_text()
    tree.kvsim("report", "native", "-o", "r.html")
    assert "tokenize" in (tree.path / "r.html").read_text()


def test_it_has_its_slice_on_the_timeline(tree, run):
    tree.kvsim("timeline", "native", "-o", "t.json.gz")
    records = json.loads(gzip.decompress((tree.path / "t.json.gz").read_bytes()))["traceEvents"]
    slices = [one for one in records if one["ph"] == "X" and one["name"] == "tokenize"]
    assert len(slices) > 100
    assert {one["dur"] for one in slices} == {40_000}


def test_a_server_counts_it_before_the_prefill(tree, run):
    text = tree.python("tests/data/new_ttft_part/serve_one.py")
    first, prefill = (
        float(re.search(rf"vllm:{name}_seconds_sum{{.*}} (\S+)", text)[1])
        for name in ("time_to_first_token", "request_prefill_time")
    )
    assert first - prefill == pytest.approx(0.050)
