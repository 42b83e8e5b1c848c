"""All-reduce tables: packaged, custom, interpolated between measurements, and refused."""

import numpy as np
import pytest
from kvcache_sim.errors import UsageError
from kvcache_sim.model.catalog import entry_names
from kvcache_sim.model.gpus import gpu_names, load_gpu
from kvcache_sim.model.links import all_reduce_ms, load_links
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time


@pytest.mark.parametrize("name", entry_names("links"))
def test_a_packaged_table_names_its_source_and_rises_where_messages_are_large(name):
    table = load_links(name)
    assert "aiconfigurator-core" in table.source
    for gpus, points in table.points:
        large = [ms for size, ms in points if size >= 2**23]
        assert large == sorted(large), gpus


def test_every_gpu_s_table_exists():
    for name in gpu_names():
        if links := load_gpu(name).links:
            assert links in entry_names("links")


def test_sizes_and_numbers_of_gpus_between_measured_ones(tmp_path):
    """Straight lines between sizes; past the last at its rate; three GPUs between two and four by logarithm."""
    path = tmp_path / "links.csv"
    path.write_text("num_gpus,message_elements,time_ms\n2,50,1\n2,100,3\n4,50,2\n4,100,5\n")
    table = load_links(str(path))
    assert table.ms(2, np.array([1.0, 100.0, 150.0, 200.0, 400.0])).tolist() == [1, 1, 2, 3, 6]
    share = np.log2(1.5)
    assert table.ms(3, np.array([100.0]))[0] == pytest.approx(1 + share)
    with pytest.raises(UsageError, match="no all-reduce among 8 GPUs"):
        table.ms(8, np.array([100.0]))


def test_without_a_table_latency_and_rate_of_the_links_are_assumed():
    sizes = np.array([0.0, 1e9])
    assert all_reduce_ms(None, 100e9, 1, sizes).tolist() == [0, 0]
    assert all_reduce_ms(None, 100e9, 4, sizes) == pytest.approx([0.005, 0.005 + 25.0])
    assert all_reduce_ms(load_links("nvlink-h100"), 100e9, 16, sizes) == pytest.approx([0.005, 25.005])


def test_links_change_a_roofline_by_two_all_reduces_a_layer(tmp_path):
    """80 layers, every all-reduce a millisecond."""
    path = tmp_path / "links.csv"
    path.write_text("num_gpus,message_bytes,time_ms\n4,1,1\n4,1000000000000,1\n")
    one = StepBatch((), 1, 1000, 1000)
    slow = load_step_time("roofline:llama-3-70b@h100:tp4", str(path)).step(one)
    path.write_text("num_gpus,message_bytes,time_ms\n4,1,0.5\n4,1000000000000,0.5\n")
    assert slow - load_step_time("roofline:llama-3-70b@h100:tp4", str(path)).step(one) == pytest.approx(
        160 * 500_000, rel=1e-4
    )
