#!/usr/bin/python3
"""Checks that keep the tree honest. usage: source_lint.py CHECK ROOT, CHECK being one of

layers     every #include follows tests/lint/layers.txt, and every folder of ours that it names exists
paths      every path that README.md, ARCHITECTURE.md and CONTRIBUTING.md name in backticks exists
sources    every .cc file is in its folder's CMakeLists.txt, and every catalog record is in its catalog's list
portable   no file names a home folder or a network address
size       a file of more than 800 lines says why in its first 15 lines
format     every C and C++ file is laid out as .clang-format says; skipped where there is no clang-format-19

Each prints one line per finding, as FILE:LINE: what is wrong and what to do, and fails if there is one.
"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys

OUR_FOLDERS = ("compiler/", "tuner/", "worker/", "tracker/", "db/", "deploy/", "proto/", "fleet/")
CPP = (".cc", ".h", ".c")


def tree_files(root):
    """Files of the tree: what git tracks or would track; without git, everything outside build folders."""
    try:
        out = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "--cached", "--others",
                              "--exclude-standard"], check=True, capture_output=True).stdout
        names = [n for n in out.decode().split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f != ".git" and not (folder == root and f.startswith("build"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))


def lines_of(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


# ---- layers

LAYERS = "tests/lint/layers.txt"


def read_layers(path):
    """What each folder may include, what is withdrawn from that, whose headers with a prefix are, and the line on which
    a folder or prefix is named first."""
    allowed, withdrawn, only, named = {}, {}, [], {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            if ":" not in line:
                raise SystemExit(f"layers.txt:{number}: expected 'FOLDER: FOLDERS...'")
            name, rest = (part.strip() for part in line.split(":", 1))
            words = rest.split()
            for word in [name.removeprefix("only ").strip(), *(w for w in words if w != "no")]:
                named.setdefault(word, number)
            if name.startswith("only "):
                only.append((name[5:].strip(), words))
                continue
            allowed[name] = [w for i, w in enumerate(words) if w != "no" and (i == 0 or words[i - 1] != "no")]
            withdrawn[name] = [w for i, w in enumerate(words) if i > 0 and words[i - 1] == "no"]
    return allowed, withdrawn, only, named


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def reachable(allowed, folder):
    seen, todo = set(), [folder]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        # A name that covers sub-folders (db) brings what each of them may include.
        for key, targets in allowed.items():
            if within(key, name) or within(name, key):
                todo += targets
    return seen


def check_layers(root):
    allowed, withdrawn, only, named = read_layers(os.path.join(root, LAYERS))
    for word, number in named.items():
        # With a slash to tell them from names of headers, which "only" has too.
        if f"{word}/".startswith(OUR_FOLDERS) and not os.path.isdir(os.path.join(root, word)):
            yield f"{LAYERS}:{number}: there is no folder {word}"
    include = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
    for name in tree_files(root):
        if not name.startswith(OUR_FOLDERS) or not name.endswith(CPP):
            continue
        folder = os.path.dirname(name)
        owner = max((k for k in allowed if within(folder, k)), key=len, default=None)
        if owner is None:
            yield f"{name}:1: no line of tests/lint/layers.txt covers {folder}: add one"
            continue
        base = os.path.basename(name)
        root_file = base == "main.cc" or base.endswith("_main.cc")
        may = reachable(allowed, owner)
        for number, line in enumerate(lines_of(root, name), 1):
            match = include.match(line)
            if not match:
                continue
            quote, header = match.groups()
            for prefix, folders in only:
                if header.startswith(prefix) and not any(within(folder, f) for f in folders) and not root_file:
                    yield f"{name}:{number}: {header} is for {', '.join(folders)} only (tests/lint/layers.txt)"
            if quote != '"':
                continue
            if not header.startswith(OUR_FOLDERS):
                if os.path.exists(os.path.join(root, folder, header)):
                    yield f"{name}:{number}: include {folder}/{header} from the repository root"
                continue
            target = os.path.dirname(header)
            if root_file or within(target, owner):
                continue
            if any(within(target, w) for w in withdrawn[owner]) or not any(within(target, m) for m in may):
                yield f"{name}:{number}: {owner} may not include {header} (tests/lint/layers.txt)"


# ---- paths

def check_paths(root):
    files = tree_files(root)
    folders = set()
    for name in files:
        while os.path.dirname(name):
            name = os.path.dirname(name)
            folders.add(name)
    tops = {name.split("/")[0] for name in files}
    known = set(files) | folders
    quoted = re.compile(r"`([^`\n]+)`")
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        if document not in known:
            continue
        fenced = False
        for number, line in enumerate(lines_of(root, document), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
                continue
            if fenced:
                continue
            for text in quoted.findall(line):
                path = text.split()[0]
                path = path[2:] if path.startswith("./") else path
                path = re.sub(r":\d+$", "", path).rstrip("/")
                if path.split("/")[0] not in tops or path.startswith("build"):
                    continue
                if re.search(r"[<>=$]|\bX\b|NAME", path):
                    continue  # a pattern for the reader to fill in
                if "*" in path or "{" in path:
                    pattern = re.escape(path).replace(r"\*", "[^/]*")
                    pattern = re.sub(r"\\\{([^}]*)\\\}", lambda m: "(" + m.group(1).replace(",", "|") + ")", pattern)
                    if not any(re.fullmatch(pattern, k) for k in known):
                        yield f"{document}:{number}: nothing matches `{text}`"
                elif path not in known:
                    yield f"{document}:{number}: `{text}` does not exist"


# ---- sources

RECORD_FILE = re.compile(r"^(op|prim|rule|backend|cmd)_\w+\.cc$")
RECORD = re.compile(r"^(?:const [\w:]+&|std::unique_ptr<[\w:]+>) ((?:Op|Prim|Rule|Backend|Make)[A-Z]\w*)\(\)\s*\{", re.M)
DECLARATION = re.compile(r"^(const [\w:]+&|std::unique_ptr<[\w:]+>) \w+\(\);", re.M)


def check_sources(root):
    files = set(tree_files(root))
    sources = [f for f in files if f.endswith((".cc", ".c"))]
    for name in sorted(sources):
        folder, base = os.path.split(name)
        if not folder.startswith(tuple(f.rstrip("/") for f in OUR_FOLDERS) + ("tests",)):
            continue
        # The list may be in the folder or, for a folder without its own, above it with the relative path.
        found, above, relative = False, folder, base
        while above:
            listing = os.path.join(above, "CMakeLists.txt")
            if listing in files:
                text = "\n".join(line.split("#")[0] for line in lines_of(root, listing))
                found = re.search(r"(^|[\s(/\"])" + re.escape(relative) + r"($|[\s)\"])", text) is not None
                # A list built from stems: foreach(x a b) ... ${x}.c
                stem, suffix = os.path.splitext(relative)
                globs = re.findall(r"file\(GLOB[^)]*?\)", text)
                found = found or any(fnmatch.fnmatch(relative, p.replace("${CMAKE_CURRENT_SOURCE_DIR}/", ""))
                                     for g in globs for p in g.strip(")").split()[2:])
                found = found or (re.search(r"[\s(]" + re.escape(stem) + r"[\s)]", text) is not None
                                  and re.search(r"\$\{\w+\}" + re.escape(suffix), text) is not None)
                break
            above, part = os.path.split(above)
            relative = os.path.join(part, relative)
        if not found and name != "tests/fuzz/driver.cc":  # whet_fuzz adds that one
            yield f"{name}:1: not in the CMakeLists.txt of its folder, so it is never built"

    texts = {s: DECLARATION.sub("", "\n".join(lines_of(root, s))) for s in sources}
    for name in sorted(sources):
        folder, base = os.path.split(name)
        if not RECORD_FILE.match(base):
            continue
        records = RECORD.findall(texts[name])
        if base.startswith("op_") and not records:
            yield f"{name}:1: defines no operator record: `const OpRecord& OpName() {{`"
        for record in records:
            uses = (s for s in sources if s != name and os.path.dirname(s) == folder)
            listed = os.path.join(folder, "operators.inc")  # X(Relu) is OpRelu()
            in_list = os.path.exists(os.path.join(root, listed)) and re.search(
                rf"^X\({record.removeprefix('Op')}\)$", "\n".join(lines_of(root, listed)), re.M)
            if not in_list and not any(re.search(rf"\b{record}\b", texts[s]) for s in uses):
                yield f"{name}:1: {record}() is in no list of {folder}, so the catalog does not have it"


# ---- portable

# Written in pieces, so that this file does not match itself. Addresses: a build that knows one host breaks behind every
# mirror; packages come by name.
FORBIDDEN = [re.compile(pattern, re.I) for pattern in (
    "/(root|home/" + r"[a-z0-9_-]+)/",
    "https?:" + "//",
)]


def check_portable(root):
    for name in tree_files(root):
        if name == "LICENSE":
            continue
        path = os.path.join(root, name)
        with open(path, "rb") as file:
            data = file.read()
        if b"\0" in data[:4096]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for pattern in FORBIDDEN:
                match = pattern.search(line)
                if match:
                    yield f"{name}:{number}: '{match.group(0)}' does not belong in the tree"


# ---- size

REASON = re.compile(r"(//|#|/\*|\*|--|<!--).*\b(long|lines|length|one file|table|list)\b", re.I)


def check_size(root):
    for name in tree_files(root):
        if not name.endswith((".cc", ".h", ".c", ".py", ".proto", ".cmake", ".txt", ".js", ".ts", ".css")):
            continue
        if name.startswith("tests/fuzz/corpus/") or "/testdata/" in name:
            continue
        lines = lines_of(root, name)
        if len(lines) > 800 and not any(REASON.search(line) for line in lines[:15]):
            yield f"{name}:1: {len(lines)} lines: split it, or say in its first 15 lines why it is this long"


# ---- format

FORMATTER = "clang-format-19"


def check_format(root):
    if not shutil.which(FORMATTER):
        print(f"format: skipped, there is no {FORMATTER}")
        sys.exit(77)
    names = [n for n in tree_files(root) if n.endswith(CPP)]
    result = subprocess.run([FORMATTER, "--dry-run", "--fallback-style=Google", *names], cwd=root, capture_output=True,
                            text=True, check=False)
    places = re.findall(r"^(\S+?:\d+):\d+: \w+: ", result.stderr, re.M)
    if result.returncode and not places:
        raise SystemExit(f"{FORMATTER}: {result.stderr.strip()}")
    for place in dict.fromkeys(places):
        yield f"{place}: not laid out as .clang-format says: run {FORMATTER} -i on the file"


CHECKS = {"layers": check_layers, "paths": check_paths, "sources": check_sources, "portable": check_portable,
          "size": check_size, "format": check_format}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    findings = list(CHECKS[sys.argv[1]](os.path.abspath(sys.argv[2])))
    for finding in findings:
        print(finding)
    print(f"{sys.argv[1]}: {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
