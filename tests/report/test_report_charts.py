"""Rules of every chart: colours that differ, six series at most, log axes that say so, steps and no
guesses."""

from collections import defaultdict
from itertools import combinations

import kvcache_sim as kv
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.colours import COLOURS, OTHER, colours_of
from kvcache_sim.report.curve.build import drawn_sizes
from kvcache_sim.report.finished import find_trace, open_runs
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.pictures.waterfall import PARTS
from kvcache_sim.report.render import draw, vega_lite
from kvcache_sim.report.time_series import MOST_SERIES, drawn_as
from report.colour_distance import lab
from support.examples import examples

SCENARIO = """name: charts
seed: 5
workload: {kind: conversational, requests: 150, arrivals: {process: poisson, rate_per_s: 6}, block_size: 16}
cache: {block_size: 16}
cluster: {machines: 3}
tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 400 blocks}, disk: {capacity: 2000 blocks}}
fetch: {lookup: cluster}
replica: {max_num_batched_tokens: 2048, max_num_seqs: 16, client_offset: 2ms}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("charts")
    (root / "charts.yaml").write_text(SCENARIO)
    for name, settings in (
        ("three", ("--set", "fleet.plan=[{at: 5s, do: lose-tier, machine: 0, tier: disk}]")),
        ("gpu-alone", ("--set", "tiers.cpu=null", "--set", "tiers.disk=null", "--set", "fetch.lookup=local")),
    ):
        assert kvsim(["simulate", "-c", str(root / "charts.yaml"), *settings, "-o", str(root / name)]) == 0
    opened = open_runs([root / "three", root / "gpu-alone"])
    for run in opened:
        assert find_trace(run) == ""
    return opened


def scales(specification):
    """Yield the (names, colours) of each colour scale of a specification."""
    if isinstance(specification, list):
        for part in specification:
            yield from scales(part)
    elif isinstance(specification, dict):
        scale = (specification.get("encoding", {}).get("color") or {}).get("scale") or {}
        if "range" in scale:
            yield scale["domain"], scale["range"]
        for part in specification.values():
            yield from scales(part)


def drawn(runs):
    return {kind: picture for kind in PICTURES if not isinstance(picture := draw(kind, runs), NothingToDraw)}


def test_colours_differ_within_a_picture_and_agree_between_pictures(runs):
    seen = defaultdict(set)
    pictures = drawn(runs)
    assert len(pictures) == len(PICTURES)
    for kind, picture in pictures.items():
        found = list(scales(vega_lite(picture)))
        for names, colours in found:
            assert len(names) <= MOST_SERIES, kind
            for (one, a), (other, b) in combinations(zip(names, colours, strict=True), 2):
                assert np.linalg.norm(lab(a) - lab(b)) > 20, (kind, one, other)
            for name, colour in zip(names, colours, strict=True):
                if name in COLOURS:
                    seen[name].add(colour)
    assert all(len(colours) == 1 for colours in seen.values())


#: Names that one picture may show together: the six largest of a group are drawn, so all of a group must differ.
GROUPS = {
    "parts of TTFT": [*PARTS, OTHER],
    "sources of tokens": [
        *KV_SOURCES,
        *(cause.name.replace("_", " ") for cause in reported_by("timed")),
        OTHER,
    ],
    "what is left of sessions": ["gpu", "cpu", "disk", "remote", "lost"],
    "states": ["held", "cached", "in flight", "free"],
    "curve": ["lru", "optimum", "upper bound", "prompts alone", "this run", "knee"],
    "unnamed": [f"channel-{n}" for n in range(5)] + [OTHER],
}


@pytest.mark.parametrize("group", GROUPS)
def test_no_two_parts_are_alike(group):
    for (one, a), (other, b) in combinations(zip(GROUPS[group], colours_of(GROUPS[group]), strict=True), 2):
        assert np.linalg.norm(lab(a) - lab(b)) > 20, (one, other)


def test_log_axes_say_so_and_every_chart_has_title_and_tooltip(runs):
    def walk(node, path=()):
        if isinstance(node, list):
            for part in node:
                yield from walk(part, path)
        elif isinstance(node, dict):
            yield node
            for part in node.values():
                yield from walk(part, path)

    for kind, picture in drawn(runs).items():
        specification = vega_lite(picture)
        assert specification["title"]["text"] == picture.title
        assert "three" in specification["title"]["subtitle"], kind
        nodes = list(walk(specification))
        for node in nodes:
            if isinstance(node.get("scale"), dict) and node["scale"].get("type") == "log":
                assert "(log scale)" in node["title"], kind
        assert any("tooltip" in node for node in nodes), kind


@examples(100)
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0, 1e6), max_size=12))
def test_the_largest_series_keep_their_names(amounts):
    shown = drawn_as(amounts)
    present = {name for name, amount in amounts.items() if amount > 0}
    assert set(shown) == present
    assert len(set(shown.values())) <= MOST_SERIES
    named = [name for name in present if shown[name] == name]
    rest = [name for name in present if shown[name] != name]
    assert not rest or len(named) >= MOST_SERIES - 1
    assert all(amounts[a] >= amounts[b] for a in named for b in rest)


def test_occupancy_keeps_an_empty_chart_for_a_tier_that_a_run_lacks(runs):
    """A grid of charts is filled from its start: a missing cell would put the others under wrong names."""
    picture = draw("occupancy", runs)
    cells = {(row["run"], row["tier"]) for row in picture.data}
    assert cells == {(run.label, tier) for run in runs for tier in ("gpu", "cpu", "disk")}


@examples(60)
@given(st.integers(1, 10**9))
def test_a_curve_is_known_at_every_pixel(most):
    sizes = drawn_sizes(most)
    assert sizes[0] == 1
    assert sizes[-1] == most
    gaps = sizes[1:] / sizes[:-1]
    assert ((np.diff(sizes) == 1) | (gaps < 1.05)).all()


def test_the_drawn_curve_holds_computed_values_alone(runs):
    from kvcache_sim.replay.curve.others import policy_points
    from kvcache_sim.replay.prompt_blocks import blocks_of_prompts, with_answers
    from kvcache_sim.replay.request import ReplayRequest

    (run, *_) = runs
    points = [row for row in draw("hit-curve", [run]).data if row["line"] == "lru"]
    tokens = int(run.trace.input_tokens.sum())
    request = ReplayRequest(run.trace, run.block_size_tokens, 1)
    prompts = with_answers(blocks_of_prompts(request))
    for row in points[:: max(1, len(points) // 12)]:
        [replayed] = policy_points(prompts, request, "lru", [row["blocks"]])
        assert row["share"] == pytest.approx(replayed["hit_tokens"] / tokens, abs=1e-6)


def test_survival_of_many_runs_has_six_lines_and_none_is_lost():
    chats = kv.generate("conversational", requests=60, seed=4)
    runs = [
        kv.simulate(chats, tiers={"gpu": f"{size} blocks"}, name=f"of-{size}") for size in range(12, 28, 2)
    ]
    drawn = kv.compare(*runs).plot("survival").data
    assert {row["run"] for row in drawn} == {*(run.name for run in runs[:5]), OTHER}
    alone = [row for run in runs for row in run.plot("survival").data]
    for idle in {row["idle"] for row in alone}:
        counts = [sum(row["requests"] for row in rows if row["idle"] == idle) for rows in (drawn, alone)]
        assert counts[0] == counts[1]


def test_a_survival_line_breaks_where_no_session_returned():
    rows = [(0, 0), (2_000, 0), (60_000, 0), (62_000, 1)]
    trace = kv.make_trace(
        {
            "arrival_ms": [at for at, _ in rows],
            "input_tokens": [1024] * 4,
            "output_tokens": [2] * 4,
            "block_ids": [[1 + 2 * k, 2 + 2 * k] for _, k in rows],
        },
    )
    drawn = {row["idle"]: row["share"] for row in kv.simulate(trace).plot("survival").data}
    assert list(drawn.values()).count(None) == len(drawn) - 2
    assert drawn["3–10 s"] is None
    assert drawn["1–3 s"] is not None
    assert drawn["30–100 s"] is not None
    assert "100–300 s" not in drawn
