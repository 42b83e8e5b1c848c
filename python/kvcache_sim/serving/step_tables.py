"""Tables of step times in the core's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.serving.settings import MachineSettings

if TYPE_CHECKING:
    from kvcache_sim import _core


def step_table(table: StepTimeTable) -> _core.StepTable:
    """Return a step-time model's integers in the core's format."""
    from kvcache_sim import _core

    coefficients = [table.pair_half_fs, table.kv_decode_fs, table.kv_mixed_fs, table.sequence_fs]
    coefficients += [table.past_fs, table.spread_decode_fs, table.spread_mixed_fs]
    coefficients += [table.scan_fs, table.idle_fs, table.alongside_fs]
    bases = (table.base_ns, table.past_base_ns, table.decode_base_ns)
    least = (table.least_kv_tokens, table.least_query_tokens)
    launch = [table.launch_ns, table.captured_tokens, table.pieces_launch_ns, table.graph_launch_ns]
    launch += [table.launch_sequence_ns, table.tail_ns, table.tail_sequence_ns]
    unsplit = [table.unsplit_sequences, table.unsplit_fs, table.unsplit_hidden_fs]
    grids = table.residuals.in_order()
    stages = list(table.stage_layers), table.stage_head_ns.tolist(), table.stage_hop_ns.tolist()
    return _core.StepTable(bases, coefficients, least, table.longest_fs, unsplit, grids, (launch, stages))


def table_of(settings: MachineSettings) -> StepTimeTable:
    """Return the step times of a machine; UsageError if its model has no table of them."""
    replica, model = settings.replica, settings.step_time
    table: Any = model.table(replica.max_num_batched_tokens, replica.most_decode_tokens)
    if not isinstance(table, StepTimeTable):
        got, expected = type(table).__name__, "a StepTimeTable"
        raise UsageError(
            f"step times of {type(model).__name__} have no table", "step_time.table", got, expected
        )
    return table


def dummy_step_ns(settings: MachineSettings) -> int:
    """Return an idle rank's own part of a step of its engine: a step of one token."""
    table = _of_rank(settings, table_of(settings))
    return table.step(StepBatch((), 1, 0, 0)) + settings.replica.step_overhead_ns


def shared_ns(settings: MachineSettings) -> tuple[list[int], list[int]]:
    """Return the ns that the ranks of a machine's engine take together, as ``_core.Cluster`` takes them."""
    shared = table_of(settings).shared
    return shared.padded_ns.tolist(), shared.total_ns.tolist()


def _of_rank(settings: MachineSettings, table: StepTimeTable) -> StepTimeTable:
    """Return a machine's own part of its step times, if it is one of several ranks.

    Raises UsageError if the step times are of another number of ranks.
    """
    ranks, measured = settings.replica.ranks, table.shared.ranks
    if ranks == 1 or measured == 1:
        return table
    if ranks != measured:
        raise UsageError("step times of another number of ranks", "replica.dp", str(ranks), str(measured))
    return table.own_part()


class StepTables:
    """The core's tables of step times; machines that share a table object share the core's table."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[StepTimeTable, _core.StepTable]] = {}

    def of(self, settings: MachineSettings) -> _core.StepTable:
        """Return the table of a machine; UsageError if its step-time model has none."""
        table = table_of(settings)
        if id(table) not in self._made:
            self._made[id(table)] = table, step_table(_of_rank(settings, table))
        return self._made[id(table)][1]
