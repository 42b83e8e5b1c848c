"""How many KV blocks a GPU's memory leaves room for."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec

#: The share of a GPU's memory that an engine takes (vLLM's ``gpu_memory_utilization``).
MEMORY_UTILISATION = 0.9


def kv_room_bytes(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, utilisation: float = MEMORY_UTILISATION
) -> int:
    """Return the bytes that weights leave on each GPU.

    Activations and CUDA graphs are not counted: on small GPUs they take 10–25 % of it, so a block count that
    an engine has printed is better than this one. Raises UsageError when the weights do not fit.
    """
    weights = -(-model.weights_bytes // tensor_parallel)
    room = int(gpu.memory_bytes * utilisation) - weights
    if room <= 0:
        raise UsageError(
            f"{model.name} does not fit on {tensor_parallel} × {gpu.name}",
            got=f"{weights:,} bytes of weights a GPU",
            expected=f"fewer than {int(gpu.memory_bytes * utilisation):,}",
            hint="raise the TP degree",
        )
    return room


def kv_blocks(model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, block_size_tokens: int) -> int:
    """Return how many blocks of KV fit; UsageError when the weights do not fit or leave no block."""
    block = block_size_tokens * model.kv_bytes_per_token_per_gpu(tensor_parallel)
    blocks = kv_room_bytes(model, gpu, tensor_parallel) // block
    if blocks == 0:
        raise UsageError(f"{model.name} leaves no room for a KV block", got=f"{block:,} bytes a block")
    return blocks
