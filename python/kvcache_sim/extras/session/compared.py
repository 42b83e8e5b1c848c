"""Two logs, or two folders of request bodies, replayed and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.session.bill import Bill, bill_of
from kvcache_sim.extras.session.bodies import Body, read_bodies
from kvcache_sim.extras.session.breaks import costliest
from kvcache_sim.extras.session.calls import Predicted
from kvcache_sim.extras.session.gate import Difference, calls_of, difference, first_difference, is_earlier
from kvcache_sim.extras.session.load import load_calls
from kvcache_sim.extras.session.predict import predict
from kvcache_sim.model.prices import PriceTable, price_table


def compared(new: str, main: str, prices: Sequence[Path]) -> Difference:
    """Return the difference of a new log or folder of request bodies from main's; raises UsageError."""
    table = price_table(prices)
    kinds = [_is_bodies(Path(path)) for path in (new, main)]
    if kinds[0] != kinds[1]:
        hint = "give two logs, or two folders of request bodies"
        raise UsageError("a log against a folder of request bodies", where="--against", got=main, hint=hint)
    if kinds[0]:
        sides = read_bodies(Path(new)), read_bodies(Path(main))
        bills = [_replayed(side, sides[1], table) for side in sides]
        found = difference(bills[0], bills[1])
        for name, bodies in sides[0].items():
            first, call = first_difference(bodies, sides[1].get(name, next(iter(sides[1].values()))))
            if first:
                return difference(bills[0], bills[1], first, call)
        return found
    loaded = [load_calls([path]) for path in (new, main)]
    bills = [bill_of(each.calls, predict(each.calls, table), table) for each in loaded]
    for each in costliest(bills[0], 1):
        return difference(
            bills[0], bills[1], f"{each.predicted.cause} {each.predicted.differs}".strip(), each.call.id
        )
    return difference(bills[0], bills[1])


def _is_bodies(path: Path) -> bool:
    return path.is_dir() and any(path.rglob("*.json")) and not any(path.rglob("*.jsonl"))


def _replayed(
    side: Mapping[str, Sequence[Body]], main: Mapping[str, Sequence[Body]], table: PriceTable
) -> Bill:
    """Return the bill of bodies; where main's have breakpoints, one without any caches nothing."""
    calls = calls_of(side, main)
    has_marks = any(body.marks for bodies in main.values() for body in bodies)
    found = []
    for call, each in zip(calls, predict(calls, table), strict=True):
        if has_marks and not call.marks:
            prompt = each.read + each.written + each.uncached
            each = Predicted(each.id, 0, prompt, 0, 0, each.cause)
        found += [] if is_earlier(call) else [(call, each)]
    return bill_of([call for call, _ in found], [each for _, each in found], table)
