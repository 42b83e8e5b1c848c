"""Names of caches, channels, machines and replays for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.cache.groups import Newcomer, native_groups
from kvcache_sim.cache.machine import MachineTiers
from kvcache_sim.cache.operations.open_machines import open_machines
from kvcache_sim.cache.settings import BlockForm
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.channels.settings import ClusterChannels, Slowdown
from kvcache_sim.replay.engine_requests import native_requests, total_tokens
from kvcache_sim.replay.group_settings import group_settings
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.simulation.end_checks import check_channels
