"""Asynchronous scheduling, the host's time between steps, and the client's offset: each moves what it
should."""

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from support.agreement import agree
from support.flat_steps import FLAT, MS, moments_ms, row, run, write_rows
from support.sharegpt_rows import SCENARIO, crowded_rows


@pytest.fixture
def flat(tmp_path):
    path = tmp_path / "flat.toml"
    path.write_text(FLAT)
    return f"replica.step_time={path}"


def test_sequences_that_cost_more_with_a_chunk_than_a_whole_decode_step(tmp_path):
    """A decode step of n takes 1 ms, a mixed one 1 + 0.5·n ms: in the core as in the specification."""
    path, ends = write_rows(tmp_path, crowded_rows(20)), []
    for more in ("", "sequence_mixed_ms = 0.5\n"):
        step_time = tmp_path / "steep.toml"
        step_time.write_text(f'model = "llama-3.1-8b"\n[coefficients]\nbase_points = [[1, 1.0]]\n{more}')
        settings = (f"trace.path={path}", "cache.semantics=tree", f"replica.step_time={step_time}")
        scenario = load_scenario(SCENARIO, settings)
        made = agree(scenario.settings, read_requests(scenario))
        ends.append(made.requests["finish_ns"].sum())
    assert ends[0] < ends[1]


def test_who_comes_during_a_step_waits_for_one_more(tmp_path, flat):
    """Steps begin at 0, 10, 20 … ms. The second request comes at 4 ms: the step of 10 ms is decided on
    already."""
    path = write_rows(tmp_path, [row(0, 64, 9, 0), row(4, 64, 3, 100)])
    assert moments_ms(run(path, flat)) == ([10, 20], [90, 40])
    assert moments_ms(run(path, flat, "replica.async_scheduling=length")) == ([10, 30], [90, 50])


def test_an_idle_engine_takes_a_request_at_once(tmp_path, flat):
    path = write_rows(tmp_path, [row(0, 64, 1, 0), row(4, 64, 1, 100), row(55, 64, 1, 200)])
    assert moments_ms(run(path, flat, "replica.async_scheduling=length"))[0] == [10, 20, 65]


def test_a_slot_is_free_one_step_after_its_request_finished(tmp_path, flat):
    path = write_rows(tmp_path, [row(0, 64, 2, 0), row(0, 64, 4, 50), row(0, 64, 1, 100)])
    for mode, first in (("none", 30), ("length", 40)):
        found = run(path, flat, "replica.max_num_seqs=2", f"replica.async_scheduling={mode}")
        assert moments_ms(found)[0] == [10, 10, first]


def test_an_answer_that_ends_at_a_stop_token_costs_one_more_step(tmp_path, flat):
    """The first answer ends at 20 ms, too late for its next step, which starts then; no other request
    runs."""
    path = write_rows(tmp_path, [row(0, 64, 2, 0), row(25, 64, 1, 100)])
    for mode, first, steps in (("none", 35, 3), ("length", 35, 3), ("stop-token", 40, 5)):
        result = run(path, flat, f"replica.async_scheduling={mode}")
        assert moments_ms(result)[0] == [20 - 10, first]
        assert result.counters["steps"] == steps
        assert result.itl_ns.counts.sum() == 1


def test_the_hosts_time_is_hidden_behind_a_longer_step(tmp_path, flat):
    path = write_rows(tmp_path, [row(0, 64, 5, 0)])
    assert moments_ms(run(path, flat, "replica.step_overhead=3ms"))[1] == [65]
    asynchronous = (flat, "replica.async_scheduling=length")
    assert moments_ms(run(path, *asynchronous, "replica.step_overhead=3ms"))[1] == [50]
    assert moments_ms(run(path, *asynchronous, "replica.step_overhead=12ms"))[1] == [60]


def test_the_clients_offset_is_a_part_of_ttft_and_of_e2e_alone(tmp_path):
    path = write_rows(tmp_path, crowded_rows(30))
    without, offset = run(path).requests, run(path, "replica.client_offset=7ms").requests
    assert (offset["client_ns"] == 7 * MS).all()
    assert (offset["first_token_ns"] - without["first_token_ns"] == 7 * MS).all()
    assert (offset["finish_ns"] - without["finish_ns"] == 7 * MS).all()
    for part in ("queue_ns", "prefill_ns"):
        assert np.array_equal(offset[part], without[part])


def test_the_offset_is_each_machines_own(tmp_path):
    path = write_rows(tmp_path, crowded_rows(10))
    requests = run(path, "cluster.machines=2", "machines[1].replica.client_offset=7ms").requests
    assert (requests["client_ns"] == np.where(requests["machine"] == 1, 7 * MS, 0)).all()


def test_a_prompt_s_tokens_lengthen_the_offset(tmp_path):
    """Hashing and tokenising take a time a token, 2 ms and 500 ns for each."""
    rows = crowded_rows(10)
    path = write_rows(tmp_path, rows)
    settings = ("replica.client_offset=2ms", "replica.client_offset_per_token=500ns")
    lengths = np.array([row["input_length"] for row in rows])
    assert (run(path, *settings).requests["client_ns"] == 2 * MS + 500 * lengths).all()


def test_a_host_lends_what_is_not_given(tmp_path):
    """``http-tokenised`` is 20 ms and 600 ns a token; one's own value goes before."""
    rows = crowded_rows(10)
    path = write_rows(tmp_path, rows)
    lengths = np.array([row["input_length"] for row in rows])
    host = "replica.host=http-tokenised"
    assert (run(path, host).requests["client_ns"] == 20 * MS + 600 * lengths).all()
    own = run(path, host, "replica.client_offset=1ms").requests["client_ns"]
    assert (own == MS + 600 * lengths).all()
    with pytest.raises(UsageError, match="has no effect"):
        run(path, host, "replica.client_offset=1ms", "replica.client_offset_per_token=1ns")
    with pytest.raises(UsageError, match="did you mean vllm-http"):
        run(path, "replica.host=vllm-htp")
