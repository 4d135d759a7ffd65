"""Shell completion: values of options, and a script for zsh that works at the first Tab.

Nothing is asked over the network, and nothing is imported before Tab is pressed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Completer = Callable[..., list[str]]

ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" %(autocomplete_var)s=complete_zsh %(prog_name)s)
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
else
  compdef %(complete_func)s %(prog_name)s
fi
"""
"""As typer's own, which only defines the function when zsh loads it from a file: the first Tab did nothing."""


def use_our_zsh_script() -> None:
    """For `--show-completion` and `--install-completion`."""
    shared = import_module("typer._completion_shared")
    shared._completion_scripts["zsh"] = ZSH


def one_of(*values: str) -> Completer:
    """The values that begin with what was typed."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def named_in(module: str, name: str, ending: str = "") -> Completer:
    """The same for the keys, or the enum values, of this name in a module of twinbus; `ending` follows each."""

    def complete(incomplete: str) -> list[str]:
        found = getattr(import_module(f"twinbus.{module}"), name)
        values = [f"{getattr(each, 'value', each)}{ending}" for each in found]
        return [value for value in values if value.startswith(incomplete)]

    return complete


def namespaces_in(default: Path) -> Completer:
    """The namespaces that are in `--data`, by their names."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        folder = Path(ctx.params.get("data") or default)
        found = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
        return [name for name in found if name.startswith(incomplete)]

    return complete
