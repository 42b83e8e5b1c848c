"""Random scenarios by feature: each can be drawn; its runs agree with the specification, or with runs
without lookahead."""

import os
from itertools import count, islice

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.agreement import ENGINES, beyond_spec, by_spec
from support.conserved import check_conserved
from support.lookahead import by_the_clock
from support.scenarios import FEATURES, drawn

#: Scenarios that run, of each feature, and how many draws may be refused before one does.
EXAMPLES, DRAWS = int(os.environ.get("KVSIM_EXAMPLES", "1")), 60
#: Features in which machines come and go, or are several fleets, or with an engine's own tiers or cache groups:
#: each has many forms.
OF_MANY_FORMS = (
    *("models", "fleet-plan", "copies-lost", "scaling"),
    *("vllm-offload", "lmcache", "hicache", "hicache-storage", "groups", "group-tier"),
)
SEED = int(os.environ.get("KVSIM_SEED", "0"))


def accepted(folder, go_to, features, only_spec=False):
    """Yield (scenario, the loaded one) for draws that have the features and are not refused."""
    refused = []
    for seed in count(SEED):
        own = drawn(seed, features, only_spec)
        if not set(features) <= set(own.present):
            continue
        own.write(folder / str(seed))
        go_to(folder / str(seed))  # where plug-ins that a setting names are looked for
        try:
            loaded = scenario_from_text("", "s.yaml", folder / str(seed), own.arguments()[1::2])
            trace = read_requests(loaded)
            Simulation(loaded.settings, trace, RunOptions())  # refuses what only a trace shows
        except UsageError as error:
            refused.append(str(error))
        else:
            refused.clear()
            yield own, (loaded, trace)
        assert "\n" not in "".join(refused)
        assert len(refused) < DRAWS, refused[-1]


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_is_drawn_and_agrees(tmp_path, monkeypatch, feature):
    examples = EXAMPLES * (12 if feature in OF_MANY_FORMS else 1)
    for own, (loaded, trace) in islice(accepted(tmp_path, monkeypatch.chdir, [feature]), examples):
        executed = by_the_clock(
            lambda loaded=loaded, trace=trace: execute(loaded, trace, RunOptions(check="full"))
        )
        check_conserved(loaded, executed[0])
        whole = RunOptions(record_window_ns=(0, 1 << 62))
        made = [*(one.run for one in executed), execute(loaded, trace, whole).run]
        if not beyond_spec(loaded.settings) and not len(trace.retention):
            made += [by_spec(loaded.settings, trace, engine) for engine in ENGINES]
        assert len({run.digest_results for run in made}) == 1, own.arguments()
        assert len({run.digest_events for run in made}) == 1, own.arguments()


def test_equal_seeds_give_equal_scenarios():
    assert drawn(7, ["queue-plugin", "aborts"]) == drawn(7, ["queue-plugin", "aborts"])
    assert drawn(7, ["aborts"]).settings != drawn(8, ["aborts"]).settings


def test_what_the_specification_may_cover_has_no_other_feature():
    for seed in range(200):
        assert all(FEATURES[name].spec for name in drawn(seed, only_spec=True).features)


def test_an_unknown_feature_is_refused():
    with pytest.raises(KeyError, match="nothing"):
        drawn(1, ["nothing"])
