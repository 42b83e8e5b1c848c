"""``replica.pp`` and ``replica.cp``: a model's layers, or each block's tokens, over several GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.cache_groups import cache_groups
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import served_model
from kvcache_sim.scenario.yaml_tree import Path


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield what stages and shared blocks cannot have, each with the reason."""
    for index, machine in enumerate(machines):
        own = model.machines[index].get("replica") if index < len(model.machines) else None
        for key, why in (*_stages(machine), *_shared(model, machine)):
            here = isinstance(own, dict) and key in own
            path: Path = ("machines", index, "replica", key) if here else ("replica", key)
            yield Contradiction(path, why)


def _stages(machine: MachineSection) -> Iterator[tuple[str, str]]:
    replica = machine.replica
    if (replica.pp or 1) == 1:
        return
    if replica.scheduler != "vllm":
        yield "pp", "micro-batches are those of vLLM's own scheduler: replica.scheduler vllm"
    elif replica.async_scheduling != "none":
        yield "pp", "asynchronous scheduling over several stages is not simulated: async_scheduling none"
    elif machine.tiers.lower:
        yield "pp", "stages have no lower tiers here"


def _shared(model: ScenarioModel, machine: MachineSection) -> Iterator[tuple[str, str]]:
    replica = machine.replica
    cp = replica.cp or 1
    if cp == 1:
        return
    groups = cache_groups(model)
    if model.cache.block_size % cp:
        yield "cp", f"cache.block_size {model.cache.block_size} is no multiple of it"
    elif groups is not None and any(group.kind != "full" for group in groups.layout.groups):
        yield "cp", "windows and states are not shared out over GPUs (vLLM 0.33: full attention alone)"
    else:
        gpus = measured_on(replica.step_time).tensor_parallel
        spec = served_model(model)
        copies = gpus * spec.kv_bytes_per_token_per_gpu(gpus) // max(spec.kv_bytes_per_token, 1)
        if gpus % cp or cp > copies:
            # KV heads fewer than GPUs, or a latent, stand on several; those GPUs can share out the tokens.
            yield "cp", f"the {gpus} GPUs of the step-time set hold {copies} copies of {spec.name}'s KV"
