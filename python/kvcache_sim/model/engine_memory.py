"""Settings of an engine that decide the memory left for KV, and the sum of its start by parts.

The parts of vLLM are those of its log; SGLang's are the memory it finds, a share of it, and the weights.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, hypot

from kvcache_sim.base.values import Value
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import Release, Version

#: Packed 4-bit experts are padded to this multiple along the hidden size; their scales are not, but for
#: Marlin's kernels, which also pad the intermediate size to a multiple of its own.
_MXFP4_MULTIPLE, _MARLIN_MULTIPLE = 256, 128


class EngineMemory(Value):
    """The settings of an engine that determine the memory left for KV.

    ``sampler`` names a sampler that is not the release's own; "": the release's. ``source`` ends a sentence.
    ``mem_fraction``: SGLang's share, None for its default. ``graphs_bytes``: the estimate that an engine of
    this model printed, None if it is not known. ``kv_cache_memory_bytes``: KV that is given, in place of all.
    ``mxfp4_experts`` names kernels of MXFP4 experts that are not the release's own on the GPU, such as
    ``marlin``. ``drafts``: an EAGLE draft. ``attention_ranks``: SGLang's data-parallel ranks of attention.
    """

    utilisation: float = 0.9
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    sampler: str = ""
    source: str = ""
    release: Release = Release("vllm", Version(0, 11))
    pipeline_parallel: int = 1
    mem_fraction: float | None = None
    graphs_bytes: int | None = None
    kv_cache_memory_bytes: int | None = None
    mxfp4_experts: str = ""
    drafts: bool = False
    attention_ranks: int = 1


class Estimate(Value):
    """Bytes that no rule gives, with the limits of nine in ten of those that engines logged."""

    size_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int = 0


class KvCapacity(Value):
    """Bytes on each GPU: the engine's total, and the parts of it that are not for KV.

    ``activation_bytes`` are the larger of the forward pass's peak and of the sampler's, which takes
    ``logit_bytes`` a logit; both are with what is kept in any case. ``found_bytes`` is the memory before the
    engine's share. ``band_bytes`` is half the width of the 90 % band without the graphs' own interval.
    """

    engine: EngineMemory
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int = 0
    non_torch_bytes: int = 0
    graphs: Estimate = Estimate()
    forward_bytes: int = 0
    sampler_bytes: int = 0
    logit_bytes: float = 0.0
    found_bytes: int = 0
    band_bytes: int = 0

    @property
    def kv_bytes(self) -> int:
        """The bytes left for KV; negative if the engine would not start."""
        if self.engine.kv_cache_memory_bytes is not None:
            return self.engine.kv_cache_memory_bytes
        taken = self.weights_bytes + self.activation_bytes + self.non_torch_bytes + self.graphs.size_bytes
        return self.budget_bytes - taken

    @property
    def low_bytes(self) -> int:
        """The lower limit of the 90 % interval."""
        return self.kv_bytes - self._half(self.graphs.high_bytes - self.graphs.size_bytes)

    @property
    def high_bytes(self) -> int:
        """The upper limit of the 90 % interval."""
        return self.kv_bytes + self._half(self.graphs.size_bytes - self.graphs.low_bytes)

    @property
    def uncertainty_bytes(self) -> int:
        """The larger distance to a limit of the 90 % interval."""
        return max(self.kv_bytes - self.low_bytes, self.high_bytes - self.kv_bytes)

    def _half(self, graphs_bytes: int) -> int:
        if self.engine.kv_cache_memory_bytes is not None:
            return 0
        return round(hypot(self.band_bytes, graphs_bytes))

    def __str__(self) -> str:
        """Return a sentence with the capacity, its parts, and its interval."""
        engine = self.engine
        gib = {
            "to take": self.budget_bytes,
            "weights": self.weights_bytes,
            "activations": self.activation_bytes,
            "CUDA and NCCL": self.non_torch_bytes,
            "graphs": self.graphs.size_bytes,
        }
        parts = [f"{size / 2**30:.1f} {name}" for name, size in gib.items() if size or name != "graphs"]
        if engine.release.engine == "sglang":
            parts, batch = parts[:2], "activations and graphs outside"
        else:
            tokens, seqs = engine.max_num_batched_tokens, engine.max_num_seqs
            batch = f"activations of {tokens:,} tokens and {seqs:,} sequences"
        low, high = (f"{size / 2**30:.1f}" for size in (self.low_bytes, self.high_bytes))
        return (
            f"{self.kv_bytes / 2**30:.1f} GiB a GPU, {low} to {high} in nine of ten logs "
            f"({' - '.join(parts)}; {batch}{engine.source})"
        )


def loaded_weights_bytes(model: ModelSpec, by_marlin: bool = False) -> int:
    """Return the bytes of the weights in the engine's layout; ``by_marlin``: for Marlin's kernels."""
    if model.weights.experts != "mxfp4":
        return model.weights_bytes
    more, dtype = _padding(model.hidden_size, _MXFP4_MULTIPLE), "fp4"
    if by_marlin:
        sizes = [getattr(group.feed_forward, "expert_intermediate_size", 0) for group in model.groups]
        more, dtype = (1 + more) * (1 + _padding(max(sizes), _MARLIN_MULTIPLE)) - 1, "mxfp4"
    return model.weights_bytes + int(more * model.counted_weights.experts * bits_per_value(dtype) / 8)


def _padding(size: int, multiple: int) -> Fraction:
    """Return what padding to a multiple adds, as a share of the size."""
    return Fraction(-size % multiple, size)


def other_ranks_bytes(model: ModelSpec, data_parallel: int) -> int:
    """Return the bytes of experts that one of several data-parallel ranks leaves to the others."""
    if data_parallel == 1:
        return 0
    hidden, bits = model.hidden_size, bits_per_value(model.weights.experts)
    found = ((len(group.layers), group.feed_forward) for group in model.groups)
    experts = sum(count * mlp.experts * mlp.expert_params(hidden) for count, mlp in found if mlp is not None)
    return int(experts * bits / 8) * (data_parallel - 1) // data_parallel


def rank_weights_bytes(
    model: ModelSpec,
    tensor_parallel: int,
    data_parallel: int,
    pipeline_parallel: int,
    by_marlin: bool = False,
) -> int:
    """Return the bytes of weights of one rank; of pipeline stages the last, which has the sampler.

    A stage has its share of the layers, rounded up, and one table over all tokens: the embedding or the head.
    Every GPU of a stage has the weights that make latents, and a mixture's router in 16 bits.
    """
    total = loaded_weights_bytes(model, by_marlin) - other_ranks_bytes(model, data_parallel)
    if pipeline_parallel > 1:
        bits = bits_per_value(model.weights.embedding)
        table = ceil(model.vocab_size * model.hidden_size * bits / 8)
        layers = total - ceil(model.embedding_params * bits / 8)
        total = ceil(Fraction(layers * stage_layers(model, pipeline_parallel), model.layers)) + table
    whole = 0
    for group in model.groups:
        share = Fraction(len(group.layers), pipeline_parallel)
        if group.attention is not None:
            params = group.attention.whole_params(model.hidden_size)
            whole += int(share * params * bits_per_value(model.weights.attention) / 8)
        if group.feed_forward is not None:
            whole += int(share * 2 * model.hidden_size * group.feed_forward.experts)
    return -(-(total - whole) // tensor_parallel) + whole


def stage_layers(model: ModelSpec, pipeline_parallel: int) -> int:
    """Return the most layers of a pipeline stage."""
    return -(-model.layers // pipeline_parallel)
