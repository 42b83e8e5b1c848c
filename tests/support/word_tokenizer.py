"""A tokenizer.json of whole words, as a user of the package ``tokenizers`` would have one."""

import json
from pathlib import Path


def write_tokenizer(path: Path, words: list[str]) -> None:
    """Write a tokenizer that splits texts at spaces; an unknown word is one token too."""
    names = ["[UNK]", *words]
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "post_processor": None,
                "decoder": None,
                "model": {
                    "type": "WordLevel",
                    "vocab": {word: n for n, word in enumerate(names)},
                    "unk_token": "[UNK]",
                },
            }
        )
    )
