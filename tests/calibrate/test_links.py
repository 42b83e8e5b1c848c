"""All-reduce tables: packaged, custom, interpolated between measurements, and refused."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import AllReduces, all_reduce_ms, exchange_ms, load_links
from kvcache_sim.model.rank_work import AGREEMENT_MS, Degrees, exchanged_ms
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from layer_shapes import five_layers
from rank_steps import shared_ns
from support.product.models import entry_names, gpu_names


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


def test_exchanges_are_an_all_gather_and_a_reduce_scatter_of_one_buffer(tmp_path):
    """NCCL's own rows: elements of two bytes, several operations; others of one byte are left out."""
    path = tmp_path / "nccl.csv"
    ops = {"all_gather": 2, "reduce_scatter": 3, "all_reduce": 4, "alltoall": 9}
    rows = [
        f"{op},2,{kind},{n},{ms}" for op, ms in ops.items() for kind in ("half", "int8") for n in (50, 100)
    ]
    path.write_text("\n".join(["op,num_gpus,dtype,message_elements,time_ms", *rows]) + "\n")
    table, sizes = load_links(str(path)), np.array([100.0, 200.0])
    assert table.exchange_ms(2, sizes).tolist() == [5, 5]
    assert table.ms(2, sizes).tolist() == [4, 4]
    assert (
        exchange_ms(load_links("pcie4"), 1e9, 2, sizes).tolist() == load_links("pcie4").ms(2, sizes).tolist()
    )
    given = exchange_ms(load_links("pcie5"), 1e9, 2, np.array([2.0 * 16_777_216]))
    assert given == pytest.approx([0.540 + 0.574], abs=0.001)
    assert load_links("nvlink-h200").exchanges == load_links("nvlink-h100").exchanges


def test_a_roofline_of_ranks_shares_its_experts_by_the_tokens_of_all():
    """A prompt and another rank's decode meet half the experts' work and exchange of two prompts."""
    table = load_step_time("roofline:qwen3-30b-a3b@rtx-pro-6000:ep2,dp2").table(8192, 256)
    own, one = table.own_part(), load_step_time("roofline:qwen3-30b-a3b@rtx-pro-6000")
    prompt, decode = StepBatch(((2048, 0),)), StepBatch((), 64, 64_000, 1000)
    for batch, tokens in ((prompt, 2048), (decode, 64)):
        assert own.step(batch) + shared_ns(table.shared, [tokens, tokens]) == table.step(batch)
    assert shared_ns(table.shared, [2048, 16]) < 0.72 * shared_ns(table.shared, [2048, 2048])
    assert shared_ns(table.shared, [16, 16]) == shared_ns(table.shared, [9, 16])
    assert table.step(decode) < 0.7 * one.step(decode), "each GPU reads half of the experts"
    assert shared_ns(table.shared, [1, 1]) > AGREEMENT_MS * 1e6
    assert shared_ns(
        load_step_time("roofline:qwen3-30b-a3b@rtx-pro-6000:dp2").table(8192, 256).shared, [5, 5]
    ) == (shared_ns(table.shared, [5, 5])), "whole experts or parts of each: a GPU reads as much"
    slower = load_step_time("roofline:qwen3-30b-a3b@h100:dp2", "pcie5")
    assert slower.step(prompt) > load_step_time("roofline:qwen3-30b-a3b@h100:dp2").step(prompt)
    with pytest.raises(UsageError, match="has no experts"):
        load_step_time("roofline:qwen3-8b@h100:dp2")


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


def test_times_between_gpus_by_hand():
    table = AllReduces("t", "", ((2, ((100.0, 1.0), (200.0, 3.0))), (8, ((100.0, 2.0), (200.0, 4.0)))))
    sizes = np.array([100.0, 400.0])
    assert all_reduce_ms(table, 1e9, 1, sizes).tolist() == [0, 0]
    assert all_reduce_ms(table, 1e9, 8, sizes).tolist() == [2, 4 + 200 * 4 / 200]
    assert all_reduce_ms(table, 1e9, 4, sizes)[0] == pytest.approx(1.5)
    assumed = 0.005 + 2 * sizes / (1e9 * 0.8) * 1e3
    for links, gpus in ((table, 9), (None, 2)):
        assert all_reduce_ms(links, 1e9, gpus, sizes) == pytest.approx(assumed)
        assert exchange_ms(links, 1e9, gpus, sizes) == pytest.approx(assumed)
    assert exchange_ms(table, 1e9, 1, sizes).tolist() == [0, 0]
    assert exchange_ms(table, 1e9, 8, sizes).tolist() == [2, 8]
    apart = replace(table, exchanges=((2, ((100.0, 5.0),)), (4, ((100.0, 7.0),))))
    assert exchange_ms(apart, 1e9, 4, sizes) == pytest.approx([7, 28])
    assert exchange_ms(apart, 1e9, 8, sizes) == pytest.approx(assumed)
    one, gpu = five_layers(), load_gpu("h100")
    each = 64 * 2 * np.array([4.0, 8.0])
    rate = gpu.link_bytes_per_s
    for tp, dp in ((1, 2), (2, 2)):
        wanted = exchange_ms(apart, rate, tp * dp, each)
        if tp > 1:
            gathered = exchange_ms(apart, rate, tp, each / dp) / 2
            wanted = wanted + np.maximum(gathered - all_reduce_ms(apart, rate, tp, each / dp), 0)
        assert exchanged_ms(one, gpu, Degrees(tp, dp), each / 128, apart) == pytest.approx(
            AGREEMENT_MS + 3 * wanted
        )
    with pytest.raises(UsageError, match="no all-reduce among 9 GPUs"):
        table.ms(9, sizes)


def test_a_file_of_links_is_refused_by_its_line(tmp_path):
    path = tmp_path / "l.csv"
    for row in ("1,9,9", "2,0,1", "2,1,0", "2,inf,1", "2,1,inf", "2,x,1", "2,9"):
        path.write_text(f"num_gpus,message_bytes,time_ms\n2,8,1\n{row}\n")
        with pytest.raises(UsageError) as refused:
            load_links(str(path))
        assert refused.value.where == f"{path}:3"
    path.write_text("num_gpus,message_bytes,time_ms\n2,8,1\n2,8,1\n2,4,0.5\n")
    assert load_links(str(path)).points == ((2, ((4.0, 0.5), (8.0, 1.0))),)
    path.write_text("num_gpus,message_bytes,time_ms\n2,8,1\n2,8,2\n")
    with pytest.raises(UsageError, match="two times"):
        load_links(str(path))
