"""What SGLang's scheduler asks of its radix tree, in tokens and by request."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.store import GpuStore


class PagedTree(GpuStore, Protocol):
    """A store that is SGLang's tree; StoreError for what a request does not have."""

    @property
    def free_tokens(self) -> int:
        """Tokens neither in the tree nor a request's own."""
        ...

    @property
    def spare_tokens(self) -> int:
        """Tokens that are free or may be evicted."""
        ...

    @property
    def evicts_least_recent(self) -> bool:
        """Whether leaves are evicted by their last access alone."""
        ...

    def find(self, request: int, tokens: int) -> int:
        """Return how many of a request's first tokens are in the tree; their path becomes most recent."""
        ...

    def key(self, request: int, page: int) -> int:
        """Return what names a page of a request and all before it."""
        ...

    def spare_tokens_beside(self, request: int, tokens: int) -> int:
        """Return the spare tokens once so many found tokens of a request are held."""
        ...

    def evict_until_free(self, tokens: int, now_ns: int) -> None:
        """Evict until so many tokens are free, as far as that goes."""
        ...

    def hold(self, request: int, tokens: int) -> None:
        """Admit a request with so many tokens that it found."""
        ...

    def grow(self, request: int, tokens: int) -> None:
        """Take free pages for an admitted request, up to its first tokens."""
        ...

    def check_in(self, request: int, tokens: int) -> None:
        """Put an admitted request's first tokens into the tree, whole pages of them."""
        ...

    def finish(self, request: int, tokens: int) -> None:
        """End a request: its first tokens go into the tree, all other room is given back."""
        ...

    def retract(self, request: int) -> None:
        """End a request without keeping more of it than was checked in."""
        ...

    def depth_first(self, found: list[tuple[int, int]]) -> list[int]:
        """Return the positions of (request, tokens found) depth first, the heaviest subtree first."""
        ...
