"""KV cache groups of a replay of vLLM's pool, from the options of the user."""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.kv_groups import kv_layout
from kvcache_sim.model.model_file import load_model

#: vLLM's default block size, in tokens.
DEFAULT_BLOCK_TOKENS = 16
#: Values that mean a checkpoint at every aligned boundary.
_DENSE = ("null", "none", "dense")


def group_settings(
    policy: str,
    model: str,
    block_size: int,
    max_num_batched_tokens: int | None,
    retention_interval: str,
    cpu_chunks: int = 0,
) -> GroupSettings | None:
    """Return the groups of a model under ``vllm``, or None where it is full attention alone.

    0 and "" mean the engine's defaults: blocks of 16 tokens, steps of 8,192, checkpoints where a prompt ends
    or parted. ``cpu_chunks`` of a CPU tier are offered step by step. Raises UsageError for settings without
    effect and values that cannot be.
    """
    layout = None
    if policy == "vllm" and model:
        layout = kv_layout(load_model(model), block_size_tokens=block_size or DEFAULT_BLOCK_TOKENS)
    if layout is None or [group.kind for group in layout.groups] == ["full"]:
        given = {
            "--max-num-batched-tokens": max_num_batched_tokens is not None
            and not (policy == "vllm" and cpu_chunks)
            and not policy.startswith("lmcache-server:"),
            "--retention-interval": retention_interval != "",
        }
        for option, is_given in given.items():
            if is_given:
                what = "has an effect with --policy vllm and a model of windows, chunks or states only"
                raise UsageError(what, where=option)
        return None
    settings = GroupSettings(load_model(model).name, layout)
    return GroupSettings(
        settings.model,
        layout,
        settings.max_num_batched_tokens if max_num_batched_tokens is None else max_num_batched_tokens,
        _interval(retention_interval, settings.retention_interval, layout.scheduler_block_size),
    )


def _interval(text: str, default: int | None, align: int) -> int | None:
    """Return the tokens between kept checkpoints: a number, or None for ``null``."""
    if not text:
        return default
    if text.lower() in _DENSE:
        return None
    if not text.isdecimal() or len(text) > 9 or int(text) % align:
        raise UsageError(
            "not a retention interval",
            where="--retention-interval",
            got=repr(text),
            expected=f"null, 0 or a multiple of {align}, the groups' common block",
        )
    return int(text)
