"""Tables of docs/data that sweeps over the public conversation trace make.

``python tests/study/test_sweep_tables.py`` writes them anew.
"""

import json
import re
import tomllib
from pathlib import Path

import kvcache_sim as kv
import pytest
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord
from support.product.sweeps import result_rows
from support.shared_files import ROOT, shared

DATA = ROOT / "docs" / "data"
ROUTERS = ("round-robin", "longest-prefix", "cache-aware")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def milliseconds(value: float) -> str:
    return f"{value:,.0f}"


def offload_on_eight_machines(trace: Path) -> list[list[str]]:
    rows = []
    for size in ("none", "1TB"):
        cpu = None if size == "none" else {"capacity": size}
        run = kv.simulate(
            trace, **{"cluster.machines": 8, "tiers.gpu.capacity": "4096 blocks", "tiers.cpu": cpu}
        )
        ttft = run.summary["latency"]["ttft"]
        times = [milliseconds(ttft[name]) for name in ("avg", "p50", "p99")]
        rows.append([size, percent(run.summary["cache"]["token_hit_rate"]), *times])
    return rows


def nvme_on_two_machines(trace: Path) -> list[list[str]]:
    rows = []
    for size in ("none", "1TB", "4TB"):
        disk = None if size == "none" else {"capacity": size}
        settings = {"cluster.machines": 2, "tiers.cpu.capacity": "256GiB", "tiers.disk": disk}
        summary = kv.simulate(trace, **settings).summary
        rate = f"{summary['throughput']['output_tokens_per_s']:,.0f}"
        ttft = milliseconds(summary["latency"]["ttft"]["avg"])
        rows.append([size, percent(summary["cache"]["token_hit_rate"]), ttft, rate])
    return rows


def eviction_routing_capacity(trace: Path) -> list[list[str]]:
    rows = []
    for router in ROUTERS:
        found = []
        for blocks in (1000, 3000):
            for policy in ("lru", "arc"):
                settings = {
                    "cluster.machines": 16,
                    "tiers.gpu.capacity": f"{blocks} blocks",
                    "cache.policy": policy,
                    "router.policy": router,
                }
                found.append(percent(kv.simulate(trace, **settings).summary["cache"]["token_hit_rate"]))
        rows.append([f"`{router}`", *found])
    bounds = []
    for blocks in (16_000, 48_000):
        replay = kv.cachesim(trace, "belady", capacity=str(blocks))
        bounds += [percent(replay["hit_tokens"] / replay["queried_tokens"]), ""]
    rows.append(["one cache, Belady", *bounds])
    return rows


TABLES = (offload_on_eight_machines, nvme_on_two_machines, eviction_routing_capacity)


def file_of(table) -> Path:
    return DATA / f"{table.__name__.replace('_', '-')}.toml"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_table_has_the_figures_of_fresh_runs(table):
    assert tomllib.loads(file_of(table).read_text())["rows"] == table(
        shared("traces/conversation_trace.jsonl")
    )


if __name__ == "__main__":
    for table in TABLES:
        rows = table(shared("traces/conversation_trace.jsonl"))
        lines = "".join(f"  {json.dumps(row, ensure_ascii=False)},\n" for row in rows)
        text = file_of(table).read_text()
        file_of(table).write_text(re.sub(r"(?s)rows = \[\n.*\]\n", f"rows = [\n{lines}]\n", text))


def test_what_depends_on_the_machine_is_in_no_table():
    record = CellRecord("a", "ok", {"wall": {"run_s": 1.0}, "requests": {"finished": 2}}, elapsed_s=3.0)
    [row] = result_rows([Cell(0, "a", {"seed": 7})], {"a": record})
    assert list(row) == "cell cell_id repeat status error set.seed requests.finished batches".split()
