"""vLLM's hosts: what is packaged is the fit to servers with few clients, and servers with more judge it."""

import sys

import pytest
from calibrate.hardware_extra import needs_library
from kvcache_sim.model.hosts import load_host
from support.shared_files import ROOT

KEYS = ("client_offset_ns", "launch_per_layer_ns", "client_offset_per_token_ns")


@needs_library
@pytest.mark.parametrize("name", ["vllm", "vllm-b200"])
def test_hosts_of_other_models_lower_the_miss_of_ttft_on_servers_with_more_clients(name):
    sys.path.append(str(ROOT / "benches"))
    import vllm_few_clients as bench

    few, more = bench.judged(name, bench.rows())
    host, spec = bench.fitted(few), load_host(name)
    assert [getattr(host, key) or 0 for key in KEYS] == [getattr(spec, key) or 0 for key in KEYS]
    low, high = spec.launch_per_layer_range_ns
    assert low == load_host("b300-launch-dense").launch_per_layer_ns
    assert high == load_host("h100-launch-dense").launch_per_layer_ns
    without = bench.left_out(few)
    assert len(without) in (0, 4)
    alone = bench.median_errors((row, bench.NONE) for row in more)
    found = bench.median_errors((row, without.get(row.run.deployment.model, host)) for row in more)
    assert found[0] < (0.85 if name == "vllm" else 0.65) * alone[0]
    assert found[2] < alone[2] + 1
