# SPDX-License-Identifier: Apache-2.0
"""Makes one document of the live page's three sources, and a C source of the document.

embed.py page.html page.css page.js page_text.c

The policy allows this very style and script and nothing else, by their hashes."""

import base64
import hashlib
import pathlib
import sys

POLICY = (
    "default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def source_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def document(html, css, js):
    """The document and its policy."""
    for name, text, end in (("page.css", css, "</style"), ("page.js", js, "</script")):
        if end in text:
            sys.exit(f"{name}: {end} would end it")
    for mark, text in (("@STYLE@", css), ("@SCRIPT@", js)):
        if html.count(mark) != 1:
            sys.exit(f"page.html: {mark} must stand there once")
        html = html.replace(mark, text)
    return html, POLICY % (source_hash(js), source_hash(css))


def c_source(html, policy):
    data = html.encode()
    rows = (data[i : i + 20] for i in range(0, len(data), 20))
    lines = "\n".join("    " + "".join(f"{byte}, " for byte in row).rstrip() for row in rows)
    return (
        f'#include "rendezvous/page/page_text.h"\n\nconst unsigned char ct_page_text[] = {{\n{lines}\n}};\n'
        f"const size_t ct_page_text_len = {len(data)};\n"
        f'const char ct_page_text_policy[] = "{policy}";\n'
    )


def main():
    *sources, out = map(pathlib.Path, sys.argv[1:])
    pathlib.Path(out).write_text(c_source(*document(*(s.read_text() for s in sources))))


if __name__ == "__main__":
    main()
