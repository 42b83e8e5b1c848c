"""The sections ``models`` and ``adapters`` of a scenario, and the settings that they stand for."""

from typing import Annotated, Any

from kvcache_sim.scenario.quantities import Machines, PositiveBytes, RateBytesPerS, SizeBytes
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.models.settings import AdapterSettings, ModelsSettings, ServedModel
from kvcache_sim.units import NS_PER_S


class ServedModelSection(Section):
    """One model of a fleet; its machines follow those of the model before it."""

    machines: Annotated[Machines, about("machines that serve it, of cluster.machines")] = 1
    model: Annotated[str | None, about("language model, for the size of its KV; null: model's")] = None
    step_time: Annotated[str | None, about("set or roofline of its machines; null: replica.step_time's")] = (
        None
    )
    shares: Annotated[
        str | None, about("a model before it on whose machines it takes turns, one awake; null: its own")
    ] = None
    weights: Annotated[
        PositiveBytes | None,
        about("bytes of a machine's weights, where models take turns"),
    ] = None


class ModelsSection(Section):
    """Several models in one fleet: a request goes to machines of its model."""

    field: Annotated[str, about("member of the trace's rows that names a request's model")] = "model"
    of: Annotated[
        dict[str, ServedModelSection], about("by name, such as {chat: {machines: 3}, code: {machines: 1}}")
    ] = {}
    load_rate: Annotated[
        RateBytesPerS, about("rate at which a waking model's weights are loaded: 25GB/s")
    ] = 25 * 10**9
    sleep_rate: Annotated[
        RateBytesPerS | None,
        about("rate at which those of one that goes to sleep are kept; null: they are dropped"),
    ] = None


class AdaptersSection(Section):
    """Low-rank adapters that requests ask for and machines load."""

    field: Annotated[str, about("member of the trace's rows that names a request's adapter")] = "lora"
    slots: Annotated[Machines, about("adapters that a machine has at a time (max_loras)")] = 4
    size: Annotated[SizeBytes, about("bytes of an adapter: 200MB")] = 200_000_000
    load_rate: Annotated[RateBytesPerS, about("rate at which it is loaded: 25GB/s")] = 25 * 10**9


def models_settings(own: ModelsSection | None) -> ModelsSettings | None:
    """Return the fleet's models, None where there is no such section."""
    if own is None:
        return None
    names = list(own.of)

    def served(name: str, each: ServedModelSection) -> ServedModel:
        weights = each.weights or 0
        return ServedModel(
            name,
            each.machines,
            0 if own.sleep_rate is None else -(-weights * NS_PER_S // own.sleep_rate),
            -(-weights * NS_PER_S // own.load_rate),
            None if each.shares is None else names.index(each.shares),
        )

    return ModelsSettings(tuple(served(name, each) for name, each in own.of.items()))


def adapter_settings(own: AdaptersSection | None) -> AdapterSettings | None:
    """Return what adapters take, None where there is no such section."""
    if own is None:
        return None
    return AdapterSettings(own.slots, -(-own.size * NS_PER_S // own.load_rate))


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
