"""The default rendering of a chat of texts, written out."""


def chatml(*said: tuple[str, str]) -> str:
    """Return the prompt of (role, text) messages."""
    return (
        "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in said) + "<|im_start|>assistant\n"
    )
