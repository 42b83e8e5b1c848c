"""Terms of KV capacity at their limits: classes of memory, sizes of graphs, ranks, groups of layers, the last block."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.engine_memory import rank_weights_bytes
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import (
    EngineMemory,
    kv_blocks,
    kv_capacity_bytes,
    loaded_weights_bytes,
)
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.releases import Subject, parse_release
from kvcache_sim.model.sglang_memory import default_fraction
from msgspec.structs import replace as with_fields
from support.product.models import ModelSpec, kv_capacity, parse_model


def layers_of_each_kind(experts: str) -> ModelSpec:
    """Two mixtures with a group of attention alone between them, and a plain feed-forward; two layers each."""
    attention = {"kind": "full", "heads": 4, "kv_heads": 4, "head_size": 64}
    moe = {"kind": "moe", "experts": 8, "experts_active": 3, "expert_intermediate_size": 130}
    parts = [moe, None, moe | {"experts_active": 1}, {"kind": "dense", "intermediate_size": 512}]
    groups = [
        {"layers": f"{2 * at}-{2 * at + 1}", "attention": attention}
        | ({} if part is None else {"feed_forward": part})
        for at, part in enumerate(parts)
    ]
    table = {"hidden_size": 320, "vocab_size": 1_000, "weights": {"experts": experts}, "group": groups}
    return parse_model(table, "own", "own")


def test_a_rank_has_its_experts_and_the_widest_of_its_layers():
    """Eight experts of 3 x 320 x 130 in four layers: of four ranks three quarters are elsewhere."""
    model, elsewhere = layers_of_each_kind("bf16"), 2 * 4 * 8 * 3 * 320 * 130 * 3 // 4
    whole, one = (rank_weights_bytes(model, 1, ranks, 1) for ranks in (1, 4))
    assert whole - one == elsewhere
    whole, one = (kv_capacity_bytes(model, load_gpu("h100"), 1, data_parallel=ranks) for ranks in (1, 4))
    assert one - whole == elsewhere
    # the router's 8 x 320 numbers of each mixture are on both GPUs
    shared = 2 * 4 * 8 * 320
    assert 2 * rank_weights_bytes(model, 2, 1, 1) == rank_weights_bytes(model, 1, 1, 1) + shared
    found = kv_capacity(model, load_gpu("h100"), 2, EngineMemory(0.9, 1000, 1))
    assert found.forward_bytes == 4 * 1000 * 3 * 320 + 6 * 1000 * 512 // 2 + 2 * 2 * 1000 * 320
    packed = layers_of_each_kind("mxfp4")
    more = loaded_weights_bytes(packed, by_marlin=True) - packed.weights_bytes
    # 320 becomes 512, and 130 becomes 256, with their scales: 4.25 bits
    assert more == int(4 * 8 * 3 * (512 * 256 - 320 * 130) * 4.25 / 8)


@pytest.mark.parametrize(
    ("given", "usable"),
    [
        ({"memory_bytes": 1000}, 985),
        ({"reported_memory_bytes": 970}, 970),
        ({"memory_bytes": 1000, "reported_memory_bytes": 0}, 985),
        ({"memory_bytes": 1000, "reported_memory_bytes": 970}, "memory_bytes has no effect"),
        ({"memory_bytes": 1000, "reported_memory_bytes": -1}, "reported_memory_bytes is too small"),
        ({"memory_bytes": 0}, "memory_bytes is too small"),
        ({}, "no memory_bytes"),
    ],
)
def test_the_memory_in_a_file_of_a_gpu(tmp_path, given, usable):
    """The vendor's figure, of which 98.5 % are usable, or the one that CUDA reports."""
    rates = dict.fromkeys(("memory_bytes_per_s", "bf16_flops", "fp8_flops", "pcie_bytes_per_s"), 10**12)
    lines = [f"{key} = {value}" for key, value in (rates | {"nvlink_bytes_per_s": 0} | given).items()]
    (tmp_path / "own.toml").write_text("\n".join(lines))
    if isinstance(usable, int):
        assert load_gpu(str(tmp_path / "own.toml")).usable_bytes == usable
        return
    with pytest.raises(UsageError, match=usable):
        load_gpu(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("release", "mib", "tp", "chunk", "kept"),
    [
        ("0.4.6", 81_920, 3, 8192, 0.13 * 81_920),
        ("0.4.6", 81_921, 3, 8192, 13_312),
        ("0.4.6.post5", 81_920, 8, 8192, 0.19 * 81_920),
        ("0.4.6.post5", 98_304, 8, 8192, 0.12 * 98_304),
        ("0.4.6.post5", 98_305, 8, 8192, 18_432),
        ("0.4.6.post5", 262_144, 8, 8192, 0.12 * (262_144 - 49_152)),
        ("0.4.8", 35_839, 2, 8192, 1024 * 3.0),
        ("0.4.8", 35_840, 2, 8192, 1024 * 10.5),
        ("0.4.8", 92_160, 2, 8192, 1024 * 13.0),
        ("0.4.8", 163_840, 2, 8192, 1024 * 32.0),
        ("0.5.9", 61_440, 1, 100, 512 + 1.5 * 2048 + 2 * 256 + 128),  # a chunk counts as 2,048 at least
        ("0.5.9", 61_440, 1, 3000, 512 + 1.5 * 3000 + 2 * 256 + 128),
        ("0.5.9", 61_441, 1, 3000, 10_240),
    ],
)
def test_sglang_keeps_by_classes_of_memory(release, mib, tp, chunk, kept):
    """Each class at its limit, and one MiB beyond it."""
    gpu = with_fields(load_gpu("h100"), driver_memory_mib=mib, reported_memory_bytes=mib << 20)
    engine = EngineMemory(max_num_batched_tokens=chunk, release=parse_release(f"sglang@{release}"))
    share = default_fraction(gpu, Subject("own", gpu.usable_bytes, tp), engine)
    assert share == pytest.approx(1 - kept / mib, abs=5.1e-4 if release == "0.5.9" else 1e-9)


def test_graphs_are_of_as_many_sizes_as_sequences_and_tokens_allow():
    """Mixed ones to twice the sequences, 512 tokens or the budget, decodes to the sequences: equal steps a size."""
    counted = {(256, 8192): 51 + 35, (100, 8192): 28 + 15, (300, 8192): 51 + 37, (256, 64): 22, (40, 64): 19}
    release, per_size = parse_release("vllm@0.20.0"), []
    sizes = {}
    for (sequences, tokens), count in counted.items():
        engine = EngineMemory(0.9, tokens, sequences, release=release)
        sizes[count] = kv_capacity(load_model("qwen3-32b"), load_gpu("h100"), 2, engine).graphs.size_bytes
    first, *others = sorted(sizes)
    for count in others:
        per_size.append((sizes[count] - sizes[first]) / (count - first))
    assert max(per_size) - min(per_size) < 2
    assert min(per_size) > 0


def test_weights_that_fill_the_share_leave_no_start_and_one_block_is_enough():
    model = layers_of_each_kind("bf16")
    weights = rank_weights_bytes(model, 1, 1, 1)
    for more in (0, 1):
        gpu = with_fields(load_gpu("h100"), memory_bytes=weights + more, reported_memory_bytes=weights + more)
        for find in (
            lambda gpu=gpu: kv_capacity(model, gpu, 1, EngineMemory(1.0)),
            lambda gpu=gpu: kv_capacity_bytes(model, gpu, 1, 1.0),
        ):
            if more:
                find()
                continue
            with pytest.raises(UsageError, match="does not fit"):
                find()
    given = kv_capacity(model, load_gpu("h100"), 1, EngineMemory(kv_cache_memory_bytes=99))
    assert [kv_blocks("m", given, size) for size in (49, 50, 99)] == [2, 1, 1]
    with pytest.raises(UsageError, match="no memory for a KV block"):
        kv_blocks("m", given, 100)
