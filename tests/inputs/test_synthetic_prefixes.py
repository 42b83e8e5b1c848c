"""Prefixes that are assumed for traces without block ids: the rule of each turn, its mean, and where it is said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.workload.missing_ids import fill_missing_ids
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption, with_synthetic_prefixes
from support.examples import examples

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
S = 10**9


def lines(rows):
    return HEAD + "".join(
        f"2023-11-16 {t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}.0,{p},{o}\n" for t, p, o in rows
    )


def azure(path, rows):
    path.write_text(lines(rows))
    return read_trace(str(path), settings=ReadSettings(block_size=16, missing_ids="leave", time_order="sort"))


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(0, 4000), st.integers(1, 400), st.integers(1, 90)), min_size=1, max_size=60
    ),
    st.floats(1.01, 20),
    st.integers(1, 2000),
    st.integers(0, 9),
)
def test_every_turn_continues_where_an_earlier_request_ended(tmp_path_factory, rows, turns, pause_s, seed):
    trace = azure(tmp_path_factory.mktemp("azure") / "a.csv", rows)
    made = with_synthetic_prefixes(trace, PrefixAssumption(turns, pause_s * S, seed))
    filled = fill_missing_ids(made)
    for session in range(int(made.session.max()) + 1):
        own = np.flatnonzero(made.session == session)
        own = own[np.argsort(made.turn[own])]
        assert made.turn[own].tolist() == list(range(len(own)))
        for first, then in zip(own[:-1].tolist(), own[1:].tolist(), strict=True):
            gap = int(trace.arrival_ns[then] - trace.arrival_ns[first])
            assert S <= gap <= pause_s * S
            assert trace.input_tokens[first] + trace.output_tokens[first] < trace.input_tokens[then]
            before, after = (
                filled.block_ids[filled.id_offsets[k] : filled.id_offsets[k + 1]].tolist()
                for k in (first, then)
            )
            assert after[: len(before)] == before
    openers = [int(np.flatnonzero(made.session == s).min()) for s in range(int(made.session.max()) + 1)]
    assert len(set(openers)) == len(openers)
    again = with_synthetic_prefixes(trace, PrefixAssumption(turns, pause_s * S, seed))
    assert again.session.tolist() == made.session.tolist()


@pytest.mark.parametrize("turns", [1.5, 2.0, 5.0])
def test_sessions_have_as_many_turns_as_asked_for_where_lengths_allow_it(tmp_path, turns):
    """Prompts that grow by the second: every earlier request can be continued."""
    trace = azure(tmp_path / "a.csv", [(k, 10 + 3 * k, 1) for k in range(4000)])
    made = with_synthetic_prefixes(trace, PrefixAssumption(turns, 3600 * S))
    assert len(made) / (made.session.max() + 1) == pytest.approx(turns, rel=0.06)
    assert f"({turns:g} asked for)" in made.warnings[-1]


def test_what_repeats_is_the_prompt_and_the_answer_before(tmp_path):
    trace = azure(tmp_path / "a.csv", [(0, 100, 10), (5, 300, 9)])
    made = with_synthetic_prefixes(trace, PrefixAssumption(1e9))
    assert made.turn.tolist() == [0, 1]
    assert "; 27.5 % of the prompt tokens repeat" in made.warnings[-1]  # 110 of 400


def test_what_names_blocks_is_refused(tmp_path):
    trace = azure(tmp_path / "a.csv", [(0, 40, 2), (9, 80, 2)])
    with pytest.raises(UsageError, match="nothing to synthesise"):
        with_synthetic_prefixes(fill_missing_ids(trace), PrefixAssumption())


def test_a_logs_own_sessions_are_kept_and_their_sharing_is_named_an_assumption(tmp_path):
    """Turn two begins with the 110 tokens of turn one; turn three is shorter than turn two, and shares nothing."""
    rows = [("a", 0, 100, 10), ("b", 1, 50, 5), ("a", 2, 300, 9), ("a", 3, 150, 9)]
    (tmp_path / "t.jsonl").write_text(
        "".join(
            json.dumps({"session_id": s, "timestamp": 1000 * t, "input_length": p, "output_length": o}) + "\n"
            for s, t, p, o in rows
        )
    )
    read = read_trace(str(tmp_path / "t.jsonl"), settings=ReadSettings(missing_ids="leave"))
    made = with_synthetic_prefixes(read, PrefixAssumption())
    assert made.session.tolist() == read.session.tolist() == [0, 1, 0, 0]
    assert "own sessions are assumed to begin with the turn before" in made.warnings[-1]
    assert "; 18.3 % of the prompt tokens repeat" in made.warnings[-1]  # 110 of 600


def test_the_assumption_is_said_wherever_the_result_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(lines([(k * 3, 40 + 20 * (k % 30), 9) for k in range(120)]))
    assert run(["simulate", "a.csv", "--set", "cache.block_size=16", "-o", "without"]) == 0
    said = capsys.readouterr()
    assert "hit rates need ids" in said.err
    assert "--synthesise-prefixes" in said.err
    assert (
        run(["simulate", "a.csv", "--synthesise-prefixes", "--set", "cache.block_size=16", "-o", "out"]) == 0
    )
    said = capsys.readouterr()
    assert "a.csv with synthesised prefixes" in " ".join(said.out.split())
    assert "prefixes are synthesised, not measured" in said.err
    assert "hit rates need ids" not in said.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["cache"]["token_hit_rate"] > 0.05
    assert any(
        "synthesised" in one for one in json.loads((tmp_path / "out" / "run.json").read_text())["warnings"]
    )
    assert run(["explain", "out"]) == 0
    assert "Hit rates depend on this assumption." in " ".join(capsys.readouterr().out.split())
    for verb in (["curve", "a.csv"], ["cachesim", "a.csv", "--policy", "lru", "--capacity", "100"]):
        assert run([*verb, "--synthesise-prefixes", "--trace-block-size", "16"]) == 0
        assert "prefixes are synthesised" in capsys.readouterr().err
