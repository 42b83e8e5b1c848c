"""Junctions of prompts count for the request on the machine that served it, and leave as sorted columns."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.cache_groups import JUNCTION_COLUMNS, junction_rows, junctions_of
from support.examples import examples

ROWS = st.tuples(st.integers(0, 6), st.integers(0, 1))
KEYS = st.tuples(st.integers(0, 8), st.integers(0, 1))
VALUES = st.tuples(st.integers(1, 99), st.integers(0, 2))


@dataclass
class Store:
    """A machine's store that met junctions."""

    met: list[tuple[int, int, int]]

    def junctions(self) -> list[tuple[int, int, int]]:
        return [own for own in self.met if own[2] < 2]

    def not_loaded(self) -> list[tuple[int, int]]:
        return [own[:2] for own in self.met if own[2] == 2]


@examples(40)
@given(st.lists(ROWS, max_size=6, unique_by=lambda row: row[0]), st.dictionaries(KEYS, VALUES, max_size=8))
def test_a_junction_counts_on_the_machine_that_served_its_request(rows, junctions):
    requests = {name: [row[at] for row in rows] for at, name in enumerate(("request", "machine"))}
    columns = sorted((*key, *value) for key, value in junctions.items())
    names = ("request", "machine", "junction_tokens", "cause")
    named = {name: [own[at] for own in columns] for at, name in enumerate(names)}
    expected = [junctions.get(row, (0, 0)) for row in rows]
    found = [own.tolist() for own in junctions_of(requests, named)]
    assert found == [[tokens for tokens, _ in expected], [cause for _, cause in expected]]
    assert not any(map(np.any, junctions_of(requests, None)))
    stores = {
        machine: Store([(request, *own) for (request, at), own in junctions.items() if at == machine])
        for machine in (1, 0)
    }
    written = junction_rows(stores, stores, 1)
    assert junction_rows({}, {0: Store([])}, 1) is None
    assert list(zip(*(own.tolist() for own in written.values()), strict=True)) == sorted(
        columns, key=lambda row: (row[3] == 2, row)
    )
    types = {name: column.dtype for name, column in JUNCTION_COLUMNS.items()}
    assert {name: own.dtype for name, own in written.items()} == types
