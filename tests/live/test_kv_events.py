"""KV events: vLLM's hashes and bytes, a socket's frames and replays, and indexers that end with what the
caches hold."""

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
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.clock import WallClock
from kvcache_sim.extras.live.events.announcer import Announcer, EventSettings
from kvcache_sim.extras.live.events.hashes import BlockHashes, as_integer, cbor
from kvcache_sim.extras.live.events.layout import AllBlocksCleared, Batch, BlockRemoved, BlockStored, packed
from kvcache_sim.extras.live.events.publisher import Endpoint
from kvcache_sim.extras.live.events.source import EventSource, medium_of
from kvcache_sim.extras.live.fleet import Fleet, Prompt
from kvcache_sim.extras.live.prompts import Block, BlockNumbers
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation.live import LiveSimulation
from support.examples import examples

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
    stored = {
        "type": "BlockStored", "block_hashes": [7], "parent_block_hash": None, "token_ids": [1, 2],
        "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0,
    }  # fmt: skip
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
        self.tokens: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        self.numbers: list[int] = []
        self.events = 0

    def take(self, number: int, payload: bytes) -> None:
        self.numbers.append(number)
        for event in msgspec.msgpack.decode(payload)[1]:
            self.events += 1
            self.event(event)

    def event(self, event: dict[str, Any]) -> None:
        if event["type"] == "AllBlocksCleared":
            self.held.clear()
        elif event["type"] == "BlockRemoved":
            [hash_] = event["block_hashes"]
            key = event["medium"], hash_
            self.held[key] -= 1
            if not self.held[key]:
                del self.held[key]
        else:
            size, parent = event["block_size"], event["parent_block_hash"]
            for index, hash_ in enumerate(event["block_hashes"]):
                tokens = tuple(event["token_ids"][index * size : (index + 1) * size])
                assert len(tokens) == size
                assert self.tokens.setdefault(hash_, (parent, tokens)) == (parent, tokens)
                key = event["medium"], hash_
                self.held[key] = self.held.get(key, 0) + 1
                parent = hash_


class Instant(WallClock):
    """A clock that stands where a test puts it."""

    at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns


TIERS = ["tiers.gpu.capacity=300 blocks", "tiers.cpu.capacity=700 blocks"]
VLLM = ["tiers.gpu.capacity=300 blocks", "cache.semantics=vllm", "replica.scheduler=vllm"]


def drive(overrides: list[str], settings: EventSettings, requests: int, reset: bool = False):
    """Feed random chats that share beginnings; return the fleet, and each machine's indexer and payloads."""
    common = ["cache.block_size=16", "replica.step_time=h100-llama-3.1-8b-tp1", "trace.path=unused"]
    scenario = load_scenario(None, [*common, "trace.block_size=16", *overrides])
    clock, random = Instant(), np.random.default_rng(1)
    payloads: list[tuple[int, bytes]] = []

    async def go() -> Fleet:
        fleet = Fleet(
            lambda own: LiveSimulation(scenario.settings, own), clock, BlockNumbers(16, keep_tokens=True)
        )
        announcer = Announcer(fleet, settings)
        fleet.witnesses.append(announcer)
        [publisher] = announcer.publishers
        publisher.publish, send = (
            lambda payload: (payloads.append((len(payloads), payload)), send(payload)),
            publisher.publish,
        )
        fleet.start()
        for n in range(requests):
            clock.at_ns += int(random.integers(1, 40_000_000))
            shared = [int(random.integers(0, 4))] * (16 * int(random.integers(0, 6)))
            own = random.integers(0, 1000, int(random.integers(1, 300))).tolist()
            fleet.submit(Prompt([*shared, *own], random.integers(0, 1000, 30).tolist()))
            if reset and n == requests // 2:
                clock.at_ns += 60_000_000_000
                fleet.advance()
                assert fleet.reset()
        clock.at_ns += 600_000_000_000
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
@pytest.mark.parametrize("reset", [False, True])
def test_who_follows_the_events_ends_with_what_the_cache_holds(overrides, reset):
    fleet, payloads = drive(overrides, published(), 300, reset)
    indexer = Indexer()
    for number, payload in payloads:
        indexer.take(number, payload)
    assert indexer.numbers == list(range(len(payloads)))
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
    for hash_, (parent, tokens) in indexer.tokens.items():
        assert hashes.block(hashes.root if parent is None else parent, tokens) == hash_


def test_dynamos_radix_tree_follows_ten_thousand_events():
    core = pytest.importorskip("dynamo._core", reason="ai-dynamo-runtime is not installed")
    if not hasattr(core, "RadixTree"):
        pytest.skip("this ai-dynamo-runtime has no RadixTree")
    _, payloads = drive(["tiers.gpu.capacity=300 blocks"], published(), 2300)
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
    from kvcache_sim.extras.live.events.publisher import Publisher

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


@pytest.mark.parametrize("overrides", [TIERS, ["tiers.gpu.capacity=300 blocks"]], ids=["tiers", "gpu"])
def test_what_is_forgotten_changes_nothing(overrides, monkeypatch):
    kept, before = drive(overrides, published(), 400)
    monkeypatch.setattr("kvcache_sim.extras.live.fleet._FORGET_EACH", 64)
    forgot, after = drive(overrides, published(), 400)
    assert len(forgot.blocks) < len(kept.blocks) / 2
    events = [[msgspec.msgpack.decode(payload)[1] for _, payload in own] for own in (before, after)]
    assert events[0] == events[1]
    runs = [fleet.simulation.end() for fleet in (kept, forgot)]
    assert runs[0].digest_results == runs[1].digest_results


class KnownBlocks(dict):
    """Known blocks by number; the salted first block of each prefix stands for a tenant's."""

    block_size = 2

    def block(self, number: int) -> Block | None:
        return self.get(number)


@examples(100)
@given(st.data(), st.booleans())
def test_events_of_drawn_changes_name_what_each_tier_holds(data, as_bytes):
    """A model with one hash a block: what is stored in a row on one tier is one event, and a block that is forgotten
    while tiers hold it is still removed from each."""
    draw = data.draw
    known, hashes = KnownBlocks(), BlockHashes("sha256")
    source = EventSource(known, hashes, as_bytes)
    digests: dict[int, bytes] = {}
    blocks: dict[int, Block] = {}
    held: set[tuple[int, int]] = set()
    followed: set[tuple[str, object]] = set()
    for _ in range(draw(st.integers(1, 12))):
        changes, runs, last = [], [], None
        for action in draw(
            st.lists(st.sampled_from(("new", "store", "store", "remove", "private")), max_size=6)
        ):
            if action == "new":
                number = len(blocks)
                parent = draw(st.sampled_from((-1, *known)))
                salt = draw(st.sampled_from(("", "tenant"))) if parent < 0 else ""
                block = Block(number, parent, (number, 7), salt)
                blocks[number] = known[number] = block
                above = hashes.root if parent < 0 else digests[parent]
                digests[number] = hashes.block(above, block.tokens, (salt,) if salt else None)
            elif action == "store":
                free = [(tier, key) for key in known for tier in (0, 1, 2) if (tier, key) not in held]
                if free:
                    tier, key = draw(st.sampled_from(free))
                    held.add((tier, key))
                    changes.append((tier, True, key))
                    if last == (tier, blocks[key].parent) and last[1] >= 0:
                        runs[-1].append(key)
                    else:
                        runs.append([key])
                    last = (tier, key)
            elif action == "remove" and held:
                tier, key = draw(st.sampled_from(sorted(held)))
                held.remove((tier, key))
                changes.append((tier, False, key))
                last = None
            else:
                changes.append((0, draw(st.booleans()), (1 << 63) + draw(st.integers(0, 3))))
        for event in source.events(changes):
            if isinstance(event, BlockStored):
                run = runs.pop(0)
                parent = blocks[run[0]].parent
                name = [
                    digests[key] if as_bytes else as_integer(digests[key]) for key in (*run, max(0, parent))
                ]
                salts = [(blocks[key].salt,) if blocks[key].salt else None for key in run]
                assert event.block_hashes == name[:-1]
                assert event.parent_block_hash == (None if parent < 0 else name[-1])
                assert event.token_ids == [token for key in run for token in blocks[key].tokens]
                assert event.extra_keys == (salts if any(salts) else None)
                followed |= {(event.medium, one) for one in event.block_hashes}
            else:
                followed.remove((event.medium, *event.block_hashes))
        assert not runs
        media = {
            (medium_of(tier), digests[key] if as_bytes else as_integer(digests[key])) for tier, key in held
        }
        assert followed == media
        childless = sorted(set(known) - {block.parent for block in known.values()})
        for number in draw(st.lists(st.sampled_from(childless), unique=True)) if childless else ():
            del known[number]
        source.forget()
        # as many hashes as blocks that are known or somewhere, once they were published
        assert set(source._digests) <= set(known) | {key for _, key in held}
    source.clear()
    known.clear()
    source.forget()
    assert not source._digests


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65_535, "19ffff"),
        (65_536, "1a00010000"),
        (2**32 - 1, "1affffffff"),
        (2**32, "1b0000000100000000"),
        (2**64 - 1, "1bffffffffffffffff"),
        (-1, "20"),
        (-24, "37"),
        (-25, "3818"),
        (-256, "38ff"),
        (-257, "390100"),
        (None, "f6"),
        (b"", "40"),
        (b"\x01" * 24, "5818" + "01" * 24),
        ("é", "62c3a9"),
        ((), "80"),
        ((1, (b"a", None)), "8201824161f6"),
    ],
)
def test_canonical_cbor_has_the_shortest_head_of_rfc_8949(value, found):
    assert cbor(value).hex() == found


def test_a_number_beyond_64_bits_has_no_head():
    with pytest.raises(OverflowError):
        cbor(2**64)
