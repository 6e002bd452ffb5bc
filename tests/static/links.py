#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does every relative link in the repository's Markdown lead somewhere?

The file must be one that git knows, or a folder of such. After a # comes the
anchor of a heading there, as GitHub makes them. No network: links to other
sites are not checked. And what pages say of the tree is so: none names a line of a file, which the
next edit moves; the maps have every folder; counts of what is in the tree, and of the lines of patches,
are right; names in the tables of memory orders are in their files; the files that keep a promise are there.
"""
import fnmatch
import glob
import os
import re
import signal
import subprocess
import sys
import unicodedata
from urllib.parse import unquote

LINK = re.compile(r'''!?\[(?:[^][\\]|\\.|\[[^][]*\])*\]\(\s*<?([^)\s>]*)>?(?:\s+["'(][^)]*)?\s*\)''')
REFERENCE = re.compile(r'^ {0,3}\[[^]]+\]:\s*<?(\S+?)>?(?:\s|$)')
HTML = re.compile(r'''<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)\s*=\s*["']([^"']+)''', re.I)
HTML_ANCHOR = re.compile(r'''<\w+\b[^>]*?\b(?:id|name)\s*=\s*["']([^"']+)''', re.I)
CODE_SPAN = re.compile(r'(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)')
FENCE = re.compile(r'^ {0,3}(`{3,}|~{3,})')
HEADING = re.compile(r'^ {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$')
LINE_OF_FILE = re.compile(r"[\w-]+\.(?:c|h|cpp|hpp|py|sh):\d+")
LIBRARY = "tests/broken/library/variants"
# Page, the words around a count, and what is counted: lines of a file.
COUNTS = (
    ("docs/testing.md", r"of the (\d+) \[broken variants\]", r"\[[\w-]+\]\n",
     ("tests/broken/kernel/variants", "tests/broken/library/variants")),
    ("docs/testing.md", r"of the patches' (\d+) need", r"\[[\w-]+\]\n", ("tests/broken/kernel/variants",)),
    ("docs/testing.md", r"gcc-core: the core, doors \| (\d+)", r"Caught by: (?!sched_|packets)", (LIBRARY,)),
    ("docs/testing.md", r"gcc-sched[^|]* \| (\d+)", r"Caught by: sched_(?!torture)", (LIBRARY,)),
    ("docs/testing.md", r"gcc-packets \| (\d+)", r"Caught by: packets", (LIBRARY,)),
    ("docs/testing.md", r"vm-torture-sched-2 \| (\d+)", r"Caught by: sched_torture", (LIBRARY,)),
    ("docs/runs.md", r"`tests/model/run`: (\d+) configurations", r"(?!long-)[a-z]", ("tests/model/configurations",)),
    ("docs/runs.md", r"each of the (\d+) faults was found", r"[A-Z]", ("tests/model/mutations",)),
)
PATCHES, PART_ONE = "kernel/patches", [f"{number:04}" for number in range(2, 8)]
# The page that has a row for each folder, and where these are.
MAPS = (("CONTRIBUTING.md", ""), ("docs/testing.md", "tests/"))
UNDERLINE = re.compile(r'^ {0,3}(=+|-+)[ \t]*$')


def prose(text):
    """Its numbered lines; those of code are made empty."""
    fence, before = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end():].strip():
                fence = None
            line = ""
        elif mark:
            fence, line = mark[1], ""
        elif re.match(r"( {4}|\t)", line) and not before.strip():
            # Indented code goes on until a line that is not indented.
            yield number, ""
            continue
        before = line
        yield number, line


def slug(heading):
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]*>", "", text).strip().lower()
    kept = (c for c in text if c in " -_" or unicodedata.category(c)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


def anchors(text):
    found, before = {}, ""
    names = set()
    for _, line in prose(text):
        names.update(HTML_ANCHOR.findall(line))
        heading = HEADING.match(line)
        if heading:
            title = heading[2] or ""
        elif UNDERLINE.match(line) and before.strip() and not before.lstrip().startswith(("|", ">", "-")):
            title = before
        else:
            before = line
            continue
        before = ""
        name = slug(re.sub(r"(?<!\w)(\*{1,3}|_{1,3})(\S(?:.*?\S)?)\1(?!\w)", r"\2", title))
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def targets(text):
    for number, line in prose(text):
        line = CODE_SPAN.sub(lambda m: "`" * len(m[0]), line)
        for pattern in (LINK, REFERENCE, HTML):
            for target in pattern.findall(line):
                yield number, target


def known_files():
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    os.chdir(top)
    listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, text=True)
    if listed.returncode:
        sys.exit(f"tests/static/links.py: wanted a git checkout in {os.getcwd()}, found none; run it in a clone")
    return {f for f in listed.stdout.split("\0") if f and os.path.exists(f)}


def wrong_counts(texts):
    for page, words, pattern, files in COUNTS:
        wanted = sum(len(re.findall("^" + pattern, open(f, encoding="utf-8").read(), re.M)) for f in files)
        found = re.search(words.replace(" ", r"\s"), texts[page])
        if not found or int(found[1]) != wanted:
            yield f"{page}:1: '{words}': wanted {wanted}, as in {' and '.join(files)}, found {found and found[1]}"


def wrong_maps(texts, files):
    for page, under in MAPS:
        folders = {f[len(under):].split("/")[0] for f in files if f.startswith(under) and "/" in f[len(under):]}
        rows = "".join(line for line in texts[page].splitlines() if line.startswith("|"))
        for folder in sorted(folders):
            if not folder.startswith(".") and f"`{folder}/`" not in rows:
                yield f"{page}:1: wanted `{folder}/` of ./{under} in a table, found it in none"


def wrong_orders(texts, files):
    """In the tables of memory orders: each name is in one of the row's files."""
    page = "docs/memory-order.md"
    for row in re.findall(r"^\|(.+)\|$", texts[page], re.M):
        cells = row.split("|")
        for column, cell in enumerate(cells):
            names = re.findall(r"`(\w+\.[ch*])`", cell) if column else []
            code = "".join(open(f, encoding="utf-8").read() for f in files if f.startswith("libswitchto/src/")
                           and any(fnmatch.fnmatch(os.path.basename(f), name) for name in names))
            for word in re.findall(r"`(\w+)`", "".join(cells[:column])):
                if code and not re.search(rf"\b{word}\b", code):
                    yield f"{page}:1: wanted {word} in {' or '.join(names)}, found it in none"


def wrong_keepers(texts, files):
    """The files that keep a promise: of the kernel, in the patches; or of the libraries."""
    page = "SECURITY.md"
    section = texts[page].partition("### Which files keep a promise")[2].partition("\n#")[0]
    patched = {f for path in glob.glob(f"{PATCHES}/6.12/*.patch")
               for f in re.findall(r"^\+\+\+ b/(.*)", open(path, encoding="utf-8").read(), re.M)}
    keepers = re.findall(r"`([\w/]+\.[ch])`", section)
    for name in keepers or ["no file"]:
        if not any(f == name or f.endswith(f"/{name}") for f in patched | {f for f in files if f.startswith("libswitchto/")}):
            yield f"{page}:1: wanted {name} in {PATCHES}/6.12 or libswitchto/, found it in neither"


def patch_lines(version, numbers):
    """-> lines that these patches of the series add, and remove"""
    diffs = "".join(text[text.index("\ndiff --git"):] for number in numbers
                    for path in glob.glob(f"{PATCHES}/{version}/{number}-*.patch")
                    for text in [open(path, encoding="utf-8").read()])
    return tuple(len(re.findall(rf"^{sign}(?!{sign}{sign} )", diffs, re.M)) for sign in (r"\+", "-"))


def wrong_patch_lines(texts):
    """In the table of the patches: their numbers, on 7.3 others where it says so. And in the cover letter."""
    page, rows = "docs/kernel.md", 0
    for row in re.findall(r"^\| (\d{4}.*)", texts["docs/kernel.md"], re.M):
        first, *cells = row.split(" | ")
        first, _, other = first.partition("7.3: ")
        for version, names, cell in zip(("6.12", "7.3"), (first, other or first), cells):
            found = re.fullmatch(r"\+(\d+) -(\d+)", cell)
            if found:
                rows += 1
                wanted = patch_lines(version, re.findall(r"\b\d{4}\b", names))
                if tuple(map(int, found.groups())) != wanted:
                    yield f"{page}:1: {first.strip()}, {version}: wanted {wanted}, found {cell}"
    wanted = [f"{patch_lines(v, PART_ONE)[0]:,}" for v in ("6.12", "7.3")]
    if "Part one adds {} lines on 6.12 and {} on 7.3.".format(*wanted) not in texts[page]:
        yield f"{page}:1: part one: wanted {' and '.join(wanted)} lines, found others"
    if not rows:
        yield f"{page}:1: wanted a table of the patches' lines, found none"
    page = f"{PATCHES}/7.3/cover-letter"
    letter = open(page, encoding="utf-8").read()
    if f"Part one, {wanted[1]} added lines" not in letter:
        yield f"{page}:1: part one: wanted {wanted[1]} lines, found others"
    for first, last, *found in re.findall(r"^\t *(\d+)(?:-(\d+))?\t.*\+(\d+) +-(\d+)$", letter, re.M):
        lines = patch_lines("7.3", [f"{number:04}" for number in range(int(first), int(last or first) + 1)])
        if tuple(map(int, found)) != lines:
            yield f"{page}:1: {first}: wanted {lines}, found {found}"


def main():
    files = known_files()
    folders = {os.path.dirname(f) for f in files}
    for folder in list(folders):
        while folder:
            folder = os.path.dirname(folder)
            folders.add(folder)
    folders.add(".")
    texts = {f: open(f, encoding="utf-8").read() for f in sorted(files) if f.endswith(".md")}
    headings = {f: anchors(text) for f, text in texts.items()}
    links = wrong = 0

    for page, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for place in LINE_OF_FILE.findall(line):
                wrong += 1
                print(f"{page}:{number}: {place}: wanted a function or '...', found a line's number")
        for number, target in targets(text):
            if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            path, anchor = unquote(path), unquote(anchor)
            if path.startswith("/"):
                path = os.path.normpath(path.lstrip("/") or ".")
            elif path:
                path = os.path.normpath(os.path.join(os.path.dirname(page), path))
            else:
                path = page
            if path not in files and path not in folders:
                fault = f"wanted {path} among the files that git knows, found none"
            elif anchor and path in headings and anchor not in headings[path]:
                fault = f"wanted a heading for #{anchor} in {path}, found none"
            elif anchor and path not in headings:
                fault = f"wanted a Markdown page for #{anchor}, found {path}"
            else:
                continue
            wrong += 1
            print(f"{page}:{number}: {target}: {fault}")

    for fault in (*wrong_counts(texts), *wrong_maps(texts, files), *wrong_orders(texts, files), *wrong_keepers(texts, files),
                  *wrong_patch_lines(texts)):
        wrong += 1
        print(fault)
    if not links:
        sys.exit(f"tests/static/links.py: wanted relative links in {len(texts)} pages, found none")
    if wrong:
        sys.exit(f"tests/static/links.py: of {links} relative links and what pages say of the tree, {wrong} are wrong; see above")


signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may end first
main()
