"""A finished run made up in a moment: plausible columns whose parts sum, written as a run directory."""

import hashlib
from pathlib import Path

import numpy as np
from kvcache_sim.metrics.columns import (
    EVENT_COLUMNS,
    OUTCOMES,
    REQUEST_COLUMNS,
    SERIES_COLUMNS,
    TTFT_PARTS,
)
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.metrics.tables import write_table

MS = 1_000_000
STATISTICS = {"avg": np.mean, "min": np.min, "max": np.max, "std": np.std}


def request_columns(count, seed=0, machines=2, slower=1.0):
    """Return the requests of a made-up run: conversations of up to five turns on ``machines`` machines."""
    random = np.random.default_rng(seed)
    session = np.sort(random.integers(0, max(1, count // 3), count)).astype(np.int32)
    turn = np.zeros(count, np.int32)
    for i in range(1, count):
        turn[i] = turn[i - 1] + 1 if session[i] == session[i - 1] else 0
    arrival = np.sort(random.integers(0, 1 + count * 30 * MS, count))
    inputs = random.integers(600, 20_000, count)
    cached = np.where(random.random(count) < 0.6, inputs * random.random(count) // 512 * 512, 0).astype(int)
    share = random.dirichlet((4, 2, 1, 0.5), count)
    tiers = np.floor(share * cached[:, None] / 512).astype(int) * 512
    tiers[:, 0] += cached - tiers.sum(1)
    columns = {name: np.zeros(count, np.dtype(c.dtype)) for name, c in REQUEST_COLUMNS.items()}
    columns["decode_machine"][:] = -1
    columns["request"][:] = np.arange(count)
    columns["session"][:], columns["turn"][:] = session, turn
    columns["machine"][:] = random.integers(0, machines, count)
    columns["is_conversational_turn"][:] = turn > 0
    columns["arrival_ns"][:] = arrival
    columns["input_tokens"][:], columns["output_tokens"][:] = inputs, random.integers(1, 500, count)
    columns["cached_prefix_length_used"][:] = cached
    for index, tier in enumerate(("gpu", "cpu", "disk", "remote")):
        columns[f"cached_{tier}_tokens"][:] = tiers[:, index]
    columns["num_tokens_actually_prefilled"][:] = inputs - cached
    columns["outcome"][:] = np.where(
        cached > 0, np.where(turn > 0, OUTCOMES.index("CONVERSATIONAL_HIT"), 1), OUTCOMES.index("MISS_FULL")
    )
    columns["queue_ns"][:] = random.exponential(80 * MS * slower, count)
    columns["lookup_ns"][:] = 20_000
    for tier, cost in (("cpu", 20), ("disk", 150), ("remote", 300)):
        columns[f"fetch_{tier}_ns"][:] = columns[f"cached_{tier}_tokens"] * cost * 100
    columns["fetch_room_ns"][:] = np.where(random.random(count) < 0.05, 3 * MS, 0)
    columns["fetch_ns"][:] = sum(columns[f"fetch_{part}_ns"] for part in ("room", "cpu", "disk", "remote"))
    columns["prefill_ns"][:] = ((inputs - cached) * 25_000 * slower).astype(int) + 5 * MS
    parts = TTFT_PARTS
    ttft = sum(columns[f"{part}_ns"] for part in parts)
    columns["first_token_ns"][:] = columns["arrival_ns"] + ttft
    gap = random.integers(8 * MS, 40 * MS, count)
    columns["finish_ns"][:] = columns["first_token_ns"] + (columns["output_tokens"] - 1) * gap
    return columns


def statistics(values):
    result = {name: float(function(values)) for name, function in STATISTICS.items()}
    return result | {f"p{p}": float(np.percentile(values, p)) for p in (99, 90, 75, 50)}


def summary_of(columns):
    """Return a ``summary.json`` of request columns under the stable keys."""
    done = columns["status"] == 0
    column = {name: values[done] for name, values in columns.items()}
    ms = {
        "ttft": (column["first_token_ns"] - column["arrival_ns"]) / MS,
        "tpot": (column["finish_ns"] - column["first_token_ns"])
        / np.maximum(column["output_tokens"] - 1, 1)
        / MS,
        "e2e": (column["finish_ns"] - column["arrival_ns"]) / MS,
        "queue": column["queue_ns"] / MS,
    }
    parts = TTFT_PARTS
    end_s = float(column["finish_ns"].max()) / 1e9
    cached, inputs = int(column["cached_prefix_length_used"].sum()), int(column["input_tokens"].sum())
    return {
        "requests": {"arrived": len(done), "finished": int(done.sum()), "rejected": 0, "preemptions": 0},
        "tokens": {
            "input": inputs,
            "output": int(column["output_tokens"].sum()),
            "cached": cached,
            "prefilled": inputs - cached,
        },
        "cache": {
            "block_refs": int((column["input_tokens"] // 512).sum()),
            "hit_blocks": cached // 512,
            "token_hit_rate": cached / inputs,
            "block_hit_rate": cached / inputs,
            "request_hit_rate": float((column["cached_prefix_length_used"] > 0).mean()),
            "hit_tokens": {
                t: int(column[f"cached_{t}_tokens"].sum()) for t in ("gpu", "cpu", "disk", "remote")
            },
            "evictions": {"gpu": 10, "cpu": 5, "disk": 0},
        },
        "latency": {name: statistics(values) for name, values in ms.items()}
        | {"ttft_parts": {part: {"avg": float(column[f"{part}_ns"].mean()) / MS} for part in parts}},
        "throughput": {
            "requests_per_s": len(done) / end_s,
            "output_tokens_per_s": float(column["output_tokens"].sum()) / end_s,
        },
        "session_survival": [
            {"gap_from_s": low, "gap_to_s": high, "turns": 7, "survived": 0.5, "partly": 0.2}
            | {"gpu": 0.4, "cpu": 0.2, "disk": 0.1, "remote": 0.0, "lost": 0.3}
            for low, high in ((0.0, 1.0), (1.0, 2.0), (16384.0, None))
        ],
        "digest": {"events": "e" * 64, "results": "r" * 64},
        "wall": {"cpu_s": 0.1, "peak_rss_bytes": 1 << 27},
    }


def series_columns(end_ns, machines=2, samples=300, capacity=1000):
    """Return samples over time of occupancy, queue, counters and two channels."""
    rows = []
    for index, time in enumerate(np.linspace(0, end_ns, samples).astype(int)):
        fill = index / samples
        for machine in range(machines):
            for tier in ("gpu", "cpu", "disk"):
                held, cached = int(capacity * 0.1), int(capacity * 0.8 * fill)
                values = {
                    "held": held,
                    "cached": cached,
                    "in_flight": 5,
                    "free": capacity - held - cached - 5,
                }
                rows += [(time, machine, f"{tier}.{state}", value) for state, value in values.items()]
            rows += [(time, machine, "queue", index % 7), (time, machine, "running", 10 + index % 3)]
            rows += [
                (time, machine, "input_tokens", index * 1000),
                (time, machine, "cached_tokens", index * 400),
            ]
        for channel in ("pcie-0-up", "pcie-0-down"):
            busy = int(time * 0.4)
            values = {"busy_ns": busy, "queued_ns": busy // 3, "bytes": busy * 25}
            rows += [(time, -1, f"channel.{channel}.{name}", value) for name, value in values.items()]
    times, machine, names, values = zip(*rows, strict=True)
    return {
        "time_ns": np.array(times, np.int64),
        "machine": np.array(machine, np.int16),
        "name": list(names),
        "value": np.array(values, np.int64),
    }


def _step_lengths(columns):
    """Return a step for each prefill that ends before the next one of its machine begins."""
    starts = columns["first_token_ns"] - columns["prefill_ns"] - columns["first_decode_ns"]
    lengths = columns["prefill_ns"].copy()
    for machine in np.unique(columns["machine"]):
        own = np.flatnonzero(columns["machine"] == machine)
        own = own[np.argsort(starts[own], kind="stable")]
        lengths[own[:-1]] = np.minimum(lengths[own[:-1]], np.diff(starts[own]))
    return lengths.tolist()


def event_columns(columns, full=True):
    """Return the events of request columns; ``full`` adds steps, transfers and evictions."""
    rows = []
    step_ns = _step_lengths(columns)
    for i in range(len(columns["request"])):
        row = {name: int(values[i]) for name, values in columns.items()}
        prefill = row["first_token_ns"] - row["prefill_ns"] - row["first_decode_ns"]
        outcome = OUTCOMES[row["outcome"]]
        cached, left = row["cached_prefix_length_used"], row["num_tokens_actually_prefilled"]
        who = (row["machine"], row["request"])
        rows.append(
            (prefill - row["fetch_ns"], 0, who[0], "prefix_cache_event", who[1], outcome, cached, 0, left)
        )
        rows.append((prefill, 0, who[0], "prefill_start", who[1], "", left, 0, 0))
        if not full:
            continue
        rows.append((row["arrival_ns"], 0, who[0], "arrive", who[1], "", 0, 0, 0))
        rows.append((prefill - row["fetch_ns"], 0, who[0], "admit", who[1], "", 0, 0, 0))
        rows.append((row["first_token_ns"], 0, who[0], "first_token", who[1], "", 0, 0, 0))
        rows.append((row["finish_ns"], 0, who[0], "finish", who[1], "", 0, 0, 0))
        rows.append((prefill, step_ns[i], who[0], "step", -1, "", left, 3, 0))
        if row["fetch_cpu_ns"]:
            moved = row["cached_cpu_tokens"] // 512
            edge = f"cpu->gpu pcie-{who[0]}-up"
            rows.append(
                (
                    prefill - row["fetch_cpu_ns"],
                    row["fetch_cpu_ns"],
                    who[0],
                    "transfer",
                    who[1],
                    edge,
                    0,
                    moved,
                    0,
                )
            )
        if i % 10 == 0:
            rows.append((prefill, 0, who[0], "evict", -1, "gpu", 0, 4, 0))
    rows.sort(key=lambda r: (r[0], r[2], r[4], r[3]))
    values = list(zip(*rows, strict=True))
    return {
        name: list(v) if column.dtype == "str" else np.array(v, np.dtype(column.dtype))
        for (name, column), v in zip(EVENT_COLUMNS.items(), values, strict=True)
    }


SCENARIO = """name: made-up
tiers:
  gpu: {capacity: 16384 blocks}
  cpu: {capacity: 512GiB}
cluster: {machines: 2}
"""


def write_run(directory, columns, *, scenario=SCENARIO, full_events=True, warnings=()):
    """Write a run directory made of request columns and return its path."""
    directory = Path(directory)
    tables = {
        "requests": (columns, REQUEST_COLUMNS),
        "series": (series_columns(int(columns["finish_ns"].max())), SERIES_COLUMNS),
        "events": (event_columns(columns, full_events), EVENT_COLUMNS),
    }
    digest = hashlib.sha256(b"".join(columns[name].tobytes() for name in sorted(columns))).hexdigest()
    manifest = {
        "kvsim_version": "0.1.0",
        "argv": ["kvsim", "simulate", "-c", "made-up.yaml"],
        "seed": 0,
        "trace": {"path": "made-up.jsonl", "sha256": "0" * 64, "requests": len(columns["request"])},
        "digest": {"events": "e" * 64, "results": digest},
        "warnings": list(warnings),
    }
    with open_run_directory(directory, False) as run:
        for table, (values, contract) in tables.items():
            coded = {n: _coded(v) if contract[n].dtype == "str" else v for n, v in values.items()}
            write_table(run.part / f"{table}.parquet", coded, contract)
        run.write("scenario.yaml", scenario)
        run.write_json("summary.json", summary_of(columns))
        run.write_json("run.json", manifest)
        run.commit()
    return directory


def _coded(texts):
    words = sorted(set(texts))
    index = {word: code for code, word in enumerate(words)}
    return CodedText(np.array([index[text] for text in texts], np.int32), tuple(words))


def made_up_run(directory, count=400, **options):
    """Write a whole made-up run; ``seed`` and ``slower`` go to its requests, the rest to ``write_run``."""
    shape = {name: options.pop(name) for name in ("seed", "slower", "machines") if name in options}
    return write_run(directory, request_columns(count, **shape), **options)
