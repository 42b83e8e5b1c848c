"""One request, event by event, and the parts of TTFT that made it slower than others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.units import format_time_ns
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.report.finished import FinishedRun, number_column, text_column
from kvcache_sim.report.pictures.waterfall import PARTS


class Moment(NamedTuple):
    """An event of a request: its time (ns since arrival) and its description."""

    since_arrival_ns: int
    text: str


def explanation(run: FinishedRun, request: int) -> tuple[list[Moment], list[str]]:
    """Return a request's events in order, and sentences on the parts of its TTFT.

    Raises ``UsageError`` for a request the run does not have.
    """
    count = len(run.requests["request"])
    if not 0 <= request < count:
        raise UsageError("no such request", where="--request", got=str(request), expected=f"0 to {count - 1}")
    row = {name: int(values[request]) for name, values in run.requests.items()}
    arrival = row["arrival_ns"]
    moments = [
        Moment(0, f"arrives: {row['input_tokens']:,} prompt tokens, {row['output_tokens']:,} to generate")
    ]
    if row["status"] != 0:
        return [*moments, Moment(0, _rejection(run, row))], []
    moments += [Moment(time - arrival, text) for time, text in _events(run, request)]
    texts = {moment.text for moment in moments}
    ends = {"first token": row["first_token_ns"], "last token": row["finish_ns"]}
    moments += [Moment(time - arrival, text) for text, time in ends.items() if text not in texts]
    return sorted(moments, key=lambda moment: moment.since_arrival_ns), _reasons(run, row)


def _rejection(run: FinishedRun, row: dict[str, int]) -> str:
    if row["status"] == STATUSES.index("turned_away"):
        return "is turned away: the queue is full"
    window_tokens = run.scenario.get("replica", {}).get("max_model_len")
    tokens = row["input_tokens"]
    if window_tokens is not None and tokens >= window_tokens:
        return (
            f"is rejected: {tokens:,} prompt tokens fill replica.max_model_len ({window_tokens:,}) and leave "
            "none for an answer"
        )
    return f"is rejected: it needs more blocks than a {TIERS[COMPUTE]} has"


def _events(run: FinishedRun, request: int) -> list[tuple[int, str]]:
    events = run.events
    kinds, details = text_column(events["kind"]), text_column(events["detail"])
    texts = []
    for index in np.flatnonzero(number_column(events["request"]) == request).tolist():
        kind, detail = kinds.words[kinds.codes[index]], details.words[details.codes[index]]
        numbers = {
            n: int(number_column(events[n])[index]) for n in ("time_ns", "duration_ns", "tokens", "blocks")
        }
        length_ns = numbers["duration_ns"]
        machine = int(number_column(events["machine"])[index])
        text = {
            "admit": f"is admitted on machine {machine}",
            "preempt": "is preempted: its blocks are released, to be computed again",
            "prefix_cache_event": f"look-up: {detail}, {numbers['tokens']:,} tokens cached",
            "prefill_start": f"prefill starts: {numbers['tokens']:,} tokens to compute",
            "transfer": f"{numbers['blocks']:,} blocks over {detail}, {format_time_ns(length_ns)}",
            "first_token": "first token",
            "finish": "last token",
        }.get(kind)
        if text is not None:
            texts.append((numbers["time_ns"], text))
    return texts


def _reasons(run: FinishedRun, row: dict[str, int]) -> list[str]:
    rows = run.finished
    ttft = row["first_token_ns"] - row["arrival_ns"]
    all_ttft = rows["first_token_ns"] - rows["arrival_ns"]
    rank = float((all_ttft <= ttft).mean())
    sentences = [
        f"TTFT {format_time_ns(ttft)}: slower than {100 * rank:.1f} % of requests (median "
        f"{format_time_ns(float(np.median(all_ttft)))})."
    ]
    excess = {part: row[column] - float(np.median(rows[column])) for part, column in PARTS.items()}
    worst = max(excess, key=lambda part: excess[part])
    if ttft > np.median(all_ttft) and excess[worst] > 0:
        sentences.append(
            f"Most of the difference is {worst}: {format_time_ns(row[PARTS[worst]])} (median "
            f"{format_time_ns(float(np.median(rows[PARTS[worst]])))})."
        )
    if row["preemptions"]:
        sentences.append(f"It was preempted {row['preemptions']:,} time{'s' * (row['preemptions'] != 1)}.")
    return sentences
