"""What mkdocs needs to know about files outside docs/: some are pages of the site, recipes are files of it.

Links in Markdown are written for the repository, so that they work on a code host; here they become links of the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "benchmarks/README.md": "benchmarks.md", "CHANGELOG.md": "changelog.md"}
ORIGINS = {page: origin for origin, page in PAGES.items()}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and recipes that are not in docs/."""
    for origin, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / origin).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        files.append(File.generated(config, f"recipes/{path.name}", content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links of the repository at their places in the site."""
    here = page.file.src_uri
    origin = ORIGINS.get(here, f"docs/{here}")

    def place(link: re.Match[str]) -> str:
        opening, target, anchor, closing = link.groups()
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        inside = PAGES.get(found, found.removeprefix("docs/"))
        return f"{opening}{posixpath.relpath(inside, posixpath.dirname(here) or '.')}{anchor or ''}{closing}"

    return LINK.sub(place, markdown)
