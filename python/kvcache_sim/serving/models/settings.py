"""Settings of models and adapters that a fleet serves."""

from __future__ import annotations

from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of a fleet: how many machines serve it, and what putting it to sleep and waking it takes."""

    name: str
    machines: int
    sleep_ns: int = 0
    wake_ns: int = 0
    #: The model whose machines it shares, one of the two awake; None: it has its own.
    shares: int | None = None


@dataclass(frozen=True, slots=True)
class ModelsSettings:
    """The models in the order of their machines: the first one's come first."""

    models: tuple[ServedModel, ...]

    @property
    def of_machine(self) -> tuple[int, ...]:
        """The model of each machine."""
        return tuple(n for n, model in enumerate(self.models) for _ in range(model.machines))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models."""
        return tuple(model.name for model in self.models)

    @property
    def takes_turns(self) -> bool:
        """Whether models share machines."""
        return any(model.shares is not None for model in self.models)

    def host_of(self, machine: int) -> int:
        """Return the machine on which another one's model takes turns with this one's; itself if alone."""
        place = machine
        for model in self.models:
            if place < model.machines:
                return machine if model.shares is None else self._first(model.shares) + place
            place -= model.machines
        raise IndexError(f"machine {machine} serves no model")

    def _first(self, model: int) -> int:
        return sum(own.machines for own in self.models[:model])


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """Adapters of one size that machines load when they are asked for."""

    #: Adapters that a machine has at a time.
    slots: int
    #: Time of one load; a machine's loads follow each other.
    load_ns: int
