"""Logs of counts and of caches: what their lines add up to, how they may be laid out, and what is refused."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from support.examples import examples
from support.shared_files import shared


def imported(path, capsys, *options, code=0):
    """Return the rows of a log, and what is said of it in one line."""
    assert run(["trace", "import", str(path), *options]) == code
    done = capsys.readouterr()
    return [json.loads(line) for line in done.out.splitlines()], " ".join(done.err.split())


# -- SGLang's prefill batches

BATCH = "[2026-03-02 09:00:{:02}{}] Prefill batch{} #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: 0.1\n"
BATCHES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9000), st.integers(0, 9000)), min_size=1, max_size=9
)


@examples(60)
@given(BATCHES, st.sampled_from([".", ",", " [17],"]), st.sampled_from(["", " TP0", " DP1 TP2"]))
def test_batches_are_as_many_rows_as_sequences_with_all_their_tokens(tmp_path_factory, batches, sign, rank):
    folder = tmp_path_factory.mktemp("sglang")
    log, out = folder / "server.log", folder / "t.jsonl"
    log.write_text("".join(BATCH.format(k, rank, sign, *one) for k, one in enumerate(batches)))
    assert run(["trace", "import", str(log), "-o", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    for k, (sequences, computed, cached) in enumerate(batches):
        own = [row for row in rows if row["timestamp"] == 1000 * k]
        assert len(own) == max(min(sequences, computed + cached), 1)
        assert sum(row["input_length"] for row in own) == computed + cached
        assert sum(row["cached_tokens"] for row in own) == cached
        lengths = [row["input_length"] for row in own]
        assert max(lengths) - min(lengths) <= 1


def test_every_data_parallel_rank_counts_once(tmp_path, capsys):
    ranks = (" DP0 TP0", " DP0 TP1", " DP1 TP2", " DP1 TP3", "")
    log = tmp_path / "s.log"
    log.write_text("".join(BATCH.format(0, rank, ".", 1, 100, 60) for rank in ranks))
    rows, said = imported(log, capsys)
    assert len(rows) == 3
    assert "2 left out: a batch that another rank" in said
    assert "180 of 480 prompt tokens, 37.5%" in said
    assert "no block ids" in said


# -- vLLM


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_first_prompt_longer_than_what_detection_reads_is_read(quote, tmp_path, capsys):
    text = quote + "max_tokens=3, \\\\ " * 9000 + quote
    line = f"Received request a: prompt: {text}, params: SamplingParams(max_tokens=5), prompt_token_ids: "
    log = tmp_path / "v.log"
    log.write_text(f"INFO 03-02 09:00:00 logger.py:39] {line}{[7] * 20}, lora_request: None.\n")
    rows, _ = imported(log, capsys)
    assert [(row["input_length"], row["output_length"]) for row in rows] == [(20, 5)]
    log.write_text(f"INFO 03-02 09:00:00 logger.py:39] {line}None, lora_request: None.\n")
    rows, said = imported(log, capsys)
    assert rows[0]["input_length"] == 16 * 9000 // 4
    assert "4 bytes a token" in said


# -- LMCache


@pytest.mark.parametrize(
    ("capacity", "hits"), [(4, 4096), (8, 9216), (12, 18_688), (16, 29_184), (24, 35_584), (1000, 43_008)]
)
def test_lmcaches_own_simulator_finds_as_much(capacity, hits, tmp_path, capsys):
    """Hit tokens of 58,752 that the tool of lmcache 0.5.6 printed (``../shared/traces/lmcache_lookup``)."""
    log = shared("traces/lmcache_lookup/lookup_hashes_20260529_000000_000000.jsonl")
    trace = tmp_path / "t.jsonl"
    _, said = imported(log, capsys, "-o", str(trace))
    assert "--set trace.block_size=256" in said
    replay = ["cachesim", str(trace), "--trace-block-size", "256", "--capacity", str(capacity)]
    assert run([*replay, "--order", "root", "--format", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["hit_tokens"], figures["queried_tokens"]) == (hits, 58_752)


LOOK_UP = '{"timestamp": 1.5, "chunk_size": %s, "seq_len": %s, "chunk_hashes": %s}'


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        (
            (256, 600, '["a", "b"]'),
            ["--block-size", "16"],
            "another block size; got 256; expected --block-size 256",
        ),
        ((256, 600, '["a", "b", "c"]'), [], "not the hashes of full chunks"),
        ((256, 600, "[1.5]"), [], "not the hashes of full chunks"),
        ((0, 600, "[]"), [], "not a look-up of LMCache"),
        ((256, '"x"', "[]"), [], "seq_len is no count"),
        ((256, 0, "[]"), [], "1 left out: an empty prompt"),
    ],
)
def test_look_ups_that_cannot_be_are_refused(line, options, said, tmp_path, capsys):
    (tmp_path / "l.jsonl").write_text(LOOK_UP % line)
    assert said in imported(tmp_path / "l.jsonl", capsys, *options, code=3)[1]


def test_chunk_sizes_do_not_change_within_a_log(tmp_path, capsys):
    (tmp_path / "l.jsonl").write_text("\n".join(LOOK_UP % (size, 600, "[]") for size in (256, 256, 512)))
    said = imported(tmp_path / "l.jsonl", capsys, code=3)[1]
    assert "l.jsonl:3: another block size; got 512; expected --block-size 512 (it is 256)" in said


# -- results of load generators

RUN = {"input_lens": [30, 20], "output_lens": [3, 2], "start_times": [7.5, 7.0], "duration": 2.0}


@pytest.mark.parametrize(
    "text",
    [json.dumps(RUN), json.dumps(RUN, indent=2), json.dumps([RUN]), f"\n\n{json.dumps(RUN)}\n"],
    ids=["a line", "indented", "an array", "blank lines"],
)
def test_a_result_is_the_same_in_any_layout(text, tmp_path, capsys):
    (tmp_path / "b.json").write_text(text)
    rows, _ = imported(tmp_path / "b.json", capsys)
    assert [list(row.values()) for row in rows] == [[0, 20, 2], [500, 30, 3]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"input_lens": None, "total_input_tokens": 5, "request_throughput": 1},
            "--save-detailed or --output-details",
        ),
        ({"start_times": [1.0]}, "arrays of different lengths"),
        ({"output_lens": [3, "x"]}, "output is no count"),
        ({"input_lens": [0, 0]}, "no requests; got 2 left out"),
    ],
)
def test_a_result_without_usable_requests_is_refused(change, said, tmp_path, capsys):
    (tmp_path / "b.json").write_text(json.dumps(RUN | change))
    assert said in imported(tmp_path / "b.json", capsys, code=3)[1]


@pytest.mark.parametrize(
    ("rate", "times"), [(4.0, [0, 250]), ("inf", [0, 0]), (float("nan"), [0, 0]), (0, [0, 0]), (None, [0, 0])]
)
def test_arrivals_without_start_times_are_assumed_and_said(rate, times, tmp_path, capsys):
    own = {name: value for name, value in RUN.items() if name != "start_times"} | {"request_rate": rate}
    (tmp_path / "b.jsonl").write_text(f"{json.dumps(own)}\n{json.dumps(own)}\n")
    rows, said = imported(tmp_path / "b.jsonl", capsys)
    assert [row["timestamp"] for row in rows] == [*times, *(2000 + times[1] + at for at in times)]
    assert "arrivals are assumed" in said


def test_guidellm_without_requests_is_named(tmp_path, capsys):
    (tmp_path / "g.json").write_text(
        '{"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [{"metrics": {}}]}'
    )
    assert "a benchmark of guidellm without its requests" in imported(tmp_path / "g.json", capsys, code=3)[1]


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata": {"guidellm_version": "0.8"}, "benchmarks": [{"requests": {"successful": [{"prompt_tokens": 5,'
        ' "output_tokens": 3}], "incomplete": 5, "errored": "x"}}]}',
        '{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {"request_received_ms": 1,'
        ' "input_tokens": 5, "output_tokens": 3, "replay": [1]}}',
    ],
)
def test_members_of_another_form_are_as_if_missing(text, tmp_path, capsys):
    (tmp_path / "log").write_text(text)
    rows, _ = imported(tmp_path / "log", capsys)
    assert rows == [{"timestamp": 0, "input_length": 5, "output_length": 3}]


# -- KV events


def stored(hashes, parent, tokens, group=0, **more):
    event = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "block_size": 16}
    return event | {"token_ids": [0] * tokens, "group_idx": group} | more


def events(path, *batches):
    path.write_text("".join(json.dumps([10 * k + 1, batch, 0]) + "\n" for k, batch in enumerate(batches)))
    return path


def test_masked_groups_alone_are_a_refusal_that_counts_them(tmp_path, capsys):
    """Four blocks' tokens with the names of one: which of the four is not said."""
    log = events(
        tmp_path / "kv.jsonl", [stored([9], None, 64, 1)], [stored([], 9, 32, 1), stored([7], 9, 32, 1)]
    )
    said = imported(log, capsys, code=3)[1]
    assert "no requests; got 3 left out" in said
    assert re.search(r"3 left out: an event of cache group 1, masked .* kept blocks alone", said)
    assert run(["shadow", str(log), "--capacity", "10"]) == 0
    assert "3 left out: an event of cache group 1, masked" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "masks", [{"kv_cache_spec_kind": "sliding_window"}, {"kv_cache_spec_sliding_window": 32}, {}]
)
def test_the_first_group_that_names_whole_runs_is_followed(masks, tmp_path, capsys):
    """A window keeps all blocks of a short run: its kind still says that it masks others."""
    kept = [1] if not masks else [1, 2]
    log = events(
        tmp_path / "kv.jsonl",
        [stored(kept, None, 32, 0, **masks), stored([1, 2], None, 32, 3), stored([1, 2], None, 32, 4)],
        [stored([3], 2, 16, 3, session_id="s")],
    )
    rows, said = imported(log, capsys)
    assert [(row["input_length"], row["cached_tokens"]) for row in rows] == [(33, 0), (49, 32)]
    assert "session_id" in rows[1]
    assert "1 left out: an event of cache group 0, masked" in said
    assert "1 left out: an event of cache group 4, group 3 is followed" in said


def test_a_run_that_is_sent_page_by_page_is_one_prompt(tmp_path, capsys):
    """SGLang sends an event a page; a page that a later step stores is the answer's."""
    names = [[1, 2, 3], [4], [9]]
    runs = [[stored(names[0], None, 48)], [stored(names[1], 3, 16)], [stored(names[2], 2, 16)]]
    pages = [[stored([name], name - 1 or None, 16) for name in names[0]], *runs[1:]]
    for batches in (runs, pages):
        rows, _ = imported(events(tmp_path / "log", *batches), capsys)
        assert [(row["input_length"], row["cached_tokens"]) for row in rows] == [(49, 0), (65, 48), (49, 32)]


def router(event_id, data, at_ms=None):
    inner = {"worker_id": 7, "event": {"event_id": event_id, "data": data, "dp_rank": 0}}
    return json.dumps(inner if at_ms is None else {"timestamp": at_ms, "event": inner}) + "\n"


def chain(*hashes, parent=None):
    blocks = [{"block_hash": each, "tokens_hash": each + 1} for each in hashes]
    return {"stored": {"parent_hash": parent, "blocks": blocks}}


def test_a_dump_of_the_router_is_its_branches_without_times(tmp_path, capsys):
    """A recording has a request a run of blocks; a dump lists blocks one by one, and a branch is one request."""
    (tmp_path / "recorded").write_text(router(1, chain(1, 2, 3), 0) + router(2, chain(4, parent=2), 9000))
    (tmp_path / "dump").write_text(
        "".join(router(k, chain(k, parent=p)) for k, p in ((1, None), (2, 1), (3, 2), (4, 2)))
    )
    found = {name: imported(tmp_path / name, capsys, "--block-size", "32") for name in ("recorded", "dump")}
    for name, (rows, said) in found.items():
        assert [(row["input_length"], row["cached_tokens"]) for row in rows] == [(97, 0), (97, 64)], name
        assert "32 tokens a block (--block-size)" in said
        assert ("a dump has no times" in said) == (name == "dump")


@pytest.mark.parametrize(
    "data", ['"x"', "{}", '{"stored": {"blocks": 5}}', '{"removed": {"block_hashes": [1.5]}}']
)
def test_a_line_that_is_no_event_of_the_router_is_refused(data, tmp_path, capsys):
    (tmp_path / "r").write_text(router(1, chain(1, 2), 0) + router(2, json.loads(data), 5))
    said = imported(tmp_path / "r", capsys, "--from", "dynamo-router", code=3)[1]
    assert "r:2: not a batch of KV events:" in said
