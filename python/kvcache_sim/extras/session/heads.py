"""Tools and system that no log has: which conversations share them, as far as counts show it.

Conversations of one workspace are taken to share them if their logs name the same folder, or if one reads
exactly what another left; sub-agents share theirs. A first call that reads nothing of a prefix that is kept
has others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache_sim.extras.session.calls import Call, Conversation


class Head(NamedTuple):
    """Tools and system of some conversations: their tokens (None: not known), and whether they are kept now.

    ``is_exact``: a call has read them alone.
    """

    name: str
    tokens: int | None
    is_exact: bool
    is_kept: bool


@dataclass(slots=True)
class Heads:
    """The name of each conversation's tools and system; ``_folders`` has where each was first.

    ``is_shared``: a call has read what another folder's conversation left.
    """

    of_chain: dict[str, str] = field(default_factory=dict)
    is_shared: bool = False
    _folders: dict[str, str] = field(default_factory=dict)

    def names(self, whose: Conversation) -> list[str]:
        """Return the names that a conversation may share, the first ones first."""
        kind = _kind(whose)
        return [name for name in self._folders if name.startswith(kind)]

    def choose(self, call: Call, heads: Sequence[Head], total: int, messages: int) -> None:
        """Take a first call to share the head that fits: one that is kept, else one of its folder.

        Args:
            call: The call.
            heads: Those that it may share.
            total: The tokens of its prompt.
            messages: The tokens of its messages, by their bytes.
        """
        whose, fitting = call.conversation, list[tuple[bool, int, str]]()
        for head in heads:
            apart = 0 if head.tokens is None else abs(total - messages - head.tokens)
            near = head.tokens is None or apart <= messages // 2 + head.tokens // 4
            is_possible = head.tokens is None or head.tokens <= total
            is_of = self._folders[head.name] == whose.folder or (head.is_kept and self.is_shared)
            if is_possible and is_of and (head.is_kept or near):
                fitting.append((not head.is_kept, apart, head.name))
        if fitting:
            self.of_chain[whose.chain] = min(fitting)[2]
        else:
            self.of_chain[whose.chain] = self.begin(whose)

    def begin(self, whose: Conversation) -> str:
        """Return a name for tools and system that a conversation has first."""
        name = f"{_kind(whose)}{len(self._folders)}"
        self._folders[name] = whose.folder
        return name

    def correct(self, call: Call, heads: Sequence[Head], read: int) -> bool:
        """Correct the choice by what a first call read; return whether another was made."""
        chain = call.conversation.chain
        mine = next((head for head in heads if head.name == self.of_chain[chain]), None)
        if mine is None or (mine.is_exact and mine.tokens == read):
            return False
        same = [head.name for head in heads if head.is_exact and head.tokens == read]
        if read and not mine.is_exact:
            same += [head.name for head in heads if head.is_kept and _is_near(head, read)]
        if same:
            self.is_shared |= self._folders[same[0]] != call.conversation.folder
            self.of_chain[chain] = same[0]
        elif (read == 0 and mine.is_kept) or (read and mine.is_exact):
            self.of_chain[chain] = self.begin(call.conversation)
        else:
            return False
        return True


def _is_near(head: Head, tokens: int) -> bool:
    """Return True if a length that is only estimated may be this one."""
    return not head.is_exact and head.tokens is not None and abs(head.tokens - tokens) <= head.tokens // 4


def _kind(whose: Conversation) -> str:
    return f"{whose.workspace} {'side' if whose.is_side else 'main'} "
