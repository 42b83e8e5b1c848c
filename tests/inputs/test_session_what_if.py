"""Bills of edited sessions, judged by pairs of logs: the same plan played with and without one change."""

from dataclasses import replace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.session.load import load_calls
from kvcache_sim.extras.session.what_if import Edit, Sessions
from kvcache_sim.model.prices import PICODOLLARS, Tokens, price_table
from kvcache_sim.workload.context_edits import ContextEdit
from support.agent_logs import INSTRUCTION, SUMMARY, WRAP, Options, plan, play
from support.shared_files import shared

TABLE = price_table()
PRICE = TABLE.row("claude-opus-4-6", 0)[1]
BASE = Options(minimum=4096, snapshots=False)
CONTEXT = ContextEdit(instruction_tokens=INSTRUCTION, summary_tokens=SUMMARY, wrap_tokens=WRAP)
ALL = BASE.events
WIDE = [replace(step, results=(700,) * 22) if at % 9 == 3 else step for at, step in enumerate(plan(3, 50))]
#: Events that no line of these logs shows.
HIDDEN = ["edit", "parameters", "model", "edit", "system"]
SNAPSHOTS = replace(BASE, snapshots=True)
SYSTEM = plan(6, 60, events=["system", "edit", "compaction", "system"], lapses=1)
TOOLS = plan(7, 60, events=["tools", "edit", "tools"], lapses=1)
#: Edit, options without and with it, and the plan.
PAIRS = [
    (Edit("ttl", "1h"), BASE, replace(BASE, ttl_s=3600), plan(1, 60, events=HIDDEN, lapses=3)),
    (Edit("ttl", "5m"), replace(BASE, ttl_s=3600), BASE, plan(1, 60, events=HIDDEN, lapses=3)),
    (Edit("mark", "second-last"), BASE, replace(BASE, second_last=True), WIDE),
    (Edit("drop-results-older", "5"), BASE, replace(BASE, drop_older=5), plan(2, 60, lapses=2)),
    (Edit("compact-at", "40000"), BASE, replace(BASE, compact_at=40_000), plan(4, 60, lapses=2)),
    (
        Edit("compact-at", "60k"),
        replace(BASE, compact_at=40_000),
        replace(BASE, compact_at=60_000),
        plan(5, 60),
    ),
    (Edit("freeze", "system"), SNAPSHOTS, replace(SNAPSHOTS, events=ALL - {"system"}), SYSTEM),
    (Edit("sort-tools"), SNAPSHOTS, replace(SNAPSHOTS, events=ALL - {"tools"}), TOOLS),
]


def bill(session) -> int:
    """Return what the provider bills, in picodollars."""
    lives = {300: "5m", 3600: "1h"}
    tokens = [
        Tokens(each.read, each.uncached, {lives[each.ttl_s]: each.written}, each.output)
        for each in session.calls
    ]
    return sum(PRICE.picodollars(each) for each in tokens)


def sessions(session, folder, context=CONTEXT) -> Sessions:
    session.write(folder)
    return Sessions(load_calls([str(folder)]).calls, TABLE, context)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].flag)
def test_the_bill_of_one_log_follows_from_the_other(pair, tmp_path):
    edit, without, with_it, steps = pair
    before, after = bill(play(steps, "t", without)), bill(play(steps, "t", with_it))
    found = sessions(play(steps, "t", without), tmp_path).what_if(edit)
    assert abs(after - before) > 0.02 * before, "the plan shows the edit"
    assert found.picodollars == pytest.approx(after, rel=0.01)
    assert found.difference == pytest.approx((after - before) / PICODOLLARS, rel=0.1)


def test_another_provider_has_its_own_rules_and_names_what_is_assumed(tmp_path):
    found = sessions(play(plan(8, 30), "p", BASE), tmp_path).what_if(Edit("provider", "openai:gpt-5.2"))
    assert found.counts.written == 0
    assert found.counts.read > 0.8 * found.counts.prompt
    assert any("routing" in each for each in found.given)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("sort-tools"), "no texts of tools"),
        (Edit("freeze", "system"), "no texts of system"),
        (Edit("compact-at", "190k"), "no prompt has more than 190,000 tokens"),
    ],
)
def test_what_a_log_lacks_is_refused_in_one_line(edit, why, tmp_path):
    found = sessions(play(plan(9, 12), "r", BASE), tmp_path).what_if(edit)
    assert found.picodollars is None
    assert why in found.refused
    assert "\n" not in found.refused


def test_the_best_are_cheaper_than_nothing_and_in_order(tmp_path):
    steps = plan(1, 60, lapses=3)
    best = sessions(play(steps, "b", replace(BASE, ttl_s=300)), tmp_path).best()
    costs = [each.picodollars for each in best]
    assert costs == sorted(costs)
    assert all(each.difference < 0 for each in best)
    assert len({each.edit for each in best}) == len(best) == 3


def test_a_provider_without_breakpoints_has_no_lifetimes_to_choose():
    codex = Sessions(load_calls([str(shared("traces/tracelab/codex_rollout.jsonl"))]).calls, TABLE)
    assert "no lifetimes to choose" in codex.what_if(Edit("ttl", "1h")).refused
    assert "no breakpoints" in codex.what_if(Edit("mark", "second-last")).refused


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("sleep", "1h"), "no such what-if"),
        (Edit("provider", "openai:gpt-0"), "--provider: no prices of this model"),
        (Edit("provider", "gemini:gemini-3-pro"), "promises no lifetime"),
        (Edit("ttl", "7m"), "--ttl: not a lifetime"),
        (Edit("mark", "last"), "--mark: not a breakpoint"),
        (Edit("freeze", "tools"), "--freeze: not a part of prompts"),
        (Edit("compact-at", "0%"), "--compact-at: not a length of prompts"),
        (Edit("drop-results-older", "few"), "--drop-results-older: not a number of results"),
    ],
)
def test_what_is_no_edit_is_an_error(edit, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        sessions(play(plan(1, 8), "u", BASE), tmp_path).what_if(edit)


@pytest.mark.parametrize("name", ["main_5m", "main_1h"])
def test_the_bill_of_totals_alone_is_the_measured_one_of_real_logs(name):
    calls = load_calls([str(shared(f"traces/claude_code/{name}.jsonl"))]).calls
    counts = [each.counts for each in calls]
    lives = {"5m": sum(each.write_5m for each in counts), "1h": sum(each.write_1h for each in counts)}
    measured = Tokens(sum(each.read for each in counts), sum(each.uncached for each in counts), lives)
    found = Sessions(calls, TABLE).base
    assert not found.has_output  # the log does not count whole answers
    assert found.picodollars == pytest.approx(PRICE.picodollars(measured), rel=0.01)


def test_breaks_that_only_counts_show_stay_in_the_bill(tmp_path):
    options = replace(BASE, labels=False)
    session = play(plan(11, 40, events=["tools", "edit"]), "c", options)
    assert sessions(session, tmp_path).base.picodollars == pytest.approx(bill(session), rel=0.005)
