"""Names of live runs for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.extras.live.app import application
from kvcache_sim.extras.live.clock import WallClock
from kvcache_sim.extras.live.prompts import BlockNumbers
from kvcache_sim.extras.live.run_output import Asked, live_scenario
from kvcache_sim.extras.live.serving import Parts, Serving, assembled
from kvcache_sim.simulation.live import LiveSimulation
