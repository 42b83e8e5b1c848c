"""Whether a model's weights fit on its GPUs, and the most that they leave."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec

#: The share of a GPU's memory that an engine takes (vLLM's ``gpu_memory_utilization``).
MEMORY_UTILISATION = 0.9


def kv_room_bytes(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, utilisation: float = MEMORY_UTILISATION
) -> int:
    """Return the bytes that weights leave on each GPU: the most KV that measurements can be of.

    ``kv_room.kv_room`` counts activations too. Raises UsageError when the weights do not fit.
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
