"""Logs of agents' sessions, written call by call, and the traces that they become."""

import json

from kvcache_sim.cli.main import run

DAY = "2026-03-02T09:"


class Claude:
    """Writes lines of a Claude Code session; a call every second."""

    def __init__(self, session="s", **members):
        self.lines, self.last, self.clock = [], None, 0
        self.members = {"isSidechain": False, "sessionId": session, **members}

    def line(self, kind, **members):
        self.clock += 1
        stamp = f"{DAY}{self.clock // 60:02}:{self.clock % 60:02}.000Z"
        uuid = f"{self.members['sessionId']}{len(self.lines)}"
        row = {"parentUuid": self.last, **self.members, "type": kind, "uuid": uuid, "timestamp": stamp}
        self.last = uuid
        self.lines.append({**row, **members})
        return self

    def user(self, size, **members):
        return self.line("user", message={"role": "user", "content": "x" * size}, **members)

    def answer(self, name, tail, read, written, size=4, output=1, **message):
        counts = {
            "input_tokens": tail,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }
        said = {"id": name, "model": "m", "content": [{"type": "text", "text": "y" * size}], **message}
        return self.line("assistant", message={**said, "usage": {**counts, "output_tokens": output}})

    def compact(self):
        return self.line("system", subtype="compact_boundary", parentUuid=None)

    def write(self, path):
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def imported(capsys, *paths, rc=0):
    """Return the rows of a trace of these logs, and what was said on stderr, in one line."""
    assert run(["trace", "import", *map(str, paths)]) == rc
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], " ".join(err.split())


def hits(rows):
    """Return the tokens that an unbounded cache of prompts finds for each row."""
    known, found = set(), []
    for row in rows:
        ids = row.get("hash_ids", [])[: row["input_length"] // 16]
        found.append(16 * next((k for k, id in enumerate(ids) if id not in known), len(ids)))
        known.update(ids)
    return found
