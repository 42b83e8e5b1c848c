"""A one-line summary of a scenario: model, GPUs, tiers, block, requests, router."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import PurePath
from typing import Any

from msgspec import ValidationError

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.base.units import format_bytes, parse_size_bytes
from kvcache_sim.model.kv_groups import token_bytes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.kv_copies import KvCopies
from kvcache_sim.scenario.quantities import parse_capacity
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.section import converted
from kvcache_sim.scenario.served_model import copies_of


def subject_line(resolved: Mapping[str, Any], requests: int | None = None) -> str:
    """Return a one-line description of a resolved scenario, as parts between middle dots.

    ``requests`` is the number of requests that ran, if known. Parts without a setting are left out; a missing
    step-time file is named as it was written.
    """
    parts = (
        _engine(resolved),
        _machines(resolved),
        _tiers(resolved),
        _cache(resolved.get("cache", {})),
        _requests(resolved, requests),
        _router(resolved),
        "priced" if resolved.get("cost") else "",
    )
    return " · ".join(part for part in parts if part)


def _engine(resolved: Mapping[str, Any]) -> str:
    model = resolved.get("model")
    replica = resolved.get("replica", {})
    name = replica.get("step_time", "")
    if replica.get("instant"):
        return f"{model}, no time passes" if model else "no time passes"
    if not name:
        return str(model or "")
    try:
        subject = measured_on(name)
    except KvsimError:
        return f"{model}, step times {PurePath(name).name}"
    gpus = (
        f"{subject.tensor_parallel} × {subject.gpu}" if subject.gpu else f"step times {PurePath(name).name}"
    )
    tensor = f" (tensor parallel {subject.tensor_parallel})" if subject.tensor_parallel > 1 else ""
    return f"{model or subject.model} on {gpus}{tensor}"


def _machines(resolved: Mapping[str, Any]) -> str:
    pools = resolved.get("pools", {})
    if pools.get("prefill"):
        return f"{pools['prefill']} prefill + {pools['decode']} decode machines"
    count = resolved.get("cluster", {}).get("machines", 1)
    return f"{count} machine{'s' * (count != 1)}"


def _tiers(resolved: Mapping[str, Any]) -> str:
    tiers, cache, of_tokens = resolved.get("tiers", {}), resolved.get("cache", {}), _holds_tokens(resolved)
    sizes = {name: tier.get("capacity") for name, tier in tiers.items() if isinstance(tier, Mapping)}
    copies = _copies(resolved)
    sizes_text = [
        f"{name} {size}{_in_blocks(size, cache, copies.of_tier(name)) if of_tokens else ''}"
        for name, size in sizes.items()
    ]
    return "tiers " + ", ".join(sizes_text) if sizes_text else ""


def _copies(resolved: Mapping[str, Any]) -> KvCopies:
    try:
        model = converted(ScenarioModel, dict(resolved))
        return copies_of(model, model.replica)
    except (KvsimError, ValidationError):
        return KvCopies()


def _holds_tokens(resolved: Mapping[str, Any]) -> bool:
    """Return True if blocks say how many tokens they hold: no groups, and a layout that is known."""
    cache = resolved.get("cache", {})
    try:
        spec = load_model(str(resolved["model"]))
    except (KvsimError, KeyError):
        return True
    default = "by-kind" if cache.get("semantics") == "vllm" else "as-full"
    if (cache.get("layer_groups") or default) == "by-kind" and any(k.reach != "all" for k in spec.caches()):
        return False
    given = cache.get("kv_bytes_per_token")
    return bool(token_bytes(spec)) or (
        given is not None and parse_size_bytes(str(given)) != spec.kv_bytes_per_token
    )


def _in_blocks(size: Any, cache: Mapping[str, Any], copies: Fraction) -> str:
    """Return a capacity in the units that it is not written in: blocks, tokens and bytes."""
    try:
        capacity, per_token = parse_capacity(size), parse_size_bytes(str(cache["kv_bytes_per_token"]))
    except (KvsimError, KeyError):
        return ""
    block = math.ceil(int(cache.get("block_size", 0)) * per_token * copies)
    blocks = capacity.blocks if capacity.size_bytes is None else capacity.size_bytes // max(block, 1)
    if blocks is None or not block:
        return ""
    written = format_bytes(blocks * block) if capacity.size_bytes is None else f"{blocks:,} blocks"
    return f" ({blocks * int(cache['block_size']):,} tokens, {written})"


def _cache(cache: Mapping[str, Any]) -> str:
    if cache.get("enabled") is False:
        return "no prefix cache"
    if "block_size" not in cache:
        return ""
    semantics = cache.get("semantics", "tree")
    return f"blocks of {cache['block_size']} tokens" + (f" as {semantics}" if semantics != "tree" else "")


def _requests(resolved: Mapping[str, Any], requests: int | None) -> str:
    trace, workload = resolved.get("trace"), resolved.get("workload", {})
    if trace and trace.get("path"):
        source = PurePath(str(trace["path"])).name
    elif workload.get("kind"):
        source = f"workload {workload['kind']}"
    else:
        return "" if requests is None else f"{requests:,} requests"
    if trace and trace.get("synthesise_prefixes"):
        source += " with synthesised prefixes"
    return source if requests is None else f"{source}, {requests:,} requests"


def _router(resolved: Mapping[str, Any]) -> str:
    several = resolved.get("cluster", {}).get("machines", 1) > 1 or resolved.get("pools", {}).get("prefill")
    policy = resolved.get("router", {}).get("policy")
    return f"router {policy}" if several and policy else ""
