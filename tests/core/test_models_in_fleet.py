"""Several models and adapters in one fleet: routing by model, keys by adapter."""

from dataclasses import dataclass
from functools import partial

import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.engine import NO_MACHINE
from kvcache_sim.serving.models.by_model import ByModel
from kvcache_sim.serving.models.settings import ModelsSettings, ServedModel
from kvcache_sim.serving.sequence import Arrival
from model_fleets import columns, random_rows, run
from support.lookahead import by_the_clock


def two(**more):
    return {"a": {"machines": 2, **more}, "b": {"machines": 1, **more}}


def test_one_model_that_all_name_is_as_none(tmp_path):
    rows = random_rows(1, model=["chat"])
    settings = {"cluster.machines": 3, "router.policy": "cache-aware"}
    plain = run(tmp_path, rows, **settings).run
    named = run(tmp_path, rows, **settings, models={"of": {"chat": {"machines": 3}}}).run
    assert (named.digest_results, named.digest_events) == (plain.digest_results, plain.digest_events)


@pytest.mark.parametrize(
    "policy", ["random", "least-loaded", "longest-prefix", "weighted", "dynamo-kv", "session-affinity"]
)
def test_models_on_machines_of_their_own_are_as_two_fleets(tmp_path, policy):
    rows = random_rows(2, model=["a", "b"])
    of = {"a": {"machines": 3}, "b": {"machines": 2}}
    both = run(tmp_path, rows, models={"of": of}, **{"cluster.machines": 5, "router.policy": policy})
    for model, machines in (("a", 3), ("b", 2)):
        which = [row["model"] == model for row in rows]
        own = [row for row, mine in zip(rows, which, strict=True) if mine]
        alone = run(tmp_path, own, **{"cluster.machines": machines, "router.policy": policy})
        assert columns(both, which) == columns(alone)
        found = both.summary["models"]["by_name"][model]
        assert found["requests"] == len(own)
        assert found["token_hit_rate"] == alone.summary["tokens"]["cached"] / alone.summary["tokens"]["input"]
        assert found["ttft_avg"] == pytest.approx(alone.summary["latency"]["ttft"]["avg"])


@dataclass
class Member:
    machine: int


def test_a_request_goes_where_the_router_of_its_model_says():
    """Machines 4, 7 and 9 serve, the last of the other model; machine 2 and its model do not."""
    made = []

    class Last:
        def __init__(self, members):
            made.append([one.machine for one in members])
            self.members = members

        def choose(self, sequence):
            return len(self.members) - 1 - sequence.turn

    members = [Member(machine) for machine in (4, 9, 7)]
    of_machine = [None, None, 5, None, 3, None, None, 3, None, 1]
    router = ByModel(members, [3, 1, 5, 3], of_machine, Last)
    assert made == [[4, 7], [9]]
    asked = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]
    found = [router.choose(Arrival(request, 0, 1, 1, turn=turn)) for request, turn in asked]
    assert found == [2, 0, 1, NO_MACHINE, 2]


def test_a_model_has_its_own_step_times_and_size_of_kv(tmp_path):
    rows = random_rows(3, model=["a", "b"])
    of = two()
    of["b"] |= {"step_time": "a100-llama-3.1-8b-tp1", "model": "llama-2-7b"}
    settings = {"cluster.machines": 3, "tiers.gpu.capacity": "2GiB"}
    done = run(tmp_path, rows, models={"of": of}, **settings)
    capacities = [machine.tiers[0].capacity_blocks for machine in done.scenario.settings.machines]
    assert capacities == [32, 32, 8]  # 128 and 512 KiB a token
    which = [row["model"] == "b" for row in rows]
    own = [row for row in rows if row["model"] == "b"]
    settings = {
        "replica.step_time": "a100-llama-3.1-8b-tp1",
        "tiers.gpu.capacity": "2GiB",
        "model": "llama-2-7b",
    }
    assert columns(done, which) == columns(run(tmp_path, own, **settings))


@pytest.mark.parametrize("semantics", ["tree", "vllm", "sglang"])
@pytest.mark.parametrize("seed", range(3))
def test_every_request_with_models_and_adapters_finishes(tmp_path, semantics, seed):
    rows = random_rows(seed, model=["a", "b", "c"], lora=[None, "x", "y", "z"])
    of = {"a": {"machines": 2}, "b": {}, "c": {}}
    settings = {"cluster.machines": 4, "router.policy": "longest-prefix", "cache.semantics": semantics}
    made = by_the_clock(partial(run, tmp_path, rows, **settings, models={"of": of}, adapters={}))
    assert made[0].summary["requests"]["finished"] == len(rows)
    assert len({(one.run.digest_results, one.run.digest_events) for one in made}) == 1


def test_a_request_of_an_unknown_model_is_one_line(tmp_path):
    rows = random_rows(4, model=["a", "b"])
    rows[7]["model"] = "huge"
    with pytest.raises(
        KvsimError, match=r"request 7 names no model of the fleet; got model: \"huge\"; expected one of a, b"
    ):
        run(tmp_path, rows, models={"of": two()}, **{"cluster.machines": 3})
    del rows[7]["model"]
    with pytest.raises(KvsimError, match="request 7 names no model"):
        run(tmp_path, rows, models={"of": two()}, **{"cluster.machines": 3})


def test_a_lost_machine_takes_its_model_along(tmp_path):
    rows = random_rows(5, model=["a", "b"])
    plan = {"cluster.machines": 3, "models": {"of": two()}}
    lost = run(tmp_path, rows, **plan, **{"fleet.plan": [{"at": "1s", "do": "lose", "machine": 2}]})
    by_name = lost.summary["models"]["by_name"]
    asked = {model: sum(row["model"] == model for row in rows) for model in "ab"}
    assert by_name["a"]["requests"] == asked["a"]
    assert lost.summary["requests"]["failed"] == asked["b"] - by_name["b"]["requests"] > 0
    one = run(tmp_path, rows, **plan, **{"fleet.plan": [{"at": "1s", "do": "lose", "machine": 0}]})
    assert one.summary["requests"]["finished"] == len(rows)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"cache.accounting": "simplified"},
        {"replica.instant": True, "cluster.machines": 1, "router.policy": "round-robin"},
        {"replica.dp": 2},
        {"cluster.machines": 3, "pools": {"prefill": 2, "decode": 1}},
        {"router.policy": "least-loaded", "router.view.interval": "1s"},
    ],
    ids=["plain", "simplified", "instant", "ranks", "pools", "polled"],
)
def test_adapters_are_as_keys_of_the_trace(tmp_path, more):
    rows = random_rows(6, lora=[None, "x", "y"])
    fleet = {"cluster.machines": 2, "router.policy": "longest-prefix", **more}
    keys = run(tmp_path, rows, **fleet, **{"trace.extra_keys": ["lora"]})
    adapters = run(tmp_path, rows, **fleet, adapters={})
    assert columns(adapters) == columns(keys)
    assert adapters.run.digest_events == keys.run.digest_events
    assert adapters.summary["adapters"] == {"named": 2}
    plain = run(tmp_path, rows, **fleet)
    assert plain.summary["tokens"]["cached"] > adapters.summary["tokens"]["cached"] > 0


@pytest.mark.parametrize(
    ("common", "own"), [("gpt-oss-120b", "llama-3.1-8b"), ("llama-3.1-8b", "gpt-oss-120b")]
)
def test_models_with_cache_groups_must_be_of_one_kind(tmp_path, common, own):
    of = two()
    of["b"]["model"] = own
    given = {"cluster.machines": 3, "cache.semantics": "vllm", "replica.scheduler": "vllm", "model": common}
    with pytest.raises(KvsimError, match=r"models\.of\.b\.model .*groups of gpt-oss-120b"):
        run(tmp_path, random_rows(8, count=3, model=["a", "b"]), models={"of": of}, **given)


def test_machines_follow_the_models_in_order():
    settings = ModelsSettings((ServedModel("a", 2), ServedModel("b", 3), ServedModel("c", 2)))
    assert settings.of_machine == (0, 0, 1, 1, 1, 2, 2)
    assert settings.names == ("a", "b", "c")
