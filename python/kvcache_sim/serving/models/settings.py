"""Settings of models that a fleet serves."""

from __future__ import annotations

from kvcache_sim.base.values import Value


class ServedModel(Value):
    """One model of a fleet, and how many machines serve it."""

    name: str
    machines: int


class ModelsSettings(Value):
    """The models in the order of their machines: those of the first model come first."""

    models: tuple[ServedModel, ...]

    @property
    def of_machine(self) -> tuple[int, ...]:
        """The model of each machine."""
        return tuple(n for n, model in enumerate(self.models) for _ in range(model.machines))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models."""
        return tuple(model.name for model in self.models)
