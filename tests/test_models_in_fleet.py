"""Several models and adapters in one fleet: routing by model, turns on shared machines, slots of adapters.

Their rules are walked by hand in ``test_turns_and_slots.py``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from fleets import Fleet
from kvcache_sim.errors import KvsimError
from kvcache_sim.serving.models.settings import ModelsSettings, ServedModel
from kvcache_sim.serving.router.contract import Held
from support.lookahead import by_the_clock
from support.model_fleets import columns, random_rows, run

MS = 1_000_000


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


def test_a_model_has_its_own_step_times_and_size_of_kv(tmp_path):
    rows = random_rows(3, model=["a", "b"])
    of = two()
    of["b"] |= {"step_time": "a100-llama-3-8b-tp1", "model": "llama-2-7b"}
    settings = {"cluster.machines": 3, "tiers.gpu.capacity": "2GiB"}
    done = run(tmp_path, rows, models={"of": of}, **settings)
    capacities = [machine.tiers[0].capacity_blocks for machine in done.scenario.settings.machines]
    assert capacities == [32, 32, 8]  # 128 and 512 KiB a token
    which = [row["model"] == "b" for row in rows]
    own = [row for row in rows if row["model"] == "b"]
    settings = {
        "replica.step_time": "a100-llama-3-8b-tp1",
        "tiers.gpu.capacity": "2GiB",
        "model": "llama-2-7b",
    }
    assert columns(done, which) == columns(run(tmp_path, own, **settings))


def sleepers(**more):
    return {"of": {"a": {"weights": "16GB"}, "b": {"shares": "a", "weights": "14GB"}}, **more}


@pytest.mark.parametrize(
    "rates", [{}, {"load_rate": "7GB/s"}, {"load_rate": "10GB/s", "sleep_rate": "20GB/s"}]
)
def test_a_change_of_models_to_the_nanosecond(tmp_path, rates):
    """b waits for a's end, a's sleep and its own load; a's next, which came before b was done, waits for b."""

    def request(at_ms, prompt, model):
        return {"timestamp": at_ms, "input_length": 1500, "output_length": 20, "hash_ids": [prompt, prompt + 1, prompt + 2], "model": model}  # fmt: skip

    rows = [request(0, 10, "a"), request(5, 20, "b"), request(6, 10, "a")]
    done = run(tmp_path, rows, models=sleepers(**rates), **{"cluster.machines": 2})
    alone = columns(run(tmp_path, rows[:1]))
    ttft, served = alone["first_token_ns"][0], alone["finish_ns"][0]
    load = int(rates.get("load_rate", "25GB/s").removesuffix("GB/s"))
    keep = rates.get("sleep_rate")
    sleep_a, sleep_b = (0, 0) if keep is None else (16 * 1000 * MS // 20, 14 * 1000 * MS // 20)
    wake_a, wake_b = -(-16 * 1000 * MS // load), -(-14 * 1000 * MS // load)
    b_in = served + sleep_a + wake_b
    a_in = b_in + served + sleep_b + wake_a
    seen = columns(done)
    assert seen["first_token_ns"] == [ttft, b_in + ttft, a_in + ttft]
    assert seen["finish_ns"] == [served, b_in + served, a_in + served]
    assert seen["cached_prefix_length_used"] == [0, 0, 0]  # sleeping drops the blocks
    models = done.summary["models"]
    assert models["changes"] == 2
    assert models["change_s"] == pytest.approx((sleep_a + wake_b + sleep_b + wake_a) / 1e9)


@pytest.mark.parametrize(("own", "blocks"), [(None, 3), ("vllm-offload", 4), ("lmcache", 4)])
def test_what_lies_below_the_compute_tier_outlives_sleep(tmp_path, own, blocks):
    """Engines load the last block of a prompt too, and compute its last token again."""

    def request(at_ms, prompt, model):
        return {"timestamp": at_ms, "input_length": 2048, "output_length": 2, "hash_ids": list(range(prompt, prompt + 4)), "model": model}  # fmt: skip

    rows = [request(0, 10, "a"), request(100, 20, "b"), request(9000, 10, "a")]
    more = {"cluster.machines": 2, "tiers.cpu.capacity": "99 blocks"}
    more |= (
        {"write.policy": "through"}
        if own is None
        else {"cache.semantics": "vllm", "tiers.cpu.semantics": own}
    )
    done = run(tmp_path, rows, models=sleepers(), **more)
    assert columns(done)["cached_prefix_length_used"] == [0, 0, blocks * 512]
    assert np.asarray(done.run.requests["cached_gpu_tokens"]).sum() == 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"cache.semantics": "vllm", "model": "gpt-oss-120b"}, "several cache groups is not emptied"),
        (
            {"cache.semantics": "sglang", "tiers.cpu": {"capacity": "99 blocks", "semantics": "hicache"}},
            "hicache's tree is not emptied",
        ),
    ],
)
def test_a_cache_that_sleep_cannot_empty_is_refused(tmp_path, more, says):
    with pytest.raises(KvsimError, match=says):
        run(
            tmp_path,
            random_rows(8, count=3, model=["a", "b"]),
            models=sleepers(),
            **{"cluster.machines": 2},
            **more,
        )


@pytest.mark.parametrize("semantics", ["tree", "vllm", "sglang"])
@pytest.mark.parametrize("seed", range(3))
def test_turns_and_adapters_lose_nobody(tmp_path, semantics, seed):
    rows = random_rows(seed, model=["a", "b", "c"], lora=[None, "x", "y", "z"])
    cache = {"cache.semantics": semantics}
    models = {"of": {"a": {"machines": 2, "weights": "4GB"}, "b": {"shares": "a", "weights": "2GB"}, "c": {"machines": 1}}}  # fmt: skip
    cases = (
        {"models": models, "cluster.machines": 4, "router.policy": "least-loaded"},
        {"adapters": {"slots": 2, "size": "3GB"}, "cluster.machines": 2, "router.policy": "longest-prefix"},
    )
    for settings in cases:
        found = by_the_clock(partial(run, tmp_path, rows, **cache, **settings))
        assert found[0].summary["requests"]["finished"] == len(rows)
        assert len({(one.run.digest_results, one.run.digest_events) for one in found}) == 1
        parts = [name for name in found[0].run.requests if name.endswith("_ns")]
        assert "queue_ns" in parts


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


def test_slots_for_all_adapters_that_load_at_once_are_as_keys_alone(tmp_path):
    rows = random_rows(6, lora=[None, "x", "y"])
    fleet = {"cluster.machines": 2, "router.policy": "longest-prefix"}
    keys = run(tmp_path, rows, **fleet, **{"trace.extra_keys": ["lora"]})
    slots = run(tmp_path, rows, **fleet, adapters={"slots": 3, "size": "0B"})
    assert columns(slots) == columns(keys)
    assert slots.summary["adapters"]["named"] == 2


@pytest.mark.parametrize(
    ("common", "own"), [("gpt-oss-120b", "llama-3.1-8b"), ("llama-3.1-8b", "gpt-oss-120b")]
)
def test_models_beside_cache_groups_are_of_one_kind(tmp_path, common, own):
    of = two()
    of["b"]["model"] = own
    given = {"cluster.machines": 3, "cache.semantics": "vllm", "replica.scheduler": "vllm", "model": common}
    with pytest.raises(KvsimError, match=r"models\.of\.b\.model .*groups of gpt-oss-120b"):
        run(tmp_path, random_rows(8, count=3, model=["a", "b"]), models={"of": of}, **given)


def test_machines_that_share_a_host():
    models = [ServedModel("a", 2), ServedModel("b", 3), ServedModel("c", 2, shares=1)]
    settings = ModelsSettings(tuple(models))
    assert settings.of_machine == (0, 0, 1, 1, 1, 2, 2)
    assert [settings.host_of(machine) for machine in range(7)] == [0, 1, 2, 3, 4, 2, 3]


def test_what_waits_before_an_engine_counts_as_sent_there():
    fleet = Fleet(3)
    fleet.shake()
    for place, machine in enumerate(fleet.machines):
        machine.machine = place
    n = fleet.count
    held = Held([3 * place for place in range(n)], [700 * place for place in range(n)])
    plain, view = fleet.view(), replace(fleet.view(), held=held)
    assert view.requests() == [own + 3 * place for place, own in enumerate(plain.requests())]
    assert view.queued_tokens() == [own + 700 * place for place, own in enumerate(plain.queued_tokens())]
    waiting = plain.occupancy().waiting
    assert view.occupancy().waiting == [own + 3 * place for place, own in enumerate(waiting)]
    assert view.occupancy().running == plain.occupancy().running
