"""The sections ``models`` and ``adapters`` of a scenario, and the settings that they stand for."""

from __future__ import annotations

from typing import Annotated, Any

from kvcache_sim.scenario.quantities import RateBytesPerS, SizeBytes
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.serving.models.settings import AdapterSettings, ModelsSettings, ServedModel
from kvcache_sim.units import NS_PER_S


class ServedModelSection(Section):
    """One model of a fleet; its machines follow those of the model before it."""

    machines: int = Field(1, ge=1, le=4096, description="machines that serve it, of cluster.machines")
    model: str | None = Field(None, description="language model, for the size of its KV; null: model's")
    step_time: str | None = Field(
        None, description="set or roofline of its machines; null: replica.step_time's"
    )
    shares: str | None = Field(
        None, description="a model before it on whose machines it takes turns, one awake; null: its own"
    )
    weights: Annotated[SizeBytes, Field(ge=1)] | None = Field(
        None, description="bytes of a machine's weights, where models take turns"
    )


class ModelsSection(Section):
    """Several models in one fleet: a request goes to machines of its model."""

    field: str = Field("model", description="member of the trace's rows that names a request's model")
    of: dict[str, ServedModelSection] = Field(
        default_factory=dict, description="by name, such as {chat: {machines: 3}, code: {machines: 1}}"
    )
    load_rate: RateBytesPerS = Field(
        25 * 10**9, description="rate at which a waking model's weights are loaded: 25GB/s"
    )
    sleep_rate: RateBytesPerS | None = Field(
        None, description="rate at which those of one that goes to sleep are kept; null: they are dropped"
    )


class AdaptersSection(Section):
    """Low-rank adapters that requests ask for and machines load."""

    field: str = Field("lora", description="member of the trace's rows that names a request's adapter")
    slots: int = Field(4, ge=1, le=4096, description="adapters that a machine has at a time (max_loras)")
    size: Annotated[SizeBytes, Field(ge=0)] = Field(200_000_000, description="bytes of an adapter: 200MB")
    load_rate: RateBytesPerS = Field(25 * 10**9, description="rate at which it is loaded: 25GB/s")


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
