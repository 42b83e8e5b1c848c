"""Figures of replays without time: cuts of prompts, shares, quantiles, keys and refusals against closed forms."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim._core import HitSteps
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay import cachesim, engines
from kvcache_sim.replay.curve.hits import Reuses
from kvcache_sim.replay.curve.sample import check_rate, student_t7
from kvcache_sim.replay.curve.sessions import session_hits
from kvcache_sim.replay.curve.steps import lower_tier
from kvcache_sim.replay.engine_requests import BlockKeys
from kvcache_sim.replay.engine_tiers import _strategy
from kvcache_sim.replay.miss_tables import _quantiles, miss_summary, requests_table
from kvcache_sim.replay.policy_check import branching_trace
from kvcache_sim.replay.prefix import _window, check_policy_settings, flat_figures, head, overlap
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts, cut_ids, hit_tokens_sha256
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, StorageCapacity, refuse_lower_tiers
from kvcache_sim.replay.upper_bounds import share, upper_bounds
from support.examples import examples
from support.small_traces import trace_of

rows_of_ids = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=6
)


@examples(80)
@given(
    rows_of_ids,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["prompt", "computed", "all"]),
    st.booleans(),
    st.booleans(),
)
def test_a_prompt_is_cut_into_named_private_and_countable_blocks(drawn, size, outputs, flat, keep):
    """Ids cover 8 tokens each; a request's blocks, one by one."""
    fresh = iter(range(1000))
    rows = [[next(fresh) for _ in range(ids)] for ids, *_ in drawn]
    trace = trace_of(rows, 8, [tokens for _, tokens, _ in drawn], output_tokens=[more for *_, more in drawn])
    asked = ReplayRequest(
        trace,
        size,
        5,
        outputs=outputs,
        discipline="flat" if flat else "prefix",
        last_partial="keep" if keep else "drop",
    )
    if keep and outputs != "prompt":
        with pytest.raises(UsageError, match="--outputs: a partial last block"):
            blocks_of_prompts(asked)
        return
    found = blocks_of_prompts(asked)
    first = 0
    for k, (ids, tokens, more) in enumerate(drawn):
        answer = {"prompt": 0, "computed": max(more - 1, 0), "all": more}[outputs]
        named = ids * 8 // size if keep else sum(size * (b + 1) <= min(tokens, 8 * ids) for b in range(50))
        private = 0 if keep else (tokens + answer) // size - named
        countable = named if keep or flat else sum(size * (b + 1) < tokens for b in range(named))
        assert (found.blocks[k], found.private_blocks[k], found.limits[k]) == (named, private, countable)
        path = [*found.numbered_paths()][k]
        assert (
            path[:named]
            == [d * (8 // size) + j for d in range(first, first + ids) for j in range(8 // size)][:named]
        )
        assert len(path) == named + private
        first += ids
    owned = [
        block
        for path, named in zip(found.numbered_paths(), found.blocks, strict=True)
        for block in path[named:]
    ]
    assert owned == [first * (8 // size) + n for n in range(len(owned))]
    assert found.references == sum(map(len, found.numbered_paths()))
    hits = np.array([3 * k for k in range(len(drawn))], np.uint32)
    counted = [min(hit, limit) for hit, limit in zip(hits.tolist(), found.limits.tolist(), strict=True)]
    tokens = [min(hit * size, tokens) for hit, (_, tokens, _) in zip(counted, drawn, strict=True)]
    whole = sum(own for _, own, _ in drawn)
    assert share(found, hits) == {
        "hit_blocks": sum(counted), "block_hit_rate": sum(counted) / max(1, found.references), "hit_tokens": sum(tokens), "hit_rate": sum(tokens) / whole,
    }  # fmt: skip
    assert hit_tokens_sha256(found, hits) == hashlib.sha256("\n".join(map(str, tokens)).encode()).hexdigest()


@pytest.mark.parametrize(("whole", "size", "blocks"), [(16, 16, 1), (16, 4, 4), (16, 1, 16), (16, 0, None), (16, 5, None), (16, 32, None)])  # fmt: skip
def test_a_block_size_divides_the_traces(whole, size, blocks):
    if blocks is not None:
        assert cut_ids(whole, size) == blocks
        return
    with pytest.raises(UsageError, match=f"got {size}; expected a divisor of {whole}"):
        cut_ids(whole, size)


def test_names_of_blocks_are_the_ids_where_a_block_is_one_id():
    trace = replace(trace_of([[7, 9], [7]]), id_names=np.array([70, 90], np.int64))
    whole, halves = (blocks_of_prompts(ReplayRequest(trace, size, 5)) for size in (4, 2))
    assert whole.names.tolist() == [70, 90]
    assert not len(halves.names)
    assert not len(blocks_of_prompts(ReplayRequest(replace(trace, id_names=["a", "b"]), 4, 5)).names)


LOWER = {"--host-capacity": {"host_blocks": 1}, "--write-policy": {"write_policy": "write_back"}, "--storage": {"storage": StorageCapacity(None)},
         "--disk-chunks": {"disk_blocks": 1}, "--cpu-chunks": {"cpu_blocks": 1}, "--secondary-tier": {"secondary": True}}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "options", "line"),
    [("lru", {}, ""), *[("lru", options, f"{name}: has no effect with --policy lru") for name, options in LOWER.items()],
     ("lru", {"capacity_blocks": 0}, "--capacity: capacity holds no block"), ("fifo", {"store_threshold": 1}, "--store-threshold: has no effect with --policy fifo"),
     ("lru", {"window": 1}, ""), ("belady", {}, ""), ("belady", {"window": 1}, "--window: belady is an upper bound"), ("lru", {"touch_from": "root"}, ""),
     ("lru", {"touch_from": "root", "window": 1}, "--window: a list touched root first"), ("lru", {"touch_from": "root", "window": 1, "discipline": "flat"}, ""),
     ("fifo", {"touch_from": "root"}, "--order: fifo evicts leaves first"), ("fifo", {"touch_from": "root", "discipline": "flat"}, ""),
     ("fifo", {"touch_from": "root", "window": 1}, "--order: fifo"), ("unbounded", {}, ""), ("unbounded", {"discipline": "flat"}, "--flat: a flat cache has no such"),
     ("lru", {"discipline": "flat", "explain": True}, "--explain: a flat cache has no prompts"), ("lru", {"explain": True}, "")],
)  # fmt: skip
def test_settings_without_effect_on_a_policy_are_refused(policy, options, line):
    asked = replace(ReplayRequest(trace_of([[1]]), 4, 1), **options)
    if not line:
        check_policy_settings(asked, parse_variant(policy, 4))
        return
    with pytest.raises(UsageError, match=line):
        check_policy_settings(asked, parse_variant(policy, 4))
    own = next((name for name, given_ in LOWER.items() if given_ == options), None)
    if own is None:
        refuse_lower_tiers(asked, policy)


@pytest.mark.parametrize(("requests", "window", "expected"), [(3, 0, 0), (3, 2, 2), (3, 3, 3), (3, 4, 3), (0, 4, 1), (0, 0, 0)])  # fmt: skip
def test_no_more_requests_overlap_than_there_are(requests, window, expected):
    assert _window(SimpleNamespace(window=window, trace=range(requests))) == expected


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize(("order", "name"), [("tail", "rev"), ("root", "fwd")])
def test_the_figures_of_a_flat_cache_add_up(window, order, name):
    asked = ReplayRequest(trace_of([[1]]), 4, 9, window=window, touch_from=order)
    refused = {"window": window, "not_admitted_blocks": 10} if window else {}
    figures = {"order": name, "capacity_objects": 9, "accesses": 50, "hits": 20, "misses": 30, "hit_ratio": 0.4, "evictions": 13, "resident_blocks": 7}  # fmt: skip
    assert flat_figures(asked, 50, 20, 13, 7) == figures | refused
    assert flat_figures(asked, 0, 0, 0, 0)["hit_ratio"] == 0.0
    assert overlap(asked, 10) == refused
    assert head(asked, "own", 3, 44, 50) == {
        "policy": "own", "discipline": "prefix", "n_requests": 3, "block_size": 4, "capacity_blocks": 9, "queried_tokens": 44, "queried_blocks": 50,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "found"),
    [("lru", ("lru", 0, 0)), ("tlru", ("tlru", 0, 0)), ("tlru:5", ("tlru", 5, 0)), ("tlru:5:6", ("tlru", 5, 6)), ("tlru:0:2147483646", ("tlru", 0, 2**31 - 2)), ("tlru:2147483647", "too many tokens"),
     ("tlru:1:2147483647", "too many tokens"), ("tlru:5:6:7", "not understood"), ("lru:5", "not understood"), ("tlru:-1", "not understood"), ("tlru:5:", "not understood")],
)  # fmt: skip
def test_the_strategy_of_a_tree_has_two_numbers_of_tokens(variant, found):
    if isinstance(found, tuple):
        assert _strategy(variant) == found
        return
    with pytest.raises(UsageError, match=found):
        _strategy(variant)


# -- upper bounds


@pytest.mark.parametrize(
    ("options", "result", "blocks", "possible"),
    [({}, {}, 5, True), ({"host_blocks": 3}, {}, 8, True), ({"storage": StorageCapacity(4)}, {}, 9, True), ({"storage": StorageCapacity(None), "host_blocks": 1}, {}, 9, True),
     ({"reuse_outputs": True}, {}, None, True), ({"groups": object()}, {}, None, True), ({"window": 2, "store_threshold": 2}, {"loaded_tokens": 4}, 5, True), ({}, {"upper_bounds": 1}, None, True), ({}, {}, 5, False)],
)  # fmt: skip
@pytest.mark.parametrize("family", ["vllm", "lmcache", "lmcache-server"])
def test_a_replay_is_a_share_of_what_its_tiers_could_hit_together(
    monkeypatch, options, result, blocks, possible, family
):
    asked = replace(ReplayRequest(trace_of([[1, 2, 3]]), 4, 5), **options)
    bounded = []

    def tops(prompts, capacity):
        bounded.append(capacity)
        return {"belady": {"hit_tokens": 20 if possible else 0}}

    monkeypatch.setitem(REPLAYERS, family, lambda request, variant: {"hit_tokens": 6, **result})
    monkeypatch.setattr(cachesim, "resolve_policy", lambda policy: (family, ""))
    monkeypatch.setattr("kvcache_sim.replay.upper_bounds.upper_bounds", tops)
    found = cachesim.simulate_cache(asked, "any")
    if blocks is None or family != "vllm":
        assert not bounded
        assert "share_of_possible" not in found
        return
    assert bounded == [blocks]
    assert found["share_of_possible"] == ((6 + result.get("loaded_tokens", 0)) / 20 if possible else None)


def test_no_policy_hits_more_than_an_unbounded_cache_and_beladys():
    prompts = blocks_of_prompts(
        ReplayRequest(trace_of([[1, 2], [3, 4], [1, 2], [3, 4]], input_tokens=[9] * 4), 4, 2)
    )
    tops = upper_bounds(prompts, 2)
    assert tops["unbounded"] == {
        "hit_blocks": 4,
        "block_hit_rate": 0.5,
        "hit_tokens": 16,
        "hit_rate": 16 / 36,
    }
    assert tops["belady"] == {"hit_blocks": 2, "block_hit_rate": 0.25, "hit_tokens": 8, "hit_rate": 8 / 36}


# -- causes of misses


@examples(80)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=12))
def test_quantiles_count_each_block(drawn):
    """Nearest rank: the least value that at least half, or nine in ten, of the blocks do not exceed."""
    every = sorted(value for value, times in drawn for _ in range(times))
    expected = {
        name: next(v for n, v in enumerate(every, 1) if 100 * n >= per_cent * len(every))
        for name, per_cent in (("p50", 50), ("p90", 90), ("max", 100))
    }
    values, weights = (np.array(own, np.int64) for own in zip(*drawn, strict=True))
    assert _quantiles(values, weights) == expected


@pytest.mark.parametrize("chunk", [5, 7, 8, 1 << 18])
def test_a_free_queue_has_a_line_a_block_in_whatever_parts_it_is_written(monkeypatch, chunk):
    """Eight of ten blocks can have no effect: their lines come first, then those of the two that can."""
    monkeypatch.setattr(engines, "_CHUNK", chunk)
    trace = trace_of([["a"], ["b"]], 4, [4, 4])
    answer = REPLAYERS["vllm"](ReplayRequest(trace, 4, 10), "")
    lines = ["-"] * 8 + ["0:0", "1:0"]
    assert answer["final_free_queue_first5"] == lines[:5]
    text = "".join(f"{line}\n" for line in lines)
    assert answer["final_free_queue_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert [sum(map(len, engines._idle_chunks(blocks))) for blocks in range(9)] == [*range(0, 18, 2)]


def test_hits_of_a_replay_leave_rejected_requests_out():
    request = ReplayRequest(trace_of([["a"], ["b"], ["c"]], 4, [4, 3, 2]), 4, 10)
    found = engines.hit_figures(request, np.array([2, -1, 1]))
    assert [found[name] for name in ("queried_tokens", "queried_tokens_not_rejected", "hit_tokens")] == [
        9,
        6,
        3,
    ]
    assert found["hit_rate"] == 3 / 9


@pytest.mark.parametrize("evicted", [[], [(3, 1, 5), (2, 0, 1)]])
def test_the_summary_and_the_table_of_misses(evicted):
    trace = trace_of([[1], [1], [1], [1]], arrival_ns=[10, 12, 15, 40], input_tokens=[5, 6, 7, 8])
    tokens = np.arange(4 * 9).reshape(4, 9)
    found = miss_summary(trace, "own", tokens, np.array(evicted, np.int64).reshape(-1, 3))
    totals = [int(tokens[:, column].sum()) for column in (0, 1, 2, 3, 6)]
    names = [
        "never_seen_tokens",
        "diverged_tokens",
        "evicted_tokens",
        "shorter_tokens",
        "not_admitted_tokens",
    ]
    ages = {"evicted_by": "own", "evicted_before_requests": {"p50": 2, "p90": 2, "max": 2}, "evicted_before_ns": {"p50": 28, "p90": 28, "max": 28}}  # fmt: skip
    assert found == dict(zip(names, totals, strict=True)) | {"missed_tokens": int(tokens.sum())} | (
        ages if evicted else {}
    )
    table = requests_table(trace, np.array([4, -1, 0, 1]), tokens)
    assert {name: [*own] for name, own in table.items()} == {
        "request": [0, 1, 2, 3], "input_tokens": [5, 6, 7, 8], "hit_tokens": [4, -1, 0, 1],
        **{name: tokens[:, column].tolist() for name, column in zip(names, (0, 1, 2, 3, 6), strict=True)},
    }  # fmt: skip


# -- keys


@examples(60)
@given(
    st.sampled_from([1, 2, 4]),
    st.integers(0, 14),
    st.integers(0, 14),
    st.booleans(),
    st.sampled_from(["", "numbers", "texts"]),
)
def test_a_block_is_named_by_its_id_or_by_the_next_turn_or_by_its_request(
    size, first, second, continues, named
):
    """Two turns whose ids cover 4 tokens each; the second has one id more."""
    trace = trace_of([[5, 6], [5, 6, 7]], 4, [max(first, 1), max(second, 1)])
    names = {"": [], "numbers": np.array([50, 60, 70], np.int64), "texts": ["a", "b", "c"]}[named]
    keys = BlockKeys(replace(trace, id_names=names), size, [1 if continues else None, None])
    per = 4 // size

    def covered(request, block):
        return size * (block + 1) <= min(int(trace.input_tokens[request]), 4 * (2 + request))

    for request in (0, 1):
        assert keys.named_blocks(request) == sum(covered(request, block) for block in range(30))
        for block, key in enumerate(keys.keys(request, 9)):
            source = next((r for r in (request, 1 if continues else request) if covered(r, block)), None)
            dense = block // per
            shown = [int(names[dense]) if named == "numbers" else dense] if dense < 3 else [None]
            token, length = block * size, int(trace.input_tokens[request])
            if source is not None:
                assert key == (dense, block % per)
                assert keys.label(key) == f"{[*names][dense] if named else dense}:{block % per}"
                assert (keys.first_token_label(key), keys.token_value(key)) == (
                    shown[0] * 4 + block % per * size,
                    shown[0],
                )
                assert keys.decode(dense * per + block % per) == key
            else:
                assert key == ("o", request, block) == keys.decode(1 << 63 | request << 32 | block)
                assert keys.label(key) == f"o{request}:{block}"
                has_id = token < length and token // 4 < 2 + request
                assert keys.first_token_label(key) == (
                    shown[0] * 4 + token % 4 if has_id else (1 << 40) + request * 4096 + token - length
                )
                assert keys.token_value(key) == (shown[0] if has_id else -1 - request)
    assert keys.label(None) == "-"


# -- curves


def steps(*entries):
    made = HitSteps()
    made.add(*(np.array(own, np.int64) for own in zip(*entries, strict=True)))
    return made


@pytest.mark.parametrize("above", [[3], [2, 5], [5, 2]])
def test_a_lower_tier_adds_what_the_tiers_above_do_not_find(above):
    curve = steps((4, 3, 2), (9, 1, 5))
    at = [sum(2 * (c >= 4 + j) for j in range(3)) + 5 * (c >= 9) for c in range(40)]
    sizes = np.array([0, 1, 4, 6, 20])
    found = lower_tier(curve, above, sizes)
    total, largest = sum(above), max(above)
    assert (found.above_blocks, found.above_hit_blocks, found.above_inclusive_hit_blocks) == (
        total,
        at[total],
        at[largest],
    )
    assert found.exclusive.tolist() == [at[own + total] - at[total] for own in sizes]
    assert found.inclusive.tolist() == [at[max(own, largest)] - at[largest] for own in sizes]


def test_hits_are_split_by_session_and_by_who_touched_the_block_last():
    """Requests 0 and 2 of session 0, 1 of session 1, 3 of none; a ramp of 3 blocks from 4 on, 2 blocks at 6."""
    entries = [(2, 4, 3, 1, 0, 0), (1, 6, 2, 0, 0, 0), (3, 5, 1, 1, 2, 0), (3, 1, 2, 1, 3, 0)]
    reuses = Reuses(*(np.array(own, np.int64) for own in zip(*entries, strict=True)))
    session = np.array([0, 1, 0, -1], np.int32)
    prompts = SimpleNamespace(
        trace=SimpleNamespace(session=session),
        blocks=np.array([1, 2, 3, 4], np.uint32),
        private_blocks=np.array([0, 1, 0, 1], np.uint32),
    )
    curve = SimpleNamespace(prompts=prompts, reuses=reuses, hit_blocks=SimpleNamespace(last=7))
    sizes = np.array([0, 1, 4, 5, 6])
    found = session_hits(curve, sizes)
    assert found.requests.tolist() == [2, 1, 1]
    assert found.references.tolist() == [4, 3, 5]
    each = {
        2: lambda c: sum(c >= 4 + j for j in range(3)),
        1: lambda c: 2 * (c >= 6),
        3: lambda c: int(c >= 5) + sum(c >= 1 + j for j in range(2)),
    }
    columns = [0, 1, 4, 5, 6, 7]
    assert found.hit_blocks.tolist() == [[each[k](c) for c in columns] for k in (2, 1, 3)]
    assert found.own_blocks.tolist() == [each[2](c) + sum(c >= 1 + j for j in range(2)) for c in columns]
    for none in (np.array([-1, -1, -1, -1], np.int32), np.array([], np.int32)):
        prompts.trace.session = none
        with pytest.raises(UsageError, match="--by-session"):
            session_hits(curve, sizes)


def test_students_t_with_seven_degrees_of_freedom():
    """Published quantiles, to the digits of a table."""
    table = {0.2: 1.415, 0.1: 1.895, 0.05: 2.365, 0.02: 2.998, 0.01: 3.499, 0.001: 5.408}
    assert {tails: round(student_t7(tails), 3) for tails in table} == table


@pytest.mark.parametrize(("rate", "fits"), [(0.0, False), (1e-9, True), (0.5, True), (1.0, False), (-0.1, False), (2.0, False)])  # fmt: skip
def test_a_sampling_rate_is_a_share(rate, fits):
    if fits:
        check_rate(rate)
        return
    with pytest.raises(UsageError, match="--sample: sampling rate out of range"):
        check_rate(rate)


@pytest.mark.parametrize("seed", range(4))
def test_requests_of_a_check_continue_an_earlier_one_and_part_from_it(seed):
    """Ids are counted as they appear, one to six new ones a request behind a start of an earlier request."""
    trace = branching_trace(stream(seed, "t"), 60)
    rows = [trace.block_ids[a:b].tolist() for a, b in pairwise(trace.id_offsets)]
    fresh = 0
    for k, row in enumerate(rows):
        new = [block for block in row if block >= fresh]
        assert new == [*range(fresh, fresh + len(new))] == row[len(row) - len(new) :]
        assert 1 <= len(new) <= 6
        shared = row[: len(row) - len(new)]
        assert not shared or any(earlier[: len(shared)] == shared for earlier in rows[:k])
        fresh += len(new)
    assert sum(rows[k][:1] == rows[0][:1] for k in range(60)) > 1
    assert trace.input_tokens.tolist() == [16 * len(row) for row in rows]
    assert trace.arrival_ns.tolist() == [k // 3 * 1_000_000 for k in range(60)]
    assert len(trace) == 60
