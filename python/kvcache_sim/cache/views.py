"""What one machine knows of sessions and of shared prefixes (seed 000, 3.1 and 3.2), made together."""

from __future__ import annotations

from kvcache_sim.cache.prefix_view import PrefixAdmission
from kvcache_sim.cache.session_view import SessionView
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class Views:
    """The session view of one machine and its gate of shared prefixes, both empty at first."""

    sessions: SessionView
    prefixes: PrefixAdmission


def make_views(cache: CacheSettings) -> Views:
    """Return the empty views of one machine."""
    prefixes = PrefixAdmission(cache.prefix_view, cache.block_size_tokens)
    return Views(SessionView(cache.session_view), prefixes)
