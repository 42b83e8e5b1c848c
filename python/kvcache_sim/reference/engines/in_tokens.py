"""What SGLang's own scheduler asks of its tree, in tokens and by request, in plain Python."""

from __future__ import annotations

from collections import Counter

from kvcache_sim.reference.engines.page_store import PageStore
from kvcache_sim.reference.engines.sglang_replay import Held, TokenRoom
from kvcache_sim.reference.engines.sglang_tree import Node, SglangTree


class TreeInTokens(PageStore):
    """The part of ``ReferenceRadixStore`` that serves ``serving.sglang``; a request has no lease there."""

    prompts: list[int]
    totals: list[int]
    tree: SglangTree
    tokens: TokenRoom
    held: dict[int, Held]

    @property
    def _room(self) -> TokenRoom:
        """The tokens around the tree."""
        return self.tokens

    def _checkpoint(self, request: int, pages: int) -> None:
        """Check a request's first pages into the tree."""
        held = self.held[request]
        held.keys = self._names(request, pages)
        self.tokens.checkpoint(held, pages * self.page)

    def _let_go(self, request: int) -> int:
        """Unlock what a request has in the tree; return how many tokens that was."""
        held = self.held.pop(request)
        self.tree.lock(held.node, -1)
        return held.protected

    @property
    def free_tokens(self) -> int:
        """Tokens neither in the tree nor a request's own."""
        return self.tokens.free

    @property
    def spare_tokens(self) -> int:
        """Tokens that are free or may be evicted."""
        return self.tokens.free + self.tree.evictable_pages() * self.page

    @property
    def evicts_least_recent(self) -> bool:
        """Whether leaves are evicted by their last access alone."""
        return self.tree.policy == "lru"

    def find(self, request: int, tokens: int) -> int:
        """Return how many of a request's first tokens are in the tree; their path becomes most recent."""
        return self.tree.match(self._names(request, tokens // self.page))[1] * self.page

    def key(self, request: int, page: int) -> int:
        """Return what names a page of a request and all before it."""
        return self.keys.key(request, page)

    def _node(self, request: int, tokens: int) -> Node:
        """Return the node at whose end tokens end that were found before."""
        node, walked, names = self.tree.root, 0, self._names(request, tokens // self.page)
        while walked < len(names):
            node = node.children[names[walked]]
            assert node.key == names[walked : walked + len(node.key)]
            walked += len(node.key)
        return node

    def spare_tokens_beside(self, request: int, tokens: int) -> int:
        """Return the spare tokens once so many found tokens of a request are held."""
        path = self._node(request, tokens).path()[:-1]
        return self.spare_tokens - sum(len(node.key) for node in path if not node.locks) * self.page

    def evict_until_free(self, tokens: int, now_ns: int) -> None:
        """Evict until so many tokens are free, as far as that goes."""
        before = len(self.tree.evicted)
        self.tokens.demand(tokens)
        self._note_evicted(len(self.tree.evicted) - before, now_ns)

    def hold(self, request: int, tokens: int) -> None:
        """Admit a request with so many tokens that it found."""
        node = self._node(request, tokens)
        self.tree.lock(node, 1)
        prompt_pages = self.prompts[request] // self.page
        self.held[request] = Held([], prompt_pages, self.totals[request], node, tokens)
        self.taken[request] = self.full[request] = tokens // self.page

    def grow(self, request: int, tokens: int) -> None:
        """Take free pages for an admitted request, up to its first tokens."""
        pages = -(-tokens // self.page)
        self.tokens.free -= (pages - self.taken[request]) * self.page
        assert self.tokens.free >= 0
        self.taken[request] = pages

    def check_in(self, request: int, tokens: int) -> None:
        """Put an admitted request's first tokens into the tree, whole pages of them."""
        self._check_in(request, tokens // self.page)
        self.full[request] = tokens // self.page

    def finish(self, request: int, tokens: int) -> None:
        """End a request: its first tokens go into the tree, all other room is given back."""
        self.check_in(request, tokens)
        self.retract(request)

    def retract(self, request: int) -> None:
        """End a request without keeping more of it than was checked in."""
        held = self.held.pop(request)
        del self.full[request]
        self.tokens.free += self.taken.pop(request) * self.page - held.protected
        self.tree.lock(held.node, -1)

    def depth_first(self, found: list[tuple[int, int]]) -> list[int]:
        """Return the positions of (request, tokens found) depth first, the heaviest subtree first."""
        nodes = [self._node(request, tokens) for request, tokens in found]
        weights = Counter(id(above) for node in nodes for above in node.path())

        def below(node: Node) -> list[int]:
            order = list[int]()
            for child in sorted(node.children.values(), key=lambda child: -weights[id(child)]):
                if weights[id(child)]:
                    order += below(child)
            return order + [at for at, other in enumerate(nodes) if other is node]

        return below(self.tree.root)
