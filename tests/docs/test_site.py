"""The site is built without a warning: links, headings and menu are in order, and no page asks anybody for a font."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import DOCS, ROOT, pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would hide warnings from --strict as well.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    expected = {page.relative_to(DOCS).with_suffix(".html") for page in pages() if page.is_relative_to(DOCS)}
    expected |= {Path("architecture.html"), Path("contributing.html"), Path("changelog.html")}
    assert {page.relative_to(site) for page in site.rglob("*.html")} - {Path("404.html")} == expected


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)")
    assert {page.name: loaded.findall(page.read_text()) for page in site.rglob("*.html")} == {
        page.name: [] for page in site.rglob("*.html")
    }


def test_a_picture_loads_nothing_and_shows_nothing_of_the_machine_it_was_made_on(site: Path) -> None:
    pictures = {path.name: path.read_text() for path in (site / "images").glob("*.svg")}
    assert len(pictures) >= 2
    assert [name for name, text in pictures.items() if re.search(r"url\(\W?http|<image|/(tmp|work|root)/", text)] == []
