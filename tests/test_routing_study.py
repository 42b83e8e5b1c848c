"""The public routing study: a short ladder comes out as measured, and the page has the measured rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benches"))
from routing_study import COLLAPSED_S, POLICIES, STUDIES, measured, simulated  # noqa: E402

PAGE = (ROOT / "docs" / "routing-study.md").read_text(encoding="utf-8")
#: How far tokens a second may be off.
WITHIN = {"precise": 0.15, "random": 0.25}


@pytest.mark.parametrize("policy", WITHIN)
def test_rates_that_were_held_back_come_out_as_measured(policy):
    real = measured("llama-70b")
    rows = simulated("llama-70b", policy, ((10, 25), (5, 120), (10, 70)))
    for row in rows:
        own = real[row.rate, policy]
        assert row.tokens_per_s == pytest.approx(own["output_tokens_per_s"], rel=WITHIN[policy]), row
        assert (row.ttft_p90_s > COLLAPSED_S) == (own["ttft_p90_s"] > COLLAPSED_S), row


def test_polls_of_a_second_make_load_worse_than_random_below_the_knee():
    ladder = ((15, 50), (10, 20), (15, 20))
    load, random = (simulated("qwen3-32b", policy, ladder) for policy in ("load", "random"))
    real = measured("qwen3-32b")
    for own, other in zip(load, random, strict=True):
        rate = own.rate
        assert real[rate, "load"]["ttft_mean_s"] > real[rate, "random"]["ttft_mean_s"]
        assert own.ttft_mean_s > other.ttft_mean_s


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_has_every_measured_row(name):
    real = measured(name)
    assert len(real) == (len(STUDIES[name].stages) - 1) * len(POLICIES)
    for rate in {rate for rate, _ in real}:
        cells = [f"{real[rate, policy]['output_tokens_per_s']:,.0f} / " for policy in POLICIES]
        assert any(all(cell in line for cell in cells) for line in PAGE.splitlines()), (name, rate)
