"""Rules of routing that the core decides by without asking Python."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim import _core
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.router.look import FleetLook


class CoreRule(NamedTuple):
    """A rule of the core's own."""

    name: str
    number: float
    #: The machines that it chooses among.
    fleet: _core.Fleet


def seen_by_core(view: RouterView, name: str, number: float = 0.0) -> CoreRule | None:
    """Return a rule over the machines of a view; None where the core does not see what the view shows."""
    look = view.look
    if view.scraped is not None or not isinstance(look, FleetLook):
        return None
    return CoreRule(name, number, look.fleet)


def rule_in_core(router: Router) -> CoreRule | None:
    """Return the rule that decides as a router does, None where there is none.

    A router says so by a method ``in_core`` of its own class: a plug-in that inherits one decides by itself.
    """
    told = vars(type(router)).get("in_core")
    return None if told is None else told(router)
