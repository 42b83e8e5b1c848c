"""The context length of a model, from the fields of its configuration, as vLLM 0.33 derives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.values import Value

#: Fields that state a length; the smallest one holds.
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
#: Fields that scale or replace a length.
ROPE_KEYS = ("rope_scaling", "rope_parameters", "original_max_position_embeddings")
#: Length of a model whose configuration states none.
UNKNOWN_LENGTH = 2048
#: Kinds of scaled RoPE whose models state the scaled length already.
_SCALED_ALREADY = frozenset({"longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


class ContextLength(Value):
    """The most tokens of a prompt and its answer: by default, and at all (None: not known)."""

    default_tokens: int = UNKNOWN_LENGTH
    longest_tokens: int | None = None


def context_length(values: Mapping[str, Any], where: str) -> ContextLength:
    """Return the context length that the fields of a language model state.

    The smallest length, but ``model_max_length`` before all others, times the factor of a RoPE scaling that
    the length does not include yet. A model with long RoPE is served at its original length unless more is
    asked for. The tokenizer's length limits pooling models only. Raises UsageError for a field that is no
    length.
    """
    lengths = {key: _length(values[key], key, where) for key in LENGTH_KEYS if values.get(key) is not None}
    stated = lengths.get("model_max_length") or min(lengths.values(), default=None)
    ropes = list(_ropes(values, where))
    factors = [factor for kind, factor in ropes if kind not in _SCALED_ALREADY and factor is not None]
    is_gemma3 = "gemma3" in str(values.get("model_type", ""))
    factor = 1.0 if is_gemma3 or not factors else factors[-1]
    derived = int((UNKNOWN_LENGTH if stated is None else stated) * factor)
    longest = None if stated is None else derived
    default = derived
    original = values.get("original_max_position_embeddings")
    if any(kind == "longrope" for kind, _ in ropes) and original is not None:
        default = _length(original, "original_max_position_embeddings", where)
    if longest is not None:
        longest = max(longest, lengths.get("model_max_length", 0))
    return ContextLength(default, longest)


def _length(value: object, key: str, where: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{key} is no length", where=where, got=repr(value), expected="tokens, at least 1")
    return value


def _ropes(values: Mapping[str, Any], where: str) -> Iterator[tuple[str, float | None]]:
    """Yield the kind and the factor of each RoPE: one, or one per kind of layers."""
    given = values.get("rope_parameters") or values.get("rope_scaling")
    if given is None or given == {}:
        return
    if not isinstance(given, dict):
        raise UsageError("rope_scaling is no table", where=where, got=repr(given))
    nested = all(isinstance(own, dict) or own is None for own in given.values())
    for own in [own for own in given.values() if own] if nested else [given]:
        factor = own.get("factor")
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if factor is not None and not (number and 0 < factor < float("inf")):
            raise UsageError("RoPE's factor is no number above 0", where=where, got=repr(factor))
        kind = str(own.get("rope_type") or own.get("type") or "default")
        yield "longrope" if kind == "su" else kind, factor
