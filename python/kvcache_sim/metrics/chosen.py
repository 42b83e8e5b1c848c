"""Some rows of a table, their columns copied one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ChosenRows(Mapping[str, NDArray[Any]]):
    """The rows where ``chosen`` is true; a column is copied each time it is asked for, none where all are.

    A copy of all columns would hold a run's rows twice while they are summarised.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], chosen: NDArray[np.bool_]) -> None:
        self._columns = columns
        self._chosen = None if bool(chosen.all()) else chosen

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column of the chosen rows."""
        column = self._columns[name]
        return column if self._chosen is None else column[self._chosen]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)
