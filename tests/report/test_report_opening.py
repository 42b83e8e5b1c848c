"""A report opens with the answer: measured in a real browser, wide and narrow, on light and on dark
ground."""

import re
from itertools import product

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.finished import find_trace, open_runs
from kvcache_sim.report.headline import headlines
from kvcache_sim.report.run_report import tag
from report.page_overflow import overflowing
from support.browser import page
from support.fake_run import made_up_run

#: Viewport and the height in which the answer must appear.
SCREENS = {"wide": ((1280, 800), 800), "narrow": ((400, 640), 640)}
FIGURES = (
    "cache.token_hit_rate",
    "cache.upper_bound_token_hit_rate",
    "latency.ttft.p50",
    "latency.ttft.p99",
    "latency.tpot.avg",
    "throughput.output_tokens_per_s",
)
SCENARIO = """name: {name}
seed: 3
workload: {{kind: conversational, requests: 120, arrivals: {{process: poisson, rate_per_s: 4}}, block_size: 16}}
cache: {{block_size: 16}}
tiers: {tiers}
replica: {{max_num_batched_tokens: 2048, max_num_seqs: 32}}
cost: {{gpu_hour: 2}}
"""


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Two runs of one workload, the second with lower tiers, and a third."""
    root = tmp_path_factory.mktemp("opening")
    made = []
    for name, tiers in (
        ("gpu-alone", "{gpu: {capacity: 400 blocks}}"),
        ("with-lower-tiers", "{gpu: {capacity: 400 blocks}, cpu: {capacity: 1GiB}, disk: {capacity: 4GiB}}"),
        ("large", "{gpu: {capacity: 6000 blocks}}"),
    ):
        scenario = root / f"{name}.yaml"
        scenario.write_text(SCENARIO.format(name=name, tiers=tiers))
        assert kvsim(["simulate", "-c", str(scenario), "-o", str(root / name)]) == 0
        made.append(root / name)
    return made


@pytest.fixture(scope="module")
def reports(directories, tmp_path_factory):
    """Number of runs → their report."""
    root = tmp_path_factory.mktemp("reports")
    for count in (1, 2, 3):
        chosen = [str(directory) for directory in directories[:count]]
        assert kvsim(["report", *chosen, "-o", str(root / f"{count}.html")]) == 0
    return {count: root / f"{count}.html" for count in (1, 2, 3)}


@pytest.mark.parametrize("count", [1, 2])
def test_the_answer_is_on_the_first_screen(reports, count):
    with page() as (browser, trouble):
        browser.goto(f"file://{reports[count]}")
        for ((width, height), limit), scheme in product(SCREENS.values(), ("light", "dark")):
            browser.set_viewport_size({"width": width, "height": height})
            browser.emulate_media(color_scheme=scheme)
            browser.reload()
            assert browser.evaluate("window.chartsDrawn") >= 9
            assert trouble == []
            the_answer_is_within(browser, count, width, limit)
            assert overflowing(browser) == []


def the_answer_is_within(browser, count, width, limit):
    for figure in FIGURES:
        card = browser.locator(f'.card[data-figure="{figure}"]')
        values, deltas = card.locator(".value").all(), card.locator(".delta").all()
        assert len(values) == count
        assert len(deltas) == count - 1
        boxes = [part.bounding_box() for part in (*values, *deltas)]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes), figure
        assert all(box["height"] > 8 and box["y"] + box["height"] <= limit for box in boxes), figure
        assert all(re.search(r"\d", value.text_content().removeprefix("A")) for value in values), figure
    subjects = browser.locator(".subject").all()
    assert len(subjects) == count
    for words in ("llama-3.1-8b on 1 × h100", "tiers gpu 400 blocks", "blocks of 16 tokens", "120 requests"):
        assert words in subjects[0].text_content()


def test_charts_fill_their_page_and_follow_its_width(reports):
    with page(viewport={"width": 1280, "height": 800}) as (browser, trouble):
        browser.goto(f"file://{reports[2]}")
        browser.evaluate("window.chartsDrawn")
        for width in (1280, 700, 400, 1000):
            browser.set_viewport_size({"width": width, "height": 700})
            browser.wait_for_function(
                """() => [...document.querySelectorAll(".chart")].every((chart) => {
                  const drawn = chart.querySelector("svg").getBoundingClientRect().width;
                  return drawn <= chart.clientWidth && drawn > chart.clientWidth - 8;
                })"""
            )
            assert overflowing(browser) == []
        assert trouble == []


def test_text_can_be_read_on_both_grounds(reports):
    """Contrast of the words of cards, changes and definitions with what is behind them: WCAG's 4.5 to 1."""
    contrast = """() => {
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255)
          .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = (e) => { for (; e; e = e.parentElement) {
        const c = getComputedStyle(e).backgroundColor; if (!c.endsWith(", 0)")) return c; } };
      return [...document.querySelectorAll(".card span, .card b, .subject, p.definition, h2 a, summary, th button")]
        .map((e) => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
          return [(a + 0.05) / (b + 0.05), e.className + " " + e.tagName]; })
        .filter(([ratio]) => ratio < 4.5); }"""
    for scheme in ("light", "dark"):
        with page(color_scheme=scheme) as (browser, _):
            browser.goto(f"file://{reports[2]}")
            assert browser.evaluate(contrast) == []


def test_three_runs_are_each_compared_with_the_first(reports):
    with page(viewport={"width": 1280, "height": 800}) as (browser, _):
        browser.goto(f"file://{reports[3]}")
        card = browser.locator('.card[data-figure="latency.ttft.p50"]')
        assert [delta.get_attribute("data-run") for delta in card.locator(".delta").all()] == ["1", "2"]
        assert browser.locator(".sides > div").count() == 3


def test_without_prices_and_trace_no_figure_is_made_up(tmp_path):
    (run,) = open_runs([made_up_run(tmp_path / "run", 50)])
    find_trace(run)
    cards = {card.key: card for card in headlines([Case(run)], [])}
    assert "cost.per_million_tokens" not in cards
    assert cards["cache.upper_bound_token_hit_rate"].values == ("–",)


def test_run_tags_are_a_to_z_then_aa():
    assert [tag(number) for number in (0, 1, 25, 26, 27, 701, 702)] == [
        "A",
        "B",
        "Z",
        "AA",
        "AB",
        "ZZ",
        "AAA",
    ]


def test_every_figure_of_the_disclosure_is_defined(reports):
    with page(viewport={"width": 400, "height": 640}) as (browser, _):
        browser.goto(f"file://{reports[1]}")
        section = browser.locator("section", has=browser.locator("table.explained"))
        section.locator("summary").click()
        rows = section.locator("tbody tr")
        undefined = rows.evaluate_all(
            "rows => rows.filter(r => !r.lastChild.textContent).map(r => r.textContent)"
        )
        assert undefined == []
        assert rows.count() > 100
        box = rows.first.locator("td").nth(1).bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 400
