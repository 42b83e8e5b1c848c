"""``replica.max_model_len``: most tokens of a prompt and its answer, from the served model unless given."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.cache_groups import block_bytes, cache_groups
from kvcache_sim.scenario.quantities import AUTO_CONTEXT
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import served_model
from kvcache_sim.scenario.validation import at_location
from kvcache_sim.scenario.yaml_tree import Path, Tree

CONTEXT: Path = ("replica", "max_model_len")
#: Shortest context: a prompt of one token and its answer.
_LEAST_TOKENS = 2


def with_context_length(
    machine: MachineSection, model: ScenarioModel, tree: Tree, path: Path
) -> MachineSection:
    """Return a machine with the context that vLLM would serve its model with; ``path`` is its location.

    Without a given length it is the model's own, but instant runs and simplified accounting, which ask about
    a cache and not about an engine, have no limit. ``auto`` (or -1) is the longest that also fits the GPU,
    whose capacity must be known. Raises UsageError for a length that the model does not have.
    """
    given = machine.replica.max_model_len
    if given is None and (machine.replica.instant or model.cache.accounting == "simplified"):
        return machine
    tokens = at_location(tree, path, lambda: _tokens(machine, model))
    return replace(machine, replica=replace(machine.replica, max_model_len=tokens))


def _tokens(machine: MachineSection, model: ScenarioModel) -> int:
    given, spec = machine.replica.max_model_len, served_model(model)
    context = spec.context
    if given is None:
        return context.default_tokens
    if given == AUTO_CONTEXT:
        return max(min(context.default_tokens, _fits(machine, model)), _LEAST_TOKENS)
    longest = context.longest_tokens
    if longest is not None and given > longest and not machine.replica.allow_long_max_model_len:
        raise UsageError(
            f"longer than the context of {spec.name}",
            got=f"{given:,} tokens",
            expected=f"at most {longest:,}",
            hint="name a model with more context, or set replica.allow_long_max_model_len=true",
        )
    return given


def refuse_small_gpu(machine: MachineSection, model: ScenarioModel, tree: Tree, path: Path) -> None:
    """Raise UsageError for a GPU whose KV memory holds no request of the context, as vLLM does at its start.

    ``machine`` has its context and a capacity that was computed from GPU memory; blocks that a scenario gives
    are its choice. SGLang starts and refuses such requests one by one.
    """
    replica, blocks = machine.replica, machine.tiers.compute.capacity.blocks
    tokens, is_timed = replica.max_model_len, not replica.instant
    if tokens is None or blocks is None or not is_timed or replica.scheduler == "sglang":
        return
    if model.cache.accounting == "simplified":
        return
    needed = _blocks_of_one(model, blocks)
    if needed(tokens) <= blocks:
        return
    most = _longest(needed, blocks, tokens)

    def size(count: int) -> str:
        return f"{count:,} blocks ({count * block_bytes(model) / 2**30:.3g} GiB)"

    raise UsageError(
        "the GPU's KV memory holds no request of replica.max_model_len",
        tree.location(path),
        got=f"{tokens:,} tokens, which need {size(needed(tokens))}, and {size(blocks)} there",
        expected=f"at most {most:,} tokens",
        hint=f"set replica.max_model_len={most} or auto, or name a larger GPU or TP degree",
    )


def _fits(machine: MachineSection, model: ScenarioModel) -> int:
    """Return the most tokens of one sequence that the GPU's blocks hold."""
    capacity, served = machine.tiers.compute.capacity, served_model(model).context.default_tokens
    blocks = capacity.blocks
    if capacity.size_bytes is not None:
        blocks = capacity.size_bytes // block_bytes(model)
    return served if blocks is None else _longest(_blocks_of_one(model, blocks), blocks, served)


def _blocks_of_one(model: ScenarioModel, blocks: int) -> Callable[[int], int]:
    """Return the function from the tokens of one sequence to its blocks, in a pool of ``blocks``."""
    groups = cache_groups(model)
    if groups is None:
        return lambda tokens: -(-tokens // model.cache.block_size)
    from kvcache_sim import _core
    from kvcache_sim.cache.groups import native_groups, states_per_request
    from kvcache_sim.simulation.live import requests_of

    states = states_per_request(groups, model.cache.enabled)
    keys = native_groups(groups.layout, requests_of(model.cache.block_size, [], 0), state_tokens=states)
    store = _core.GroupStore(keys, groups.limits, blocks, groups.rules)
    return lambda tokens: store.most_blocks(tokens, 1)


def _longest(needed: Callable[[int], int], blocks: int, most: int) -> int:
    """Return the most tokens, up to ``most``, whose blocks are ``blocks`` or fewer."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= blocks else (low, middle - 1)
    return low
