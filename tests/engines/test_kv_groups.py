"""vLLM's KV cache groups: every oracle row, closed forms; ``test_engine_streams.py`` has random streams."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from call_outcome import each_is_refused
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.model.model_file import load_model, model_names
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.kv_groups import replay_groups
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.report.curve.groups import GroupsAsk, groups_document, groups_rendered
from support.examples import examples
from support.group_layouts import conversation, layouts, row_request
from support.product.machines import group_settings, native_groups
from support.product.models import kv_layout
from support.shared_files import shared
from support.small_traces import trace_of, tree_traces

#: What a row says about where it was made, and the random stream it replays.
PROVENANCE = {"version", "trace", "seed"}
#: A row keeps so many requests' hits, those of a stream fewer.
FIRST = "first_20_hits"


def differing(row: dict, got: dict) -> list[tuple]:
    got = got | {FIRST: got[FIRST][: len(row[FIRST])]}
    return [
        (row["model"], name, got.get(name), value)
        for name, value in row.items()
        if name not in PROVENANCE and got.get(name) != value
    ]


@pytest.mark.parametrize(("stem", "count"), [("conversation", 44), ("lcg", 75), ("short", 12)])
def test_every_oracle_row(stem, count):
    rows = json.loads(shared(f"oracles/vllm_hybrid_{stem}.json").read_text())
    assert len(rows) == count
    wrong = [bad for row in rows for bad in differing(row, simulate_cache(row_request(row), "vllm"))]
    assert not wrong


@st.composite
def replays(draw, groups=None):
    """Random prefix trees, a capacity at times too small for a prompt, any settings of the engine."""
    trace, layout = draw(tree_traces()), draw(layouts() if groups is None else groups)
    align = layout.scheduler_block_size
    interval = draw(st.sampled_from([None, 0, 0, align, 2 * align, 5 * align]))
    settings = GroupSettings(
        "drawn",
        layout,
        max_num_batched_tokens=draw(st.sampled_from([1, 5, 12, 40, 8192])),
        retention_interval=interval,
        max_model_len=draw(st.sampled_from([30, 262144])),
    )
    return ReplayRequest(
        trace,
        4,
        draw(st.one_of(st.integers(1, 60), st.integers(40, 400))),
        window=draw(st.sampled_from([0, 0, 1, 3])),
        outputs=draw(st.sampled_from(["prompt", "computed", "all"])),
        groups=settings,
    )


@given(replays())
@examples(200)
def test_keys_that_were_given_are_kept_or_evicted(request):
    got = replay_groups(request, request.groups, alone=True)
    assert sum(got["keyed_at_end"]) == got["hashed_blocks_inserted"] - got["evictions"]
    assert got["hit_tokens"] <= min(got["alone_hit_tokens"])


@given(replays(layouts(("full",)).filter(lambda layout: len(layout.groups) == 1)), st.sampled_from([1, 2, 4]))
@examples(100)
def test_one_full_group_without_rejections_is_the_pool_of_full_attention(request, size):
    """Check replays without refusals: chunks and steps do not matter there."""
    layout = KvLayout((KvGroup("full", size, 0, (0,)),), 1, 1)
    settings = replace(request.groups, layout=layout, retention_interval=0)
    request = replace(request, block_size_tokens=size, groups=settings)
    got = replay_groups(request, settings)
    if got["forced_frees"] or got["rejected_requests"]:
        return
    plain = simulate_cache(replace(request, groups=None), "vllm")
    same = ["hit_tokens", "evictions", "fresh_blocks_allocated", "per_request_hit_tokens_sha256"]
    assert [got[name] for name in same] == [plain[name] for name in same]


def unbounded(request: ReplayRequest) -> ReplayRequest:
    return replace(request, capacity_blocks=10**6, window=0)


@given(replays(layouts(("sliding",))), st.integers(1, 40))
@examples(100)
def test_without_a_bound_a_smaller_window_never_hits_more(request, window):
    """A window as long as any prompt is full attention; every checkpoint is kept."""
    size = request.groups.layout.groups[0].block_size_tokens
    longest = int(request.trace.input_tokens.max()) + 10 + size

    def hits(*groups: KvGroup) -> int:
        layout = KvLayout((KvGroup("full", size, 0, (0,)), *groups), 1, 1)
        settings = replace(request.groups, layout=layout, retention_interval=None)
        return replay_groups(unbounded(request), settings)["hit_tokens"]

    full = hits()
    assert hits(KvGroup("sliding", size, longest, (1,))) == full
    assert hits(KvGroup("sliding", size, window, (1,))) <= full
    assert hits(KvGroup("linear", size, 0, (1,))) <= full


@given(replays())
@examples(60)
def test_more_checkpoints_never_hit_less_without_a_bound(request):
    """Between 0 and null every retention keeps a part of what null keeps."""
    asked = [request.groups.retention_interval, None]
    some, dense = (
        replay_groups(unbounded(request), replace(request.groups, retention_interval=interval))["hit_tokens"]
        for interval in asked
    )
    if not any(group.kind == "linear" for group in request.groups.layout.groups):
        # With states junctions change the chunks, and so where a state can be kept at all.
        assert some <= dense


@pytest.mark.parametrize("kind", [("sliding", 9), ("linear", 0)])
def test_what_a_group_lost_by_hand(kind):
    """Full attention has 16 tokens of the third prompt, the other group nothing there: not kept, or
    evicted."""
    first = list(range(8))
    other = [[100 * k + j for j in range(8)] for k in range(1, 9)]

    def lost(rows, blocks: int, interval: int | None, step: int = 8192) -> tuple[list[int], list[int]]:
        trace = trace_of(rows, block_size=4, input_tokens=[32] * len(rows))
        groups = (KvGroup(kind[0], 4, kind[1], (0,)), KvGroup("full", 4, 0, (1,)))
        settings = GroupSettings("", KvLayout(groups, 1, 1), step, interval)
        got = replay_groups(ReplayRequest(trace, 4, blocks, outputs="computed", groups=settings), settings)
        return got["lost_tokens_not_kept"], got["lost_tokens_evicted"]

    parts = [first, first, [*range(4), 20, 21, 22, 23]]
    assert lost(parts, 1000, 0) == ([16, 0], [0, 0])
    # With a checkpoint after every block nothing is lost, however the prompts part.
    assert lost(parts, 1000, None, step=4) == ([0, 0], [0, 0])
    # The same prompt again, with ever fewer blocks, after prompts of others: kept blocks are evicted. A
    # request's blocks of the first group leave first, so full attention still has all of it for a while.
    found = [lost([first, *other, first], blocks, 0) for blocks in range(20, 120)]
    assert {unkept[1] + evicted[1] for unkept, evicted in found} == {0}
    assert {evicted[0] for _, evicted in found} == {0, 28}
    # With fewer blocks full attention has lost its end as well, and kept nothing at the position it still
    # reaches.
    assert {unkept[0] for unkept, evicted in found if not evicted[0]} == {0, *range(4, 28, 4)}
    assert not any(unkept[0] and evicted[0] for unkept, evicted in found)
    assert lost([first, *other, first], 1000, 0) == ([0, 0], [0, 0])


@given(replays())
@examples(60)
def test_without_a_bound_nothing_is_lost_to_eviction(request):
    got = replay_groups(unbounded(request), request.groups)
    assert not any(got["lost_tokens_evicted"])
    assert any(got["lost_tokens_not_kept"]) == (got["shared_prefix_junctions"] > 0)


# layouts


def test_a_state_raises_the_block_as_the_engine_does():
    """Qwen3-Next's state of 1,097,728 bytes needs 536 tokens of 2,048 bytes, in multiples of 16: 544."""
    layout = kv_layout(load_model("qwen3-next-80b-a3b"))
    assert {group.block_size_tokens for group in layout.groups} == {544}
    assert layout.page_bytes == 544 * 2 * 2 * 256 * 2
    trace = trace_of([range(8), range(8)], block_size=512)
    settings = GroupSettings("", layout)
    hits = replay_groups(ReplayRequest(trace, 512, 1000, groups=settings), settings)[FIRST]
    # 4,096 tokens hold seven blocks of 544; ids of 512 name them all by units of 32.
    assert hits == [0, 7 * 544]


def test_every_model_of_the_catalogue_has_groups():
    for name in model_names():
        layers = {layer for group in kv_layout(load_model(name), 2).groups for layer in group.layers}
        assert layers == {n for found in load_model(name).caches(2).values() for n in found}, name


def test_makers_ids_are_names():
    for maker, name in (
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"),
        ("deepseek-ai/deepseek-r1", "deepseek-r1"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3.6-35b-a3b"),
    ):
        assert load_model(maker).name == name
    with pytest.raises(UsageError, match="unknown model"):
        load_model("openai/gpt-9")


def test_the_curve_of_a_model_is_its_replays():
    trace = replace(conversation(300), source="")
    settings = group_settings("vllm", "gpt-oss-20b", 0, None, "")
    asked = ReplayRequest(trace, 16, 1, outputs="computed")
    document = groups_document(GroupsAsk(asked, settings, ("40GB", "20000")))
    for point, blocks in zip(
        document["points"], (40 * 10**9 // settings.layout.bytes_per_block, 20000), strict=True
    ):
        assert point["capacity_blocks"] == blocks
        found = replay_groups(replace(asked, capacity_blocks=blocks), settings)
        assert point["groups"]["hit_tokens"] == found["hit_tokens"]
        # Full attention in the same bytes has half the blocks: a block holds all layers' pages.
        layout = KvLayout((KvGroup("full", 16, 0, tuple(range(24))),), 1, 1)
        full = replace(settings, layout=layout)
        halved = replay_groups(replace(asked, capacity_blocks=blocks // 2), full)
        assert point["full_attention"]["hit_tokens"] == halved["hit_tokens"]
        joint, alone = point["groups"]["hit_rate"], point["groups"]["alone_hit_rates"]
        assert list(alone) == ["swa128", "full"]
        assert joint <= min(alone.values()) < max(alone.values())
    upper_bound = document["upper_bound"]["groups"]
    assert upper_bound["hit_tokens"] >= point["groups"]["hit_tokens"]
    assert (
        upper_bound["hit_tokens"]
        == replay_groups(unbounded(replace(asked, groups=settings)), settings)["hit_tokens"]
    )
    lines = groups_rendered(document, "text").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[0] == "unbounded"


@given(replays())
@examples(60)
def test_full_attention_alone_hits_the_longest_prefix_that_was_shown(request):
    """Without a bound: the closed form of a full group alone, and the joint hit is never more than any
    group's."""
    got = replay_groups(unbounded(request), request.groups, alone=True)
    layout, trace = request.groups.layout, request.trace
    for group, alone in zip(layout.groups, got["alone_hit_tokens"], strict=True):
        assert got["hit_tokens"] <= alone
        if group.kind == "full" and len(layout.groups) == 1 and not request.window:
            assert alone == got["hit_tokens"]
    ids = [trace.block_ids[a:b].tolist() for a, b in pairwise(trace.id_offsets.tolist())]
    size, align = trace.block_size, layout.scheduler_block_size
    if any(group.block_size_tokens % size for group in layout.groups):
        return
    shown: set[tuple[int, ...]] = set()
    expected = 0
    for prompt, tokens in zip(ids, trace.input_tokens.tolist(), strict=True):
        seen = max((k for k in range(len(prompt) + 1) if tuple(prompt[:k]) in shown or not k), default=0)
        expected += min(seen * size, tokens - 1) // align * align
        shown.update(tuple(prompt[:k]) for k in range(1, tokens // size + 1))
    for group, alone in zip(layout.groups, got["alone_hit_tokens"], strict=True):
        if group.kind == "full":
            assert alone == expected


def test_settings_without_effect_are_refused():
    assert group_settings("vllm", "llama-3-8b", 0, None, "") is None
    assert group_settings("lru", "gpt-oss-20b", 0, None, "") is None
    for arguments in (
        ("vllm", "llama-3-8b", 0, 8192, ""),
        ("lru", "gpt-oss-20b", 0, None, "0"),
        ("vllm", "gpt-oss-20b", 0, None, "7"),
        ("vllm", "gpt-oss-20b", 0, None, "often"),
    ):
        with pytest.raises(UsageError):
            group_settings(*arguments)
    assert group_settings("vllm", "gpt-oss-20b", 0, None, "null").retention_interval is None


def test_what_cannot_be_is_refused_and_never_panics():
    trace = trace_of([["a", "b"]])
    keys = _core.Keys(
        trace.id_offsets, trace.block_ids, 1, np.array([2], np.uint32), np.full(1, 2**32 - 1, np.uint32)
    )
    n = trace.input_tokens.astype(np.uint64)
    good = native_groups(KvLayout((KvGroup("full", 4, 0, (0,)),), 1, 1), trace)
    limits = (8, 0, 100)
    calls = [
        lambda: _core.KvGroups([], 4),
        lambda: _core.KvGroups([("full", 4, 1, keys, 1)], 4),
        lambda: _core.KvGroups([("sliding", 4, 0, keys, 1)], 4),
        lambda: _core.KvGroups([("other", 4, 0, keys, 1)], 4),
        lambda: _core.KvGroups([("full", 4, 0, keys, 1)], 6),
        lambda: _core.KvGroups([("full", 4, 0, keys, 0)], 4),
        lambda: good.replay(n, n, (0, False), limits, 0),
        lambda: good.replay(n, n - 1, (0, False), limits, 5),
        lambda: good.replay(n[:0], n[:0], (0, False), limits, 5),
        lambda: good.replay(n, n, (0, False), (0, 0, 100), 5),
        lambda: good.replay(n, n, (0, False), (8, 2**40, 100), 5),
        lambda: good.queue_lines(np.array([3], np.uint8), np.array([3], np.uint64), 4, 4, []),
        lambda: good.queue_lines(np.array([0], np.uint8), np.array([3], np.uint64), 0, 4, []),
    ]
    each_is_refused(calls)
