"""Output in a terminal of 80 columns: progress, tables, comparisons with their numbers, next steps."""

import json
import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main
from kvcache_sim.cli.progress import state_line, time_line
from kvcache_sim.metrics.prefix_cache import LEAST_COMPARED, medians_of_equal_length
from kvcache_sim.metrics.run import Progress
from kvcache_sim.report.plain_table import plain_table
from support.product.reports import Table

SHARES = st.floats(0, 3)


@given(
    st.builds(
        Progress,
        now_ns=st.integers(0, 2**62),
        finished_requests=st.integers(0, 10**9),
        total_requests=st.integers(0, 10**7),
        steps=st.integers(0, 10**12),
        tiers=st.dictionaries(st.sampled_from(["gpu", "cpu", "disk"]), SHARES),
        token_hit_rate=SHARES,
        queue=st.integers(0, 10**9),
        end_ns=st.integers(0, 2**62),
        tier_hit_rates=st.dictionaries(st.sampled_from(["gpu", "cpu", "disk", "remote"]), SHARES),
        channels=st.dictionaries(
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=90), SHARES
        ),
    ),
    st.floats(1e-3, 1e7),
)
def test_progress_fits_and_never_passes_its_end(glance, wall_s):
    first, second = time_line(glance, wall_s), state_line(glance)
    assert max(len(first), len(second)) <= 80
    assert "ETA" in first
    assert "queue" in second
    assert "hit" in second
    of_all = [float(share.replace(",", "")) for share in re.findall(r"([\d.]+) %", first + second)]
    assert max(of_all) <= 100


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=120)


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(WORDS, min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_tables_wrap_at_their_cells(rows):
    text = plain_table(Table(tuple(rows[0]), tuple(map(tuple, rows[1:]))), 80)
    assert max(map(len, text.splitlines()), default=0) <= 80
    flat = Counter("".join(text.split()))
    assert not Counter("".join("".join(cell.split()) for row in rows for cell in row)) - flat


def test_hits_and_misses_are_compared_at_equal_prompt_length():
    """Misses are shorter here and wait less; of equally long prompts they wait longer."""
    random = np.random.default_rng(0)
    hit = np.repeat([1, 0], [4000, 400])
    prompts = np.where(hit, random.integers(2000, 9000, 4400), random.integers(100, 4000, 4400))
    ttft_ns = np.where(hit, 50 * prompts, 80 * prompts)
    assert np.median(ttft_ns[hit == 0]) < np.median(ttft_ns[hit == 1])
    found = medians_of_equal_length(prompts, hit, ttft_ns)
    inside = (prompts >= found.least) & (prompts <= found.most)
    assert found.most < 1.26 * found.least
    assert (found.hits, found.misses) == (int(inside[hit == 1].sum()), int(inside[hit == 0].sum()))
    assert min(found.hits, found.misses) >= LEAST_COMPARED
    assert found.miss_ms > 1.2 * found.hit_ms
    of_all = [
        medians_of_equal_length(np.full(60, n), np.arange(60) % 2, np.full(60, 5)) for n in range(1, 400)
    ]
    assert all(one.least <= n <= one.most for n, one in enumerate(of_all, 1))
    buckets = list(dict.fromkeys((one.least, one.most) for one in of_all))
    assert all(before[1] + 1 == after[0] for before, after in pairwise(buckets)), (
        "no length between two buckets"
    )
    short = np.where(hit, 5000, 500)
    assert medians_of_equal_length(short, hit, ttft_ns) is None


def test_the_next_command_of_a_sweep_takes_back_what_the_scenario_sets(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(
        "workload: {kind: conversational, requests: 60}\n"
        "tiers: {gpu: {capacity: 20 blocks}, cpu: {capacity: 40 blocks}}\n"
        "channels: {pcie: {bandwidth: 50MB/s, edges: [gpu->cpu, cpu->gpu]}}\n"
    )
    argv = ["sweep", "--scenario", "base.yaml", "--grid", "tiers.cpu=null,{capacity: 40 blocks}"]
    assert (
        main.run([*argv, "--set", "write.policy=through", "--repeats", "1", "-q", "-j", "1", "-o", "cells"])
        == 0
    )
    out = capsys.readouterr().out
    assert "* cell 0 has the lowest" in out, "loading over 50 MB/s is slower than computing"
    words = shlex.split(out.rpartition("next: ")[2].replace("\\\n", ""))
    assert words == ["kvsim", "simulate", "-c", "base.yaml", "--set", "tiers.cpu=null", "--sensitivity"]
    assert main.run([*words[1:], "-q", "-o", "again", "--format", "json"]) == 0
    (first, _) = json.loads(Path("cells/plan.json").read_text())["cells"]
    record = json.loads(Path(f"cells/cells/{first[0]}.json").read_text())
    digest = json.loads(capsys.readouterr().out)["digest"]["results"]
    assert digest in json.dumps(record)
