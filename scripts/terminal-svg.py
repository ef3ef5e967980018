#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Draws what a terminal shows as an SVG, for README.

    terminal-svg.py [--title TEXT] <TEXT >PICTURE.svg

Lines that begin with "$ " are commands. Colours and other escapes are left out.
"""

import re
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN, BAR = 8.4, 19, 16, 30
STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee9; white-space: pre }
.command { fill: #a3be8c; font-weight: bold } .title { fill: #8892a4; text-anchor: middle }"""


def main(arguments):
    title = arguments[1] if arguments[:1] == ["--title"] else "uvm-rust"
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stdin.read())
    lines = text.expandtabs().rstrip("\n").split("\n")
    columns = max(80, max(map(len, lines)))
    width, height = columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + BAR + MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">')
    print(f"<style>{STYLE}</style>")
    print(f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#20242d"/>')
    for n, colour in enumerate(("#bf616a", "#ebcb8b", "#a3be8c")):
        print(f'<circle cx="{MARGIN + 4 + 18 * n}" cy="{BAR / 2}" r="5" fill="{colour}"/>')
    print(f'<text class="title" x="{width / 2:.0f}" y="{BAR / 2 + 5}">{escape(title)}</text>')
    for n, line in enumerate(lines):
        kind = ' class="command"' if line.startswith("$ ") else ""
        # Of a fixed length, so that columns stand under each other in whatever font there is.
        length = f' textLength="{len(line) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"' if line.strip() else ""
        print(f'<text{kind} x="{MARGIN}" y="{BAR + HEIGHT * (n + 1) - 5}"{length} xml:space="preserve">{escape(line)}</text>')
    print("</svg>")


main(sys.argv[1:])
