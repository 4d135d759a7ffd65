"""Pages that lie at the root of the repository become pages of the site, with links that lead there.

MkDocs calls the functions below by their names. Files outside `docs/` that are no pages (a test, a folder of results)
have no place on the site: links to them keep their text and lose their target.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent.parent
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+://|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """The files of the site, with those of the root among them."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=LINK.sub(_from_the_root, text)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page whose links to the root lead to what lies there on the site."""
    up = "../" * page.file.src_uri.count("/")
    return re.sub(rf"\]\({re.escape(up)}\.\./(\w+\.md)", lambda link: f"]({up}{PAGES.get(link[1], link[1])}", markdown)


def _from_the_root(link: re.Match[str]) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if target in PAGES:
        return f"[{text}]({PAGES[target]}{anchor})"
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')}{anchor})"
    return text if target != "README.md" else f"[{text}](index.md{anchor})"
