"""The public names of kvsim, for type checkers; ``docs/how-to/python.md`` says what each does."""

from kvcache_sim.api.comparing import Comparison as Comparison
from kvcache_sim.api.comparing import compare as compare
from kvcache_sim.api.explaining import Explanation as Explanation
from kvcache_sim.api.explaining import explain as explain
from kvcache_sim.api.optimizing import Optimum as Optimum
from kvcache_sim.api.optimizing import optimize as optimize
from kvcache_sim.api.plot import Plot as Plot
from kvcache_sim.api.replays import CacheReplay as CacheReplay
from kvcache_sim.api.replays import Curve as Curve
from kvcache_sim.api.replays import cachesim as cachesim
from kvcache_sim.api.replays import curve as curve
from kvcache_sim.api.run import Run as Run
from kvcache_sim.api.run import load_run as load_run
from kvcache_sim.api.scenario import Scenario as Scenario
from kvcache_sim.api.session import Session as Session
from kvcache_sim.api.session import session as session
from kvcache_sim.api.simulate import simulate as simulate
from kvcache_sim.api.sizing import Capacity as Capacity
from kvcache_sim.api.sizing import capacity as capacity
from kvcache_sim.api.sweeping import Sweep as Sweep
from kvcache_sim.api.sweeping import sweep as sweep
from kvcache_sim.api.traces import generate as generate
from kvcache_sim.api.traces import make_trace as make_trace
from kvcache_sim.api.traces import read_trace as read_trace
from kvcache_sim.base.errors import InputOutputError as InputOutputError
from kvcache_sim.base.errors import KvsimError as KvsimError
from kvcache_sim.base.errors import OutputExistsError as OutputExistsError
from kvcache_sim.base.errors import TraceError as TraceError
from kvcache_sim.base.errors import UsageError as UsageError
from kvcache_sim.cli.called import Printed as Printed
from kvcache_sim.cli.called import command as command
from kvcache_sim.simulation.options import RunOptions as RunOptions
from kvcache_sim.workload.trace import Trace as Trace

__version__: str
