"""The page's own files: nothing from outside, no text that becomes markup, and every file is served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import twinbus.console
from twinbus.console.app import OWN, PUBLIC
from twinbus.console.delta import ROWS

FOLDER = Path(twinbus.console.__file__).parent / "static"
FILES = sorted(FOLDER.iterdir())
SCRIPTS = [file for file in FILES if file.suffix == ".js"]
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")
HANDLERS = re.compile(r"<(script(?! (type=\"module\" )?src=)|style)|\son\w+=|javascript:|style=", re.IGNORECASE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_nothing_comes_from_outside(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|//cdn|@import|url\(", text) == []


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.name))
def test_no_script_makes_markup_of_a_text(file: Path) -> None:
    assert MARKUP.findall(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ["console.html", "enter.html"])
def test_a_page_has_no_script_or_style_of_its_own(name: str) -> None:
    """The content security policy would refuse them."""
    assert HANDLERS.findall((FOLDER / name).read_text(encoding="utf-8")) == []


def test_every_file_is_served_and_imports_only_what_is() -> None:
    served = {path.lstrip("/") for path in (*OWN, *PUBLIC)} | {"console.html", "enter.html"}
    assert {file.name for file in FILES} == served
    imported = {name for file in SCRIPTS for name in re.findall(r'from "\./([\w.]+)"', file.read_text("utf-8"))}
    assert imported <= {path.lstrip("/") for path in (*OWN, *PUBLIC)}


def test_scripts_look_for_elements_that_the_page_has() -> None:
    page = (FOLDER / "console.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'\bid="([\w-]+)"', page))
    scripts = "".join(file.read_text("utf-8") for file in SCRIPTS if file.name != "enter.js")
    wanted = set(re.findall(r'(?:\$|getElementById|part)\("([\w-]+)"', scripts))
    assert wanted - ids == set()


def test_page_and_server_agree_which_sections_are_rows() -> None:
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"const ROWS = new Set\(\[(.*?)\]\)", script)
    assert set(re.findall(r'"(\w+)"', listed)) == ROWS
