"""Every name of the Python API once."""

import tempfile
from pathlib import Path

import kvcache_sim as kv

rows = {"arrival_s": [0.0, 0.2, 0.4], "input_tokens": [1024, 1536, 1600], "output_tokens": [16, 16, 16]}
own = kv.make_trace({**rows, "block_ids": [[1, 2], [1, 2, 3], [1, 2, 3, 4]]}, block_size=512)
assert isinstance(own, kv.Trace) and len(own) == 3

agents = kv.generate("agentic", seed=3, requests=120)
base = kv.Scenario(tiers={"gpu": "512 blocks"}, replica={"max_num_seqs": 32})
base = kv.Scenario.from_yaml(base.to_yaml(), **{"tiers.disk": None})
alone = kv.simulate(agents, base, name="alone")
tiered = kv.simulate(agents, base.with_(tiers={"cpu": "16GiB"}), options=kv.RunOptions(causes=True))
assert isinstance(tiered, kv.Run) and tiered.scenario["tiers.cpu.capacity"] == "16GiB"

with tempfile.TemporaryDirectory() as folder:
    saved = kv.load_run(tiered.save(Path(folder, "tiered")))
    assert saved.digests == tiered.digests and saved.requests.equals(tiered.requests)
    Path(folder, "base.yaml").write_text(base.to_yaml())
    assert kv.Scenario.load(Path(folder, "base.yaml")) == base
    again = kv.read_trace(Path(folder, "tiered", "trace.jsonl"))
    picture = saved.plot("ttft_waterfall")
    assert isinstance(picture, kv.Plot) and picture.save(Path(folder, "ttft.png")).exists()
    try:
        picture.save(Path(folder, "ttft.png"))
    except kv.OutputExistsError as error:
        assert error.exit_code == 6
    for wrong, refusal in (("none.jsonl", kv.UsageError), (folder, kv.InputOutputError)):
        try:
            kv.read_trace(Path(folder, wrong))
        except refusal as error:
            assert isinstance(error, kv.KvsimError) and str(error)

difference = kv.compare(alone, tiered)
assert isinstance(difference, kv.Comparison) and difference.sentences
reasons = kv.explain(tiered)
assert isinstance(reasons, kv.Explanation) and not reasons.missing
sizes = kv.curve(again, policy=["s3fifo"])
assert isinstance(sizes, kv.Curve) and sizes.knee["capacity_blocks"] > 0
lru = kv.cachesim(again, "lru", capacity=sizes.knee["capacity_blocks"])
assert isinstance(lru, kv.CacheReplay) and lru["hit_blocks"] > 0
cells = kv.sweep(agents, base, grid={"tiers.cpu.capacity": ["4GiB", "16GiB"]})
assert isinstance(cells, kv.Sweep) and cells.best("hit_rate", largest=True)["status"] == "ok"
load = kv.capacity(agents, base, slo={"e2e": "60s"}, grid={"tiers.cpu.capacity": ["4GiB", "16GiB"]})
assert isinstance(load, kv.Capacity) and load.rate_per_s and load.cheapest() in load.rows
stamp = '"sessionId": "s", "timestamp": "2026-03-02T09:00:0%sZ", "uuid": "%s", "parentUuid": null'
usage = '"usage": {"input_tokens": 9, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 6000}'
lines = '{"type": "user", %s, "message": {"role": "user", "content": "hello"}}\n' % (stamp % (0, "a"))
answered = '"message": {"id": "m", "model": "claude-opus-4-6", "content": [], %s}' % usage
with tempfile.TemporaryDirectory() as folder:
    log = Path(folder, "session.jsonl")
    log.write_text(lines + '{"type": "assistant", %s, %s}\n' % (stamp % (1, "b"), answered))
    bill = kv.session(log)
assert isinstance(bill, kv.Session) and bill.what_if(ttl="1h").rows[0]["dollars"] > bill.dollars
best = kv.optimize(
    again[:60], base, space={"tiers.cpu.capacity": ["4GiB", "16GiB"]}, minimize="ttft.p99", trials=2
)
assert isinstance(best, kv.Optimum) and "tiers.cpu.capacity" in (best.settings or {})
printed = kv.command("help exit-codes")
assert isinstance(printed, kv.Printed) and printed.exit_code == 0
try:
    kv.make_trace({**rows, "input_tokens": [1024, -1, 1600]})
except kv.TraceError as error:
    assert error.where == "row 1"
print(difference, reasons, sizes, lru, cells, load, sep="\n\n")
