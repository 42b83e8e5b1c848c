"""Blocks and context that GPU memory holds: ``tiers.gpu.capacity: auto`` and ``replica.max_model_len``.

The blocks are those that fit after weights and activations. The context, the most tokens of a prompt and its
answer, is the served model's unless given.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.values import Value
from kvcache_sim.model.engine_memory import stage_layers
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import EngineMemory, KvCapacity, kv_blocks, kv_capacity
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.quantities import AUTO_CONTEXT, Capacity
from kvcache_sim.scenario.release_defaults import release_of, release_values
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
    blocks = at_location(tree, path, lambda: _capacity(model, machine.replica).blocks)
    gpu = replace(machine.tiers.compute, capacity=Capacity(blocks=blocks))
    return replace(machine, tiers=replace(machine.tiers, **{TIERS[COMPUTE]: gpu}))


class GpuCapacity(Value):
    """The source of the GPU's capacity: all its parts as a sentence, a short note if it was computed (else
    ""), and True if it exceeds the GPU's memory."""

    sentence: str
    note: str
    exceeds: bool


def gpu_capacity(written: ScenarioModel, filled: ScenarioModel) -> GpuCapacity | None:
    """Return the source of the GPU's capacity: a given number takes precedence over the memory calculation.

    None if the capacity is unbounded, service takes no time, or the step-time set names no GPU.
    """
    capacity = written.tiers.compute.capacity
    if capacity.auto:
        gpu_blocks = _capacity(filled, filled.replica)
        found = f"{_KEY}: auto is {filled.tiers.compute.capacity}"
        release = "" if written.replica.release else " (assumed: replica.release names yours)"
        within = gpu_blocks.gpu_blocks
        size, error = (f"{part / 2**30:.1f}" for part in (within.kv_bytes, within.uncertainty_bytes))
        return GpuCapacity(
            f"{found} here: {gpu_blocks}",
            f"{found}, {size} ± {error} GiB a GPU{within.engine.source}{release}",
            exceeds=False,
        )
    given = filled.tiers.compute.capacity.blocks
    if capacity.size_bytes is not None:
        given = capacity.size_bytes // block_bytes(filled, filled.replica)
    if given is None or filled.replica.instant:
        return None
    try:
        gpu_blocks = _capacity(filled, filled.replica)
    except UsageError:
        return None
    sentence = (
        f"{_KEY}: {capacity} as given; the GPU's memory would hold {gpu_blocks.blocks} blocks: {gpu_blocks}"
    )
    return GpuCapacity(sentence, "", exceeds=given > gpu_blocks.blocks)


def capacity_uncertainty(model: ScenarioModel, replica: ReplicaSection, blocks: int) -> float | None:
    """Return the relative uncertainty of a capacity of ``blocks`` that was computed from GPU memory.

    None if the blocks were given otherwise, or the step-time set names no GPU.
    """
    try:
        found = _capacity(model, replica)
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


def _capacity(model: ScenarioModel, replica: ReplicaSection) -> _Capacity:
    gpu_blocks, block = _of_gpu(model, replica)
    name, fixed = served_model(model).name, 0
    if cache_groups(model) is None:
        degree = measured_on(replica.step_time).tensor_parallel
        fixed = served_model(model).kv_bytes_fixed_per_gpu(degree)
    return _Capacity(kv_blocks(name, gpu_blocks, block), gpu_blocks, fixed)


def blocks_of_a_start(model: ScenarioModel) -> int | None:
    """Return the blocks of one request of the context if the GPU's memory may hold them.

    That is, if nine of ten logs do not rule them out; else None. ``model`` is filled, with any capacity.
    """
    tokens, blocks = model.replica.max_model_len, model.tiers.compute.capacity.blocks
    if tokens is None or blocks is None:
        return None
    gpu_blocks, block = _of_gpu(model, model.replica)
    needed = _blocks_of_one(model, blocks)(tokens)
    return needed if needed * block <= gpu_blocks.high_bytes else None


def _of_gpu(model: ScenarioModel, replica: ReplicaSection) -> tuple[KvCapacity, int]:
    """Return the memory for KV on a GPU, and the bytes of a block there."""
    subject = measured_on(replica.step_time)
    if subject.gpu is None:
        raise UsageError("auto needs a GPU and the step-time file names none", hint="give blocks or a size")
    spec, gpu, degree = served_model(model), load_gpu(subject.gpu), subject.tensor_parallel
    gpu_blocks = kv_capacity(spec, gpu, degree, _engine(replica, model), replica.dp)
    groups = cache_groups(model)
    if groups is not None:
        if (replica.pp or 1) > 1:
            raise UsageError("auto does not know the cache groups of a stage", hint="give blocks or a size")
        return gpu_blocks, groups.layout.bytes_per_block
    check_block_bytes(model)
    stage = Fraction(stage_layers(spec, replica.pp or 1), spec.layers)
    per_token = ceil(spec.kv_bytes_per_token_per_gpu(degree) * stage)
    if given := model.cache.kv_bytes_per_token:
        per_token = -(-given * per_token // max(spec.kv_bytes_per_token, 1))
    shared_tokens = model.cache.block_size // (replica.cp or 1)
    return gpu_blocks, shared_tokens * per_token


def _engine(replica: ReplicaSection, model: ScenarioModel) -> EngineMemory:
    """Return the engine's share of memory and its warm-up batch.

    An instant run's budget covers whole prompts, not a batch: its engine warms up with its release's own.
    """
    release, tokens = release_of(replica), replica.max_num_batched_tokens
    if replica.instant:
        timed = replace(replica, instant=False)
        tokens = release_values(timed, model, release)["max_num_batched_tokens"]
    return EngineMemory(
        replica.gpu_memory_utilization,
        tokens,
        replica.max_num_seqs,
        replica.sampler,
        f", {release}",
        release,
        replica.pp or 1,
        replica.mem_fraction_static,
        drafts=replica.speculation is not None,
        attention_ranks=replica.dp,
    )


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
    is_sglang = replica.scheduler == "sglang" or release_of(replica).engine == "sglang"
    if tokens is None or blocks is None or not is_timed or is_sglang:
        return
    if model.cache.accounting == "simplified":
        return
    needed = _blocks_of_one(model, blocks)
    if needed(tokens) <= blocks:
        return
    most = _longest(needed, blocks, tokens)

    def size(count: int) -> str:
        return f"{count:,} blocks ({count * block_bytes(model, replica) / 2**30:.3g} GiB)"

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
        blocks = capacity.size_bytes // block_bytes(model, machine.replica)
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
