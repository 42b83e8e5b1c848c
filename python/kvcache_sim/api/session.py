"""Agents' sessions on a provider's prompt cache, in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.api.calls import public
from kvcache_sim.api.html import html_page, html_table
from kvcache_sim.extras.session.as_json import as_json
from kvcache_sim.extras.session.asked import Asked
from kvcache_sim.extras.session.screen import models_table, screen, what_if_table
from kvcache_sim.extras.session.what_if import Edit, WhatIf
from kvcache_sim.model.prices import PICODOLLARS


class Session:
    """The calls of agents' logs, what they cost, and why calls read less.

    ``print`` shows the screen of ``kvsim session``.

    Attributes:
        dollars: The bill of the logs' own counts; models without a price are left out.
        figures: Counts, causes and calls as plain values, as ``kvsim session --format json`` prints them.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    @property
    def dollars(self) -> float:
        """Return the bill of the logs' own counts; models without a price are left out."""
        return self._asked.bill.picodollars / PICODOLLARS

    @property
    def figures(self) -> dict[str, Any]:
        """Return counts, causes and calls as plain values, as ``kvsim session --format json`` prints them."""
        return as_json(self._asked.bill)

    @public
    def what_if(
        self,
        *,
        ttl: str = "",
        sort_tools: bool = False,
        freeze: str = "",
        compact_at: str = "",
        drop_results_older: int | None = None,
        mark: str = "",
        provider: str = "",
        best: bool = False,
    ) -> WhatIfs:
        """Return the bills of edited sessions, one an argument that is given.

        Args:
            ttl: Lifetime of all writes: ``"1h"``.
            sort_tools: True: tools in one order.
            freeze: ``"system"``: the session's first system text throughout.
            compact_at: Longest prompt: ``"120k"``, or ``"60%"`` of the context window.
            drop_results_older: All but so many results of tools are replaced.
            mark: ``"second-last"``: one more breakpoint, where the call before ended.
            provider: Another one and its model: ``"openai:gpt-5.2"``.
            best: True: the sensible edits are tried, and the cheapest three added.

        Returns:
            The bills.

        Raises:
            UsageError: A value that an edit does not take.
        """
        results = None if drop_results_older is None else str(drop_results_older)
        values = {"ttl": ttl, "freeze": freeze, "compact-at": compact_at, "mark": mark, "provider": provider}
        edits = [
            Edit(name, value) for name, value in {**values, "drop-results-older": results}.items() if value
        ]
        return WhatIfs(self._asked.what_if([*([Edit("sort-tools")] if sort_tools else []), *edits], best))

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a call: its counts, their prediction and the cause."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.figures["calls"])

    def to_pandas(self) -> Any:
        """Return a pandas data frame of a row a call; needs pandas."""
        return self.to_arrow().to_pandas()

    def __len__(self) -> int:
        """Return the number of calls."""
        return len(self._asked.bill.calls)

    def __str__(self) -> str:
        """Return the screen of the verb."""
        return screen(self._asked.bill)

    def __repr__(self) -> str:
        return f"<Session of {len(self)} calls, ${self.dollars:,.4f}>"

    def _repr_html_(self) -> str:
        return html_page(repr(self)[1:-1], html_table(models_table(self._asked.bill)))


class WhatIfs:
    """Bills of edited sessions."""

    def __init__(self, found: Sequence[WhatIf]) -> None:
        self._found = list(found)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row an edit: flag, dollars, difference from the prediction without it, assumptions."""
        return [
            {
                "what_if": each.edit.flag,
                "dollars": None if each.picodollars is None else each.picodollars / PICODOLLARS,
                "difference": each.difference,
                "given": "; ".join(each.given),
                "refused": each.refused,
            }
            for each in self._found
        ]

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row an edit."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows)

    def to_pandas(self) -> Any:
        """Return a pandas data frame of a row an edit; needs pandas."""
        return self.to_arrow().to_pandas()

    def __len__(self) -> int:
        """Return the number of edits."""
        return len(self._found)

    def __repr__(self) -> str:
        return f"<WhatIfs of {len(self)} edits>"

    def _repr_html_(self) -> str:
        return html_page(repr(self)[1:-1], html_table(what_if_table(self._found)) if self._found else "")


@public
def session(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, price: Sequence[str] = ()
) -> Session:
    """Read agents' logs: what they read, write and cost at a provider, and why calls read less.

    Args:
        paths: A log, a folder of logs, or several: of Claude Code, Codex, TraceLab.
        price: Files of prices, for models that have none.

    Returns:
        The calls, with the prediction of each.

    Raises:
        UsageError: No such file.
        TraceError: A log is broken, or of another kind.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    return Session(Asked([os.fspath(path) for path in listed], [Path(each) for each in price]))
