"""Tables of ``docs/data`` that stand in hand-written pages: the pages show them, and runs give their figures."""

import contextlib
import io
import json
import re

import kvcache_sim.cache.operations as operations
import pytest
from kvcache_sim.base.units import format_percent
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.workload.imports.write import KINDS
from support.docs_data import cells, figures_of, on_pages, read_table, rows_text
from support.shared_files import ROOT, shared

TRACE = "traces/conversation_trace.jsonl"
SPELLED = {"gpt-oss-120b": "gpt-oss-120b", "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b"}


def printed(*argv: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert kvsim(list(argv)) == 0, argv
    return out.getvalue()


def given(*argv: str) -> dict:
    return json.loads(printed(*argv, "--format", "json"))


def simulated(out: str, *settings: str) -> dict:
    options = [word for setting in settings for word in ("--set", setting)]
    return given("simulate", str(shared(TRACE)), *options, "-q", "-o", out)


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


@pytest.mark.parametrize(("page", "name"), on_pages())
def test_a_page_shows_its_table(page, name):
    assert f"<!-- data: {name} -->\n{rows_text(read_table(name))}" in (ROOT / page).read_text()


@pytest.mark.parametrize("model", SPELLED)
def test_a_sequence_has_the_size_on_the_page(model):
    shown = printed("models", "show", SPELLED[model], "--length", "131072")
    size = int(re.search(r"131,072 tokens: +([\d,]+) bytes", shown)[1].replace(",", ""))
    full = {"gpt-oss-120b": 36, "Qwen3-Next-80B-A3B": 48}[model] * 2048 * 131072  # every layer as a full one
    ours, others, ratio = cells("hybrid-context", model)
    assert (ours, others, ratio) == (f"{size / 1e9:.2f} GB", f"{full / 1e9:.2f} GB", f"{full / size:.1f}")


def test_hit_rates_by_pool_size_are_those_of_the_curve():
    sizes = [row[0] for row in read_table("hybrid-hit-rates").rows]
    options = [word for size in sizes[:-1] for word in ("--capacity", size.replace(" ", ""))]
    shown = printed("curve", str(shared(TRACE)), "--model", "gpt-oss-120b", *options)
    lines = [re.findall(r"[\d.]+ %", line) for line in shown.splitlines() if " %" in line]
    for row, line in zip(read_table("hybrid-hit-rates").rows, lines, strict=True):
        cells = [float(cell.removesuffix(" %")) / 100 for cell in row[1:] if cell]
        assert [format_percent(cell) for cell in cells] == line


@pytest.mark.parametrize("interval", ["0 (default)", "1,024"])
def test_hits_at_a_retention_interval(interval):
    table = read_table("hybrid-retention-gpt-oss")
    cell = dict(zip(table.columns, table.rows[0], strict=True))[interval].strip("*")
    chosen = ["--model", "gpt-oss-120b", "--capacity", "320GB", "--window", "32"]
    option = ["--retention-interval", interval.split()[0].replace(",", "")]
    replay = given("cachesim", str(shared(TRACE)), "--policy", "vllm", *chosen, *option)
    assert cell == f"{replay['hit_tokens'] / 1e6:.1f} M"


def test_routers_see_what_their_index_keeps(tmp_path):
    columns = {
        "`cache-aware`, truth": ("router.policy=cache-aware",),
        "`cache-aware`, gateway-tree": ("router.policy=cache-aware", "router.index.kind=gateway-tree"),
        "`longest-prefix`": ("router.policy=longest-prefix",),
        "`random`": ("router.policy=random",),
    }
    table = read_table("router-index")
    for machines, *shares in table.rows:
        for column, share in zip(table.columns[1:], shares, strict=True):
            if share:
                fleet = (f"cluster.machines={machines}", "tiers.gpu.capacity=1000 blocks")
                run = simulated(str(tmp_path / f"{machines}{column}"), *fleet, *columns[column])
                assert share.startswith(percent(run["cache"]["token_hit_rate"])), (machines, column)


def test_the_regret_of_a_router(tmp_path):
    run = str(tmp_path / "run")
    simulated(run, "cluster.machines=16", "tiers.gpu.capacity=1000 blocks", "router.policy=cache-aware")
    regret = given("explain", run, "--regret")
    tokens, choices = regret["prompt_tokens"], regret["choices"]
    assert cells("router-regret", "`cache-aware`") == [
        percent(regret["found_tokens"] / tokens),
        percent(regret["best_found_tokens"] / tokens),
        f"{regret['expected_ns'] / choices / 1e6:.0f} ms",
        f"{regret['least_expected_ns'] / choices / 1e6:.0f} ms",
    ]


@pytest.mark.parametrize("transfer", ["at-end", "layer-by-layer"])
def test_the_time_of_hand_overs(transfer, tmp_path):
    pools = ("pools.prefill=4", "pools.decode=4", "router.policy=prefill-cost")
    moved = simulated(str(tmp_path / "run"), *pools, f"handover.transfer={transfer}")["handover"]
    mean, share = cells("handover-times", f"`{transfer}`")
    wait, *waits_for_blocks = figures_of(mean)
    assert moved["wait"]["avg"] == pytest.approx(wait, rel=0.006)
    assert moved["room"]["avg"] == pytest.approx(waits_for_blocks[0] if waits_for_blocks else 0, abs=0.05)
    assert share == percent(moved["share_of_ttft"])
    assert moved["requests"] == 11959


def test_router_settings_are_keys_of_a_scenario():
    keys = printed("help", "scenario")
    named = [
        key for row in read_table("router-settings").rows for key in re.findall(r"`(router\.[\w.]+)", row[2])
    ]
    assert len(named) > 15
    assert not [key for key in named if f"\n{key} " not in keys]


def test_the_operations_of_seed_001_exist():
    page = (ROOT / "docs" / "develop" / "coming-from.md").read_text()
    named = re.findall(r"`MachineCache\.(\w+)`", page)
    assert len(named) == 11
    assert not [name for name in named if not hasattr(operations.MachineCache, name)]
    # the package's docstring has the same table
    doc = operations.__doc__ or ""
    assert not [name for name in named if f"`MachineCache.{name}`" not in doc]


def test_every_kind_of_log_is_on_the_page_of_logs():
    page = (ROOT / "docs" / "how-to" / "my-log.md").read_text()
    assert not [name for name in KINDS if f"`{name}`" not in page]
