"""The one-pass curve against replays at each capacity, and what is read off it."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import islice

import kvcache_sim as kv
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay.curve.hits import hit_curve
from kvcache_sim.replay.curve.sample import sample_of_prompts
from kvcache_sim.replay.curve.sessions import session_hits
from kvcache_sim.replay.curve.steps import reference_points
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.report.curve.build import CurveAsk, curve_document
from kvcache_sim.workload.readers.read import read_trace
from order_replay import path_of, replay
from support.examples import examples
from support.shared_files import shared
from support.small_traces import NAMES, trace_of, tree_traces

requests = st.builds(
    ReplayRequest,
    trace=tree_traces(),
    block_size_tokens=st.sampled_from([1, 2, 4]),
    capacity_blocks=st.just(1),
    last_partial=st.sampled_from(["drop", "keep"]),
    touch_from=st.sampled_from(["tail", "root"]),
)


@examples(120)
@given(requests)
def test_the_curve_equals_a_replay_at_every_capacity(request):
    curve = hit_curve(blocks_of_prompts(request), request.touch_from)
    for capacity in range(1, curve.hit_blocks.last + 3):
        result = REPLAYERS["prefix"](replace(request, capacity_blocks=capacity), "lru")
        at = np.array([capacity])
        assert curve.hit_blocks.at(at)[0] == result["hit_blocks"]
        assert curve.hit_tokens.at(at)[0] == result["hit_tokens"]


@examples(60)
@given(requests)
def test_the_ends_of_the_curve(request):
    prompts = blocks_of_prompts(request)
    curve = hit_curve(prompts, request.touch_from)
    assert curve.hit_blocks.at(np.array([0]))[0] == 0
    assert curve.hit_blocks.top == np.minimum(prompts.native.belady(2**63).hits, prompts.limits).sum()
    marks = reference_points(curve.hit_blocks)
    assert marks.knee_blocks <= marks.footprint_blocks
    assert marks.working_set_blocks <= marks.footprint_blocks
    if marks.footprint_blocks:
        assert curve.hit_blocks.at(np.array([marks.footprint_blocks - 1]))[0] < curve.hit_blocks.top


@examples(60)
@given(requests)
def test_between_corners_the_curve_is_a_straight_line(request):
    steps = hit_curve(blocks_of_prompts(request), request.touch_from).hit_blocks
    every = np.arange(steps.last + 1)
    exact = steps.at(every)
    assert np.array_equal(exact, np.interp(every, steps.corners, steps.at(steps.corners)).astype(np.int64))
    assert (np.diff(exact) >= 0).all()


@examples(40)
@given(tree_traces(), st.sets(st.integers(1, 20), max_size=3), st.randoms(use_true_random=False))
def test_a_document_splits_hits_by_session(trace, sizes, random):
    """Sessions against a replay of each capacity, by who touched a block last."""
    session = [0, *(random.randrange(-1, 3) for _ in range(len(trace) - 1))]
    request = ReplayRequest(replace(trace, session=np.array(session, np.int32)), 4, 1)
    document = curve_document(CurveAsk(request, tuple(sorted(sizes)), by_session=True))
    prompts = blocks_of_prompts(request)
    paths = [path_of(prompts, r) for r in range(len(trace))]
    split = document["sessions"]
    assert split["capacity_blocks"] == [point["capacity_blocks"] for point in document["points"]]
    assert not sizes or split["capacity_blocks"] == sorted(sizes)
    by_session, by_own = [], []
    for capacity in [*split["capacity_blocks"], 10**6]:
        model = replay(prompts, parse_variant("lru", 4), capacity, "leaf-first")
        hits = np.minimum(model.hits, prompts.limits).tolist()
        touched: dict = {}
        own = 0
        for r, path in enumerate(paths):
            own += sum(session[touched[key]] == session[r] for key in path[: hits[r]])
            touched.update(dict.fromkeys(path, r))
        by_own.append(own)
        by_session.append(Counter(session[r] for r, count in enumerate(hits) for _ in range(count)))
    assert [*split["own_hit_blocks"], split["own_unbounded_hit_blocks"]] == by_own
    present = [number for number in (0, 1, 2, -1) if number in session]
    for row, number in zip(split["rows"], present, strict=True):
        assert row["n_requests"] == session.count(number)
        assert [*row["hit_blocks"], row["unbounded_hit_blocks"]] == [hits[number] for hits in by_session]
        assert row["queried_blocks"] == sum(len(paths[r]) for r, own in enumerate(session) if own == number)


def test_a_trace_without_sessions_has_no_split():
    with pytest.raises(UsageError, match="no sessions"):
        session_hits(
            hit_curve(blocks_of_prompts(ReplayRequest(trace_of([["a"]]), 4, 1)), "tail"), np.array([1])
        )


def curve_of(rows):
    """Return the curve of prompts whose last blocks count."""
    prompts = blocks_of_prompts(ReplayRequest(trace_of(rows), 4, 1, last_partial="keep"))
    return hit_curve(prompts, "tail").hit_blocks


def test_the_knee_of_a_loop_is_its_end():
    """Ten blocks over and over: nothing below ten, everything from ten on."""
    marks = reference_points(curve_of([[k] for _ in range(20) for k in range(10)]))
    assert (marks.knee_blocks, marks.working_set_blocks, marks.footprint_blocks) == (10, 10, 10)


def test_a_few_early_hits_are_no_knee():
    """A block twice in a row gives one block of cache a tenth of the hits; the loop of 30 gives the others."""
    curve = curve_of([[k] for _ in range(10) for k in range(30)] + [["x"] for _ in range(31)])
    assert curve.at(np.array([1, 29, 30])).tolist() == [30, 30, 300]
    assert curve.top == 300
    assert reference_points(curve).knee_blocks == 30
    early = curve_of([[k] for _ in range(3) for k in range(100)] + [["x"] for _ in range(101)])
    assert reference_points(early).knee_blocks == 1, "a third of the hits for a hundredth of the footprint"


def chats(rng):
    """Sessions whose turns repeat them and grow, and end after some 400 blocks."""
    live, fresh = [[] for _ in range(200)], iter(range(10**9))
    for _ in range(3_000):
        s = rng.randrange(200)
        if len(live[s]) > 400 or rng.random() < 0.05:
            live[s] = []
        live[s] = [*live[s], *islice(fresh, rng.randint(1, 20))]
        yield live[s]


def documents(rng):
    """Prompts that begin with one of 3,000 documents, by popularity, and end alone."""
    fresh = iter(range(10**9))
    library = [list(islice(fresh, rng.randint(5, 100))) for _ in range(3_000)]
    for _ in range(6_000):
        [document] = rng.choices(library, [1 / (k + 1) ** 0.9 for k in range(3_000)])
        yield [*document, *islice(fresh, rng.randint(0, 10))]


@pytest.mark.parametrize("rate", [0.1, 0.02])
@pytest.mark.parametrize("made", [chats, documents])
def test_the_interval_of_a_sample_holds_at_all_sizes_at_once(made, rate):
    prompts = blocks_of_prompts(ReplayRequest(trace_of(list(made(random.Random(1)))), 4, 1))
    curve = hit_curve(prompts, "tail").hit_blocks
    sizes = np.unique(np.geomspace(1, 2 * curve.last, 40).astype(np.int64))
    exact, held = curve.at(sizes), 0
    for seed in range(20):
        found = sample_of_prompts(prompts, rate, seed).at(sizes)
        held += bool((np.abs(found.hit_blocks - exact) <= found.error_blocks).all())
    assert held >= 19


def test_a_sample_of_rows_is_that_of_the_trace(tmp_path, capsys):
    """The same estimate from a file read row by row and from a trace in memory; exact where all ids are first ones."""
    path = str(shared("traces/conversation_trace.jsonl"))
    trace = read_trace(path)
    asked = ["--capacity", "20000", "--capacity", "90000", "--block-size", "16", "--outputs", "computed"]
    assert run(["curve", path, *asked, "--sample", "0.1", "--seed", "3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    request = ReplayRequest(trace, 16, 1, outputs="computed")
    ask = CurveAsk(request, (20_000, 90_000), sample_rate=0.1, seed=3)
    assert curve_document(ask) == document
    few = replace(request, trace=read_trace(shared("traces/sharegpt_llama31_8b_300_b16.jsonl")))
    sizes = np.array([1, 500, 5_000])
    found = sample_of_prompts(blocks_of_prompts(few), 0.5, 0).at(sizes)
    exact = hit_curve(blocks_of_prompts(few), "tail").hit_blocks.at(sizes)
    assert found.hit_blocks.tolist() == exact.tolist()
    assert not found.error_blocks.any()


@pytest.mark.parametrize("name", [*NAMES.values(), lambda k: -k - 1])
def test_the_command_and_python_sample_the_same_ids_whatever_their_names(tmp_path, capsys, name):
    """Half of 50,000 ids are sampled by their names; the sizes end with the number of blocks that they stand for."""
    ids = iter(range(50_000))
    rows = [{"timestamp": 0, "input_length": 600, "output_length": 1} for _ in range(4_000)]
    for at, row in enumerate(rows):
        before = rows[at - 1]["hash_ids"] if at % 2 else []
        row["hash_ids"] = before[:5] + [name(k) for k in islice(ids, 15 - len(before[:5]))]
    (tmp_path / "ids.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = str(tmp_path / "ids.jsonl")
    asked = ["--sample", "0.5", "--seed", "3", "--format", "json", "--trace-block-size", "40"]
    assert run(["curve", path, *asked]) == 0
    document = kv.curve(kv.read_trace(path, block_size=40), sample=0.5, seed=3).document
    assert document == json.loads(capsys.readouterr().out) | {"trace_sha256": document["trace_sha256"]}


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def trace_file(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [[0, 1], [0, 2], [0, 1], [3], [0, 2], [0, 1]]
    row = '{{"timestamp": {}, "input_length": {}, "output_length": 1, "hash_ids": {}}}\n'
    path.write_text("".join(row.format(k, 16 * len(ids), ids) for k, ids in enumerate(rows)))
    return path


BLOCK = ["--trace-block-size", "16", "--last-partial", "keep"]


def test_what_lower_tiers_add_ends_at_the_ceiling(trace_file, capsys):
    """Two tiers above: an inclusive lower tier adds to what the larger alone finds."""
    asked = ["--given", "1", "--given", "2", "--capacity", "9", "--format", "json"]
    assert run(["curve", str(trace_file), *BLOCK, *asked]) == 0
    document = json.loads(capsys.readouterr().out)
    tier, top = document["lower_tier"], document["unbounded"]["block_hit_rate"]
    (point,) = tier["points"]
    assert tier["above_block_hit_rate"] + point["exclusive_rate"] == pytest.approx(top)
    assert tier["above_inclusive_block_hit_rate"] + point["inclusive_rate"] == pytest.approx(top)
