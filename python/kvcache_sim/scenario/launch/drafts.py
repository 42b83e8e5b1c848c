"""Flags of speculative decoding: an engine's to ``replica.speculation``, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvcache_sim.base.errors import UsageError

#: Assumed acceptance probability of each draft: no flag gives it.
ASSUMED_ACCEPTANCE = 0.7
_ASSUMED = (
    f"each draft is accepted with probability {ASSUMED_ACCEPTANCE:g}: replica.speculation.acceptance takes "
    "what the engine logs"
)
_VLLM = "--speculative-config"
_SGLANG = "--speculative-algorithm"
_SGLANG_NUMBERS = ("--speculative-num-steps", "--speculative-num-draft-tokens")

Drafts = dict[str, Any]


def drafts_of(flags: dict[str, str]) -> tuple[Drafts | None, str]:
    """Remove the flags of speculative decoding; return ``replica.speculation`` and its assumptions.

    None if there are no such flags, or if they do not give the number of drafted tokens: they stay then.
    Raises UsageError for an invalid value.
    """
    if any(name == _VLLM or name.startswith(f"{_VLLM}.") for name in flags):
        return _of_vllm(flags)
    return _of_sglang(flags) if _SGLANG in flags else (None, "")


def _of_vllm(flags: dict[str, str]) -> tuple[Drafts | None, str]:
    try:
        said = json.loads(flags.get(_VLLM) or "{}")
    except ValueError as error:
        raise UsageError("not JSON", _VLLM, str(error)) from None
    if not isinstance(said, dict):
        raise UsageError("not a JSON object", _VLLM, repr(flags[_VLLM])[:60])
    parts = [name for name in flags if name.startswith(f"{_VLLM}.")]
    said |= {name.partition(".")[2]: flags[name] for name in parts}
    tokens = said.get("num_speculative_tokens")
    if tokens is None:
        return None, ""
    for name in (_VLLM, *parts):
        flags.pop(name, None)
    method = str(said.get("method", ""))
    return _drafts(_number(tokens, f"{_VLLM}: num_speculative_tokens"), _is_eagle(method))


def _of_sglang(flags: dict[str, str]) -> tuple[Drafts | None, str]:
    steps, drafted = (flags.get(name) for name in _SGLANG_NUMBERS)
    if steps is None and drafted is None:
        return None, ""
    # A chain of n steps is checked with the token before it; a tree's longest path has as many.
    tokens = _number(steps, _SGLANG_NUMBERS[0]) if steps else _number(drafted, _SGLANG_NUMBERS[1]) - 1
    method = flags.pop(_SGLANG)
    for name in _SGLANG_NUMBERS:
        flags.pop(name, None)
    return _drafts(max(tokens, 1), _is_eagle(method))


def _is_eagle(method: str) -> bool:
    return any(word in method.lower() for word in ("eagle", "mtp", "nextn"))


def _drafts(tokens: int, eagle: bool) -> tuple[Drafts, str]:
    acceptance = [round(ASSUMED_ACCEPTANCE**position, 4) for position in range(1, tokens + 1)]
    return {"tokens": tokens, "acceptance": acceptance, **({"eagle": True} if eagle else {})}, _ASSUMED


def _number(value: object, where: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= 64:
        raise UsageError("not a number of drafted tokens", where, repr(value)[:60], "1 to 64")
    return number


def flags_of_drafts(engine: str, drafts: Mapping[str, Any]) -> list[str]:
    """Return the flags that draft as many tokens, with the usual method: a scenario has none."""
    tokens, eagle = int(drafts["tokens"]), bool(drafts.get("eagle"))
    if engine == "vllm":
        method = "eagle" if eagle else "ngram"
        return [_VLLM, json.dumps({"method": method, "num_speculative_tokens": tokens})]
    steps = [_SGLANG_NUMBERS[0], str(tokens)] if eagle else []
    return [_SGLANG, "EAGLE" if eagle else "NGRAM", *steps, _SGLANG_NUMBERS[1], str(tokens + 1)]
