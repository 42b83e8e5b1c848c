"""``kvsim completion``: shell completion of verbs and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from kvcache_sim.cli import VERBS
from kvcache_sim.cli.commands import commands
from kvcache_sim.cli.declared import Argument
from kvcache_sim.cli.verb import verb_app

app = verb_app()

#: Function that bash runs at each completion: the words of the verb or subcommand, and files.
_BASH = """_kvsim() {{
  local line="${{COMP_WORDS[1]}}" cur="${{COMP_WORDS[COMP_CWORD]}}" words
  [ "$COMP_CWORD" -gt 2 ] && case "${{COMP_WORDS[2]}}" in [a-z]*) line="$line ${{COMP_WORDS[2]}}";; esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{verbs}"; else
    case "$line" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ "$COMP_CWORD" -gt 1 ] && case "$cur" in -*) ;; *) COMPREPLY+=($(compgen -f -- "$cur"));; esac
}}
complete -o filenames -F _kvsim kvsim
"""


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(help="which shell")],
) -> None:
    """Print a shell's completion of verbs and options.

    \b
    Examples:
      eval "$(kvsim completion bash)"                                # in ~/.bashrc
      kvsim completion zsh > ~/.kvsim.zsh; source ~/.kvsim.zsh       # in ~/.zshrc
      kvsim completion fish > ~/.config/fish/completions/kvsim.fish
    """
    lines = dict(_lines())
    if shell == "fish":
        typer.echo("\n".join(_fish(lines)))
        return
    by_line = [f'      "{line}"*) words="{" ".join(words)}";;' for line, words in lines.items()]
    cases = "\n".join(sorted(by_line, key=lambda case: -case.index("*)")))  # subcommands before their verb
    head = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    typer.echo(head + _BASH.format(verbs=" ".join(VERBS), cases=cases), nl=False)


def _lines() -> Iterator[tuple[str, list[str]]]:
    """Yield each verb, and each verb with a subcommand, with the words that may follow it."""
    for name, command in commands():
        inner = command.list_commands(None) if hasattr(command, "list_commands") else []
        yield name, [*inner, *_options(command)]


def _options(command: Any) -> list[str]:
    offered = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    named = [option for parameter in offered for option in parameter.opts if option.startswith("--")]
    return [*named, "--help"]


def _fish(lines: dict[str, list[str]]) -> Iterator[str]:
    for verb, (_, meaning) in VERBS.items():
        yield f'complete -c kvsim -n __fish_use_subcommand -a {verb} -d "{meaning}"'
    for line, words in lines.items():
        seen = " ".join(line.split()[-1:])
        for word in words:
            given = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f'complete -c kvsim -n "__fish_seen_subcommand_from {seen}" {given}'
