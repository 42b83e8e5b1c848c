"""KV events: vLLM's hashes and bytes, a socket's frames and replays, and indexers that end with what the
caches hold."""

import ast
import asyncio
import json
import logging
import os
import re
import struct
import sys
import types
import zipfile
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.events.announcer import Announcer, EventSettings
from kvcache_sim.extras.live.events.hashes import BlockHashes, as_integer, cbor
from kvcache_sim.extras.live.events.layout import AllBlocksCleared, Batch, BlockRemoved, BlockStored, packed
from kvcache_sim.extras.live.events.publisher import Endpoint, Publisher
from kvcache_sim.extras.live.events.source import EventSource
from kvcache_sim.extras.live.fleet import Fleet, Prompt
from live_fleets import fleet_of
from support.product.live import BlockNumbers

#: Two blocks of 16 tokens, 0 to 31, with the default seed: the root, and the numbers that are published.
GOLDEN = {
    "sha256_cbor": (
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        [2233398808101521225, 17911472383915781900],
    ),
    "sha256": (
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
        [3262291359910021016, 7142137847444424233],
    ),
}


@pytest.mark.parametrize("algorithm", GOLDEN)
def test_hashes_are_vllms(algorithm, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    root, published = GOLDEN[algorithm]
    hashes = BlockHashes(algorithm)
    assert hashes.root.hex() == root
    first = hashes.block(hashes.root, range(16))
    assert [as_integer(first), as_integer(hashes.block(first, range(16, 32)))] == published


def test_the_root_follows_the_engines_seed(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert BlockHashes("sha256").root == BlockHashes("sha256", "7").root != BlockHashes("sha256", "8").root


EVENTS = [
    BlockStored([7], None, [1, 2], 2, None, "GPU", None, group_idx=0),
    BlockRemoved([7], "GPU", 0),
    AllBlocksCleared(),
]


def test_a_batch_is_a_list_of_maps_as_vllm_packs_it():
    payload = packed(Batch(1.5, EVENTS, 0), "map")
    assert len(payload) == 210
    assert payload.startswith(b"\x93\xcb" + struct.pack(">d", 1.5))
    stored = {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": None, "token_ids": [1, 2]}
    stored |= {"block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0}
    removed = {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 0}
    ts, events, rank = msgspec.msgpack.decode(payload)
    assert (ts, rank, events) == (1.5, 0, [stored, removed, {"type": "AllBlocksCleared"}])
    assert list(events[0]) == list(stored)


def test_the_older_layout_is_arrays_with_the_tag_first():
    _, events, rank = msgspec.msgpack.decode(packed(Batch(1.5, EVENTS, 3), "array"))
    assert rank == 3
    assert events[0][:8] == ["BlockStored", [7], None, [1, 2], 2, None, "GPU", None]
    assert events[1][:3] == ["BlockRemoved", [7], "GPU"]
    assert events[2] == ["AllBlocksCleared"]


@pytest.mark.skipif(
    "KVSIM_VLLM_WHEEL" not in os.environ, reason="KVSIM_VLLM_WHEEL names no wheel of vllm 0.33"
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_vllms_own_structures_read_every_field_of_every_event(as_bytes):
    """Check that events read and written again have the same members in the same order; the head of a map
    may be longer."""
    with zipfile.ZipFile(os.environ["KVSIM_VLLM_WHEEL"]) as wheel:
        source = wheel.read("vllm/distributed/kv_events.py").decode()
    structures = re.sub(
        r"^from vllm[^(\n]*(\([^)]*\))?.*$", "", source.split("class EventPublisher")[0], flags=re.M
    )
    module = types.ModuleType("vllm_kv_events")
    module.__dict__.update(init_logger=logging.getLogger, ExternalBlockHash=bytes | int)
    sys.modules[module.__name__] = module
    exec(structures, module.__dict__)
    decoder = msgspec.msgpack.Decoder(type=module.KVEventBatch)
    _, payloads = drive(TIERS, published(hashes_as_bytes=as_bytes), 60)
    for _, payload in payloads:
        batch = decoder.decode(payload)
        assert batch.events
        again, ours = (msgspec.msgpack.decode(each) for each in (msgspec.msgpack.encode(batch), payload))
        assert again == ours
        assert [list(event) for event in again[1]] == [list(event) for event in ours[1]]


class Indexer:
    """The blocks of one machine as a consumer that counts stores and removes sees them."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], int] = {}
        self.blocks: dict[int, tuple[int | None, tuple[int, ...], tuple[str, ...] | None]] = {}
        self.numbers: list[int] = []
        self.events = self.cleared = 0

    def take(self, number: int, payload: bytes) -> None:
        self.numbers.append(number)
        for event in msgspec.msgpack.decode(payload)[1]:
            self.events += 1
            self.event(event)

    def event(self, event: dict[str, Any]) -> None:
        if event["type"] == "AllBlocksCleared":
            self.held.clear()
            self.cleared += 1
        elif event["type"] == "BlockRemoved":
            [hash_] = event["block_hashes"]
            key = event["medium"], hash_
            self.held[key] -= 1
            if not self.held[key]:
                del self.held[key]
        else:
            size, parent = event["block_size"], event["parent_block_hash"]
            extra = event.get("extra_keys") or [None] * len(event["block_hashes"])
            for index, hash_ in enumerate(event["block_hashes"]):
                tokens = tuple(event["token_ids"][index * size : (index + 1) * size])
                assert len(tokens) == size
                block = parent, tokens, extra[index] and tuple(extra[index])
                assert self.blocks.setdefault(hash_, block) == block
                key = event["medium"], hash_
                self.held[key] = self.held.get(key, 0) + 1
                parent = hash_


TIERS = ["tiers.gpu.capacity=300 blocks", "tiers.cpu.capacity=700 blocks"]
VLLM = ["tiers.gpu.capacity=300 blocks", "cache.semantics=vllm", "replica.scheduler=vllm"]


def drive(
    overrides: list[str],
    settings: EventSettings,
    requests: int,
    reset: bool = False,
    shared_blocks=6,
    salted=True,
):
    """Feed random chats that share beginnings; return the fleet, and each machine's indexer and payloads."""
    random = np.random.default_rng(1)
    payloads: list[tuple[int, bytes]] = []

    async def go() -> Fleet:
        fleet = fleet_of(overrides, keep_tokens=True)
        announcer = Announcer(fleet, settings)
        fleet.witnesses.append(announcer)
        [publisher] = announcer.publishers
        publisher.publish, send = (
            lambda payload: (payloads.append((len(payloads), payload)), send(payload)),
            publisher.publish,
        )
        fleet.start()
        for n in range(requests):
            fleet.clock.at_ns += int(random.integers(1, 40_000_000))
            shared = [int(random.integers(0, 4))] * (16 * int(random.integers(0, shared_blocks)))
            own = random.integers(0, 1000, int(random.integers(1, 300))).tolist()
            answer = random.integers(0, 1000, 30).tolist()
            fleet.submit(Prompt([*shared, *own], answer, salt="tenant" if salted and n % 5 == 0 else ""))
            if reset and n == requests // 2:
                fleet.clock.at_ns += 60_000_000_000
                fleet.advance()
                assert fleet.reset()
        fleet.clock.at_ns += 600_000_000_000
        fleet.advance()
        assert not fleet.open
        announcer.close()
        return fleet

    return asyncio.run(go()), payloads


def published(**more: Any) -> EventSettings:
    return EventSettings(Endpoint("tcp://127.0.0.1:0"), **more)


def of_the_simulation(fleet: Fleet) -> dict[str, int]:
    """Return by medium how many blocks the simulator's own cache holds."""
    [replica] = fleet.simulation.replicas
    return {
        medium: sum(replica.store.occupancy(tier)[1:3])
        for tier, medium in enumerate(("GPU", "CPU")[: replica.tiers])
    }


@pytest.mark.parametrize("overrides", [TIERS, VLLM], ids=["tiers", "vllm"])
@pytest.mark.parametrize(("reset", "shared_blocks"), [(False, 6), (True, 6), (False, 150)])
def test_who_follows_the_events_ends_with_what_the_cache_holds(overrides, reset, shared_blocks):
    """Of the longest prompts the fleet has forgotten the blocks that are no longer there."""
    fleet, payloads = drive(overrides, published(), 300, reset, shared_blocks)
    is_forgetful = overrides == TIERS and shared_blocks > 100
    assert (len(fleet.blocks) < fleet.blocks.given) == is_forgetful
    indexer = Indexer()
    for number, payload in payloads:
        indexer.take(number, payload)
    assert indexer.numbers == list(range(len(payloads)))
    assert indexer.cleared == reset
    held: dict[str, int] = {}
    for (medium, _), count in indexer.held.items():
        held[medium] = held.get(medium, 0) + count
    assert held == {medium: count for medium, count in of_the_simulation(fleet).items() if count}
    assert indexer.events > 1000


def test_every_hash_is_that_of_its_tokens():
    _, payloads = drive(TIERS, published(algorithm="sha256_cbor", hashes_as_bytes=True), 40)
    indexer, hashes = Indexer(), BlockHashes("sha256_cbor")
    for number, payload in payloads:
        indexer.take(number, payload)
    for hash_, (parent, tokens, extra) in indexer.blocks.items():
        assert hashes.block(hashes.root if parent is None else parent, tokens, extra) == hash_
    salts = [(parent is None, extra) for parent, _, extra in indexer.blocks.values() if extra]
    assert set(salts) == {(True, ("tenant",))}


def test_dynamos_radix_tree_follows_ten_thousand_events():
    core = pytest.importorskip("dynamo._core", reason="ai-dynamo-runtime is not installed")
    if not hasattr(core, "RadixTree"):
        pytest.skip("this ai-dynamo-runtime has no RadixTree")
    _, payloads = drive(["tiers.gpu.capacity=300 blocks"], published(), 2300, salted=False)
    tree, indexer, sent = core.RadixTree(), Indexer(), 0
    for number, payload in payloads:
        for event in msgspec.msgpack.decode(payload)[1]:
            sent += 1
            tree.apply_event(7, json.dumps({"event_id": sent, "data": of_dynamo(event, core)}).encode())
        indexer.take(number, payload)
    assert sent >= 10_000
    dumped = [json.loads(text)["event"]["data"]["stored"] for text in tree.dump_tree_as_events()]
    blocks = {block["block_hash"] for stored in dumped for block in stored["blocks"]}
    assert blocks == {hash_ for _, hash_ in indexer.held}


def of_dynamo(event: dict[str, Any], core: Any) -> Any:
    if event["type"] == "BlockRemoved":
        return {"removed": {"block_hashes": event["block_hashes"]}}
    local = core.compute_block_hash_for_seq(event["token_ids"], event["block_size"])
    blocks = [
        {"block_hash": block, "tokens_hash": tokens}
        for block, tokens in zip(event["block_hashes"], local, strict=True)
    ]
    return {"stored": {"parent_hash": event["parent_block_hash"], "blocks": blocks}}


@pytest.mark.parametrize(
    ("endpoint", "machine", "found"),
    [
        ("tcp://*:5557", 0, "tcp://*:5557"),
        ("tcp://*:5557", 3, "tcp://*:5560"),
        ("tcp://[::1]:5557", 1, "tcp://[::1]:5558"),
        ("tcp://*:0", 3, "tcp://*:0"),  # any free port
        ("tcp://*:65534", 1, "tcp://*:65535"),
        ("tcp://*:65534", 2, None),
        ("tcp://*:*", 2, "tcp://*:*_dp2"),
        ("ipc:///tmp/a:7", 0, "ipc:///tmp/a:7"),
        ("ipc:///tmp/a:7", 2, "ipc:///tmp/a:7_dp2"),
    ],
)
def test_each_machine_has_an_endpoint_of_its_own(endpoint, machine, found):
    """The next port for each machine; sockets that have none are numbered."""
    for replay in ("", endpoint):
        own = Endpoint(endpoint, replay, "kv", 7, 9)
        if found is None:
            with pytest.raises(UsageError, match=f"no such port.*{65_535}"):
                own.of_machine(machine)
            continue
        assert own.of_machine(machine) == Endpoint(found, replay and found, "kv", 7, 9)


def test_a_subscriber_gets_three_frames_and_a_replay_what_it_missed():
    context = zmq.Context()
    publisher = Publisher(
        context, Endpoint("inproc://events", "inproc://replay", "kv@pod@model", buffer_steps=3)
    )
    try:
        subscriber, dealer = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        subscriber.subscribe(b"kv@")
        subscriber.connect("inproc://events")
        dealer.connect("inproc://replay")
        assert not subscriber.poll(50)
        for payload in (b"a", b"b", b"c", b"d"):
            publisher.publish(payload)
        assert subscriber.recv_multipart() == [b"kv@pod@model", (0).to_bytes(8, "big"), b"a"]
        dealer.send_multipart([b"", (2).to_bytes(8, "big")])
        for nonsense in ([b"nonsense?"], [b"seven b"], [(2).to_bytes(8, "big"), b""], []):
            dealer.send_multipart([b"", *nonsense])
        for _ in range(20):
            publisher.serve_replay()
            if dealer.poll(50):
                break
        got = [dealer.recv_multipart() for _ in range(3)]
        assert [frames[2:] for frames in got[:2]] == [
            [(2).to_bytes(8, "big"), b"c"],
            [(3).to_bytes(8, "big"), b"d"],
        ]
        assert got[2] == [b"", b"", b"\xff" * 8, b""]
        publisher.serve_replay()
        assert not dealer.poll(50), "what is no request is not answered"
    finally:
        subscriber.close(0)
        dealer.close(0)
        publisher.close()
        context.term()


CBOR = """
0 00
23 17
24 1818
255 18ff
256 190100
65535 19ffff
65536 1a00010000
4294967295 1affffffff
4294967296 1b0000000100000000
18446744073709551615 1bffffffffffffffff
-1 20
-24 37
-25 3818
-257 390100
None f6
b"" 40
"\u00e9" 62c3a9
() 80
(1,(b"a",None)) 8201824161f6
"""


@pytest.mark.parametrize("line", CBOR.split("\n")[1:-1])
def test_canonical_cbor_has_the_shortest_head_of_rfc_8949(line):
    value, found = line.split()
    assert cbor(ast.literal_eval(value)).hex() == found


def test_a_number_beyond_64_bits_has_no_head():
    with pytest.raises(OverflowError):
        cbor(2**64)


def test_a_block_that_is_forgotten_is_still_removed_from_each_tier_that_has_it():
    blocks = BlockNumbers(2, keep_tokens=True)
    source = EventSource(blocks, BlockHashes("sha256"), False)
    [number] = blocks.number([1, 2], "")
    [first, second] = [*source.events([(0, True, number)]), *source.events([(1, True, number)])]
    assert first.block_hashes == second.block_hashes
    assert (first.medium, second.medium) == ("GPU", "CPU")
    removed = source.events([(0, False, number)])
    blocks.keep(frozenset())
    source.forget()
    removed += source.events([(1, False, number)])
    assert [(one.block_hashes, one.medium) for one in removed] == [
        (first.block_hashes, own) for own in ("GPU", "CPU")
    ]
    source.forget()
    assert source.events([(1, False, number)]) == []
