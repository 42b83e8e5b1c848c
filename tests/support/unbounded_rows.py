"""Hits of a trace's rows in an unbounded cache, one request after another, in whole blocks of their prompts."""


def unbounded_hits(rows: list[dict], block: int) -> list[int]:
    """Return the cached tokens of each row; answers fill nothing."""
    known: set[int] = set()
    hits = []
    for row in rows:
        ids = row.get("hash_ids", [])[: row["input_length"] // block]
        first_new = next((at for at, id in enumerate(ids) if id not in known), len(ids))
        hits.append(first_new * block)
        known.update(ids)
    return hits
