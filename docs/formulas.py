"""Typesets the formulas of the documentation site as MathML when it is built (a hook of MkDocs).

MathML needs no script in the browser. Pages have formulas in LaTeX, `$...$` or `$$...$$`, which GitHub shows
as well.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# as pymdownx.arithmatex leaves them
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]\s*</\1>', re.S)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Return a page's HTML with its formulas as MathML."""

    def typeset(formula: re.Match[str]) -> str:
        latex = html.unescape(formula["latex"]).strip()
        try:
            return convert(latex, display="block" if formula["open"] == "[" else "inline")
        except Exception as error:
            raise PluginError(f"{page.file.src_path}: cannot typeset {latex}: {error}") from error

    return FORMULA.sub(typeset, content)
