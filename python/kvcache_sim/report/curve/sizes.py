"""Capacities as options: blocks, or bytes where a model gives the bytes of a token."""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes


def kv_bytes_per_token(model: str) -> int:
    """Return the bytes of a token in a model's blocks; 0 for no name, or a layout that is not known."""
    if not model:
        return 0
    from kvcache_sim.model.kv_groups import token_bytes
    from kvcache_sim.model.model_file import load_model

    return token_bytes(load_model(model))


def parse_capacity(text: str, block_bytes: int, where: str, block_size_tokens: int) -> int:
    """Return a capacity in blocks: ``16384``, ``16384 blocks``, ``2097152 tokens`` or ``16GiB``.

    Tokens and bytes are as many whole blocks as they hold. ``block_size_tokens`` 0: blocks of cache groups,
    which hold no fixed number of tokens.
    """
    if text.strip().endswith("tokens"):
        if not block_size_tokens:
            what = "tokens do not say how many blocks cache groups have"
            raise UsageError(what, where=where, got=repr(text), expected="blocks or a size")
        blocks = _count(text, "tokens")
        blocks = blocks if blocks is None else blocks // block_size_tokens
    else:
        blocks = _count(text, "blocks")
    if blocks is None and text.strip().startswith("-"):
        blocks = 0
    elif blocks is None and not any(unit in text for unit in ("b", "B")):
        raise UsageError(
            "not a capacity",
            where=where,
            got=repr(text),
            expected="blocks below 10^18, such as 16384, '262144 tokens', or a size such as 16GiB",
        )
    elif blocks is None and not block_bytes:
        raise UsageError(
            "a size needs to know what a block weighs",
            where=where,
            got=repr(text),
            expected="a number of blocks",
            hint="name the model with --model; for compressed latents with --policy vllm",
        )
    elif blocks is None:
        blocks = parse_size_bytes(text) // block_bytes
    if blocks < 1:
        raise UsageError("capacity holds no block", where=where, got=repr(text), expected="≥ 1 block")
    return blocks


def _count(text: str, unit: str) -> int | None:
    digits = text.strip().removesuffix(unit).strip().replace("_", "").replace(",", "")
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else None
