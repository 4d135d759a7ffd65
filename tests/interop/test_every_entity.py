"""The application in `examples/every_entity.py`: every kind of entity, on three clients."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from twinbus.testing import LocalNamespace

FILE = Path(__file__).parent.parent.parent / "examples" / "every_entity.py"


def example() -> ModuleType:
    spec = spec_from_file_location("every_entity", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("client", ["sync", "asyncio", "proton"])
def test_an_application_finds_every_message_where_it_belongs(client: str, namespace: LocalNamespace) -> None:
    assert example().is_right(client, namespace.connection_string)
