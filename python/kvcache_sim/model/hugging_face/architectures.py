"""Supported architectures, with the readers of their attention and feed-forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcache_sim.model.attention import Attention
from kvcache_sim.model.hugging_face import attention, feed_forward, recurrent, searched
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.layer_group import FeedForward


class Architecture(NamedTuple):
    """The readers of one architecture: each returns one part per layer."""

    attention: Callable[[Fields], Sequence[Attention | None]]
    feed_forward: Callable[[Fields], Sequence[FeedForward | None]]
    #: Defaults in the vendor's code for missing fields.
    defaults: tuple[tuple[str, int | bool], ...] = ()


_DENSE = Architecture(attention.plain, feed_forward.dense)
_UNGATED = Architecture(attention.plain, feed_forward.ungated)
_MOE = Architecture(attention.plain, feed_forward.moe)
_UNWINDOWED_MOE = Architecture(attention.unwindowed, feed_forward.moe)
_LATENT = Architecture(attention.latent, feed_forward.moe)
_DELTA_NET = Architecture(recurrent.delta_net, feed_forward.moe)
_GEMMA_3 = Architecture(
    attention.alternating,
    feed_forward.dense,
    (
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("sliding_window_pattern", 6),
        ("vocab_size", 262_208),
        ("tie_word_embeddings", True),
    ),
)

#: By ``model_type`` in lower case without ``_``, ``-`` and a final ``text``.
ARCHITECTURES: dict[str, Architecture] = {
    "llama": _DENSE,
    "mistral": _DENSE,
    "mistral3": _DENSE,
    "ministral": _DENSE,
    "ministral3": _DENSE,
    "qwen2": _DENSE,
    "qwen25vl": _DENSE,
    "qwen2vl": _DENSE,
    "qwen3": _DENSE,
    "qwen3vl": _DENSE,
    "phi3": _DENSE,
    "phi": _UNGATED,
    "starcoder2": _UNGATED,
    "granite": _DENSE,
    "gemma": Architecture(attention.plain, feed_forward.dense, (("tie_word_embeddings", True),)),
    "gemma2": Architecture(
        attention.alternating,
        feed_forward.dense,
        (("sliding_window_pattern", 2), ("tie_word_embeddings", True)),
    ),
    "gemma3": _GEMMA_3,
    "gemma4": Architecture(attention.gemma4, feed_forward.gemma4, (("tie_word_embeddings", True),)),
    "cohere": Architecture(attention.plain, feed_forward.dense, (("tie_word_embeddings", True),)),
    "cohere2": Architecture(attention.alternating, feed_forward.dense, (("tie_word_embeddings", True),)),
    "olmo2": _DENSE,
    "olmo3": _DENSE,
    "glm": _DENSE,
    "glm4": _DENSE,
    "exaone4": _DENSE,
    "mimo": _DENSE,
    "seedoss": _DENSE,
    "smollm3": _DENSE,
    "nemotronnas": Architecture(searched.attention, searched.feed_forward),
    "decilm": Architecture(searched.attention, searched.feed_forward),
    "llama4": Architecture(attention.llama4, feed_forward.llama4),
    "mixtral": _MOE,
    "qwen2moe": _MOE,
    "qwen3moe": _MOE,
    "qwen3vlmoe": _MOE,
    "phimoe": _MOE,
    "granitemoe": _MOE,
    "olmoe": _MOE,
    "ernie45moe": _MOE,
    "gptoss": _MOE,
    "glm4moe": _MOE,
    "dots1": _MOE,
    "minimaxm2": _UNWINDOWED_MOE,
    "minimaxm3": Architecture(attention.minimax_m3, feed_forward.moe),
    "minimaxm3sparse": Architecture(attention.minimax_m3, feed_forward.moe),
    "minimaxm3vl": Architecture(attention.minimax_m3, feed_forward.moe),
    "mimov2flash": Architecture(attention.mimo_v2, feed_forward.moe),
    "step3p7": _MOE,
    "step3p7flash": _MOE,
    "deepseekv2": _LATENT,
    "deepseekv3": _LATENT,
    "deepseekv32": _LATENT,
    "kimik2": _LATENT,
    "glmmoedsa": _LATENT,
    "glm4moelite": _LATENT,
    "deepseekv4": Architecture(attention.compressed, feed_forward.moe),
    "qwen3next": _DELTA_NET,
    "qwen35": _DELTA_NET,
    "qwen35moe": _DELTA_NET,
    "kimilinear": Architecture(recurrent.kimi_linear, feed_forward.moe),
    "nemotronh": Architecture(recurrent.nemotron_h, feed_forward.nemotron_h),
    "jamba": Architecture(recurrent.jamba, feed_forward.jamba, (("mamba_expand", 2), ("mamba_d_state", 16))),
    "bamba": Architecture(recurrent.bamba, feed_forward.dense),
    "granitemoehybrid": Architecture(recurrent.by_layer_types, feed_forward.granite4),
    "minimaxtext01": Architecture(recurrent.lightning, feed_forward.moe),
    "minimax01": Architecture(recurrent.lightning, feed_forward.moe),
    "minimaxm1": Architecture(recurrent.lightning, feed_forward.moe),
}


#: A draft of an unknown architecture.
USUAL = Architecture(attention.usual, feed_forward.moe)


def architecture_key(name: str) -> str:
    """Return the table's key of a ``model_type`` or a class such as ``Qwen3MoeForCausalLM``."""
    stem = name.split("For")[0].lower().replace("_", "").replace("-", "").replace(".", "")
    return stem.removesuffix("text")
