"""Model-aware routing: each model's requests are routed among its machines by the model's router."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.engine import NO_MACHINE
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.sequence import Arrival


class ByModel:
    """Sends a request to a machine of its model, chosen by that model's router.

    ``model_of``: model by request; ``of_machine``: model by machine. Returns ``NO_MACHINE`` if no machine of
    the model serves.
    Cost: that of the model's router over the model's machines.
    """

    def __init__(
        self,
        members: Sequence[NativeReplica],
        model_of: Sequence[int],
        of_machine: Sequence[int],
        make: Callable[[Sequence[NativeReplica]], Router],
    ) -> None:
        self._model_of = model_of
        self._positions: dict[int, list[int]] = {}
        for index, replica in enumerate(members):
            self._positions.setdefault(of_machine[replica.machine], []).append(index)
        self._routers = {
            model: make([members[index] for index in positions])
            for model, positions in self._positions.items()
        }

    def choose(self, sequence: Arrival) -> int:
        """Return the index of the machine."""
        model = self._model_of[sequence.request]
        if model not in self._routers:
            return NO_MACHINE
        return self._positions[model][self._routers[model].choose(sequence)]
