"""Live runs of the core on random scenarios: a replay of the arrivals agrees, and so do the steps in Python."""

from __future__ import annotations

from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.run import Run
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.simulation import RunOptions, simulate
from live_scenarios import Driven, drawn, result, settings_of

SEEDS = st.integers(0, 2**40)


def served(seed: int, options: RunOptions | None = None) -> tuple[Driven, Run]:
    """Return a random live run; a scenario that is refused is drawn again."""
    try:
        driven = Driven(settings_of(seed), seed, options)
    except UsageError:
        assume(False)
    return driven, driven.go()


@examples(20)
@given(seed=SEEDS)
def test_a_replay_of_the_arrivals_gives_the_digests_of_the_live_run(seed):
    driven, run = served(seed)
    assert {type(replica) for replica in driven.simulation.replicas} == {NativeReplica}
    assert run.engine.name == "native"
    times = [time for _, time in driven.heard.tokens_came]
    assert times == sorted(times)
    for request, (_, _, output, _) in enumerate(driven.rows):
        came = driven.heard.answers.get(request, 0)
        assert came == output or (came < output and request in driven.aborted_after)
    if driven.can_replay:
        again = simulate(driven.settings, driven.trace())
        assert (again.digest_events, again.digest_results) == (run.digest_events, run.digest_results)


@examples(15)
@given(seed=SEEDS)
def test_tokens_and_closed_requests_are_those_of_the_steps_in_python(seed):
    text = " ".join(drawn(seed))
    assume("duplicate_prefill" not in text)  # it needs all arrivals beforehand there
    assume("read_buffer_layers" not in text)  # aborted loads stay there
    driven, run = served(seed)
    again, run_again = served(seed, RunOptions(step_every_iteration=True))
    assert NativeReplica not in {type(replica) for replica in again.simulation.replicas}
    assert sorted(driven.heard.tokens_came) == sorted(again.heard.tokens_came)
    assert sorted(driven.heard.left) == sorted(again.heard.left)
    assert driven.said == again.said
    assert result(run) == result(run_again)
