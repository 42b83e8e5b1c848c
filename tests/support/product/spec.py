"""Names of the specification for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.simulation.spec_demand import Demand
from kvcache_sim.simulation.spec_invariants import CheckedStore
from kvcache_sim.simulation.spec_keys import Only, coverage
from kvcache_sim.simulation.spec_simulation import SpecSimulation
from kvcache_sim.spec.blocks import Block
from kvcache_sim.spec.channels import Transmission
from kvcache_sim.spec.mover import Transfer
from kvcache_sim.spec.store import Store
from kvcache_sim.spec.ttft import Loading
