"""``tiers.gpu.capacity: auto``: the blocks that the weights leave room for in the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.errors import UsageError
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.memory import kv_blocks
from kvcache_sim.model.models import load_model
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.validation import at_place
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.tiers import COMPUTE, TIERS

GPU_CAPACITY: Path = ("tiers", TIERS[COMPUTE], "capacity")

_KEY = ".".join(map(str, GPU_CAPACITY))


def with_gpu_room(machine: MachineSection, model: ScenarioModel, tree: Tree, path: Path) -> MachineSection:
    """Return a machine whose gpu has a capacity in blocks, computed where the scenario says ``auto``.

    ``path`` is where the capacity was written. Raises UsageError when the step-time set names no GPU or the
    model does not fit on it.
    """
    if not machine.tiers.compute.capacity.auto:
        return machine
    blocks = at_place(tree, path, lambda: _blocks(model, machine.replica.step_time))
    gpu = machine.tiers.compute.model_copy(update={"capacity": Capacity(blocks=blocks)})
    return machine.model_copy(update={"tiers": machine.tiers.model_copy(update={TIERS[COMPUTE]: gpu})})


@dataclass(frozen=True, slots=True)
class GpuCapacity:
    """Where the gpu's capacity comes from, as a sentence of the report, and whether to say it at once."""

    sentence: str
    remarkable: bool


def gpu_capacity(written: ScenarioModel, filled: ScenarioModel) -> GpuCapacity | None:
    """Return where the gpu's capacity comes from: a number given wins over the one from memory.

    It is remarkable when it was computed, or is more than the memory holds. None where it is unbounded, where
    there is no service time, or where the step-time set names no GPU.
    """
    capacity = written.tiers.compute.capacity
    if capacity.auto:
        sentence = f"{_KEY}: auto is {filled.tiers.compute.capacity} here, from the GPU's memory"
        return GpuCapacity(sentence, remarkable=True)
    given = capacity.blocks
    if capacity.size_bytes is not None:
        per_token = filled.cache.kv_bytes_per_token or load_model(str(filled.model)).kv_bytes_per_token
        given = capacity.size_bytes // (per_token * filled.cache.block_size)
    if given is None or filled.replica.instant:
        return None
    try:
        blocks = _blocks(filled, filled.replica.step_time)
    except UsageError:
        return None
    sentence = f"{_KEY}: {capacity} as given; the GPU's memory would hold {blocks} blocks"
    return GpuCapacity(sentence, remarkable=given > blocks)


def _blocks(model: ScenarioModel, step_time: str) -> int:
    subject = measured_on(step_time)
    if subject.gpu is None:
        raise UsageError("auto needs a GPU and the step-time file names none", hint="give blocks or a size")
    spec = load_model(str(model.model))
    return kv_blocks(spec, load_gpu(subject.gpu), subject.tensor_parallel, model.cache.block_size)
