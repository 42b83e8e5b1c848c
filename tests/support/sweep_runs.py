"""Sweeps run in this process."""

from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.stop import StopRequest

from support.product.sweeps import LocalRunner, run_sweep
from support.sweep_driver import Silent


def sweep(plan, directory, jobs=1, limits=None):
    stop = StopRequest()
    try:
        return run_sweep(plan, directory, LocalRunner(jobs, limits or Limits()), stop, Silent())
    finally:
        stop.close()


def tables(directory):
    return [(directory / name).read_bytes() for name in ("results.csv", "results.parquet")]
