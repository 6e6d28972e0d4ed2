"""A page that is one file: style, script and data inside, nothing loaded from elsewhere, read from a disk or a mail.

Data is JSON, compressed and in base64, so that no text of an utterance is ever markup. The script sets text, never
HTML; and the page's own policy lets no other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from attune.files import write_text
from attune.metrics import Json

SHARED = ("dom.js", "charts.js", "table.js", "sound.js", "browse.js")
STYLES = ("page.css",)
INLINE_LIMIT = 8_000_000  # characters of a page that a notebook shows; larger ones are only named there
INLINE_HEIGHT = 760  # pixels


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page as text; in a notebook it shows itself."""

    title: str
    html: str
    path: Path | None = None

    def __repr__(self) -> str:
        """Where it is."""
        return f"{self.title}: {self.path or 'not written'}"

    def save(self, path: Path) -> Page:
        """Write the page, whole or not at all."""
        write_text(path, self.html)
        return Page(self.title, self.html, path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which shares nothing with the notebook."""
        named = escape(str(self.path or self.title))
        if len(self.html) > INLINE_LIMIT:
            return f"<p>{named}: {len(self.html) / 1e6:.0f} MB, too large to show here. Open it in a browser.</p>"
        frame = "width:100%;border:1px solid #8884;border-radius:8px"
        rights = "allow-scripts allow-downloads"
        return (
            f'<iframe title="{escape(self.title)}" sandbox="{rights}" style="{frame}" height="{INLINE_HEIGHT}" '
            f'srcdoc="{escape(self.html)}"></iframe><p>{named}</p>'
        )


def make_page(title: str, script: str, data: Json, connects: str = "'none'") -> Page:
    """A page of the given script in `pages/`, with the helpers that all scripts share; `connects` is as CSP has it."""
    code = '"use strict";\n' + _read([*SHARED, script])
    style = _read(STYLES)
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; "
        f"img-src data:; media-src 'self' file: data: blob:; connect-src {connects}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "title": escape(title), "style": style, "script": code, "data": packed(data)}
    head, *rest = _read(["page.html"]).split("{{")
    html = head + "".join(parts[name] + after for name, _, after in (part.partition("}}") for part in rest))
    return Page(title, html)


def packed(data: Json) -> str:
    """JSON, compressed, as characters that mean nothing to HTML."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), 6, mtime=0)).decode()


def _read(names: Sequence[str]) -> str:
    folder = files("attune.report") / "pages"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
