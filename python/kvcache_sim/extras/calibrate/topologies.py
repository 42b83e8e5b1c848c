"""A set of an unmeasured topology, from a file of several topologies (``ep`` and ``dp`` columns)."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.command import FittedRows, Measured, transfer_rows
from kvcache_sim.extras.calibrate.csv_table import column_values, read_table
from kvcache_sim.extras.calibrate.rows import IterationRows, read_iterations
from kvcache_sim.extras.calibrate.runs import compiles, single_steps
from kvcache_sim.extras.calibrate.transfer import Topology, fit_topologies

#: Fewest topologies that separate a step's shared, split and exchanged parts.
FEWEST = 3


def measured_topologies(measured: Measured) -> dict[Topology, IterationRows]:
    """Return a file's iterations by topology, without rows that compile."""
    table = read_table(measured.path, ("iter_ms", "tp", "ep", "dp"), measured.only)
    degrees = zip(*(table.counts(name, 1).astype(int).tolist() for name in ("tp", "ep", "dp")), strict=True)
    found: dict[Topology, IterationRows] = {}
    for tp, ep, dp in sorted(set(degrees)):
        only = {**measured.only, "tp": str(tp), "ep": str(ep), "dp": str(dp)}
        rows = read_iterations(measured.path, only)
        found[Topology(tp, ep, dp)] = rows.take(~compiles(rows))
    return found


def transferred(measured: Measured, wanted: Topology) -> FittedRows:
    """Return the model of a topology held out; of a file without ``ep`` and ``dp``, of a TP degree."""
    values = column_values(measured.path, ("ep", "dp"), measured.only)
    if wanted.suffix == f"tp{wanted.tensor_parallel}" and not (values["ep"] | values["dp"]) - {"1"}:
        return transfer_rows(measured, wanted.tensor_parallel)
    return transfer_topology(measured, wanted)


def transfer_topology(measured: Measured, wanted: Topology) -> FittedRows:
    """Return the model of a topology from the rows of all others; its own rows are held out.

    They are those of the family over these. Raises UsageError for fewer than three others.
    """
    known = measured_topologies(measured)
    unseen = known.pop(wanted, None)
    found = ", ".join(topology.suffix for topology in known)
    if len(known) < FEWEST:
        expected = f"{FEWEST} other topologies"
        raise UsageError("too few topologies to transfer from", str(measured.path), found, expected)
    model = fit_topologies(known).model(wanted)
    rows = next(iter(known.values()))
    unseen = rows.take(np.zeros(0, np.intp)) if unseen is None else unseen
    how = f"transferred to {wanted.suffix} from {found}"
    return FittedRows(model, unseen, single_steps(unseen), wanted.tensor_parallel, how)
