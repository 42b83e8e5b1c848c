"""Every kind of page that kvsim writes, in a real browser: nothing overflows, and charts have distinct
colours."""

from itertools import combinations

import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.fit_picture import fit_picture
from kvcache_sim.extras.study.sizing.text import draw as draw_capacity
from kvcache_sim.metrics.objectives import parse_objectives
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.plot import picture_of
from kvcache_sim.report.plotting import encoded
from kvcache_sim.report.sweep_report import write_sweep_report
from kvcache_sim.report.time_series import MOST_SERIES
from report.colour_distance import lab
from report.page_overflow import overflowing
from support.browser import page
from support.product.sweeps import Answer
from support.timed_rows import TRUE, random_rows

SCENARIO = """name: fleet
seed: 5
workload: {kind: conversational, requests: 60, arrivals: {process: poisson, rate_per_s: 6}, block_size: 16}
cache: {block_size: 16}
cluster: {machines: 2}
tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 400 blocks}}
replica: {max_num_batched_tokens: 2048, max_num_seqs: 16}
fleet: {plan: [{at: 5s, do: drain, machine: 0}, {at: 9s, do: join}]}
slo: {ttft: 200ms}
cost: {gpu_hour: 2}
"""
POLICIES = [text for name in ("lfu", "fifo", "arc", "sieve") for text in ("--policy", name)]
CELLS = [
    {
        "cell": cell,
        "status": "ok",
        "set.tiers.cpu.capacity": f"{400 + 400 * (cell // 2)} blocks",
        "set.replica.max_num_seqs": 8 + 8 * (cell % 2),
        "cache.token_hit_rate": 0.5 + 0.1 * cell,
        "latency.ttft.avg": 60.0 + cell,
        "latency.ttft.p50": 50.0 + cell,
        "latency.ttft.p99": 90.0 - 5 * (cell % 3),
        "latency.tpot.avg": 7.0 + cell,
        "throughput.output_tokens_per_s": 250.0 - cell,
        "slo.attainment": 0.9,
        "goodput.requests_per_s": 3.0 + cell,
        "capacity.rate_per_s": 3.0 + cell,
        "capacity.verdict": "found",
        "capacity.cost_per_hour": 2.0 + cell % 2,
        "capacity.machines": 1,
    }
    for cell in range(5)
]


def pages(root):
    """Write a page of each kind; return kind → (file, charts on it)."""
    scenario, trace = str(root / "s.yaml"), str(root / "trace.jsonl")
    (root / "s.yaml").write_text(SCENARIO)
    target = {kind: str(root / f"{kind}.html") for kind in ("fleet", "curve")}
    for command in (
        ("trace", "generate", "conversational", "--requests", "60", "-o", trace),
        ("simulate", "-c", scenario, "-q", "-o", str(root / "a")),
        ("report", str(root / "a"), "-o", target["fleet"]),
        ("curve", trace, *POLICIES, "-o", target["curve"]),
    ):
        assert kvsim(list(command)) == 0, command
    rows = random_rows(100)
    for kind, picture in (
        ("capacity", draw_capacity(Answer(tuple(CELLS)), "chat")),
        ("fit", fit_picture(rows, predict_ms(TRUE, rows))),
        ("picture", picture_of("waterfall", open_runs([root / "a"]))),
        ("columns", picture_of("hit-curve", open_runs([root / "a"] * 3))),
    ):
        target[kind] = str(root / f"{kind}.html")
        (root / f"{kind}.html").write_bytes(encoded(picture, ".html"))
    for kind, goals in (("sweep", ""), ("pareto", "ttft.p99:min,hit_rate:max")):
        target[kind] = str(root / f"{kind}.html")
        write_sweep_report(root / f"{kind}.html", "sizes", CELLS, parse_objectives(goals) if goals else ())
    charts = {"fleet": 13, "sweep": 2, "pareto": 3}
    return {kind: (path, charts.get(kind, 1)) for kind, path in target.items()}


#: Words of a chart that are cut off by its edge, or that lie on one another.
WORDS = """() => [...document.querySelectorAll(".chart svg")].flatMap((svg) => {
  const chart = svg.closest(".chart").dataset.chart, edge = svg.getBoundingClientRect();
  const words = [...svg.querySelectorAll("text")]
    .filter((t) => t.textContent.trim() && t.getAttribute("opacity") !== "0")
    .map((t) => [t.textContent, t.getBoundingClientRect()]);
  const cut = words.filter(([, r]) => r.left < edge.left - 1 || r.right > edge.right + 1
    || r.top < edge.top - 1 || r.bottom > edge.bottom + 1).map(([t]) => `${chart}: ${t} is cut off`);
  const over = words.flatMap(([t, a], i) => words.slice(0, i).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
    .map(([u]) => `${chart}: ${t} lies on ${u}`));
  return [...cut, ...over]; })"""
#: Chart → the colours of each of its legends that has more than one.
LEGENDS = """() => [...document.querySelectorAll(".chart svg")].flatMap((svg) =>
  [...svg.querySelectorAll(".role-legend")].map((legend) => [svg.closest(".chart").dataset.chart,
    [...legend.querySelectorAll(".role-legend-symbol path")].map((p) =>
      [p.getAttribute("fill"), p.getAttribute("stroke")].find((c) => c && c.startsWith("#")))])
  .filter(([, colours]) => new Set(colours).size > 1))"""
FITTED = """() => [...document.querySelectorAll(".chart")].every((chart) =>
  chart.querySelector("svg").getBoundingClientRect().width <= chart.clientWidth)"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return pages(tmp_path_factory.mktemp("pages"))


def test_every_kind_of_page_fits_its_screen_with_distinct_colours(written):
    with page(viewport={"width": 1280, "height": 800}) as (browser, trouble):
        for kind, (path, charts) in written.items():
            browser.set_viewport_size({"width": 1280, "height": 800})
            browser.goto(f"file://{path}")
            assert browser.evaluate("window.chartsDrawn") == charts, kind
            for chart, colours in browser.evaluate(LEGENDS):
                assert len(colours) <= MOST_SERIES, (kind, chart)
                apart = [np.linalg.norm(lab(a) - lab(b)) for a, b in combinations(colours, 2)]
                assert min(apart) > 20, (kind, chart)
            for width, height in ((1280, 800), (400, 640)):
                browser.set_viewport_size({"width": width, "height": height})
                browser.wait_for_function(FITTED)
                for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")):
                    browser.emulate_media(color_scheme=scheme)
                    seen = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                    assert seen == ground, kind
                    assert overflowing(browser) == [], (kind, width, scheme)
                    assert browser.evaluate(WORDS) == [], (kind, width, scheme)
            assert trouble == [], kind
