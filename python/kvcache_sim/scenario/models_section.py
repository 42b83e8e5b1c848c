"""The sections ``models`` and ``adapters`` of a scenario, and the settings that they stand for."""

from typing import Annotated, Any

from kvcache_sim.scenario.quantities import Machines
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.models.settings import ModelsSettings, ServedModel


class ServedModelSection(Section):
    """One model of a fleet; its machines follow those of the model before it."""

    machines: Annotated[Machines, about("machines that serve it, of cluster.machines")] = 1
    model: Annotated[str | None, about("language model, for the size of its KV; null: model's")] = None
    step_time: Annotated[str | None, about("set or roofline of its machines; null: replica.step_time's")] = (
        None
    )


class ModelsSection(Section):
    """Several models in one fleet: a request goes to machines of its model."""

    field: Annotated[str, about("member of the trace's rows that names a request's model")] = "model"
    of: Annotated[
        dict[str, ServedModelSection], about("by name, such as {chat: {machines: 3}, code: {machines: 1}}")
    ] = {}


class AdaptersSection(Section):
    """Low-rank adapters that requests ask for: each has blocks of its own."""

    field: Annotated[str, about("member of the trace's rows that names a request's adapter")] = "lora"


def models_settings(own: ModelsSection | None) -> ModelsSettings | None:
    """Return the fleet's models, None where there is no such section."""
    if own is None:
        return None
    return ModelsSettings(tuple(ServedModel(name, each.machines) for name, each in own.of.items()))


def own_settings(own: ModelsSection | None, machine: int) -> dict[str, Any]:
    """Return what its model changes of a machine's settings."""
    served = model_of_machine(own, machine)
    if served is None or served.step_time is None:
        return {}
    return {"replica": {"step_time": served.step_time}}


def model_of_machine(own: ModelsSection | None, machine: int) -> ServedModelSection | None:
    """Return the model that a machine serves; None where models are not told apart."""
    if own is None:
        return None
    for each in own.of.values():
        if machine < each.machines:
            return each
        machine -= each.machines
    return None
