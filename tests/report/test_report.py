"""The report and its pictures: whole, safe, the same bytes, and right in a real browser."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.distributions import HIT_CLASSES, hit_class
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.parts import Asked, Disclosure, Section, Sentences, TextSection, body, heading
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.render import vega_lite
from report.finished_rows import written
from report.report_traces import make_trace
from support.browser import page
from support.product.reports import Table, draw, find_trace, reuse_of
from support.request_rows import rows
from support.small_run import small_run, warn

OWNED = "document.title='owned'"
HOSTILE = f"""</script><script>{OWNED}</script><img src=x onerror="{OWNED}">&amp;\u202eevil"""
HOSTILE_NAME = HOSTILE.replace("/", "∕").replace("<∕", "<")  # as far as a directory's name can go


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [
        warn(small_run(root / "small", 300), HOSTILE),
        small_run(root / HOSTILE_NAME, 300, "seed=1", "replica.step_overhead=20ms"),
    ]


@pytest.fixture(scope="module")
def runs(directories):
    found = open_runs(directories)
    assert [find_trace(run) for run in found] == ["", ""]
    return found


# the fleet's needs a run with a plan: test_fleet draws that
@pytest.mark.parametrize("kind", [kind for kind in PICTURES if kind != "fleet"])
def test_every_picture_draws_one_run_and_two(runs, kind):
    for chosen in (runs[:1], runs):
        picture = draw(kind, chosen)
        assert not isinstance(picture, NothingToDraw), picture
        assert len({frozenset(row) for row in picture.data}) == 1
        assert all(len(row) == len(picture.table.headings) for row in picture.table.rows)
        per_series = 2000 * 4 * 3
        assert 0 < len(picture.data) <= per_series
        shown = {row["run"] for row in picture.data}
        assert shown == {run.label for run in chosen}
        specification = json.loads(json.dumps(vega_lite(picture), allow_nan=False))
        assert specification.pop("data")["values"] == picture.data
        assert '"data"' not in json.dumps(specification)  # each part of the chart draws from these rows


def test_hit_classes():
    columns = {
        "input_tokens": np.array([1024, 1025, 1025, 400, 2000]),
        "cached_prefix_length_used": np.array([512, 1024, 512, 0, 0]),
    }
    classes = [HIT_CLASSES[own] for own in hit_class(columns, 512)]
    assert classes == ["full hit", "full hit", "partial hit", "miss", "miss"]


def test_latencies_are_split_by_what_each_request_hit(runs):
    """Each request of its own, in plain numbers: its class by hit or slowest tier, its TTFT or TPOT in ms."""
    expected = {kind: {} for kind in ("ttft", "ttft-by-tier", "tpot")}
    for run in runs:
        names = ("arrival_ns", "first_token_ns", "finish_ns", "input_tokens", "output_tokens")
        each = zip(*(run.finished[name].tolist() for name in names), strict=True)
        for k, (arrival, first, last, tokens, answer) in enumerate(each):
            by_tier = {tier: int(run.finished[f"cached_{tier}_tokens"][k]) for tier in KV_SOURCES}
            cached = sum(by_tier.values())
            whole = (tokens - 1) // run.block_size_tokens * run.block_size_tokens
            hit = "miss" if not cached else "full hit" if cached >= whole else "partial hit"
            slowest = [tier for tier, found in by_tier.items() if found][-1:] or ["none"]
            ttft = (first - arrival) / 1e6
            expected["ttft"].setdefault((run.label, hit), []).append(ttft)
            expected["ttft-by-tier"].setdefault((run.label, *slowest), []).append(ttft)
            if answer > 1:
                expected["tpot"].setdefault((run.label, hit), []).append((last - first) / 1e6 / (answer - 1))
    for kind, classes in expected.items():
        picture = draw(kind, runs)
        assert {row[:2]: row[2] for row in picture.table.rows if row[2]} == {
            key: len(ms) for key, ms in classes.items()
        }
        for label, name, count, *figures in picture.table.rows:
            if count:
                ms = classes[label, name]
                assert figures == pytest.approx(
                    [np.percentile(ms, share) for share in (50, 75, 90, 99)], abs=6e-4
                )
                drawn = [
                    (row["ms"], row["share"])
                    for row in picture.data
                    if (row["run"], row["class"]) == (label, name)
                ]
                assert drawn[-1] == (pytest.approx(max(ms), abs=1e-4), 1.0)
                # a share of the values lies at or below each point, between two ranks where there are many
                for at, share in drawn:
                    below, upto = (np.mean(np.array(ms) <= at + less) for less in (-1e-4, 1e-4))
                    assert below - 1.01 / count <= share <= upto + 1.01 / count


def causes_of(prompts, cached, machines=(0, 0), prefill_ns=10):
    """Return cause → tokens of the last of some requests that run one after another."""
    count = len(prompts)
    arrival, tokens = (np.array([row[k] for row in prompts]) for k in (0, 1))
    ends = dict.fromkeys(("first_token_ns", "finish_ns"), arrival + prefill_ns)
    columns = rows(count, arrival_ns=arrival, machine=machines[:count], input_tokens=tokens, **ends)
    columns |= {"cached_prefix_length_used": np.array(cached), "prefill_ns": np.full(count, prefill_ns)}
    evicted = {"cache": {"evictions": {"gpu": 9}}}
    reuse = reuse_of(written(columns, trace=make_trace(prompts), summary=evicted))
    assert (sum(reuse.missed.values()) == tokens - cached).all()
    assert all((own >= 0).all() for own in reuse.missed.values())
    return {cause: int(own[-1]) for cause, own in reuse.missed.items() if own[-1]}


def test_each_cause_of_a_miss_is_distinguished_from_the_others():
    first = (0, 1536, [0, 1, 2])
    again = (100, 1536, [0, 1, 2])
    assert causes_of([first], [0]) == {"shorter": 512, "never_seen": 1024}
    assert causes_of([first, again], [0, 1024]) == {"shorter": 512}
    assert causes_of([first, again], [0, 512]) == {"shorter": 512, "evicted": 512}
    assert causes_of([first, again], [0, 0], [0, 1]) == {"shorter": 512, "elsewhere": 1024}
    assert causes_of([first, again], [0, 0], prefill_ns=500) == {"shorter": 512, "not_ready": 1024}
    parted = (100, 1536, [0, 7, 8])
    assert causes_of([first, parted], [0, 512]) == {"shorter": 512, "diverged": 512}


def test_a_report_is_the_same_bytes_each_time(directories, tmp_path, capsys):
    targets = [tmp_path / "one.html", tmp_path / "two.html"]
    for target in targets:
        assert kvsim(["report", str(directories[0]), "-o", str(target)]) == 0
    assert targets[0].read_bytes() == targets[1].read_bytes()
    assert targets[0].stat().st_size < 5_000_000
    assert kvsim(["report", str(directories[0]), "-o", str(targets[0])]) == 6
    assert "--force" in capsys.readouterr().err


def test_a_report_in_a_browser(directories, tmp_path):
    target = tmp_path / "report.html"
    assert kvsim(["report", *map(str, directories), "-o", str(target)]) == 0
    text = target.read_text()
    assert not re.search(r"(src|href)=[\"']?https?://", text)
    assert HOSTILE not in text
    assert HOSTILE_NAME not in text
    with page(color_scheme="dark") as (browser, trouble):
        browser.goto(f"file://{target}")
        drawn = browser.evaluate("window.chartsDrawn")
        assert drawn == browser.locator(".chart svg").count() >= 7
        assert not [
            element for element in browser.locator(".chart svg").all() if element.locator("path").count() < 3
        ]
        assert trouble == []
        assert browser.title() == f"kvsim report: small, {HOSTILE_NAME}"
        assert f"small: {HOSTILE}" in browser.locator("ul.warnings li").all_text_contents()
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        labels = [str(figure.get_attribute("aria-label")) for figure in browser.locator("figure").all()]
        assert any("first token − arrival" in label for label in labels)
        for element in browser.locator(".chart").all():
            assert element.locator("xpath=../../details//table//td").count() > 0
        figures = browser.locator("section", has=browser.locator("table.explained")).last
        figures.locator("summary").click()
        heading = figures.locator("th").first
        first = figures.locator("tbody tr:first-child td:first-child")
        heading.locator("button").focus()
        browser.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") == "ascending"
        ascending = first.text_content()
        browser.keyboard.press("Space")
        assert heading.get_attribute("aria-sort") == "descending"
        assert first.text_content() > ascending
        button = figures.locator("button.copy")
        button.click()
        copied = button.get_attribute("data-copied")
        assert copied.startswith("number,")
        assert "requests.arrived,300,300," in copied


def parsed(html):
    """The elements of a piece of a page, each as (tag, attributes, text before its first child)."""
    root = ElementTree.fromstring(f"<root>{html}</root>")
    return [(one.tag, dict(one.attrib), one.text) for one in list(root.iter())[1:]]


ANY = 'a<b> & "c"'
TABLE = Table((ANY, "n"), ((ANY, 1234567), (None, 1234.5), ("x", 0)))
PARTS_OF_A_PAGE = [
    TextSection(ANY, ANY),
    Section(ANY, ANY, TABLE),
    Disclosure(ANY, ANY, TABLE),
    NothingToDraw("misses", ANY, ANY),
    Sentences(ANY, {ANY: {ANY: ("one", ANY)}, "B": {}}),
    Picture("waterfall", ANY, ANY, [], None, TABLE),
]


@pytest.mark.parametrize("part", PARTS_OF_A_PAGE, ids=lambda part: type(part).__name__)
def test_each_part_of_a_page_is_escaped_text(part):
    """Text can be read on a page as it is, and is no markup of its own."""
    found = parsed(body(part, "s1"))
    assert heading(part) == ANY
    assert any(ANY in (text or "") for _, _, text in found)
    assert not {tag for tag, _, _ in found} & {"b", "root"}
    asked = Asked("why?", part) if isinstance(part, (Picture, NothingToDraw)) else None
    assert asked is None or (heading(asked), body(asked, "s1")) == ("why?", body(part, "s1"))
