"""Routers choose in the core as in the specification, and channels served layer by layer change no result (I11)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree, beyond_spec
from support.clusters import cluster
from support.lookahead import assert_same_by_the_clock
from support.traces import random_trace


@pytest.mark.parametrize("policy", ROUTERS)
def test_routers_see_the_machines_as_they_are(policy):
    """Lookahead is invisible to every router; routers of the seeds choose as the specification does."""
    settings = replace(cluster((90, 60, 400), 3, through=policy == "random"), router=RouterSettings(policy))
    run = assert_same_by_the_clock(settings, random_trace(6))
    assert len(np.unique(run.requests["machine"])) == 3
    if not beyond_spec(settings):
        agree(settings, random_trace(6))


def test_serving_layer_by_layer_changes_no_result_of_fifo_channels():
    settings = cluster((90, 60, 400))
    fair = ChannelSettings("unused", 10**9, sharing="fair")
    layered = replace(settings, channels={**settings.channels, "unused": fair})
    plain, by_event = (simulate(one, random_trace(2)) for one in (settings, layered))
    assert plain.digest_results == by_event.digest_results


def test_loads_first_shortens_the_wait_for_kv():
    def wait(**channel: Any) -> int:
        settings = cluster((90, 400), through=True, **channel)
        one = replace(
            settings.machines[0], edge_channels=dict.fromkeys(("gpu->cpu", "cpu->gpu"), "cpu->gpu 0")
        )
        return int(
            simulate(replace(settings, machines=(one,)), random_trace(5)).requests["fetch_cpu_ns"].sum()
        )

    assert wait(priority="loads-first") < wait()
