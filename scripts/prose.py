#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Checks that a stranger can read what is written here: documentation, man pages and docstrings.

    prose.py [--shrink] [DIR]    of the checkout DIR instead of this one

A docstring has more than SHORT words, a sentence at most LONGEST, and the sentences of a file (from
ENOUGH of them on) fewer than AVERAGE on average. Docstrings are those of Rust (`///`, `//!`), of C (kernel-doc, where each
member's `@name:` counts as one) and of Python.

tests/prose-allowed lists the folders that are not there yet, each with how many places they may have.
The list only shrinks: more places than it allows are errors, and so is a number that is too high, which
`--shrink` lowers.
"""

import ast
import pathlib
import re
import subprocess
import sys

SHORT, LONGEST, AVERAGE = 3, 45, 20
# Of fewer sentences there is no average.
ENOUGH = 5
ALLOWED = "tests/prose-allowed"
# What bindgen wrote, and Debian's forms.
NOT_OURS = re.compile(r"(^|/)(bindings\.rs|target/.*)$|^(LICENSES|out|\.git)/")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|cf|vs|etc|resp|Fig|Sec|No|approx)\.(?=\s)")


def files(top):
    """Names what is in the checkout, whether git knows it or not."""
    said = subprocess.run(["git", "-C", top, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if said.returncode == 0 and said.stdout:
        names = said.stdout.splitlines()
    else:
        names = [str(p.relative_to(top)) for p in pathlib.Path(top).rglob("*") if p.is_file()]
    return sorted(n for n in set(names) if not NOT_OURS.search(n) and (pathlib.Path(top) / n).is_file())


def blocks_of_rust(text):
    """Finds the docstrings of Rust: a block of lines that begin with the same `///` or `//!`."""
    block, kind = [], None
    for n, line in enumerate(text.split("\n"), 1):
        found = re.match(r"\s*(//[/!])(?!/) ?(.*)", line)
        if block and (not found or found[1] != kind):
            yield block
            block = []
        if found:
            kind = found[1]
            block.append((n, found[2]))
    if block:
        yield block


def blocks_of_c(text):
    """Finds kernel-doc. Its head is without the name that it documents, and each member stands alone."""
    for comment in re.finditer(r"/\*\*(?![*/])(.*?)\*/", text, re.S):
        start = text.count("\n", 0, comment.start()) + 1
        lines = [(start + n, re.sub(r"^\s*\* ?", "", line).rstrip()) for n, line in enumerate(comment[1].split("\n"))]
        block, head = [], True
        for n, line in lines:
            member = re.match(r"\s*@[\w.]+:\s*(.*)", line)
            if head and line.strip():
                line = re.sub(r"^\s*(DOC:|(struct |enum |union |typedef )?\w+(\(\))? +[-–] )\s*", "", line)
                head = False
            if member:
                yield block
                block, line = [], member[1]
            # A list of errors: each is a point.
            line = re.sub(r"^\s+(?=E[A-Z0-9]+\s)", "- ", line)
            block.append((n, line))
        yield block


def blocks_of_python(text):
    """Finds the docstrings of Python."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            body = ast.get_docstring(node, clean=True)
            if body is not None:
                start = node.body[0].lineno
                yield [(start + n, line) for n, line in enumerate(body.split("\n"))]


# Macros of a man page that stand in a sentence, of man(7) and of mdoc(7).
INLINE = set("B I BR IR RB RI BI IB Fa Xr Dv Nm Fl Ar Pa Va Em Sy Li Ql Fn Vt Er Ev Cm Ic Tn Pq Dq Sq Qq Ns".split())


def lines_of_man(text):
    """Turns a man page into lines of text; headings, points of lists and displays end a paragraph."""
    display = False
    for n, line in enumerate(text.split("\n"), 1):
        macro = re.match(r"[.'](\w+)\s*(.*)", line)
        if macro and macro[1] in ("nf", "EX", "Bd"):
            display = True
        elif macro and macro[1] in ("fi", "EE", "Ed"):
            display = False
        if display or re.match(r"[.']\\\"", line) or macro and macro[1] not in INLINE:
            yield n, ""
        else:
            yield n, roff(macro[2] if macro else line)


def roff(text):
    """Removes the fonts, escapes and macros of a line, and glues to a word what follows it."""
    text = re.sub(r"\\f[BIRP]|\\&|\"", "", text).replace("\\-", "-").replace("\\(aq", "'").replace("\\(em", " - ")
    text = " ".join(word for word in text.split() if word not in INLINE)
    return re.sub(r"(\S) (?=[.,;:)(])", r"\1", text)


def sentences(lines):
    """Splits Markdown into sentences: (line, words, text). Code, headings and pictures are none; a cell
    of a table and a point of a list end a sentence."""
    paragraphs, current, fence = [], [], False
    for n, line in lines:
        if re.match(r"\s*(```|~~~)", line):
            fence, line = not fence, ""
        elif fence or re.match(r"( {4}|\t)", line) and not current or re.match(r"\s*(#|!\[|\[[^]]*\]: |\|[-| :]+\|$)", line):
            line = ""
        elif re.match(r"\s*\|", line):
            paragraphs.append(current)
            paragraphs.extend([(n, cell)] for cell in line.strip().strip("|").split(" | "))
            current, line = [], ""
        point = re.match(r"\s*([-*+]|\d+\.)\s+(.*)", line)
        if not line.strip() or point:
            paragraphs.append(current)
            current = []
        if line.strip():
            current.append((n, point[2] if point else line))
    paragraphs.append(current)
    for paragraph in paragraphs:
        yield from sentences_of_paragraph(paragraph)


def sentences_of_paragraph(paragraph):
    """Splits the lines of one paragraph."""
    joined, at = "", []
    for n, line in paragraph:
        at.append((len(joined), n))
        joined += line.strip() + "\n"
    # Code is one word, and an address or a name of a file ends nothing.
    text = re.sub(r"`+[^`]*`+", lambda m: "C" * len(m[0]), joined)
    text = re.sub(r"\]\([^)]*\)", lambda m: "]" + " " * (len(m[0]) - 1), text)
    text = ABBREVIATIONS.sub(lambda m: m[0][:-1] + ",", text)
    begin = 0
    for end in [m.end() for m in re.finditer(r"[.!?][)\"'*_\]]*(?=\s)", text)] + [len(text)]:
        sentence = text[begin:end]
        words = [w for w in sentence.split() if re.search(r"\w", w)]
        if words:
            first = begin + len(sentence) - len(sentence.lstrip())
            yield [n for offset, n in at if offset <= first][-1], len(words), " ".join(joined[begin:end].split())
        begin = end


def words(block):
    """Counts the words of a docstring, without headings. `# Safety` alone names an invariant, and is none."""
    lines = [line for _, line in block]
    if lines and lines[0].strip() == "# Safety":
        return 0
    return sum(1 for line in lines if not re.match(r"\s*#", line) for w in line.split() if re.search(r"\w", w))


def docs(name, text):
    """Says what of a file is prose: (docstrings, lines that are none but are read)."""
    if name.endswith(".rs"):
        return list(blocks_of_rust(text)), []
    if re.search(r"\.[ch]$", name):
        return list(blocks_of_c(text)), []
    if name.endswith(".py"):
        return list(blocks_of_python(text)), []
    if name.endswith(".md"):
        return [], [list(enumerate(text.split("\n"), 1))]
    if re.search(r"\.[1-8]$", name) and text.lstrip(".'\\\"").strip():
        return [], [list(lines_of_man(text))]
    return [], []


def places(name, text):
    """Finds what is wrong in a file: (line, what and how to mend it)."""
    docstrings, pages = docs(name, text)
    total, count = 0, 0
    for block in docstrings:
        written = words(block)
        if 0 < written <= SHORT:
            n, shown = next((n, line.strip()) for n, line in block if line.strip())
            yield n, f'a docstring of {written} words ("{shown}"): say what the signature does not (meaning, unit, range, error, lock), or remove it'
    for block in docstrings + pages:
        for n, length, sentence in sentences(block):
            if length > SHORT:
                total, count = total + length, count + 1
            if length > LONGEST:
                yield n, f'a sentence of {length} words ("{sentence[:60]}..."): make it two, {LONGEST} is the most'
    if count >= ENOUGH and total >= AVERAGE * count:
        yield 1, f"{total / count:.1f} words a sentence on average, of {count}: make the long ones two, to come below {AVERAGE}"


def measured(name, text):
    """Counts what is in a file: docstrings, those with at most SHORT words, sentences, and their words."""
    docstrings, pages = docs(name, text)
    written = [n for n in map(words, docstrings) if n]
    lengths = [n for block in docstrings + pages for _, n, _ in sentences(block) if n > SHORT]
    return len(written), sum(n <= SHORT for n in written), len(lengths), sum(lengths)


def allowed(top):
    """Reads the list of folders that are not there yet: {folder: places}."""
    path = pathlib.Path(top) / ALLOWED
    lines = path.read_text().split("\n") if path.exists() else []
    return {line.split()[1]: int(line.split()[0]) for line in lines if line and not line.startswith("#")}


def shrink(top, found):
    """Lowers the numbers of the list to what there is, and takes out who has none left."""
    path = pathlib.Path(top) / ALLOWED
    lines = []
    for line in path.read_text().split("\n"):
        if line and not line.startswith("#"):
            count, folder = line.split()
            left = min(int(count), len(found[folder]))
            line = f"{left} {folder}" if left else None
        if line is not None:
            lines.append(line)
    path.write_text("\n".join(lines))


def main(arguments):
    """Prints every place, and is 1 if there are any that the list does not allow."""
    to_shrink = arguments[:1] == ["--shrink"]
    rest = arguments[to_shrink:]
    top = rest[0] if rest else str(pathlib.Path(__file__).resolve().parent.parent)
    limits = allowed(top)
    found = {folder: [] for folder in limits}
    wrong, sums = [], (0, 0, 0, 0)
    for name in files(top):
        folder = max((f for f in limits if name.startswith(f)), key=len, default=None)
        try:
            text = (pathlib.Path(top) / name).read_text()
        except UnicodeDecodeError:
            continue
        sums = tuple(map(sum, zip(sums, measured(name, text))))
        where = wrong if folder is None else found[folder]
        where.extend(f"{name}:{n}: {what}" for n, what in places(name, text))
    if to_shrink:
        shrink(top, found)
        limits = allowed(top)
    for folder, limit in limits.items():
        there = len(found[folder])
        if there > limit:
            wrong += found[folder] + [f"{ALLOWED}: {folder} has {there} places, and {limit} are allowed: mend what you added"]
        elif there < limit:
            wrong.append(f"{ALLOWED}: {folder} has {there} places, and {limit} are allowed: run scripts/prose.py --shrink")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    docstrings, short, count, total = sums
    print(f"{docstrings} docstrings, {short} of at most {SHORT} words; {count} sentences of {total / max(count, 1):.1f} words on average")
    print(f"{len(wrong)} places, and {sum(map(len, found.values()))} that {ALLOWED} allows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
