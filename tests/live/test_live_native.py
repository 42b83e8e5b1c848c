"""Live runs of the core on random scenarios: a replay of the arrivals agrees, by the core and by the
specification."""

from pathlib import Path

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import ENGINES, beyond_spec, by_spec, columns
from support.examples import examples
from support.live_scenarios import Driven, Notified, settings_of
from support.product.live import LiveSimulation

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
    assert run.engine.name == "native"
    times = [time for _, time in driven.notified.tokens_came]
    assert times == sorted(times)
    away = run.requests["status"] == STATUSES.index("turned_away")
    turned_away = set(run.requests["request"][away].tolist())
    for request, (_, _, output, _) in enumerate(driven.rows):
        came = driven.notified.answers.get(request, 0)
        has_left = request in driven.aborted_after or request in turned_away
        assert came == output or (came < output and has_left)
    if driven.can_replay:
        settings, trace = driven.settings, driven.trace()
        again = [simulate(settings, trace)]
        if not beyond_spec(settings):
            event("the specification replays it")
            again += [by_spec(settings, trace, engine) for engine in ENGINES]
        for other in again:
            assert (other.digest_events, other.digest_results) == (run.digest_events, run.digest_results)
            assert columns(other.requests) == columns(run.requests)


@pytest.mark.parametrize(
    "router",
    ["{policy: lmetric}", "{policy: dynamo-kv}", "{policy: cache-aware, index: {kind: gateway-tree}}"],
)
def test_a_router_that_keeps_the_prompts_it_sent_is_refused(router):
    text = f"cluster: {{machines: 2}}\nrouter: {router}\ntiers: {{gpu: {{capacity: 300 blocks}}}}\n"
    settings = scenario_from_text(text, "s.yaml", Path()).settings
    with pytest.raises(UsageError, match="needs all requests in advance") as refused:
        LiveSimulation(settings, Notified())
    assert refused.value.where == "router.policy"
