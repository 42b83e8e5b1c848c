"""A language model's shape: what its weights and its KV cache weigh, and how much a token computes."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.model.catalog import entry_names, read_entry


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shape of a decoder-only transformer, as its ``config.json`` gives it.

    ``experts`` is 0 in a dense model; ``dense_layers`` are the first layers of a mixture that have an
    ordinary feed-forward of ``intermediate_size``. ``mla_kv_rank`` > 0 marks multi-head latent attention,
    which caches one latent of ``mla_kv_rank + mla_rope_size`` numbers a token and layer instead of keys and
    values (DeepSeek-V2, arXiv:2405.04434, section 2.1).
    """

    name: str
    source: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate_size: int
    vocab_size: int
    weight_bytes: int
    kv_dtype_bytes: int
    params_total: int
    params_active: int
    experts: int = 0
    experts_active: int = 0
    experts_shared: int = 0
    expert_intermediate_size: int = 0
    dense_layers: int = 0
    mla_kv_rank: int = 0
    mla_rope_size: int = 0
    mla_query_rank: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache a token over all layers, on all GPUs together."""
        if self.mla_kv_rank:
            return self.layers * (self.mla_kv_rank + self.mla_rope_size) * self.kv_dtype_bytes
        return 2 * self.layers * self.kv_heads * self.head_size * self.kv_dtype_bytes

    def kv_bytes_per_token_per_gpu(self, tensor_parallel: int) -> int:
        """Return the bytes of KV cache a token on one of ``tensor_parallel`` GPUs.

        KV heads are split, and repeated where there are more GPUs than heads; an MLA latent is on every GPU.
        """
        if self.mla_kv_rank:
            return self.kv_bytes_per_token
        heads = max(1, -(-self.kv_heads // tensor_parallel))
        return 2 * self.layers * heads * self.head_size * self.kv_dtype_bytes

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights."""
        return self.params_total * self.weight_bytes


def model_names() -> tuple[str, ...]:
    """Return the names of the packaged models."""
    return entry_names("models")


def load_model(name: str) -> ModelSpec:
    """Return a packaged model; UsageError with the names and the nearest one when there is no such model."""
    return ModelSpec(name=name.lower(), **read_entry("models", "model", name))
