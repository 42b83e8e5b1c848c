"""The tiers a machine can have: one row each, from fast to slow. To add a tier, add a row.

Everything that depends on the tiers is derived from these rows by ``tiers.py`` and its users: edges and
their channels, keys of scenarios, columns of a run, parts of TTFT, figures of the summary, pictures and
sentences. A program may append a row of its own to ``ROWS`` before it imports anything else of the package.
"""

from __future__ import annotations

from typing import NamedTuple


class Tier(NamedTuple):
    """One tier. KV is written down tier by tier, and loaded back up tier by tier.

    The first row is the GPU's memory. The second row is the landing tier: KV from lower tiers and from other
    machines lands there before it is loaded; other machines read any tier but the first.
    """

    #: A lower-case word: it names keys, edges and columns.
    name: str
    #: Description for help texts.
    meaning: str
    #: Color in charts.
    colour: str
    #: Preset of the channels to and from the tier above, unless a scenario overrides it.
    link: str = ""
    #: Key of the monthly price of a GiB in a scenario's ``cost``.
    price: str = ""
    #: True if the tier wears out by writing: its writes are counted in drive writes per day.
    wears: bool = False
    #: Credit of a block found here in routers that weigh prefill against load; the GPU's credit is 1.
    router_credit: float = 0.25


ROWS: list[Tier] = [
    Tier("gpu", "memory of the GPU", "#1f9e89", router_credit=1.0),
    Tier("cpu", "memory of the host", "#3b82c4", "pcie5-x16", "dram_gib_month", router_credit=0.75),
    Tier("disk", "drives of the machine", "#b5651d", "nvme", "nvme_gib_month", wears=True),
]
