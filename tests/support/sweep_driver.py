"""A small sweep as a process of its own, so that tests can kill it: DIRECTORY CELLS JOBS FUNCTION BASE."""

import sys
from pathlib import Path

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.extras.study.sweeps.cell import Limits, Study
from kvcache_sim.extras.study.sweeps.stop import stop_on_signals

from support.product.sweeps import LocalRunner, Resolved, Space, lay_out, run_sweep


class Silent:
    def begin(self, total, cached, damaged):
        print(f"cached={cached} damaged={len(damaged)}", flush=True)

    def cell_ended(self, cell, record):
        print(cell.index, flush=True)


def plan_of(count, function, base="", files=None, repeats=1, grid=None):
    study = Study(f"support.sweep_cells:{function}", base, ".", files or {})
    space = Space(grid=grid or {"x": list(range(count))})
    return lay_out("driven", study, space, repeats, 0, lambda s: Resolved(dict(s), float(s.get("x", 1))))


def main(directory, count, jobs, function, base):
    try:
        with stop_on_signals() as stop:
            runner = LocalRunner(int(jobs), Limits(time_s=30.0))
            outcome = run_sweep(plan_of(int(count), function, base), Path(directory), runner, stop, Silent())
            return outcome.exit_code
    except KvsimError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
