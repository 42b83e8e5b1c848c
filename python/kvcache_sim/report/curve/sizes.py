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


def parse_capacity(text: str, block_bytes: int, where: str, block_size_tokens: int = 0) -> int:
    """Return a capacity in blocks: ``16384``, ``16384 blocks`` or ``16GiB`` (whole blocks that fit).

    Where ``block_size_tokens`` is given, ``2097152 tokens`` counts too.
    """
    tokens = text.strip().removesuffix("tokens").strip().replace("_", "").replace(",", "")
    if block_size_tokens and text.strip().endswith("tokens") and tokens.isdecimal() and len(tokens) < 19:
        text = str(int(tokens) // block_size_tokens)
    digits = text.strip().removesuffix("blocks").strip().replace("_", "").replace(",", "")
    if digits.isdecimal() and digits.isascii() and len(digits) < 19:
        blocks = int(digits)
    elif text.strip().startswith("-"):
        blocks = 0
    elif not any(unit in text for unit in ("b", "B")):
        raise UsageError(
            "not a capacity",
            where=where,
            got=repr(text),
            expected="blocks below 10^18, such as 16384, or a size such as 16GiB",
        )
    elif not block_bytes:
        raise UsageError(
            "a size needs to know what a block weighs",
            where=where,
            got=repr(text),
            expected="a number of blocks",
            hint="name the model with --model; for compressed latents with --policy vllm",
        )
    else:
        blocks = parse_size_bytes(text) // block_bytes
    if blocks < 1:
        raise UsageError("capacity holds no block", where=where, got=repr(text), expected="≥ 1 block")
    return blocks
