"""Flags of speculative decoding: an engine's to ``replica.speculation``, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.making import Making, take_out
from kvcache_sim.scenario.yaml_tree import set_value

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


def write_drafts(made: Making) -> None:
    """Write ``replica.speculation`` and count its flags as read.

    Flags that do not give the number of drafted tokens are left. Raises UsageError for an invalid value.
    """
    flags = {
        name: made.take(name) for name in [one for one in made.given if made.given[one].flag.rule == "drafts"]
    }
    given = {name: each.text for name, each in flags.items() if each is not None}
    tokens, method = (_of_vllm if made.line.engine.name == "vllm" else _of_sglang)(given)
    if not tokens:
        for each in flags.values():
            if each is not None:
                made.leave(
                    each, "it does not say how many tokens are drafted; nearest: replica.speculation.tokens"
                )
        return
    drafts = _drafts(tokens, _is_eagle(method))
    if made.tree.values.get("cache", {}).get("enabled") is False:
        drafts.pop("eagle", None)  # no hits, so EAGLE recomputes no last block
    set_value(made.tree, ("replica", "speculation"), drafts, next(iter(flags)))
    made.note("assumed", _ASSUMED)
    key = ("replica", "async_scheduling")
    if made.tree.values["replica"].get(key[1], "none") != "none":
        flag = made.read[made.tree.location(key)]
        take_out(key, made.tree)
        made.leave(flag, "steps with drafts are scheduled one by one", decides=False)


def _of_vllm(given: Mapping[str, str]) -> tuple[int, str]:
    """Return the drafted tokens, 0 if they are not given, and the method."""
    try:
        said = json.loads(given.get(_VLLM) or "{}")
    except ValueError as error:
        raise UsageError("not JSON", _VLLM, str(error)) from None
    if not isinstance(said, dict):
        raise UsageError("not a JSON object", _VLLM, repr(given[_VLLM])[:60])
    alone = given.get("--spec-tokens", given.get("--num-speculative-tokens"))
    tokens = said.get("num_speculative_tokens", alone)
    method = str(said.get("method", given.get("--spec-method", "")))
    return (0 if tokens is None else _number(tokens, f"{_VLLM}: num_speculative_tokens")), method


def _of_sglang(given: Mapping[str, str]) -> tuple[int, str]:
    steps, drafted = (given.get(name) for name in _SGLANG_NUMBERS)
    if _SGLANG not in given or (steps is None and drafted is None):
        return 0, ""
    # A chain of n steps is checked with the token before it; a tree's longest path has as many.
    tokens = _number(steps, _SGLANG_NUMBERS[0]) if steps else _number(drafted, _SGLANG_NUMBERS[1]) - 1
    return max(tokens, 1), given[_SGLANG]


def _is_eagle(method: str) -> bool:
    return any(word in method.lower() for word in ("eagle", "mtp", "nextn"))


def _drafts(tokens: int, eagle: bool) -> Drafts:
    acceptance = [round(ASSUMED_ACCEPTANCE**position, 4) for position in range(1, tokens + 1)]
    return {"tokens": tokens, "acceptance": acceptance, **({"eagle": True} if eagle else {})}


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
