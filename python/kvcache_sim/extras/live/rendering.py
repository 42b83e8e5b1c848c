"""Bodies to tokens: the rendering of ``trace import``, in ``serve`` and ``record``."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.refusals import Refusal
from kvcache_sim.extras.live.tokenizer import Tokenizer
from kvcache_sim.workload.prompts.body import BodyError, Seen
from kvcache_sim.workload.prompts.read import prompt_of
from kvcache_sim.workload.prompts.render import Piece, Said, opaque_tokens, pieces

#: A prompt: token ids, or texts and segments without a text.
Rendered = list[int] | tuple[Piece, ...]


def rendered_body(body: Any, tokenizer: Tokenizer, seen: Seen) -> Rendered:
    """Return the prompt of a body of any API; ``seen`` counts what is not rendered.

    Raises Refusal for a wrong body, or if the model's chat template refuses it.
    """
    try:
        given = prompt_of(body, seen)
        return given if isinstance(given, list) else rendered(given, tokenizer)
    except BodyError as bad:
        raise Refusal(400, f"1 validation errors:\n  {bad.what}, got {bad.got}") from None
    except UsageError as failed:
        raise Refusal(400, str(failed)) from None


def rendered(given: Said, tokenizer: Tokenizer) -> tuple[Piece, ...]:
    """Return the pieces of a chat, an answer or a text."""
    return tuple(pieces(given, tokenizer.renderer.render, is_exact=True))


def least_tokens(given: Rendered, tokenizer: Tokenizer) -> int:
    """Return a lower bound of a prompt's tokens; nothing is tokenized."""
    if isinstance(given, list):
        return len(given)
    return sum(
        piece.segments[0].tokens or 0 if piece.text is None else tokenizer.least_tokens(piece.text)
        for piece in given
    )


def tokens_of(given: Rendered, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a prompt."""
    if isinstance(given, list):
        return given
    found = (
        opaque_tokens(piece.segments[0]) if piece.text is None else tokenizer.encode(piece.text)
        for piece in given
    )
    return [token for tokens in found for token in tokens]
