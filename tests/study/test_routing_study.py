"""The public routing study: a short ladder comes out as measured, and the page has the measured rows."""

import sys
from pathlib import Path

import pytest
from support.docs_data import figures_of, read_table

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benches"))
from routing_study import COLLAPSED_S, POLICIES, STUDIES, measured, simulated  # noqa: E402

#: Data files of the studies' rows.
TABLES = {"qwen3-32b": "routing-study-qwen", "llama-70b": "routing-study-llama"}
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


def test_reports_of_the_last_schedule_make_load_worse_than_random_below_the_knee():
    ladder = ((15, 50), (10, 20), (15, 20))
    load, random = (simulated("qwen3-32b", policy, ladder) for policy in ("load", "random"))
    real = measured("qwen3-32b")
    for own, other in zip(load, random, strict=True):
        rate = own.rate
        assert real[rate, "load"]["ttft_mean_s"] > real[rate, "random"]["ttft_mean_s"]
        assert own.ttft_mean_s > other.ttft_mean_s


@pytest.mark.parametrize(
    ("name", "ladder"),
    [("qwen3-32b", ((15, 50), (20, 38), (30, 25), (40, 38))), ("llama-70b", ((10, 25), (5, 120), (6, 120)))],
)
def test_the_estimating_policy_has_its_knee_where_the_study_has(name, ladder):
    real = measured(name)
    found = [row.ttft_p90_s > COLLAPSED_S for row in simulated(name, "estimated", ladder)]
    assert found == [real[rate, "estimated"]["ttft_p90_s"] > COLLAPSED_S for rate, _ in ladder[1:]]
    assert len(set(found)) == 2


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_has_every_measured_row(name):
    real = measured(name)
    assert len(real) == (len(STUDIES[name].stages) - 1) * len(POLICIES)
    rows = {int(row[0]): row[1:] for row in read_table(TABLES[name]).rows}
    assert set(rows) == {rate for rate, _ in real}
    for rate, cells in rows.items():
        for policy, cell in zip(POLICIES, cells, strict=True):
            tokens, ttft = cell.split(", ", 1)[0], cell.rsplit(", ", 1)[1]
            own = real[rate, policy]
            assert cell.startswith(f"{own['output_tokens_per_s']:,.0f} / "), (rate, policy, tokens)
            assert ttft.startswith(f"{own['ttft_p90_s']:.1f} / "), (rate, policy)


@pytest.mark.parametrize("name", STUDIES)
def test_the_errors_are_those_of_the_rows(name):
    """Mean, worst, rows within the goal and the knees follow from the rows' measured and simulated
    figures."""
    rows = read_table(TABLES[name]).rows
    for policy, mean, worst, goal, within, knees in read_table(f"{TABLES[name]}-errors").rows:
        cells = [row[1 + POLICIES.index(policy)].replace(",", "") for row in rows]
        real, own, _, real_ttft, own_ttft = zip(*map(figures_of, cells), strict=True)
        errors = [100 * abs(found / reported - 1) for reported, found in zip(real, own, strict=True)]
        assert figures_of(mean) == [pytest.approx(sum(errors) / len(errors), abs=0.06)]
        assert figures_of(worst) == [round(max(errors))]
        [limit] = figures_of(goal)
        assert figures_of(within) == [sum(error <= limit for error in errors), len(rows)]
        collapsed = [
            next((row[0] for row, ttft in zip(rows, column, strict=True) if ttft > COLLAPSED_S), "never")
            for column in (real_ttft, own_ttft)
        ]
        assert knees == " / ".join(collapsed)
