"""Small traces that settings are tried on."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.word_tokenizer import write_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Return a folder of small traces: prompts that follow each other, with what some settings need."""
    index = tmp_path_factory.mktemp("traces")
    draw = np.random.default_rng(4)
    rows, teams, priorities, fresh = [], [], [], 1000
    for n in range(60):
        base = rows[int(draw.integers(len(rows)))]["hash_ids"] if rows else []
        ids = [0, *base[1 : int(draw.integers(1, len(base) + 2))], *range(fresh, fresh + 3)]
        fresh += 3
        rows.append({"timestamp": 200 * n, **of_ids(ids), "output_length": 20})
    write(index / "plain.jsonl", rows)
    small = [{**row, "input_length": 128 * len(row["hash_ids"])} for row in rows]
    write(index / "small-ids.jsonl", small)
    fifth = [rows[n % 5]["hash_ids"] for n in range(len(rows))]
    write(
        index / "whole-blocks.jsonl", [{**row, **of_ids(ids)} for row, ids in zip(rows, fifth, strict=True)]
    )
    write(index / "unsorted.jsonl", rows[::-1])
    lines = [f"2023-11-16 00:{k // 10:02}:{6 * (k % 10):02}.0,{60 + 37 * k % 900},9\n" for k in range(150)]
    (index / "lengths.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    write(index / "tenants.jsonl", [{**row, "tenant": n % 5} for n, row in enumerate(rows)])
    hints = ["close", "demote", 0.5, None]
    for n, row in enumerate(rows):
        of_team = {
            "timestamp": 9 * n,
            "tenant": n % 5,
            "team": n % 2,
            "served": "ab"[n % 2],
            "half": "ab"[n // 45],
        }
        teams.append({**row, **of_team, "retention": hints[n % 4], "tool": "bash"})
        priorities.append({**row, "timestamp": n, "priority": -n, "output_length": 9 + n % 7})
    write(index / "teams.jsonl", teams)
    write(index / "priorities.jsonl", priorities)
    later = [{"session_id": f"s{n % 9}", **({} if n < 9 else {"delay": 50})} for n in range(36)]
    sessions = [
        {**row, **more, **of_ids([5000 + n])} for n, (row, more) in enumerate(zip(rows, later, strict=False))
    ]
    for row in sessions[9:]:
        del row["timestamp"]
    write(index / "sessions.jsonl", sessions)
    write(index / "bad-row.jsonl", [*rows[:-1], {**rows[-1], "input_length": -5}])
    agents = [
        {"session_id": f"s{n // 5}", "delay": 3000, **of_ids([n // 5 * 100 + k for k in range(n % 5 + 1)])}
        for n in range(20)
    ]
    for row in agents[::5]:
        row["timestamp"] = row.pop("delay")
    write(index / "agents.jsonl", [{**row, "output_length": 5} for row in agents])
    forks = [
        {"request_id": f"r{n}", "session_id": f"s{n}", "output_length": 5, **of_ids([n])}
        | ({"wait_for": ["r0"], "delay": n} if n else {"timestamp": 0})
        for n in range(9)
    ]
    write(index / "forks.jsonl", forks)
    said = [{"from": who, "value": f"{who} {n} " * 90} for n in range(4) for who in ("human", "gpt")]
    texts = [{"conversations": said} for _ in range(9)]
    (index / "texts.json").write_text(json.dumps(texts))
    write_tokenizer(index / "tokenizer.json", ["human", "gpt"])
    return index


def of_ids(ids: list[int]) -> dict:
    """Return the members of a row of whole blocks of 512 tokens."""
    return {"input_length": 512 * len(ids), "hash_ids": ids}


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def filled(assignments: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    return tuple(one.replace("{folder}", str(folder)) for one in assignments)
