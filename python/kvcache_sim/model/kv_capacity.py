"""KV capacity of a GPU after weights and activations, as an engine determines it at startup."""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.engine_memory import EngineMemory as EngineMemory
from kvcache_sim.model.engine_memory import KvCapacity as KvCapacity
from kvcache_sim.model.engine_memory import loaded_weights_bytes as loaded_weights_bytes
from kvcache_sim.model.engine_memory import other_ranks_bytes
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Release, Subject
from kvcache_sim.model.sglang_memory import sglang_capacity
from kvcache_sim.model.vllm_memory import vllm_capacity

#: Share of a GPU's memory that an engine uses (vLLM's ``gpu_memory_utilization``).
MEMORY_UTILISATION = 0.9


def kv_capacity_bytes(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel: int,
    utilisation: float = MEMORY_UTILISATION,
    data_parallel: int = 1,
    stages: int = 1,
) -> int:
    """Return the bytes left after weights on each GPU: an upper bound of the KV in measurements.

    Of pipeline ``stages`` each has its share. ``kv_capacity`` subtracts activations too. Raises UsageError if
    the weights do not fit.
    """
    of_rank = model.weights_bytes - other_ranks_bytes(model, data_parallel)
    weights = -(-of_rank // (tensor_parallel * stages))
    free_bytes = int(gpu.memory_bytes * utilisation) - weights
    if free_bytes <= 0:
        raise _does_not_fit(model, gpu, tensor_parallel, weights, int(gpu.memory_bytes * utilisation))
    return free_bytes


def _does_not_fit(model: ModelSpec, gpu: GpuSpec, degree: int, weights: int, limit: int) -> UsageError:
    return UsageError(
        f"{model.name} does not fit on {degree} × {gpu.name}",
        got=f"{weights:,} bytes of weights a GPU",
        expected=f"fewer than {limit:,}",
        hint="raise the TP degree",
    )


def default_engine(
    gpu: GpuSpec, release: Release, model: ModelSpec | None = None, tensor_parallel: int = 1
) -> EngineMemory:
    """Return the settings that a release's server has by default on a GPU, for a model that decides some.

    As vLLM does, sequences that are not given are at most the token budget.
    """
    subject = Subject(gpu.name, gpu.usable_bytes, tensor_parallel)
    if model is not None:
        subject = release_subject(model, gpu, tensor_parallel, release)
    if release.engine == "sglang":
        chunk = release.value("chunked_prefill_size", subject)
        return EngineMemory(max_num_batched_tokens=chunk, release=release)
    tokens = release.value("max_num_batched_tokens", subject)
    return EngineMemory(
        release.value("gpu_memory_utilization", subject),
        tokens,
        min(release.value("max_num_seqs", subject), tokens),
        release=release,
    )


def kv_capacity(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, engine: EngineMemory, data_parallel: int = 1
) -> KvCapacity:
    """Return the KV capacity of an engine on each GPU, by its release's rule; it may be negative.

    Computed from shapes, settings and the table of releases only, without rules for single models. Experts
    are spread over data-parallel ranks. Raises UsageError if the weights alone do not fit.
    """
    rule = sglang_capacity if engine.release.engine == "sglang" else vllm_capacity
    found = rule(model, gpu, tensor_parallel, engine, data_parallel)
    if found.weights_bytes >= found.budget_bytes:
        raise _does_not_fit(model, gpu, tensor_parallel, found.weights_bytes, found.budget_bytes)
    return found


def kv_blocks(model: str, free_bytes: KvCapacity, block_bytes: int) -> int:
    """Return the number of blocks of ``block_bytes`` that fit; UsageError naming the model if none does."""
    blocks = free_bytes.kv_bytes // max(block_bytes, 1)
    if blocks < 1:
        raise UsageError(
            f"{model} leaves no memory for a KV block of {block_bytes:,} bytes",
            got=str(free_bytes),
            hint="raise the TP degree or replica.gpu_memory_utilization, or lower replica.max_num_seqs",
        )
    return blocks
