"""Blocks and context that GPU memory holds: ``tiers.gpu.capacity: auto`` and ``replica.max_model_len``.

The blocks are those that fit after weights and activations. The context, the most tokens of a prompt and its
answer, is the served model's unless given.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import GpuSpec, load_gpu
from kvcache_sim.model.kv_capacity import EngineMemory, KvCapacity, default_engine, kv_blocks, kv_capacity
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.quantities import AUTO_CONTEXT, Capacity
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import block_bytes, cache_groups, check_block_bytes, served_model
from kvcache_sim.scenario.yaml_tree import Path, Tree, at_location

GPU_CAPACITY: Path = ("tiers", TIERS[COMPUTE], "capacity")

_KEY = ".".join(map(str, GPU_CAPACITY))


def with_gpu_capacity(
    machine: MachineSection, model: ScenarioModel, tree: Tree, path: Path
) -> MachineSection:
    """Return a machine whose GPU has a capacity in blocks, computed for ``auto``.

    ``path`` is the location of the capacity. Raises UsageError if the step-time set names no GPU or the model
    does not fit on it.
    """
    for name, tier in machine.tiers.present.items():
        if tier.capacity.size_bytes is not None:
            at_location(tree, (*path[:-2], name, path[-1]), lambda: check_block_bytes(model))
    if not machine.tiers.compute.capacity.auto:
        return machine
    index = path[1] if path[0] == "machines" else None
    is_given = gives_tokens(tree, index if isinstance(index, int) else None)
    blocks = at_location(tree, path, lambda: _capacity(model, machine.replica, is_given).blocks)
    gpu = replace(machine.tiers.compute, capacity=Capacity(blocks=blocks))
    return replace(machine, tiers=replace(machine.tiers, **{TIERS[COMPUTE]: gpu}))


def gives_tokens(tree: Tree, machine: int | None = None) -> bool:
    """Return True if a scenario states the token budget of its machines, or of one machine."""
    sections = [tree.values, *([] if machine is None else [tree.values["machines"][machine]])]
    return any("max_num_batched_tokens" in (section.get("replica") or {}) for section in sections)


class GpuCapacity(Value):
    """The source of the GPU's capacity: all its parts as a sentence, a short note if it was computed (else
    ""), and True if it exceeds the GPU's memory."""

    sentence: str
    note: str
    exceeds: bool


def gpu_capacity(written: ScenarioModel, filled: ScenarioModel, tree: Tree) -> GpuCapacity | None:
    """Return the source of the GPU's capacity: a given number takes precedence over the memory calculation.

    None if the capacity is unbounded, service takes no time, or the step-time set names no GPU.
    """
    capacity = written.tiers.compute.capacity
    if capacity.auto:
        gpu_blocks = _capacity(filled, filled.replica, gives_tokens(tree))
        found = f"{_KEY}: auto is {filled.tiers.compute.capacity}"
        within = gpu_blocks.gpu_blocks
        size, error = (f"{part / 2**30:.1f}" for part in (within.kv_bytes, within.uncertainty_bytes))
        return GpuCapacity(
            f"{found} here: {gpu_blocks}",
            f"{found}, {size} ± {error} GiB a GPU{within.engine.source}",
            exceeds=False,
        )
    given = capacity.blocks
    if capacity.size_bytes is not None:
        given = capacity.size_bytes // block_bytes(filled)
    if given is None or filled.replica.instant:
        return None
    try:
        gpu_blocks = _capacity(filled, filled.replica, gives_tokens(tree))
    except UsageError:
        return None
    sentence = (
        f"{_KEY}: {capacity} as given; the GPU's memory would hold {gpu_blocks.blocks} blocks: {gpu_blocks}"
    )
    return GpuCapacity(sentence, "", exceeds=given > gpu_blocks.blocks)


def capacity_uncertainty(
    model: ScenarioModel, replica: ReplicaSection, blocks: int, is_given: bool
) -> float | None:
    """Return the relative uncertainty of a capacity of ``blocks`` that was computed from GPU memory.

    ``is_given``: True if the scenario states the token budget (``gives_tokens``).
    None if the blocks were given otherwise, or the step-time set names no GPU.
    """
    try:
        found = _capacity(model, replica, is_given)
    except UsageError:
        return None
    return found.gpu_blocks.uncertainty_bytes / found.gpu_blocks.kv_bytes if found.blocks == blocks else None


class _Capacity(Value):
    """A capacity in blocks, the bytes behind it, and a sequence's memory outside its blocks."""

    blocks: int
    gpu_blocks: KvCapacity
    fixed_bytes: int

    def __str__(self) -> str:
        """Return the capacity as a sentence."""
        if not self.fixed_bytes:
            return str(self.gpu_blocks)
        windows = f"{self.fixed_bytes / 2**20:.1f} MiB a sequence for windows and states not taken from it"
        return f"{self.gpu_blocks}; {windows}"


def _capacity(model: ScenarioModel, replica: ReplicaSection, is_given: bool) -> _Capacity:
    subject = measured_on(replica.step_time)
    if subject.gpu is None:
        raise UsageError("auto needs a GPU and the step-time file names none", hint="give blocks or a size")
    if (replica.pp or 1) > 1:
        raise UsageError("auto does not support pipeline stages", hint="give blocks or a size")
    spec, gpu, degree = served_model(model), load_gpu(subject.gpu), subject.tensor_parallel
    gpu_blocks = kv_capacity(spec, gpu, degree, _engine(replica, gpu, is_given), replica.dp)
    groups = cache_groups(model)
    if groups is not None:
        blocks = kv_blocks(spec.name, gpu_blocks, groups.layout.bytes_per_block)
        return _Capacity(blocks, gpu_blocks, 0)
    check_block_bytes(model)
    per_token = spec.kv_bytes_per_token_per_gpu(degree)
    if given := model.cache.kv_bytes_per_token:
        per_token = -(-given * per_token // max(spec.kv_bytes_per_token, 1))
    shared_tokens = model.cache.block_size // (replica.cp or 1)
    blocks = kv_blocks(spec.name, gpu_blocks, shared_tokens * per_token)
    return _Capacity(blocks, gpu_blocks, spec.kv_bytes_fixed_per_gpu(degree))


def _engine(replica: ReplicaSection, gpu: GpuSpec, is_given: bool) -> EngineMemory:
    """Return the engine's warm-up batch: a given token budget, else its release's default on the GPU.

    For a number of sequences at the schema's default, written or not, too. An instant run's token budget
    covers whole prompts, not a batch.
    """
    usual = default_engine(gpu, replica.vllm_release)
    tokens, seqs = replica.max_num_batched_tokens, replica.max_num_seqs
    return EngineMemory(
        replica.gpu_memory_utilization,
        tokens if is_given and not replica.instant else usual.max_num_batched_tokens,
        usual.max_num_seqs if seqs == _USUAL_SEQS else seqs,
        replica.sampler,
        usual.source,
    )


#: The schema's own number of sequences.
_USUAL_SEQS = ReplicaSection().max_num_seqs


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
