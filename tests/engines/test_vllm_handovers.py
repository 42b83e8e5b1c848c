"""Hand-overs under vLLM's own scheduler: times by hand, and what is refused.

``test_engine_streams.py`` has recorded streams of vLLM's own classes, ``make oracles`` fresh ones.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.pools import DECODE_NS, MS, TOKEN_NS, channel, pools, requests

WIRE_NS, LATENCY_NS = MS, 100_000  # of a block; of a read
#: A prompt of 100 tokens is 7 blocks, the last one partial; the first token takes one step of one token.
PROMPT_NS, READ_NS = 100 * TOKEN_NS, 7 * WIRE_NS + LATENCY_NS


def of_vllm(blocks=64, handover=None, **replica):
    settings = pools("pd", handover, (blocks,), scheduler="vllm", **replica)
    return replace(settings, cache=replace(settings.cache, semantics="vllm"))


def run(trace, blocks=64, leaves_ns=None, **replica):
    if leaves_ns is not None:
        trace = replace(trace, abort_after_ns=np.array(leaves_ns, np.int64))
    return simulate(of_vllm(blocks, **replica), trace, options=RunOptions(check="full")).requests


def test_the_decode_machine_reads_the_prompt_and_computes_its_last_token():
    done = run(requests((0, 100, 5)))
    assert (done["prefill_ns"], done["handover_ns"]) == (PROMPT_NS, READ_NS)
    assert (done["handover_blocks"], done["first_decode_ns"]) == (7, TOKEN_NS)
    assert done["first_token_ns"] == PROMPT_NS + READ_NS + TOKEN_NS
    assert done["finish_ns"] - done["first_token_ns"] == 4 * DECODE_NS


def test_a_prompt_keeps_its_blocks_until_it_has_been_read():
    done = run(requests((0, 100, 2), (0.5, 100, 2)), blocks=8)
    assert done["queue_ns"][1] == PROMPT_NS + READ_NS - MS // 2
    # the other machine has no blocks for it before the first answer has ended
    ends = PROMPT_NS + READ_NS + PROMPT_NS
    assert done["handover_room_ns"][1] == done["finish_ns"][0] - ends
    assert done["handover_ns"][1] - done["handover_room_ns"][1] == READ_NS


@pytest.mark.parametrize(("tokens", "blocks"), [(100, 3), (80, 1), (65, 1), (64, 1)])
def test_blocks_of_the_decode_machine_are_not_read_but_the_last_one_is(tokens, blocks):
    done = run(requests((0, 64, 2), (40, tokens, 2), shared=4))
    assert done["handover_blocks"].tolist() == [4, blocks]
    assert done["handover_ns"][1] == blocks * WIRE_NS + LATENCY_NS


def test_when_a_client_leaves_before_the_read_the_prompt_is_dropped():
    trace = requests((0, 100, 60), (0, 100, 2), (20, 100, 2))
    waits = run(trace, blocks=13)
    gone = run(trace, blocks=13, leaves_ns=[-1, 30 * MS + 1, -1])
    # the third prompt gets the blocks of the second, once the step that runs then has ended
    assert waits["queue_ns"][2] > 30 * MS
    begun = 20 * MS + gone["queue_ns"][2]
    assert 30 * MS < begun <= 30 * MS + DECODE_NS
    assert gone["status"].tolist() == [0, 2, 0]


def test_a_read_leaves_the_blocks_that_a_prompt_at_work_still_needs():
    settings = of_vllm(30, max_num_batched_tokens=64, long_prefill_token_threshold=32)
    machines = (settings.machines[0], replace(settings.machines[1], role="both"))
    trace = requests((0, 100, 2), (0, 400, 5))
    done = simulate(replace(settings, machines=machines), trace, options=RunOptions(check="full")).requests
    assert done["decode_machine"].tolist() == [1, -1]
    # 20 blocks are free when it asks for 7, of which the other prompt needs 15
    assert done["handover_room_ns"][0] == done["finish_ns"][1] - done["prefill_ns"][0]


def test_a_lone_token_is_the_prefill_machines():
    done = run(requests((0, 100, 1)))
    assert (done["decode_machine"], done["first_token_ns"]) == (-1, PROMPT_NS)


PD = "pools: {prefill: 1, decode: 1}\nreplica: {scheduler: vllm}\ntiers: {gpu: {capacity: 99 blocks}}\n"


@pytest.mark.parametrize(
    ("setting", "settings", "why"),
    [
        (
            "handover.transfer=layer-by-layer",
            {"handover": HandoverSettings(transfer="layer-by-layer")},
            "once",
        ),
        (
            "handover.first_token=prefill",
            {"handover": HandoverSettings(first_token="prefill")},
            "first token",
        ),
        ("handover.path=via-cpu", None, "from GPU to GPU"),
        ("replica.max_num_queued_reqs=3", {"max_num_queued_reqs": 3}, "not turned away"),
        ("replica.pp=2", {"stages": 2}, "micro-batches"),
        ("machines[0].replica.scheduler=kvsim", None, "to vLLM's scheduler alone"),
        ("channels.handover.sharing=fair", {"handover": "fair"}, "first come, first served"),
    ],
)
def test_what_is_not_simulated_is_refused(setting, settings, why):
    with pytest.raises(KvsimError, match=why):
        scenario_from_text(PD, "s.yaml", Path.cwd(), [setting])
    if settings is None:
        return
    if settings.get("handover") == "fair":
        network = HandoverSettings().network
        settings = {"handover": HandoverSettings(network=replace(network, default=channel(sharing="fair")))}
    with pytest.raises(KvsimError, match=why):
        simulate(of_vllm(**settings), requests((0, 100, 5)))
