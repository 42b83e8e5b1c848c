"""FlashAttention 2's decode attention from the number of sequences at which it no longer splits their KV."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from kvcache_sim.model.attention import HeadAttention, heads_per_gpu
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.parametric import ParametricStepTime

#: Tokens of the longest sequence that are read while other blocks run, in multiples of the mean length. It is
#: fitted to the batches of one long sequence of three deployments together (``unequal-lengths.toml``).
HIDDEN_MEANS = 2.3
#: Multiprocessors of the GPUs whose kernels were measured with unequal lengths (vendor's figures).
MULTIPROCESSORS = {"rtx4090": 128, "rtx-pro-6000": 188}
#: ``num_splits_heuristic`` keeps one split from this share of two blocks per multiprocessor on.
_FULL, _BLOCKS = 0.8, 2


def unsplit_from(kv_heads: int, tensor_parallel: int, multiprocessors: int) -> int:
    """Return the least number of decode sequences whose KV FlashAttention 2 does not split.

    Its ``num_splits_heuristic`` (``csrc/flash_attn/flash_api.cpp``) launches one block per sequence and KV
    head, without splits, if these blocks nearly fill the GPU: sequences · heads ≥ 0.8 · 2 · multiprocessors.
    """
    return ceil(_FULL * _BLOCKS * multiprocessors / heads_per_gpu(kv_heads, tensor_parallel))


def with_unsplit_kv(
    model: ParametricStepTime, spec: ModelSpec, gpu: str, tensor_parallel: int
) -> ParametricStepTime:
    """Return the model with the cost of the longest sequence where KV is not split.

    Of fewer sequences each is cut into equally many parts, which all blocks read: only the sum of the lengths
    counts. From the threshold on one block reads a sequence to its end, in waves of blocks, and the longest
    is read alone after all others have ended. Until then it advances by what a block reads in that time, a
    multiple of the mean: many waves, or other long sequences, hide it. One block's rate is that of ``scan``,
    measured in steps with a chunk, which never split.
    """
    kv_heads = max(kind.kv_heads for _, kind in spec.attention_layers() if isinstance(kind, HeadAttention))
    return replace(
        model,
        unsplit_sequences=unsplit_from(kv_heads, tensor_parallel, MULTIPROCESSORS[gpu]),
        unsplit_ms_per_thousand=model.scan_ms_per_thousand,
        unsplit_hidden=HIDDEN_MEANS,
    )
