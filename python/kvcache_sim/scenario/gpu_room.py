"""``tiers.gpu.capacity: auto``: the blocks that the weights leave room for in the GPU's memory."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.memory import kv_blocks
from kvcache_sim.model.models import load_model
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.validation import at_place
from kvcache_sim.scenario.yaml_tree import Path, Tree

GPU_CAPACITY: Path = ("tiers", "gpu", "capacity")


def with_gpu_room(machine: MachineSection, model: ScenarioModel, tree: Tree, path: Path) -> MachineSection:
    """Return a machine whose gpu has a capacity in blocks, computed where the scenario says ``auto``.

    ``path`` is where the capacity was written. Raises UsageError when the step-time set names no GPU or the
    model does not fit on it.
    """
    if not machine.tiers.gpu.capacity.auto:
        return machine
    blocks = at_place(tree, path, lambda: _blocks(model, machine.replica.step_time))
    gpu = machine.tiers.gpu.model_copy(update={"capacity": Capacity(blocks=blocks)})
    return machine.model_copy(update={"tiers": machine.tiers.model_copy(update={"gpu": gpu})})


def _blocks(model: ScenarioModel, step_time: str) -> int:
    subject = measured_on(step_time)
    if subject.gpu is None:
        raise UsageError("auto needs a GPU and the step-time file names none", hint="give blocks or a size")
    spec = load_model(str(model.model))
    return kv_blocks(spec, load_gpu(subject.gpu), subject.tensor_parallel, model.cache.block_size)
