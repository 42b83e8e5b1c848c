"""Sessions of logs with their bill, and the bills of edited ones: what the verb and Python ask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from kvcache_sim.extras.session.bill import Bill, bill_of
from kvcache_sim.extras.session.load import Loaded, load_calls
from kvcache_sim.extras.session.predict import predict
from kvcache_sim.extras.session.what_if import Edit, Sessions, WhatIf
from kvcache_sim.model.prices import PriceTable, packaged, price_table


class Asked:
    """The calls of logs under the packaged prices; those of ``prices`` (files) are for other models."""

    def __init__(self, paths: Sequence[str], prices: Sequence[Path] = (), skips: bool = False) -> None:
        mine = price_table(prices).tables[len(packaged()) :]
        self._table = PriceTable([*mine, *packaged()])
        self._prices = prices
        self._loaded: Loaded = load_calls(paths, skips)

    @cached_property
    def bill(self) -> Bill:
        """The bill of the logs."""
        calls = self._loaded.calls
        return bill_of(calls, predict(calls, self._table), self._table, self._loaded.said)

    @cached_property
    def _sessions(self) -> Sessions:
        return Sessions(self._loaded.calls, self._table)

    def what_if(self, edits: Sequence[Edit], best: bool = False) -> list[WhatIf]:
        """Return the bills of edited sessions: each edit, each file of prices, and the cheapest three."""
        files = [Edit("price", str(path)) for path in self._prices]
        found = [self._sessions.what_if(each) for each in (*edits, *files)]
        flags = {each.edit.flag for each in found}
        return found + (
            [each for each in self._sessions.best() if each.edit.flag not in flags] if best else []
        )
