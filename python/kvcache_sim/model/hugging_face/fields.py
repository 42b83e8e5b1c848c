"""Access to the fields of one configuration, by any of their names, with one-line errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_sim.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a configuration's language model, and their source, for messages."""

    values: Mapping[str, Any]
    where: str

    def number(self, *names: str, default: int | None = None) -> int:
        """Return the first of ``names`` that is given, a whole number ≥ 0.

        Raises UsageError naming the field if none is given and there is no default.
        """
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
            if value is not None:
                raise UsageError(f"{name} is not a whole number", where=self.where, got=repr(value))
        if default is None:
            raise UsageError(f"no {' or '.join(names)}", where=self.where)
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a field that is true or false."""
        value = self.values.get(name)
        return default if value is None else bool(value)

    def items(self, name: str) -> list[Any] | None:
        """Return a field that is a list, None if it is not given; UsageError for anything else."""
        value = self.values.get(name)
        if value is None or isinstance(value, list):
            return value
        raise UsageError(f"{name} is not a list", where=self.where, got=repr(value))

    def each_layer(self, name: str) -> list[Any] | None:
        """Return a list with one item per layer; UsageError if it has fewer (more are ignored)."""
        found = self.items(name)
        if found is not None and len(found) < self.layers:
            expected = f"{self.layers}, as num_hidden_layers says"
            raise UsageError(f"too few {name}", where=self.where, got=str(len(found)), expected=expected)
        return found[: self.layers] if found is not None else None

    def part(self, name: str) -> Fields:
        """Return the fields of a nested table; UsageError naming it if it is missing."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise UsageError(f"no {name}", where=self.where)
        return Fields(value, f"{self.where} {name}")

    @property
    def layers(self) -> int:
        """The number of layers, without those of speculative heads."""
        listed = self.items("layers_block_type")
        return self.number(
            "num_hidden_layers", "n_layer", "num_layers", default=len(listed) if listed else None
        )

    @property
    def hidden_size(self) -> int:
        """The width of the residual stream."""
        return self.number("hidden_size", "n_embd", "d_model")
