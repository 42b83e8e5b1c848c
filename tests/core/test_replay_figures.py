"""Figures of replays without time: cuts of prompts, shares, quantiles and keys against closed forms."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim._core import HitSteps
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay import engines
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.curve.steps import lower_tier
from kvcache_sim.replay.miss_tables import miss_summary, requests_table
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts, cut_ids, hit_tokens_sha256
from kvcache_sim.replay.request import ReplayRequest, StorageCapacity
from kvcache_sim.replay.upper_bounds import share, upper_bounds
from support.examples import examples
from support.small_traces import trace_of, tree_traces

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
    outputs = "prompt" if keep else outputs
    fresh = iter(range(1000))
    rows = [[next(fresh) for _ in range(ids)] for ids, *_ in drawn]
    trace = trace_of(rows, 8, [tokens for _, tokens, _ in drawn], output_tokens=[more for *_, more in drawn])
    discipline, partial = "flat" if flat else "prefix", "keep" if keep else "drop"
    asked = ReplayRequest(trace, size, 5, outputs=outputs, discipline=discipline, last_partial=partial)
    found = blocks_of_prompts(asked)
    paths, first, owned = [*found.numbered_paths()], 0, []
    for k, (ids, tokens, more) in enumerate(drawn):
        answer = {"prompt": 0, "computed": max(more - 1, 0), "all": more}[outputs]
        named = ids * 8 // size if keep else sum(size * (b + 1) <= min(tokens, 8 * ids) for b in range(50))
        private = 0 if keep else (tokens + answer) // size - named
        countable = named if keep or flat else sum(size * (b + 1) < tokens for b in range(named))
        assert (found.blocks[k], found.private_blocks[k], found.limits[k]) == (named, private, countable)
        numbers = [d * (8 // size) + j for d in range(first, first + ids) for j in range(8 // size)]
        assert paths[k][:named] == numbers[:named]
        assert len(paths[k]) == named + private
        first += ids
        owned += paths[k][named:]
    assert owned == [first * (8 // size) + n for n in range(len(owned))]
    assert found.references == sum(map(len, paths))
    hits = np.array([3 * k for k in range(len(drawn))], np.uint32)
    counted = [min(hit, limit) for hit, limit in zip(hits.tolist(), found.limits.tolist(), strict=True)]
    tokens = [min(hit * size, tokens) for hit, (_, tokens, _) in zip(counted, drawn, strict=True)]
    assert share(found, hits) == {
        "hit_blocks": sum(counted),
        "block_hit_rate": sum(counted) / max(1, found.references),
        "hit_tokens": sum(tokens),
        "hit_rate": sum(tokens) / sum(own for _, own, _ in drawn),
    }
    assert hit_tokens_sha256(found, hits) == hashlib.sha256("\n".join(map(str, tokens)).encode()).hexdigest()


@pytest.mark.parametrize(("size", "blocks"), [(16, 1), (4, 4), (1, 16), (0, None), (5, None), (24, None)])
def test_a_block_size_divides_the_traces(size, blocks):
    if blocks is not None:
        assert cut_ids(16, size) == blocks
        return
    with pytest.raises(UsageError, match="divisor"):
        cut_ids(16, size)


def test_names_of_blocks_are_the_ids_where_a_block_is_one_id():
    trace = replace(trace_of([[7, 9], [7]]), id_names=np.array([70, 90], np.int64))
    whole, halves = (blocks_of_prompts(ReplayRequest(trace, size, 5)) for size in (4, 2))
    assert whole.names.tolist() == [70, 90]
    assert not len(halves.names)
    assert not len(blocks_of_prompts(ReplayRequest(replace(trace, id_names=["a", "b"]), 4, 5)).names)


@examples(40)
@given(tree_traces(), st.integers(1, 30), st.sampled_from([0, 2]), st.sampled_from(["tail", "root"]))
def test_the_figures_of_a_flat_cache_add_up(trace, capacity, window, order):
    asked = ReplayRequest(trace, 4, capacity, window=window, touch_from=order, discipline="flat")
    found = simulate_cache(asked, "lru")
    references = blocks_of_prompts(asked).references
    assert found["accesses"] == found["hits"] + found["misses"] == found["queried_blocks"] == references
    assert found["hit_ratio"] == found["hits"] / max(1, found["accesses"])
    refused = found["not_admitted_blocks"] if window else 0
    assert found["misses"] - refused == found["evictions"] + found["resident_blocks"]


# -- upper bounds


@pytest.mark.parametrize(
    ("policy", "options", "blocks"),
    [
        ("vllm", {}, 6),
        ("sglang-unified:lru", {"host_blocks": 8}, 14),
        ("sglang-unified:lru", {"host_blocks": 8, "storage": StorageCapacity(9)}, 23),
        ("lmcache:lru", {}, None),
        ("vllm", {"reuse_outputs": True, "outputs": "all"}, None),
    ],
)
def test_a_replay_is_a_share_of_what_its_tiers_could_hit_together(policy, options, blocks):
    """LMCache finds whole prompts and answers come back: those may pass the bound, and have none."""
    rows = [[*"abc"], [*"abd"], [*"efg"], [*"ab"]] * 9
    request = ReplayRequest(trace_of(rows), 4, 6, **options)
    found = simulate_cache(request, policy)
    assert ("upper_bounds" in found) == ("share_of_possible" in found) == (blocks is not None)
    if blocks is not None:
        alone = ReplayRequest(request.trace, 4, 6)
        assert found["upper_bounds"] == upper_bounds(blocks_of_prompts(alone), blocks)
        hit = found["hit_tokens"] + found.get("loaded_tokens", 0)
        assert found["share_of_possible"] == hit / found["upper_bounds"]["belady"]["hit_tokens"] > 0


def test_no_policy_hits_more_than_an_unbounded_cache_and_beladys():
    prompts = blocks_of_prompts(
        ReplayRequest(trace_of([[1, 2], [3, 4], [1, 2], [3, 4]], input_tokens=[9] * 4), 4, 2)
    )
    names = ("hit_blocks", "block_hit_rate", "hit_tokens", "hit_rate")
    assert upper_bounds(prompts, 2) == {
        "unbounded": dict(zip(names, (4, 0.5, 16, 16 / 36), strict=True)),
        "belady": dict(zip(names, (2, 0.25, 8, 8 / 36), strict=True)),
    }


# -- causes of misses

REPORTED = [f"{cause}_tokens" for cause in ("never_seen", "diverged", "evicted", "shorter", "not_admitted")]


@examples(80)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 9)), max_size=12))
def test_misses_are_summed_and_ages_of_evictions_are_quantiles_over_blocks(drawn):
    """Nearest rank: the least value that at least half, or nine in ten, of the blocks do not exceed."""
    trace = trace_of([[1]] * 17, arrival_ns=[k * k for k in range(17)])
    tokens = np.arange(17 * 11).reshape(17, 11)
    evicted = [(by + later, by, blocks) for by, later, blocks in drawn]
    found = miss_summary(trace, "own", tokens, np.array(evicted, np.int64).reshape(-1, 3))
    table = requests_table(trace, np.arange(17) - 1, tokens)
    assert table["hit_tokens"] == [*range(-1, 16)]
    for name, column in zip(REPORTED, (0, 1, 2, 3, 6), strict=True):
        assert (found[name], table[name]) == (tokens[:, column].sum(), tokens[:, column].tolist())
    assert found["missed_tokens"] == tokens.sum()
    assert found.get("evicted_by") == ("own" if drawn else None)
    for unit, at in (("requests", range(17)), ("ns", trace.arrival_ns.tolist())):
        every = sorted(at[request] - at[by] for request, by, blocks in evicted for _ in range(blocks))
        ages = {
            name: next(v for n, v in enumerate(every, 1) if 100 * n >= per_cent * len(every))
            for name, per_cent in (("p50", 50), ("p90", 90), ("max", 100))
            if every
        }
        assert found.get(f"evicted_before_{unit}", {}) == ages


def test_hits_of_a_replay_leave_rejected_requests_out():
    request = ReplayRequest(trace_of([["a"], ["b"], ["c"]], 4, [4, 3, 2]), 4, 10)
    found = engines.hit_figures(request, np.array([2, -1, 1]))
    names = ("queried_tokens", "queried_tokens_not_rejected", "hit_tokens", "hit_rate")
    assert [found[name] for name in names] == [9, 6, 3, 3 / 9]


# -- curves


@pytest.mark.parametrize("above", [[3], [2, 5], [5, 2]])
def test_a_lower_tier_adds_what_the_tiers_above_do_not_find(above):
    curve = HitSteps()
    curve.add(*(np.array(own, np.int64) for own in ([4, 9], [3, 1], [2, 5])))
    at = [sum(2 * (c >= 4 + j) for j in range(3)) + 5 * (c >= 9) for c in range(40)]
    sizes = np.array([0, 1, 4, 6, 20])
    found, total, largest = lower_tier(curve, above, sizes), sum(above), max(above)
    above_all = found.above_blocks, found.above_hit_blocks, found.above_inclusive_hit_blocks
    assert above_all == (total, at[total], at[largest])
    assert found.exclusive.tolist() == [at[own + total] - at[total] for own in sizes]
    assert found.inclusive.tolist() == [at[max(own, largest)] - at[largest] for own in sizes]
