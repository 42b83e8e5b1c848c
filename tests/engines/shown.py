"""Pages that requests have shown to a cache: bounds of a look-up's hit under any eviction."""

from collections.abc import Callable
from itertools import takewhile

from kvcache_sim.workload.key_arrays import KeyArrays

#: Names a request's block.
Namer = Callable[[int, int], object]


def namer(keyed: KeyArrays) -> Namer:
    """Return the names of the blocks of ``_core.Keys`` made of the same: an id and a position, or the
    request's own."""
    per_id = keyed[2]
    offsets, ids, full, following = (keyed[column].tolist() for column in (0, 1, 3, 4))

    def name(request: int, block: int) -> object:
        for source in (request, following[request]):
            if source < len(full) and block < full[source]:
                return ids[offsets[source] + block // per_id], block % per_id
        return "own", request, block

    return name


class Shown:
    """Pages by name. Only shown pages can be found; pages of a running request are always found."""

    def __init__(self, name: Namer) -> None:
        self.name = name
        self.pages = set[object]()
        #: Leading pages that each running request has found, loaded or computed.
        self.has: dict[int, int] = {}

    def names(self, request: int, pages: int) -> list[object]:
        """Return the names of a request's first pages."""
        return [self.name(request, page) for page in range(pages)]

    def show(self, request: int, pages: int) -> None:
        """Note that a running request has its first pages, and that a later one may find them."""
        self.has[request] = max(pages, self.has.get(request, 0))
        self.pages.update(self.names(request, pages))

    def leave(self, request: int) -> None:
        """End a request."""
        del self.has[request]

    def most(self, request: int, limit: int) -> int:
        """Return how many leading pages were ever shown: a cache that lost none finds them all."""
        return sum(1 for _ in takewhile(self.pages.__contains__, self.names(request, limit)))

    def least(self, request: int, limit: int) -> int:
        """Return how many leading pages some running request has."""
        asked = self.names(request, limit)
        held = [self.names(other, pages) for other, pages in self.has.items()]
        equal = [
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(asked, own, strict=False)))
            for own in held
        ]
        return max(equal, default=0)
