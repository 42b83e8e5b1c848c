"""KV capacity of a GPU after weights and activations, as an engine determines it at startup."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec

#: Share of a GPU's memory that an engine uses (vLLM's ``gpu_memory_utilization``).
MEMORY_UTILISATION = 0.9


def kv_capacity_bytes(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel: int,
    utilisation: float = MEMORY_UTILISATION,
    data_parallel: int = 1,
) -> int:
    """Return the bytes left after weights on each GPU: an upper bound of the KV in measurements.

    ``kv_capacity.kv_capacity`` subtracts activations too. Raises UsageError if the weights do not fit.
    """
    weights = -(-(model.weights_bytes - other_ranks_bytes(model, data_parallel)) // tensor_parallel)
    free_bytes = int(gpu.memory_bytes * utilisation) - weights
    if free_bytes <= 0:
        raise UsageError(
            f"{model.name} does not fit on {tensor_parallel} × {gpu.name}",
            got=f"{weights:,} bytes of weights a GPU",
            expected=f"fewer than {int(gpu.memory_bytes * utilisation):,}",
            hint="raise the TP degree",
        )
    return free_bytes


def other_ranks_bytes(model: ModelSpec, data_parallel: int) -> int:
    """Return the bytes of experts that one of several data-parallel ranks leaves to the others."""
    if data_parallel == 1:
        return 0
    hidden, bits = model.hidden_size, bits_per_value(model.weights.experts)
    found = ((len(group.layers), group.feed_forward) for group in model.groups)
    experts = sum(count * mlp.experts * mlp.expert_params(hidden) for count, mlp in found if mlp is not None)
    return int(experts * bits / 8) * (data_parallel - 1) // data_parallel


#: Bytes per logit of the engine's sampler warm-up, with top-k and top-p on every sequence. Sorting: the logit
#: in two formats, and a sort's keys and indices twice (38.1 to 39.9 in seven logs of vLLM 0.11). Fused
#: (FlashInfer's sampler, and vLLM of 2026): the logit in two formats.
SAMPLER_BYTES_PER_LOGIT = {"sorting": 38.4, "triton": 6.0, "fused": 6.0}
#: Memory of CUDA, NCCL and kernels outside PyTorch on one GPU, and additionally on each of several (the same
#: logs).
NON_TORCH_BYTES = 140_000_000
NON_TORCH_PARALLEL_BYTES = 450_000_000
#: Packed 4-bit experts are padded to this multiple along the hidden size on GPUs that swizzle them; their
#: scales are not.
_MXFP4_MULTIPLE = 256
#: GPU memory from which vLLM uses its defaults for large GPUs.
_LARGE_BYTES = 70 << 30
#: Median error of the KV capacity on the logs of docs/data/kv-capacity-logs.toml, in percent.
MEDIAN_MISS_PERCENT = 1.2


class EngineMemory(Value):
    """The settings of an engine that determine the memory left for KV.

    ``sampler`` is one of ``SAMPLER_BYTES_PER_LOGIT``; ``source`` names an older release of its batch.
    """

    utilisation: float = 0.9
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    sampler: str = "sorting"
    source: str = ""


def _is_hopper(gpu: GpuSpec) -> bool:
    return "h100" in gpu.name or "h200" in gpu.name


def _is_large(gpu: GpuSpec) -> bool:
    return gpu.usable_bytes >= _LARGE_BYTES


def _is_large_but_a100(gpu: GpuSpec) -> bool:
    return _is_large(gpu) and "a100" not in gpu.name


#: vLLM's release from which on its server has these defaults: the sequences of a small GPU, and the GPUs that
#: count as large (8,192 tokens and 1,024 sequences; small: 2,048 tokens). Sources: pull requests 12369,
#: 16158 (0.8.4), 17073 (0.8.5) and 17885 (0.9.0) of vllm-project/vllm.
VLLM_DEFAULTS: dict[str, tuple[int, Callable[[GpuSpec], bool]]] = {
    "0.8.0": (1024, _is_hopper),
    "0.8.4": (256, _is_hopper),
    "0.8.5": (256, _is_large),
    "0.9.0": (256, _is_large_but_a100),
}
NEWEST_DEFAULTS = "0.9.0"


def default_engine(gpu: GpuSpec, release: str = NEWEST_DEFAULTS) -> EngineMemory:
    """Return the batch that vLLM's server has by default on a GPU, in a release of ``VLLM_DEFAULTS``."""
    small_seqs, counts_as_large = VLLM_DEFAULTS[release]
    tokens, seqs = (8192, 1024) if counts_as_large(gpu) else (2048, small_seqs)
    source = "" if release == NEWEST_DEFAULTS else f", vLLM's defaults from {release} on"
    return EngineMemory(max_num_batched_tokens=tokens, max_num_seqs=seqs, source=source)


class KvCapacity(Value):
    """Bytes on each GPU: the engine's total, and the parts of it that are not for KV."""

    engine: EngineMemory
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int

    @property
    def kv_bytes(self) -> int:
        """The bytes left for KV; negative if the engine would not start."""
        return self.budget_bytes - self.weights_bytes - self.activation_bytes - self.non_torch_bytes

    @property
    def uncertainty_bytes(self) -> int:
        """The uncertainty: a hundredth of the weights, a tenth of the activations, 0.1 GiB."""
        return self.weights_bytes // 100 + self.activation_bytes // 10 + (1 << 30) // 10

    def __str__(self) -> str:
        """Return a sentence with the capacity, its parts, and its uncertainty."""
        gib = [
            f"{size / 2**30:.1f}"
            for size in (
                self.kv_bytes,
                self.uncertainty_bytes,
                self.budget_bytes,
                self.weights_bytes,
                self.activation_bytes,
                self.non_torch_bytes,
            )
        ]
        return (
            f"{gib[0]} GiB a GPU, within about {gib[1]} ({gib[2]} to take - {gib[3]} weights - {gib[4]} "
            f"activations - {gib[5]} CUDA and NCCL; activations of {self.engine.max_num_batched_tokens:,} "
            f"tokens and {self.engine.max_num_seqs:,} sequences{self.engine.source}; median miss on real "
            f"logs {MEDIAN_MISS_PERCENT} %)"
        )


def kv_capacity(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, engine: EngineMemory, data_parallel: int = 1
) -> KvCapacity:
    """Return the KV capacity of an engine such as vLLM 0.11 on each GPU; it may be negative.

    The engine runs its largest batch and its sampler once and gives KV the remaining memory. Computed from
    shapes and settings only, without rules for single models. Experts are spread over data-parallel ranks.
    Raises UsageError if the weights alone do not fit.
    """
    weights = -(-(loaded_weights_bytes(model) - other_ranks_bytes(model, data_parallel)) // tensor_parallel)
    budget = int(gpu.usable_bytes * engine.utilisation)
    if weights >= budget:
        raise UsageError(
            f"{model.name} does not fit on {tensor_parallel} × {gpu.name}",
            got=f"{weights:,} bytes of weights a GPU",
            expected=f"fewer than {budget:,}",
            hint="raise the TP degree",
        )
    parallel = NON_TORCH_PARALLEL_BYTES if tensor_parallel * data_parallel > 1 else 0
    return KvCapacity(
        engine,
        budget_bytes=budget,
        weights_bytes=weights,
        activation_bytes=_activation_bytes(model, tensor_parallel, engine),
        non_torch_bytes=NON_TORCH_BYTES + parallel,
    )


def loaded_weights_bytes(model: ModelSpec) -> int:
    """Return the bytes of the weights in the engine's layout."""
    if model.weights.experts != "mxfp4":
        return model.weights_bytes
    padded = -(-model.hidden_size // _MXFP4_MULTIPLE) * _MXFP4_MULTIPLE - model.hidden_size
    more = Fraction(padded, model.hidden_size) * model.counted_weights.experts
    return model.weights_bytes + int(more * bits_per_value("fp4") / 8)


def _activation_bytes(model: ModelSpec, tensor_parallel: int, engine: EngineMemory) -> int:
    """Return the larger of the forward pass and of the sampler, which runs while the hidden states are kept.

    Both use 16-bit numbers. Mixtures keep the routed activations in two permanent buffers; kernels of 4-bit
    experts have none.
    """
    tokens = engine.max_num_batched_tokens
    hidden = 2 * tokens * model.hidden_size
    forward = routed = 0
    for group in model.groups:
        mlp = group.feed_forward
        if mlp is None:
            continue
        forward = max(forward, 6 * tokens * mlp.widest_size // tensor_parallel)
        if mlp.experts and bits_per_value(model.weights.experts) > 4.5:
            routed = max(routed, 4 * tokens * mlp.experts_active * model.hidden_size)
    sampler = int(
        SAMPLER_BYTES_PER_LOGIT[engine.sampler] * min(engine.max_num_seqs, tokens) * model.vocab_size
    )
    return routed + max(forward + 2 * hidden, sampler + hidden)


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
