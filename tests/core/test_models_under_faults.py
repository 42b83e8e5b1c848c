"""Several models and adapters in one fleet whose machines, tiers and channels fail: every request is
accounted for."""

import json
import os
import random
from functools import partial

import pytest
from kvcache_sim.scenario.load import scenario_from_text
from model_fleets import columns, nested, random_rows, run
from support.conserved import check_conserved
from support.lookahead import by_the_clock


def drawn_plan(draw: random.Random, machines: int, dos: tuple[str, ...]) -> list[dict]:
    """Return events at drawn times; a machine goes at most once."""
    there, plan = list(range(machines)), []
    for at_ms in sorted(draw.sample(range(200, 5000), draw.randint(1, 4))):
        do = draw.choice(dos)
        event = {"at": f"{at_ms}ms", "do": do}
        if do == "slow":
            event |= {"channel": "cpu-to-gpu", "share": draw.choice([0, 0.1]), "lasts": "1s"}
        elif do == "lose-tier":
            event |= {"machine": draw.choice(there), "tier": "cpu"}
        else:
            machine = draw.choice(there)
            event |= {"machine": machine}
            there.remove(machine)
        plan.append(event)
        if not there:
            break
    return plan


def drawn(seed: int) -> tuple[list[dict], dict]:
    draw = random.Random(seed)
    rows = random_rows(seed, 40, draw.choice([30, 120]), model=["a", "b", "c"], lora=[None, "x", "y", "z"])
    settings = {
        "cluster.machines": 5,
        "router.policy": draw.choice(["round-robin", "cache-aware", "least-loaded", "longest-prefix"]),
        "tiers": {"gpu": {"capacity": "40 blocks"}, "cpu": {"capacity": "60 blocks"}, "disk": None},
        "write.policy": draw.choice(["through", "back"]),
        "channels.cpu-to-gpu.bandwidth": "2GB/s",
        "replica.max_num_seqs": draw.choice([2, 8]),
    }
    settings["fleet.plan"] = drawn_plan(draw, 5, ("lose", "drain", "lose-tier", "slow"))
    if any(event["do"] == "lose" for event in settings["fleet.plan"]):
        settings["fleet.in_flight"] = draw.choice(["retry", "fail"])
    kind = draw.choice(["models", "adapters", "both"])
    if kind != "adapters":
        settings["models"] = {"of": {"a": {"machines": 2}, "b": {"machines": 2}, "c": {"machines": 1}}}
    if kind != "models":
        settings["adapters"] = {}
    return rows, settings


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "6"))))
def test_every_request_is_counted(tmp_path, seed):
    rows, settings = drawn(seed)
    made = by_the_clock(partial(run, tmp_path, rows, **settings))
    assert len({(one.run.digest_results, one.run.digest_events) for one in made}) == 1
    assert sum(made[0].summary["requests"][name] for name in ("finished", "failed", "rejected")) == len(rows)
    check_conserved(scenario_of(tmp_path, settings), made[0])


def scenario_of(tmp_path, settings):
    given = {"trace.path": str(tmp_path / "trace.jsonl"), **settings}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in nested(given).items())
    return scenario_from_text(text, "the test", tmp_path)


def test_a_fault_of_one_models_machine_is_not_felt_by_another(tmp_path):
    rows = random_rows(3, model=["a", "b"])
    settings = {"cluster.machines": 3, "models": {"of": {"a": {"machines": 2}, "b": {"machines": 1}}}}
    plan = [{"at": "1s", "do": "lose", "machine": 0}, {"at": "2s", "do": "drain", "machine": 1}]
    whole, faulty = (run(tmp_path, rows, **settings, **{"fleet.plan": events}) for events in ([], plan))
    own = [row["model"] == "b" for row in rows]
    assert columns(whole, own) == columns(faulty, own)
    assert faulty.summary["requests"]["failed"] > 0
