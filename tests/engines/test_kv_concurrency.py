"""Layouts of models in vLLM's pool, and what its log says of them, release by release, worked by hand.

Bytes and blocks marked "logged" are those of a server's log, to the digits printed there.
"""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.kv_concurrency import (
    Demand,
    blocks_of_request,
    concurrency,
    logged_tokens,
    longest_tokens,
    needed_bytes,
)
from kvcache_sim.model.kv_groups import token_bytes
from kvcache_sim.model.model_file import load_model
from msgspec.structs import replace
from support.product.models import (
    CompressedAttention,
    HeadAttention,
    Indexer,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    grouped,
    kv_layout,
)

GIB = 1 << 30
FLASH, PRO = load_model("deepseek-v4-flash"), load_model("deepseek-v4-pro")


def spec_of(*kinds):
    return ModelSpec("m", "", 64, 9, grouped([(kind, None) for kind in kinds]))


# DeepSeek-V4

#: Pages of 576 bytes: 64 x 584 of latents or a window; 64 x 132 of index keys; 2 x 584; four tokens of sums, 2 x 2
#: windows x 512 numbers of 4 bytes, and of the index keys' 128 numbers.
LATENT, KEY, FAR, SUMS = 37_440, 8_640, 1_728, 32_832


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("kv_dtype", ["", "fp8", "fp8_ds_mla"])
def test_groups_of_flash(gpus, kv_dtype):
    """21 layers compress 4 tokens and 20 compress 128; 43 windows as 22 and 21, since 22 pads 5 layers, 21 pads 21."""
    layout = kv_layout(FLASH.with_dtypes("", kv_dtype), gpus)
    assert [(g.name, g.kind, g.block_size_tokens, g.reach_tokens, len(g.layers)) for g in layout.groups] == [
        ("swa128", "sliding", 64, 128, 22),
        ("swa128", "sliding", 64, 128, 21),
        ("full", "full", 256, 0, 41),
        ("sums8", "sliding", 4, 8, 21),
        ("sums128", "sliding", 8, 128, 20),
    ]
    filled = [22 * LATENT, 21 * LATENT, 21 * (LATENT + KEY) + 20 * FAR, 21 * (SUMS + KEY), 20 * SUMS]
    assert [g.pages_bytes for g in layout.groups] == filled
    assert layout.bytes_per_block == filled[2] == 1_002_240
    assert [layout.hash_block_size, layout.scheduler_block_size] == [4, 256]


@pytest.mark.parametrize(
    ("releases", "flash", "pro"),
    [
        (((0, 20, 0), (0, 22, 1)), 22 * 47_808, 31 * 47_808),
        (((0, 23, 0), (0, 26, 0)), 22 * LATENT + 21 * KEY + 20 * FAR, 31 * LATENT + 30 * KEY + 31 * FAR),
        (
            ((0, 27, 1), (0, 28, 0), (0, 29, 0), (0, 33, 0), (0, 40, 1)),
            21 * (LATENT + KEY) + 20 * FAR,
            30 * (LATENT + KEY) + 31 * FAR,
        ),
    ],
)
def test_bytes_of_a_block_by_release(releases, flash, pro):
    """-pro: 30 layers compress 4 tokens, 31 compress 128; groups of 31 pad 2 layers, and 61 windows are 31 and 30."""
    for release in releases:
        assert kv_layout(FLASH, 2, release=release).bytes_per_block == flash
        assert kv_layout(PRO, 8, release=release).bytes_per_block == pro
        assert sorted(len(g.layers) for g in kv_layout(PRO, 1, release=release).groups) == [
            30,
            30,
            31,
            31,
            61,
        ]


@pytest.mark.parametrize(
    ("release", "gib", "length", "batch", "blocks", "of_one", "tokens"),
    [
        # logged: 150 K tokens in 7.7 GiB; two batches of 8,192 in flight
        ((0, 26, 0), 7.7, 121_344, 8192, 7_952, 6_391, 150_982),
        # logged: 9.76 and 8.30 times, 2,497,693 and 2,175,276 tokens of bytes with more digits
        ((0, 22, 0), 37.93, 256_000, 8192, 38_722, 3_969, 2_497_564),
        ((0, 25, 1), 32.08, 262_144, 8192, 33_130, 3_993, 2_175_013),
        # from 0.27.1 a request counts whole blocks: 474 + 259 + 259 + 4,099 + 2,065
        ((0, 27, 1), 7.7, 121_344, 8192, 8_249, 7_156, 139_877),
    ],
)
def test_tokens_of_flash_as_logged(release, gib, length, batch, blocks, of_one, tokens):
    layout, demand = kv_layout(FLASH, 2, release=release), Demand(release, batch)
    assert int(gib * GIB) // layout.bytes_per_block == blocks
    assert blocks_of_request(layout, length, demand) == of_one
    assert concurrency(layout, blocks, length, demand) == blocks / of_one
    assert logged_tokens(layout, blocks, length, demand) == tokens


def test_a_refusal_of_flash():
    """Logged by 0.22 with batches of 16,384: 6.66 GiB for 30,000 tokens, at most 13,528 in 5.44 GiB."""
    layout, demand = kv_layout(FLASH, release=(0, 22, 0)), Demand((0, 22, 0), 16_384)
    assert needed_bytes(layout, 30_000, demand) == (118 + 2 * 259 + 4_099 + 2_065) * 22 * 47_808
    assert f"{needed_bytes(layout, 30_000, demand) / GIB:.2f}" == "6.66"
    # 13,528 tokens need 53 + 2 x 213 + 3,383 + 1,692 = 5,554 blocks, one more needs two more blocks
    for blocks, longest in ((5_553, 13_524), (5_554, 13_528), (5_555, 13_528), (5_556, 13_532)):
        assert longest_tokens(layout, blocks * 22 * 47_808, 30_000, demand) == longest
    assert f"{5_554 * 22 * 47_808 / GIB:.2f}" == "5.44"
    assert longest_tokens(layout, 10 * GIB, 30_000, demand) == 30_000
    assert longest_tokens(layout, 1000, 30_000, demand) == 0
    # later a refusal counts a block's bytes
    for release, bytes_a_block in (((0, 28, 0), 22 * 47_808), ((0, 29, 0), 1_002_240)):
        layout, demand = kv_layout(FLASH, release=release), Demand(release, 8192)
        assert needed_bytes(layout, 30_000, demand) == (118 + 2 * 259 + 4_099 + 2_065) * bytes_a_block


def test_compressions_that_vllm_does_not_have_are_refused():
    indexer = Indexer(64, 3, 128)
    four = CompressedAttention(4, 512, 128, 5, 2, 3, ratio=4, indexer=indexer)
    assert token_bytes(spec_of(four, replace(four, ratio=128, indexer=None))) == 0
    for others in ([replace(four, ratio=8)], [HeadAttention(8, 4, 8)]):
        with pytest.raises(UsageError, match="cannot be grouped"):
            kv_layout(spec_of(four, *others))


# other models


def test_index_keys_share_the_blocks_of_their_latents():
    """DeepSeek-V3.2: 61 layers of 576 numbers and 132 bytes; 656 bytes in fp8_ds_mla; blocks of 64 tokens."""
    for kv_dtype, latent in (("bf16", 1152), ("fp8_ds_mla", 656)):
        layout = kv_layout(load_model("deepseek-v3.2").with_dtypes("", kv_dtype), 8)
        assert [(g.kind, g.block_size_tokens, g.kept_bytes) for g in layout.groups] == [
            ("full", 64, 61 * (latent + 132))
        ]
        assert layout.bytes_per_block == 64 * 61 * (latent + 132)
    assert kv_layout(load_model("deepseek-v3.2"), 8, 128).groups[0].block_size_tokens == 128
    assert kv_layout(load_model("deepseek-v3"), 8).groups[0].block_size_tokens == 16
    assert token_bytes(load_model("deepseek-v3.2")) == 78_324


def test_gemma_and_gpt_oss():
    """Gemma 3: 10 layers of full attention, 52 windows as six groups of at most 10, and space for 8 more."""
    gemma = kv_layout(load_model("gemma-3-27b"))
    full, *windows = sorted(gemma.groups, key=lambda group: group.kind)
    assert [full.kind, len(full.layers), len(windows)] == ["full", 10, 6]
    assert sum(10 - len(group.layers) for group in windows) == 8
    assert gemma.bytes_per_block == 1_310_720
    for name, layers in (("gpt-oss-20b", 12), ("gpt-oss-120b", 18)):
        layout = kv_layout(load_model(name))
        assert [len(group.layers) for group in layout.groups] == [layers, layers]
        assert layout.bytes_per_block == layers * 32_768
    assert int(36.56 * GIB) // kv_layout(load_model("gpt-oss-20b")).bytes_per_block == 99_833


@pytest.mark.parametrize(
    ("release", "nearly_equal", "a_third_more"),
    [((0, 11, 2), 2, 2), ((0, 12, 0), 1, 2), ((0, 17, 1), 1, 2), ((0, 18, 0), 1, 1), ((0, 33, 0), 1, 1)],
)
def test_the_smaller_kind_is_padded_by_release(release, nearly_equal, a_third_more):
    """Groups of the larger kind: of 13 layers next to 12 (gpt-oss-20b with a draft), of 4 next to 3."""
    full, window = HeadAttention(8, 4, 8), HeadAttention(8, 4, 8, window_tokens=32)
    for small, large, groups in ((12, 13, nearly_equal), (3, 4, a_third_more), (2, 3, 2)):
        layout = kv_layout(spec_of(*[full] * large, *[window] * small), release=release)
        assert [group.kind for group in layout.groups].count("full") == groups
        assert layout.layers_per_group == (large if groups == 1 else small)


def test_states_with_and_without_prefix_caching():
    """Qwen3.5-27B without, 0.19.0: 784 tokens, 1,487 blocks, 33.04 times, 290,864 tokens logged;
    Qwen3.6-35B-A3B with an FP8 cache: 2,096 tokens, 304 blocks, 8.00 times, 159,296 tokens logged."""
    linear = LinearAttention(48, 128, 128, 1, 1, "fp32", (2 * 16 + 48) * 128, 4)
    dense = spec_of(*([linear] * 3 + [HeadAttention(24, 4, 256)]) * 16)
    layout, off = kv_layout(dense, release=(0, 19, 0)), Demand((0, 19, 0), caches_states=False)
    assert {group.block_size_tokens for group in layout.groups} == {784}
    assert blocks_of_request(layout, 32_768, off) == 42 + 3
    assert f"{concurrency(layout, 1_487, 32_768, off):.2f}" == "33.04"
    assert logged_tokens(layout, 1_487, 32_768, off) == 290_864
    moe = kv_layout(load_model("qwen3.6-35b-a3b").with_dtypes("", "fp8"), release=(0, 20, 0))
    on = Demand((0, 20, 0))
    assert [moe.groups[0].block_size_tokens, moe.bytes_per_block] == [2_096, 21_463_040]
    blocks = int(6.08 * GIB) // moe.bytes_per_block
    assert [blocks, blocks_of_request(moe, 65_536, on), concurrency(moe, blocks, 65_536, on)] == [
        304,
        38,
        8.0,
    ]
    assert logged_tokens(moe, blocks, 65_536, on) == 76 * 2_096 == 159_296
    newest = Demand((0, 20, 2))
    assert logged_tokens(moe, blocks, 65_536, newest) == 8 * 65_536
    assert blocks_of_request(moe, 65_536, replace(on, draft_blocks=3)) == 38 + 9


def test_states_next_to_latents():
    """Kimi-Linear: 20 states as three groups of 7 and space for one; a state of 2,170,880 bytes needs 1,885 tokens."""
    kda = LinearAttention(32, 128, 128, 1, 1, "fp32", 3 * 32 * 128, 4)
    mla = LatentAttention(32, 512, 64, 128, 128)
    layout = kv_layout(spec_of(*([kda] * 3 + [mla]) * 6, kda, kda, mla), release=(0, 32, 0))
    assert sorted(len(group.layers) for group in layout.groups) == [6, 7, 7, 7]
    assert {group.block_size_tokens for group in layout.groups} == {1_920}
    assert layout.bytes_per_block == 7 * 1_920 * 1_152
    # a state of 67,584 bytes needs 59 tokens: one block of 64, and from 0.33 of 128
    small = spec_of(replace(kda, heads=1, convolution_channels=341), mla)
    for release, block in (((0, 32, 0), 64), ((0, 33, 0), 128)):
        assert kv_layout(small, release=release).groups[0].block_size_tokens == block
    # heads: multiples of the requested block from 0.20 on, of 16 before
    heads = spec_of(LinearAttention(4, 40, 32, 1, 1), HeadAttention(8, 4, 8))
    assert kv_layout(heads, 1, 96, (0, 19, 1)).groups[0].block_size_tokens == 160
    assert kv_layout(heads, 1, 96, (0, 20, 0)).groups[0].block_size_tokens == 192


# what a release logs


def test_tokens_of_a_pool_by_release():
    """100 blocks of two groups, 16 tokens a block, windows of 128 and batches of 64; requests of 1,000 tokens."""
    layout = kv_layout(load_model("gpt-oss-20b"))
    full, window = 63, (127 + 64 + 15) // 16 + 1
    both_in_flight = (127 + 128 + 15) // 16 + 1
    for release, tokens, ratio in (
        ((0, 8, 5), 1_600, 1.6),
        ((0, 9, 0), 800, 0.8),
        ((0, 9, 2), 800, 100 / (full + window)),
        ((0, 20, 0), 800, 100 / (full + window)),
        ((0, 20, 2), int(100_000 / (full + window)), 100 / (full + window)),
        ((0, 25, 1), int(100_000 / (full + window)), 100 / (full + window)),
        ((0, 26, 0), int(100_000 / (full + both_in_flight)), 100 / (full + both_in_flight)),
    ):
        demand = Demand(release, 64)
        assert logged_tokens(layout, 100, 1_000, demand) == tokens
        assert concurrency(layout, 100, 1_000, demand) == ratio
    # one batch in flight, and a request shorter than its window
    assert blocks_of_request(layout, 1_000, Demand(max_num_batched_tokens=64, batches_in_flight=1)) == 63 + 13
    assert blocks_of_request(layout, 100, Demand()) == 7 + 8
    # of five groups the smallest blocks count, of 4 tokens
    assert logged_tokens(kv_layout(FLASH), 104, 1_000, Demand((0, 9, 0), 64)) == 104 // 5 * 4


def test_a_chunk_counts_without_a_block_more():
    scout = kv_layout(load_model("llama-4-scout"), 8)
    chunked = -(-(8_192 + 2 * 8_192) // 16)
    full = [group.kind for group in scout.groups].count("full")
    expected = full * 6_250 + (len(scout.groups) - full) * chunked
    assert blocks_of_request(scout, 100_000, Demand()) == expected
