"""What a shell offers at Tab: values of options, and a script for zsh that works at the first Tab.

Nothing is asked over the network, and nothing is imported before Tab is pressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def one_of(values: Callable[[], Iterable[str]]) -> Completer:
    """Those that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values() if value.startswith(incomplete)]

    return complete


def fault_kinds() -> Iterable[str]:
    from twinbus.namespace.faults.vocabulary import KINDS

    return KINDS


def drill_faults() -> Iterable[str]:
    from twinbus.drill.options import FAULTS

    return FAULTS


def credentials() -> Iterable[str]:
    from twinbus.client.identity import KINDS

    return KINDS


def roles() -> Iterable[str]:
    from twinbus.client.roles import Role

    return [role.value for role in Role]


def checks() -> Iterable[str]:
    from twinbus.client.health import Check

    return [check.value for check in Check]


def tools() -> Iterable[str]:
    from twinbus.cli.provisioning import TOOLS

    return TOOLS


def limits() -> Iterable[str]:
    from twinbus.limit_names import LIMIT_NAMES

    return [f"{name}=" for name in LIMIT_NAMES]


def reasons() -> Iterable[str]:
    from twinbus.syphon.reasons import REASONS

    return REASONS


def event_kinds() -> Iterable[str]:
    from twinbus.ledger.kinds import Kind

    return [kind.value for kind in Kind]


def namespaces_in(default: Path) -> Completer:
    """The namespaces that are in `--data`, by their names."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        folder = Path(ctx.params.get("data") or default)
        found = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
        return [name for name in found if name.startswith(incomplete)]

    return complete
