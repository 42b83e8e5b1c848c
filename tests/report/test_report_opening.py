"""A report opens with the answer: measured in a real browser, wide and narrow, on light and on dark
ground."""

import html
import re
from itertools import product

import pytest
from kvcache_sim.cli.main import run as kvsim
from report.page_overflow import overflowing
from support.browser import page

#: Viewport and the height in which the answer must appear.
SCREENS = {"wide": ((1280, 800), 800), "narrow": ((400, 640), 640)}
FIGURES = """
    cache.token_hit_rate cache.upper_bound_token_hit_rate latency.ttft.p50 latency.ttft.p99
    latency.tpot.avg throughput.output_tokens_per_s
""".split()
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


def test_the_page_of_a_run_states_the_source_of_its_times_and_where_intervals_come_from(reports):
    text = html.unescape(re.sub(r"<script.*?</script>|<[^>]*>", " ", reports[1].read_text(), flags=re.S))
    assert re.search(r"step times: fitted set h100-llama-3\.1-8b-tp1: ×\d\.\d\d–\d\.\d\d", text, re.I)
    assert "intervals: kvsim explain" in " ".join(text.split())


def test_the_page_of_several_runs_answers_first_and_says_what_differs_once(reports):
    text = reports[2].read_text()
    opening = text[text.index("<header>") : text.index("<section")]
    assert (
        opening.index('class="verdict"') < opening.index('class="subjects"') < opening.index('class="cards"')
    )
    assert re.sub("<[^>]*>", "", opening).count("llama-3.1-8b on 1 × h100") == 1
    sections = re.findall(r"<section.*?</section>", text, re.S)
    settings, causes = sections[:2]
    assert "Which settings differ?" in settings
    assert re.search(r"tiers\.disk\.capacity</td><td[^>]*>–</td><td[^>]*>4GiB</td>", settings)
    sentences = re.findall(r"<li>(.*?)</li>", causes)
    assert "<h3>both runs</h3>" in causes
    assert len(set(sentences)) == len(sentences)
    assert not re.search(r"not drawn,|<ul></ul>", text)


@pytest.mark.parametrize(("rate_per_s", "unit"), [(4, "s"), (0.002, "h")])
def test_time_is_in_hours_where_hours_are(tmp_path, rate_per_s, unit):
    """The arrivals take half a minute at 4/s, hours at 0.002/s: whole hours are marked."""
    (tmp_path / "s.yaml").write_text(
        SCENARIO.format(name="n", tiers="{gpu: {capacity: 400 blocks}}").replace(
            "s: 4}", f"s: {rate_per_s}}}"
        )
    )
    assert kvsim(["simulate", "-c", str(tmp_path / "s.yaml"), "-q", "-o", str(tmp_path / "run")]) == 0
    assert kvsim(["plot", str(tmp_path / "run"), "queue", "-o", str(tmp_path / "queue.svg")]) == 0
    words = re.findall(r"<text[^>]*>([^<]+)<", (tmp_path / "queue.svg").read_text())
    assert f"simulated time, {unit}" in words
    assert {"1", "2"} <= set(words) or unit == "s"
