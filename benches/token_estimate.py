"""Error of 4 bytes per token against real tokenizers, by kind of text: ``python benches/token_estimate.py``.

Needs the packages ``bpe-openai`` (its wheel has the vocabularies, nothing is fetched) and ``django``. The
texts are the language reference of Python (English), its standard library (code), rows of JSON, and the
messages of Django's interface in four languages, which are short sentences.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

ENCODINGS = ("cl100k_base", "o200k_base")
LANGUAGES = {"German": "de", "Russian": "ru", "Chinese": "zh_Hans", "Japanese": "ja"}
#: The readers' default.
BYTES_A_TOKEN = 4


def english() -> str:
    """Return the language reference of Python, as ``help()`` has it."""
    from pydoc_data.topics import topics

    return "\n".join(topics.values())


def code() -> str:
    """Return modules of the standard library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("[a-h]*.py")))


def numbers() -> str:
    """Return JSON with numbers, in rows like those of a trace or a tool's answer."""
    import json

    rows = [
        {"timestamp": 37 * n, "input_length": 512 + 7919 * n % 30_000, "hash_ids": [n, n + 1]}
        for n in range(5_000)
    ]
    return "\n".join(map(json.dumps, rows))


def messages(language: str) -> str:
    """Return Django's messages in a language."""
    import gettext

    import django

    texts = []
    for path in sorted(Path(django.__file__).parent.glob(f"**/locale/{language}/LC_MESSAGES/django.mo")):
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog
        texts += [text for key, text in catalogue.items() if key]
    return "\n".join(texts)


def pieces(text: str) -> list[str]:
    """Return a text in pieces of whole lines, about 100,000 characters each, which are encoded one at a
    time.
    """
    lines, found = text.splitlines(keepends=True), [""]
    for line in lines:
        if len(found[-1]) > 100_000:
            found.append("")
        found[-1] += line
    return found


def main() -> None:
    """Print bytes per token and the error of the estimate, a row per text and tokenizer."""
    import bpe_openai

    print(f"{'text':<9}{'bytes':>10}  {'tokenizer':<12}{'tokens':>9}{'bytes/token':>13}{'error':>8}")
    texts = {"English": english(), "code": code(), "JSON": numbers()}
    texts |= {name: messages(locale) for name, locale in LANGUAGES.items()}
    for name, text in texts.items():
        size = len(text.encode())
        for encoding in ENCODINGS:
            own = bpe_openai.get_encoding(encoding)
            tokens = sum(len(own.encode(piece)) for piece in pieces(text))
            error = size / BYTES_A_TOKEN / tokens - 1
            print(f"{name:<9}{size:>10,}  {encoding:<12}{tokens:>9,}{size / tokens:>13.2f}{error:>+8.1%}")


if __name__ == "__main__":
    sys.exit(main())
