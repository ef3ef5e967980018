#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Checks that what the documentation points to is there: links, headings, and names of files.

    links.py [DIR]                     of the checkout DIR instead of this one
    links.py --within N PAGE [DIR]     lists the pages that are at most N clicks away from PAGE

A link of a page leads to a file of the checkout, and the part behind `#` to a heading of that file, as GitHub
names it. Links to other hosts are left alone. A name in backticks is checked if it looks like a file of ours:

- one that begins with a folder of the top level is there, from the top (or from the folder of its page);
- any other with the ending of a source file, or with several folders and a slash at its end, is the end of
  some file's or folder's path. So pages need not repeat src/uvm_rust for each file.

`*` and `{a,b}` stand for what they do in a shell, and a part in capitals (FACT) for any name.
"""

import fnmatch
import pathlib
import re
import sys
import unicodedata

from prose import files

# The endings of what is looked for wherever it is.
SOURCE = re.compile(r"\.(rs|c|h|sh|py|cocci|toml|mk|cu|css|fragment)$")
# Files of NVIDIA's and of Linux', and what a build or a user makes.
NOT_OURS = re.compile(r"^(linux|nvidia|Documentation|out)/|^uvm(_(?!rust_)\w+)?\.[ch]$")
FENCE = re.compile(r"\s*(```|~~~)")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)")


def lines(text):
    """Yields the lines of a page that are no code: (number, line)."""
    fence = False
    for n, line in enumerate(text.split("\n"), 1):
        if FENCE.match(line):
            fence = not fence
        elif not fence:
            yield n, line


def links(text):
    """Yields where a page leads: (line, target). What stands in backticks is no link."""
    for n, line in lines(text):
        for found in LINK.finditer(CODE.sub("code", line)):
            yield n, found[1] or found[2]


def headings(text):
    """Collects the names that GitHub gives the headings of a page; of equal ones the later get a number."""
    names, seen = set(), {}
    for _, line in lines(text):
        found = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not found:
            continue
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).strip().lower()
        kept = [c for c in title if c in " -_" or unicodedata.category(c)[0] in "LNM"]
        name = "".join(kept).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return names


def inside(top, page, target):
    """Turns a link of `page` into the path below `top` that it names; None for another host's."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    where = target.split("#")[0]
    path = (top / page).parent / where if where else top / page
    return path.resolve()


def check_link(top, page, target):
    """Says what is wrong with a link, or nothing."""
    path = inside(top, page, target)
    if path is None:
        return None
    if not path.exists() or top not in [path, *path.parents]:
        return f"there is no {target.split('#')[0]}"
    anchor = target.partition("#")[2]
    if anchor and path.suffix == ".md" and anchor not in headings(path.read_text()):
        return f"{path.relative_to(top)} has no heading #{anchor}"
    return None


def expand(name):
    """Writes the names out that one with {a,b} stands for."""
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    return [whole for part in found[1].split(",") for whole in expand(name[: found.start()] + part + name[found.end() :])]


class Tree:
    """The files and folders of a checkout, and which of them a name in backticks may mean."""

    def __init__(self, top):
        self.files = set(files(top))
        parents = {p for name in self.files for p in pathlib.PurePosixPath(name).parents}
        self.folders = {str(p) for p in parents if str(p) != "."}
        self.tops = {f for f in self.folders if "/" not in f}

    def has(self, name, anywhere):
        """Whether a file or folder has this path, or, if `anywhere`, a path that ends so."""
        folder = name.endswith("/")
        # A part in capitals is any name.
        pattern = re.sub(r"(?<![A-Za-z0-9.-])[A-Z][A-Z_]+(?![\w.-])", "*", name.rstrip("/"))
        depth = pattern.count("/") + 1
        for path in self.folders if folder else self.files | self.folders:
            parts = path.split("/")
            tail = parts[-depth:] if anywhere else parts
            if len(tail) == depth and all(map(fnmatch.fnmatchcase, tail, pattern.split("/"))):
                return True
        return False

    def check(self, page, code):
        """Says what is wrong with a name in backticks, or nothing."""
        name = code.split(" ")[0] if code else ""
        if not re.fullmatch(r"[\w.*{},-]+(/[\w.*{},-]+)*/?", name) or NOT_OURS.search(name):
            return None
        folders = name.rstrip("/").count("/")
        rooted = folders > 0 and name.split("/")[0] in self.tops
        beside = str(pathlib.PurePosixPath(page).parent / name) + ("/" if name.endswith("/") else "")
        if rooted:
            there = all(self.has(n, False) for n in expand(name)) or all(self.has(n, False) for n in expand(beside))
        elif SOURCE.search(name) or (name.endswith("/") and folders > 0):
            there = all(self.has(n, True) for n in expand(name))
        else:
            return None
        return None if there else f"there is no {name}"


def places(top, tree, page):
    """Finds what a page points to that is not there: (line, what)."""
    text = (top / page).read_text()
    for n, target in links(text):
        wrong = check_link(top, page, target)
        if wrong:
            yield n, wrong
    for n, line in lines(text):
        for code in CODE.findall(line):
            wrong = tree.check(page, code)
            if wrong:
                yield n, wrong


def within(top, page, clicks):
    """Collects the pages that a reader of `page` reaches with so many clicks at most."""
    reached, edge = {page}, {page}
    for _ in range(clicks):
        targets = {inside(top, p, t) for p in edge for _, t in links((top / p).read_text())}
        edge = {str(t.relative_to(top)) for t in targets if t and t.suffix == ".md" and t.exists()} - reached
        reached |= edge
    return sorted(reached)


def main(arguments):
    """Prints every place, and is 1 if there are any; or the pages that are near one."""
    clicks = None
    if arguments[:1] == ["--within"]:
        clicks, page, *arguments = arguments[1:]
    top = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    if clicks is not None:
        print(*within(top, page, int(clicks)), sep="\n")
        return 0
    tree = Tree(top)
    pages = [name for name in sorted(tree.files) if name.endswith(".md")]
    wrong = [f"{page}:{n}: {what}" for page in pages for n, what in places(top, tree, page)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(pages)} pages, {len(wrong)} places that lead nowhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
