#!/usr/bin/python3
"""Fails when the build or a script uses something that packages.txt does not bring.

usage: packages_lint.py ROOT BUILD_FOLDER

A developer's machine has more installed than a fresh one, so a missing line in packages.txt shows nowhere until a
stranger tries ./setup. This maps to their Debian packages: every system header in the build's dependency log, every
CMake package it found, every library that was linked or that a program loads, every tool that build.ninja and the
scripts call. Each package must lie in the dependency closure of packages.txt plus what a minimal Debian root has.
"""
import os
import re
import subprocess
import sys
from collections import defaultdict

BUILD_SECTIONS = {"build", "test"}
# What is built with more where there is more, and without it where there is not: the libraries that whet-bench compares
# with are of section dev.
OPTIONAL_USER = re.compile(r"(.*/)?(tests/bench/.*|bin/whet-bench)$")
PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
BUILTINS = set("""[ [[ : . alias bg bind break builtin case cd command compgen complete continue coproc declare dirs do
done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs
kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source
suspend test then time times trap true type typeset ulimit umask unalias unset until wait while { } !""".split())

# Words after which a command still follows.
PREFIXES = {"then", "do", "else", "if", "elif", "while", "until", "exec", "as_root", "env", "time"}


# ---- packages

def read_list(root):
    sections = defaultdict(list)
    with open(os.path.join(root, "packages.txt"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 3:
                sys.exit(f"packages.txt:{number}: expected PACKAGE SECTION WHY")
            sections[words[1]].append(words[0])
    return sections


class Installed:
    """The packages of this machine and what each depends on."""

    def __init__(self):
        text = run("dpkg-query", "-W", "-f",
                   r"${db:Status-Abbrev}\t${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\t${Essential}\t${Priority}\n")
        self.depends, self.providers, self.base = {}, defaultdict(list), {"apt"}
        for line in text.splitlines():
            status, name, depends, provides, essential, priority = line.split("\t")
            if not status.startswith("ii"):
                continue
            self.depends[name] = [[bare(a) for a in group.split("|")] for group in depends.split(",") if group.strip()]
            for virtual in provides.split(","):
                if virtual.strip():
                    self.providers[bare(virtual)].append(name)
            if essential == "yes" or priority == "required":
                self.base.add(name)

    def resolve(self, group):
        """The packages that satisfy `a | b` here: the first that is installed, or else an installed provider of one."""
        for name in group:
            if name in self.depends:
                return [name]
        for name in group:
            if self.providers[name]:
                return self.providers[name]
        return []

    def closure(self, names):
        seen, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name in seen or name not in self.depends:
                continue
            seen.add(name)
            for group in self.depends[name]:
                todo += self.resolve(group)
        return seen


def bare(dependency):
    return re.split(r"[\s(:]", dependency.strip(), maxsplit=1)[0]


def run(*command, check=True):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(command[:4])}: {result.stderr.strip()}")
    return result.stdout


def spellings(path):
    """How dpkg may know a path: as given, resolved, and with /usr merged or not. dpkg does not look through links."""
    out = []
    for p in (os.path.normpath(path), os.path.realpath(path)):
        out.append(p)
        if re.match(r"/usr/(lib|lib32|lib64|libx32|bin|sbin)/", p):
            out.append(p[4:])
        elif re.match(r"/(lib|lib32|lib64|libx32|bin|sbin)/", p):
            out.append("/usr" + p)
    return list(dict.fromkeys(out))


def owners(paths):
    """path -> the packages that own it, in one call of dpkg-query for all."""
    names = sorted({s for p in paths for s in spellings(p)})
    found = defaultdict(set)
    for begin in range(0, len(names), 4000):
        for line in run("dpkg-query", "-S", "--", *names[begin:begin + 4000], check=False).splitlines():
            packages, _, name = line.rpartition(": ")
            if not packages.startswith("diversion by"):
                found[name].update(bare(p) for p in packages.split(", "))
    return {p: set().union(*(found[s] for s in spellings(p))) for p in paths}


# ---- what the build uses

def outside(path, root, build):
    return path.startswith("/") and not path.startswith((root + "/", build + "/")) and os.path.exists(path)


def headers(build):
    """(object file, header)"""
    user = ""
    for line in run("ninja", "-C", build, "-t", "deps").splitlines():
        path = line.strip()
        if line.startswith("    ") and path.startswith("/"):
            yield user, os.path.normpath(path)
        elif line and not line.startswith(" "):
            user = line.partition(":")[0]


def ninja_commands(build):
    """Tools, (user, library) and other files that build.ninja and rules.ninja name by absolute path."""
    tools, libraries, others = set(), set(), set()
    user = ""
    for name in ("build.ninja", "CMakeFiles/rules.ninja"):
        with open(os.path.join(build, name), encoding="utf-8") as file:
            for line in file:
                if line.startswith("build "):
                    user = line.split()[1].rstrip(":")
                if not re.match(r"\s+(LINK_LIBRARIES|LINK_FLAGS|COMMAND|command) = ", line):
                    continue
                for path in re.findall(r"(?<![\w=./-])/(?:usr|lib|lib64|bin|sbin|opt)/[^\s\"';&|$]+", line):
                    if os.path.isfile(path):
                        library = re.search(r"\.(so[.\d]*|a|o)$", path)
                        if library:
                            libraries.add((user, path))
                        else:
                            (tools if os.access(path, os.X_OK) else others).add(path)
    return tools, libraries, others


def cmake_packages(build):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        for line in file:
            match = re.match(r"(\w[\w.+-]*_DIR):PATH=(/.+)$", line.strip())
            if match and os.path.isdir(match[2]):
                configs = [f for f in os.listdir(match[2]) if f.lower().endswith("config.cmake")]
                if configs:
                    yield os.path.join(match[2], sorted(configs)[0])


def loaded_libraries(build):
    """(program, library)"""
    programs = []
    for folder in ("bin", "tests", "libexec"):
        top = os.path.join(build, folder)
        if os.path.isdir(top):
            programs += [e.path for e in os.scandir(top) if e.is_file() and os.access(e.path, os.X_OK)]
    for program in programs:
        with open(program, "rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        for line in run("ldd", program, check=False).splitlines():
            match = re.search(r"=> (/\S+)", line)
            if match:
                yield program, match[1]
            elif "not found" in line:
                yield program, line.split()[0]


# ---- what the scripts use

def script_text(path):
    """A shell script's text without comments, here-documents and quoted words; $(...) inside quotes stays."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"<<-?\s*'?(\w+)'?\n.*?\n\1\n", "\n", text, flags=re.S)
    text = re.sub(r"(^|\s)#[^\n]*", r"\1", text)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"\bbash -euc '([^']*)'", lambda m: "\n" + m[1] + "\n", text)
    text = re.sub(r"\$\{[^{}]*\}", "VALUE", text)
    text = re.sub(r"'[^'\n]*'", "QUOTED", text)
    text = re.sub(r"'[^']*'", "QUOTED", text)
    return re.sub(r'"(?:[^"\\]|\\.)*"',
                  lambda m: "QUOTED" + "".join("\n" + c + "\n" for c in re.findall(r"\$\(([^()]*)\)", m[0])), text)


def script_tools(paths):
    """Commands the scripts call: words in command position that no function or builtin explains.

    A name that a script asks `command -v` about is optional there, so it is left out."""
    texts = [script_text(p) for p in paths]
    functions = set(re.findall(r"^\s*(\w+)\(\)", "\n".join(texts), re.M))
    optional = set(re.findall(r"command -v (\w[\w.+-]*)", "\n".join(texts)))
    tools = set()
    for text in texts:
        text = re.sub(r"^\s*[\w*?\- |]+\)", "", text, flags=re.M)  # case labels look like pipelines
        text = re.sub(r"\w+\+?=\([^)]*\)", "", text)  # arrays look like subshells
        command = True  # whether the next word is in command position
        for token in re.findall(r"\$\(|[|&;(){}\n!]|[^\s|&;(){}!]+", text):
            if re.fullmatch(r"\$\(|[|&;(){}\n!]", token):
                command = True
            elif command and not re.match(r"[A-Za-z_]\w*\+?=|-", token):
                command = token in PREFIXES
                if re.fullmatch(r"/?[a-z][\w./+-]*", token) and token not in BUILTINS | functions | optional:
                    if "/" not in token or token.startswith("/"):
                        tools.add(token)
    return tools


def find_tool(name):
    if name.startswith("/"):
        return name if os.path.exists(name) else None
    return next((os.path.join(p, name) for p in PATH if os.access(os.path.join(p, name), os.X_OK)), None)


# ---- the check

def report(kind, paths, allowed, sections, findings):
    paths = sorted(set(paths))
    found = owners(paths)
    by_package = defaultdict(list)
    for path in paths:
        if not found[path]:
            findings.append(f"{kind} {path} belongs to no Debian package")
        elif not found[path] & allowed:
            by_package[" or ".join(sorted(found[path]))].append(path)
    for package, users in sorted(by_package.items()):
        more = f" and {len(users) - 1} more" if len(users) > 1 else ""
        findings.append(f"{kind} {users[0]}{more}: package {package} is not in the closure of packages.txt"
                        f" (sections {', '.join(sorted(sections))})")
    print(f"checked {len(paths)}: {kind}")


def report_users(kind, uses, allow, used, findings):
    """report() for (user, path): those that are optional users may go beyond to section dev."""
    optional = {path for user, path in uses if OPTIONAL_USER.match(user)}
    needed = {path for user, path in uses if not OPTIONAL_USER.match(user)}
    report(kind, needed, allow(used), used, findings)
    report(f"{kind} of whet-bench", optional - needed, allow(used | {"dev"}), used | {"dev"}, findings)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if not os.path.exists("/usr/bin/dpkg-query"):
        print("skipped: no dpkg here, so nothing says which package a file belongs to")
        sys.exit(77)
    root, build = (os.path.realpath(p) for p in sys.argv[1:])
    sections = read_list(root)
    installed = Installed()
    findings = []
    for name in sections["build"] + sections["test"]:
        if name not in installed.depends:
            findings.append(f"packages.txt: {name} is not installed here; run ./setup test")

    def allow(names):
        return installed.closure(installed.base | {p for s in names for p in sections[s]})

    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        clang = "clang" in re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", file.read(), re.M)[1]
    used = BUILD_SECTIONS | ({"ci"} if clang else set())
    base = allow(used)
    used_headers = {(u, h) for u, h in headers(build) if outside(h, root, build)}
    if not used_headers:
        findings.append("the build has no dependency log yet: build before running this")
    tools, libraries, others = ninja_commands(build)
    report_users("header", used_headers, allow, used, findings)
    report("CMake package", cmake_packages(build), base, used, findings)
    report("file", others, base, used, findings)
    report_users("library", libraries | set(loaded_libraries(build)), allow, used, findings)

    ci = {"build", "test", "ci"}
    # ccache and mold serve the build where they are present.
    report("build tool", tools, allow(ci), ci, findings)
    groups = [({"build", "test", "demo"}, ["setup", ".ci/lib.sh", ".ci/assets.sh"])]
    if all(p in installed.depends for p in sections["ci"]):
        groups.append((ci, [".ci/run", ".ci/fresh", ".ci/lib.sh"]))
    else:
        print("the scripts of .ci/ are not checked: packages of section ci are missing here")
    for names, scripts in groups:
        paths = []
        for tool in sorted(script_tools([os.path.join(root, s) for s in scripts])):
            path = find_tool(tool)
            if path is None:
                findings.append(f"{' or '.join(scripts)} calls {tool}, which is not on this machine")
            else:
                paths.append(path)
        report("script tool", paths, allow(names), names, findings)

    for finding in findings:
        print("FAILED:", finding)
    print(f"packages: {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
