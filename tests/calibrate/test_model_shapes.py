"""Shapes of models by hand: caches, weights and operations of layers, and the memory that is left for KV."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import LayerCache, heads_per_gpu
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import (
    EngineMemory,
    default_engine,
    kv_blocks,
    kv_capacity_bytes,
    loaded_weights_bytes,
)
from kvcache_sim.model.layer_group import (
    DenseFeedForward,
    MoeFeedForward,
    count_weights,
    layers_text,
    parse_layers,
)
from kvcache_sim.model.rank_work import expert_layers
from kvcache_sim.model.releases import parse_release
from kvcache_sim.model.roofline import attention_work, linear_layers, moved_bytes_per_token
from layer_shapes import five_layers
from support.examples import examples
from support.product.models import (
    CompressedAttention,
    HeadAttention,
    Indexer,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    WeightDtypes,
    grouped,
    kv_capacity,
    kv_layout,
)


def test_caches_weights_and_operations_of_each_kind_of_attention():
    head = HeadAttention(12, 6, 10)
    assert [head.kind, head.attended_tokens, head.flops_per_pair, head.params(7)] == ["full", 0, 480, 7 * 360]
    assert [heads_per_gpu(6, tp) for tp in (1, 4, 6, 8)] == [6, 2, 1, 1]
    assert head.caches("bf16", 4) == (LayerCache("keys and values", 2 * 20 * 2),)
    rest = {"value_head_size": 4, "output_gate_size": 3, "index_key_size": 8}
    other = HeadAttention(12, 6, 10, **rest, top_k_tokens=64)
    assert [other.attended_tokens, other.chosen_entries] == [64, 64]
    assert [other.flops_per_pair, other.scan_flops_per_pair] == [2 * 12 * 14, 2 * 6 * 8]
    assert other.params(7) == 7 * (12 * 10 + 3 + 12 * 4 + 6 * 14)
    assert other.caches("fp8", 1) == (LayerCache("keys and values", 84), LayerCache("index keys", 16))
    for kind, reach, limit in (
        ("sliding", "window", {"window_tokens": 5}),
        ("chunked", "chunk", {"chunk_tokens": 5}),
    ):
        near = HeadAttention(12, 6, 10, **limit)
        assert [near.kind, near.attended_tokens, near.chosen_entries] == [kind, 5, 0]
        assert near.caches("bf16", 1) == (LayerCache("keys and values", 240, reach, 5),)

    linear = LinearAttention(6, 3, 5, 40, 20, convolution_channels=9, convolution_kernel=4)
    assert linear.params(7) == 7 * 60 + 36
    assert linear.caches("fp8", 2) == (LayerCache("state", 3 * 15 * 4 + 5 * 3 * 2, "state"),)
    assert replace(linear, convolution_kernel=0, state_dtype="bf16").caches("", 1)[0].entry_bytes == 180

    latent = LatentAttention(4, 20, 6, 10, 8)
    assert [latent.kind, latent.flops_per_pair, latent.scan_flops_per_pair] == ["latent", 2 * 4 * 24, 0]
    assert latent.chosen_entries == latent.attended_tokens == 0
    assert latent.params(7) == 7 * 4 * 16 + 7 * 26 + 20 * 4 * 18 + 4 * 8 * 7
    assert latent.caches("bf16", 8) == (LayerCache("latent", 52),)
    sparse = replace(latent, query_rank=5, indexer=Indexer(64, 3, 12))
    assert [sparse.kind, sparse.chosen_entries, sparse.scan_flops_per_pair] == ["latent-sparse", 64, 72]
    index = 5 * 3 * 12 + 7 * (12 + 3)
    assert sparse.params(7) == 5 * (7 + 64) + 7 * 26 + 20 * 4 * 18 + 4 * 8 * 7 + index
    assert [c.entry_bytes for c in sparse.caches("fp8", 1)] == [20 + 12, 12 + 4]
    assert [c.entry_bytes for c in sparse.caches("fp8_ds_mla", 1)] == [20 + 12 + 16, 12 + 4]
    assert len(replace(sparse, indexer=Indexer(64)).caches("fp8", 1)) == 1

    window = CompressedAttention(4, 10, 32, 5, 2, 3, rope_size=6)
    base = 5 * (7 + 40) + 7 * 10 + 3 * (40 + 2 * 7)
    assert [window.attended_tokens, window.flops_per_pair, window.scan_flops_per_pair] == [32, 160, 0]
    assert [window.params(7), window.caches("bf16", 1)] == [base, (LayerCache("window", 20, "window", 32),)]
    plain = replace(window, ratio=4)
    assert [plain.scan_flops_per_pair, plain.params(7)] == [40, base + 2 * 10 * 7]
    assert [c.entry_bytes for c in plain.caches("bf16", 1)] == [20, 20, 2 * 4 * 10 * 4]
    chosen = replace(window, ratio=4, indexer=Indexer(64, 3, 12))
    assert [chosen.attended_tokens, chosen.scan_flops_per_pair] == [96, 2 * 3 * 12 // 4]
    assert chosen.params(7) == base + 2 * 2 * 10 * 7 + index + 2 * 2 * 12 * 7
    caches = chosen.caches("bf16", 1)
    assert [c.entry_bytes for c in caches] == [20, 20, 6, 4 * 4 * 22 * 4]
    assert [c.tokens_per_entry for c in caches] == [1, 4, 4, 1]
    assert [c.entry_bytes for c in chosen.caches("fp8_ds_mla", 1)] == [10 + 6 + 8, 24, 12 + 4, 4 * 4 * 22 * 4]

    every = (
        LayerCache("x", 8, tokens_per_entry=4),
        LayerCache("x", 8, "window", 6),
        LayerCache("x", 8, "state"),
    )
    at_tokens = [[c.bytes_at(n) for n in (-1, 0, 1, 6, 9)] for c in every]
    assert at_tokens == [[0, 0, 0, 8, 16], [0, 0, 8, 48, 48], [0, 0, 8, 8, 8]]
    assert [(c.bytes_per_token, c.fixed_bytes) for c in every] == [(2, 0), (0, 48), (0, 8)]


@examples(40)
@given(st.sets(st.integers(0, 40), min_size=1))
def test_layers_are_written_as_they_are_read(numbers):
    layers = tuple(sorted(numbers))
    text = layers_text(layers)
    assert parse_layers(text, "") == layers
    assert text.count(",") < max(len(layers), 1)


def test_weights_of_layers_and_their_bytes_by_hand():
    for text, layers in (("0-2, 5, 8-12:2", (0, 1, 2, 5, 8, 10, 12)), ("7", (7,)), ("3, 1", (1, 3))):
        assert parse_layers(text, "") == layers
    for text in ("", "1, 1", "2-1", "1-3:0", "a", "1-2-3"):
        with pytest.raises(UsageError):
            parse_layers(text, "")
    assert [layers_text(one) for one in ((0, 2), (0, 1), (1, 3, 5), (4,))] == ["0, 2", "0-1", "1-5:2", "4"]
    one = five_layers()
    assert [group.layers for group in one.groups] == [(0,), (1, 2, 3), (4,)]
    attention, expert, always = 64 * (80 + 80 + 80), 3 * 3 * 16, 64 * (3 * 6 + 8 + 6)
    found = count_weights(one.groups, 64)
    assert [found.attention, found.experts, found.idle_experts] == [4 * attention, 24 * expert, 18 * expert]
    assert found.feed_forward == 3 * 64 * 30 + 3 * always
    assert found.total == found.attention + found.feed_forward + found.experts
    sizes = found.size_bytes(WeightDtypes("bf16", "fp8", "mxfp4"))
    assert sizes == 2 * found.attention + found.feed_forward + math.floor(found.experts * 17 / 32)
    assert [one.embedding_params, five_layers(tied_embeddings=True).embedding_params] == [128_000, 64_000]
    assert one.params_active == found.total + 128_000 - 18 * expert
    assert expert_layers(one)[0] == 3
    assert [mlp.widest_size for mlp in (DenseFeedForward(30), MoeFeedForward(8, 2, 16, 6, 9))] == [30, 9]
    assert MoeFeedForward(8, 2, 16, 6, 9).expert_params(64) == 3 * 64 * 16
    assert MoeFeedForward(8, 2, 16, 6, 9, 5).shared_params(64) == 64 * (3 * 15 + 8 + 10)

    linears = list(linear_layers(one, 2, 4))
    first = [(1, attention / 2, 2), (1, 3 * 64 * 30 / 2, 2)]
    others = [(3, attention / 2, 2), (3, always / 2, 2), (3, expert / 8, 2), (1, 32_000, 1)]
    assert [(each.count, each.weights, each.gemms) for each in linears] == first + others
    assert [(each.experts, each.active) for each in linears] == [(1, 1)] * 4 + [(8, 2), (1, 1)]
    assert [each.moved_values for each in linears] == [0] * 4 + [(2 * 3 + 3 * 16) / 8, 0]
    assert [each.moved_values for each in linear_layers(one, 2)][4] == 2 * 3 + 3 * 16 / 2
    assert MoeFeedForward(8, 2, 16, 6, 9, 5, 2).moved_values(64, 1, 1) == 2 * 5 + 2 * 16
    assert linears[4].read_bytes(np.array([1.0, 3.0])) == pytest.approx(
        [2 * 2 * expert / 8, 8 * (1 - 0.75**3) * 2 * expert / 8]
    )
    assert moved_bytes_per_token(one.groups[0], one, 2) == (2 * (384 + 45), 160 + 2 * 20 * 2)
    assert moved_bytes_per_token(one.groups[1], one, 2)[0] == 2 * (384 + 3 * 6 / 2)
    assert moved_bytes_per_token(one.groups[2], one, 1) == (768, 0)
    work = attention_work(replace(one, kv_dtype="fp8"), 2)
    assert [work.flops_per_pair, work.flops_per_token, work.read_bytes_per_past_token] == [4 * 320, 0, 4 * 40]


def test_what_a_gpu_has_is_as_reported_or_estimated():
    rates = {"pcie_bytes_per_s": 2, "bf16_flops": 3, "fp8_flops": 5}
    gpu = replace(load_gpu("h100"), memory_bytes=1000, reported_memory_bytes=0, **rates)
    assert (gpu.usable_bytes, replace(gpu, reported_memory_bytes=970).usable_bytes) == (985, 970)
    links = [replace(gpu, nvlink_bytes_per_s=own).link_bytes_per_s for own in (0, 1)]
    assert links == [2, 1]
    assert {gpu.flops(dtype) for dtype in ("bf16", "mxfp4", "int4")} == {3}
    assert {gpu.flops(dtype) for dtype in ("fp8", "mxfp8", "int8")} == {5}


def test_the_memory_that_an_engine_leaves_for_kv_by_hand():
    one, gpu = five_layers(), load_gpu("h100")
    expert = 3 * 3 * 16
    for tp, dp, seqs in ((1, 1, 4), (2, 1, 4), (1, 2, 4), (1, 1, 64)):
        found = kv_capacity(one, gpu, tp, EngineMemory(0.5, 16, seqs, "fused"), dp)
        rest = 24 * expert * 2 * (dp - 1) // dp
        assert found.budget_bytes == -(-gpu.usable_bytes // 2)
        routers = 3 * 64 * 8 * 2  # on every GPU
        assert found.weights_bytes == -(-(one.weights_bytes - rest - routers) // tp) + routers
        forward, hidden, routed = 6 * 16 * 30 // tp, 2 * 16 * 64, 4 * 16 * 2 * 64
        sampler = int(6.0 * min(seqs, 16) * 1000)
        assert found.activation_bytes == routed + max(forward + 2 * hidden, sampler + hidden)
        assert found.non_torch_bytes == 140_000_000 + 450_000_000 * (tp * dp > 1)
        left = found.budget_bytes - found.weights_bytes - found.activation_bytes - found.non_torch_bytes
        assert found.kv_bytes == left
    small = kv_capacity(replace(one, vocab_size=100), gpu, 1, EngineMemory(0.5, 16, 1, "fused"))
    assert small.activation_bytes == 4 * 16 * 2 * 64 + 6 * 16 * 30 + 4 * 16 * 64
    packed = replace(five_layers(), vocab_size=100, weights=WeightDtypes(experts="mxfp4"))
    assert (
        kv_capacity(packed, gpu, 1, EngineMemory(0.5, 16, 1, "fused")).activation_bytes
        == 6 * 16 * 30 + 64 * 64
    )
    assert loaded_weights_bytes(packed) == packed.weights_bytes + int(3 * 24 * expert / 2)
    assert loaded_weights_bytes(one) == one.weights_bytes
    assert kv_capacity_bytes(one, gpu, 2) == int(gpu.memory_bytes * 0.9) - one.weights_bytes // 2
    least = replace(gpu, memory_bytes=one.weights_bytes + 1)
    assert kv_capacity_bytes(one, least, 1, 1.0) == 1
    with pytest.raises(UsageError, match="does not fit"):
        kv_capacity_bytes(one, replace(gpu, memory_bytes=one.weights_bytes), 1, 1.0)
    assert [kv_blocks("m", found, size) for size in (found.kv_bytes, found.kv_bytes // 2, 0)] == [
        1,
        2,
        found.kv_bytes,
    ]
    with pytest.raises(UsageError, match="no memory for a KV block"):
        kv_blocks("m", found, found.kv_bytes + 1)
    with pytest.raises(UsageError, match="does not fit"):
        kv_capacity(one, gpu, 1, EngineMemory((one.weights_bytes - 1) / gpu.usable_bytes))


def test_groups_of_layers_in_one_pool_by_hand():
    def spec(*kinds, tp: int = 1, block: int = 16):
        return kv_layout(ModelSpec("m", "", 64, 9, grouped([(kind, None) for kind in kinds])), tp, block)

    full, window = HeadAttention(8, 4, 8), HeadAttention(8, 4, 8, window_tokens=32)
    alone = spec(*[full] * 6)
    assert [(g.kind, len(g.layers), g.name) for g in alone.groups] == [("full", 6, "full")]
    assert alone.bytes_per_block == 6 * 16 * 128
    # latents and index keys of two layers: entries of 40 and 16 bytes in blocks of 64, as one page a layer
    latent = LatentAttention(4, 20, 0, 10, 8, 5, Indexer(64, 3, 12))
    both = spec(latent, latent, block=4)
    assert [both.groups[0].layers, both.page_bytes, both.layers_per_group] == [(0, 1), 64 * 56, 2]
    mixed = spec(HeadAttention(8, 1, 1), HeadAttention(8, 1, 1), HeadAttention(8, 1, 2), block=1)
    assert [mixed.page_bytes, mixed.layers_per_group, len(mixed.groups)] == [16, 1, 1]
    for kinds in ((replace(latent, indexer=None), CompressedAttention(4, 10, 32, 5, 2, 3, ratio=4)),):
        with pytest.raises(UsageError, match="cannot be grouped"):
            spec(*kinds)
    # two and five: groups of two, the last of one; three and four: 4 < 1.5 x 3, so groups of four
    found = spec(full, window, window, window, full, window, window)
    assert [g.layers for g in found.groups] == [(0, 4), (1, 5), (2, 6), (3,)]
    assert [len(g.layers) for g in found.groups] == [2, 2, 2, 1]
    assert [g.name for g in found.groups] == ["full", *["swa32"] * 3]
    assert [found.layers_per_group, found.page_bytes] == [2, 16 * 128]
    near = spec(*[full] * 3, *[window] * 4)
    assert [near.layers_per_group, [len(g.layers) for g in near.groups]] == [4, [3, 4]]
    border = spec(*[full] * 2, *[window] * 3)
    assert [border.layers_per_group, [len(g.layers) for g in border.groups]] == [2, [2, 2, 1]]
    # a page of half the bytes takes a block of twice the tokens
    half = spec(full, HeadAttention(8, 2, 8, chunk_tokens=64))
    assert [(g.block_size_tokens, g.name) for g in half.groups] == [(16, "full"), (32, "chunked64")]
    assert [half.hash_block_size, half.scheduler_block_size] == [16, 32]
    # a state of 20,480 bytes needs 160 tokens of 128 bytes; in fewer whole kernel blocks it does not fit
    state = LinearAttention(4, 40, 32, 1, 1)
    for size, block in ((0, 160), (1, 176)):
        kind = replace(state, convolution_channels=size, convolution_kernel=2)
        assert [g.block_size_tokens for g in spec(full, kind).groups] == [block, block]
    assert spec(full, state, block=512).groups[0].block_size_tokens == 512
    assert spec(state).groups[0].kind == "linear"


@pytest.mark.parametrize(
    ("batch", "engines"),
    [
        ((8192, 1024), "h100 0.8.0, h200 0.8.4, a100 0.8.5, b200 0.9.0"),
        ((2048, 1024), "a100 0.8.0"),
        ((2048, 256), "a100 0.8.4, b200 0.8.4, a100 0.9.0, rtx4090 0.9.0"),
    ],
)
def test_an_engine_has_its_releases_batch(batch, engines):
    for gpu, release in (each.split() for each in engines.split(", ")):
        engine = default_engine(load_gpu(gpu), parse_release(f"vllm@{release}"))
        assert (engine.max_num_batched_tokens, engine.max_num_seqs) == batch
