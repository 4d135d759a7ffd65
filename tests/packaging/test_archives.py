"""Wheel and source archive hold what they should, and what is installed from the wheel works."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from archives import ROOT, Archives

from twinbus import __version__

ENDINGS = (".py", ".sql", ".typed", ".css", ".html", ".js", ".svg")
A_TEST = """
from azure.servicebus import ServiceBusClient, ServiceBusMessage

def test_a_message_is_taken(namespace):
    namespace.create_queue("orders")
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))
"""


@pytest.fixture(scope="module")
def names(archives: Archives) -> set[str]:
    with ZipFile(archives.wheel) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def metadata(archives: Archives) -> Message:
    with ZipFile(archives.wheel) as wheel:
        return Parser().parsestr(wheel.read(f"twinbus-{__version__}.dist-info/METADATA").decode())


@pytest.fixture(scope="module")
def installed(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is in the wheel; dependencies are those of this virtualenv."""
    folder = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*install, str(archives.wheel)], check=True, capture_output=True, timeout=100)
    return folder


def test_the_wheel_has_every_module_and_its_types_and_nothing_else(names: set[str]) -> None:
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for ending in ENDINGS for path in source.rglob(f"*{ending}")}
    assert {name for name in names if ".dist-info/" not in name} == files


def test_the_metadata_say_what_it_needs_and_what_is_extra(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"], metadata["Requires-Python"]) == ("twinbus", __version__, ">=3.11")
    assert {"spark", "dev"} <= set(metadata.get_all("Provides-Extra", []))


def test_the_metadata_lead_to_the_project(metadata: Message) -> None:
    labels = {url.partition(", ")[0] for url in metadata.get_all("Project-URL", [])}
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= labels
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier", [])
    always = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert any(each.startswith("azure-servicebus") for each in always)
    assert not any(each.startswith(("pyspark", "pandas", "pytest", "mkdocs")) for each in always)


def test_the_wheel_brings_a_command_and_a_plug_in_for_pytest(archives: Archives) -> None:
    points = ConfigParser()
    with ZipFile(archives.wheel) as wheel:
        points.read_string(wheel.read(f"twinbus-{__version__}.dist-info/entry_points.txt").decode())
    assert list(points["console_scripts"]) == ["twinbus"]
    assert dict(points["pytest11"]) == {"twinbus": "twinbus.testing"}


@pytest.mark.parametrize(
    "name",
    [
        "LICENSE",
        "Makefile",
        "README.md",
        "docs/tutorial.md",
        "examples/every_entity.py",
        "mkdocs.yml",
        "pyproject.toml",
        "src/twinbus/py.typed",
        "tests/test_rooms.py",
    ],
)
def test_the_source_archive_has_all_that_a_developer_needs(archives: Archives, name: str) -> None:
    with tarfile.open(archives.sdist) as sdist:
        assert f"twinbus-{__version__}/{name}" in sdist.getnames()


@pytest.mark.long
def test_what_is_installed_from_the_wheel_runs(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST)
    environment = os.environ | {"PYTHONPATH": str(installed)}
    where = [sys.executable, "-c", "import twinbus; print(twinbus.__file__)"]
    script = [sys.executable, str(installed / "bin" / "twinbus"), "--version"]
    plugged = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    printed = [
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100).stdout
        for command in (where, script, plugged)
    ]
    assert printed[0].startswith(str(installed))
    assert printed[1] == f"twinbus {__version__}\n"
    assert "1 passed" in printed[2]
