#!/usr/bin/python3
"""The lint tests find what they are for: each case is a small tree with one fault, and the finding it must bring."""
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import packages_lint  # noqa: E402
import source_lint  # noqa: E402

GOOD = {
    "compiler/te/te.cc": '#include "compiler/te/te.h"\n\n#include "compiler/support/status.h"\n',
    "compiler/te/te.h": '#include "compiler/expr/expr.h"\n',
    "compiler/te/CMakeLists.txt": "whet_library(whet_te SOURCES te.cc)\n",
    "compiler/ops/op_relu.cc": "const OpRecord& OpRelu() { return kRelu; }\n",
    "compiler/ops/catalog.cc": '#include "compiler/ops/operators.inc"\n',
    "compiler/ops/operators.inc": "X(Relu)\n",
    "compiler/ops/CMakeLists.txt": "whet_library(whet_ops SOURCES op_relu.cc catalog.cc)\n",
    "tuner/service/CMakeLists.txt": "whet_program(t SOURCES main.cc)\n",
    "tuner/service/main.cc": '#include "tracker/service/service.h"\n',
    "README.md": "See `compiler/te/te.cc`, `compiler/te/*.h`, `compiler/{te,ops}/CMakeLists.txt`, and `whet tune`.\n",
}

# The table itself, and something in each folder that it names.
LAYERS = "\n".join(source_lint.lines_of(HERE, "layers.txt")) + "\n"
GOOD[source_lint.LAYERS] = LAYERS
for named in source_lint.read_layers(os.path.join(HERE, "layers.txt"))[3]:
    if f"{named}/".startswith(source_lint.OUR_FOLDERS):
        GOOD[named + "/NOTES"] = "\n"

# (check, files changed, part of the finding)
CASES = [
    ("layers", {"compiler/te/te.h": '#include "compiler/loop/loop.h"\n'}, "compiler/te may not include"),
    ("layers", {"compiler/te/te.h": "#include <llvm/IR/Module.h>\n"}, "for compiler/codegen only"),
    ("layers", {"compiler/te/te.h": '#include "te.cc"\n'}, "from the repository root"),
    ("layers", {"worker/device/d.h": '#include "compiler/te/te.h"\n'}, "worker may not include"),
    ("layers", {"deploy/runtime/r.h": '#include "compiler/support/status.h"\n'}, "deploy/runtime may not include"),
    ("layers", {"tuner/search/s.h": '#include "tracker/core/lease.h"\n'}, "tuner may not include"),
    ("layers", {"compiler/newfolder/n.h": "\n"}, "no line of tests/lint/layers.txt covers"),
    ("layers", {source_lint.LAYERS: LAYERS + "compiler/gone: compiler/support\n"}, "there is no folder compiler/gone"),
    ("layers", {source_lint.LAYERS: LAYERS.replace("db: ", "db: compiler/gone")}, "there is no folder compiler/gone"),
    ("layers", {source_lint.LAYERS: LAYERS + "only zlib.h: compiler/gone\n"}, "there is no folder compiler/gone"),
    ("paths", {"README.md": "See `compiler/te/gone.cc`.\n"}, "does not exist"),
    ("paths", {"README.md": "See `compiler/te/*.py`.\n"}, "nothing matches"),
    ("sources", {"compiler/te/orphan.cc": "\n"}, "never built"),
    ("sources", {"compiler/ops/operators.inc": "X(Relu6)\n"}, "OpRelu() is in no list"),
    ("sources", {"compiler/ops/operators.inc": "", "compiler/ops/catalog.cc": "const OpRecord& OpRelu();\n"}, "OpRelu() is in no list"),
    ("sources", {"compiler/ops/op_relu.cc": "\n"}, "defines no operator record"),
    ("portable", {"compiler/te/te.h": "// from /ro" + "ot/whet\n"}, "does not belong"),
    ("portable", {"setup": "curl http" + "s://example.org/x\n"}, "does not belong"),
    ("format", {"compiler/te/te.cc": "int  a;\n"}, "not laid out"),
    ("size", {"compiler/te/te.cc": "int a;\n" * 801}, "say in its first 15 lines"),
]


def findings(check, files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
        return list(source_lint.CHECKS[check](root))


def main():
    failures = 0
    usable = [c for c in source_lint.CHECKS if c != "format" or shutil.which(source_lint.FORMATTER)]
    for check in usable:
        found = findings(check, GOOD)
        if found:
            failures += 1
            print(f"{check}: finds faults in a good tree: {found}")
    for check, change, expected in CASES:
        if check not in usable:
            continue
        found = findings(check, {**GOOD, **change})
        if len(found) != 1 or expected not in found[0]:
            failures += 1
            print(f"{check} on {list(change)}: expected one finding with '{expected}', got {found}")

    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write('say() { cat; }\nas_root() { "$@"; }\n# comment tool\nfoo=$(sort "$x" | uniq -c)\nif ! grep -q a b; then as_root mount c; fi\n'
                     'case $1 in\n  alpha | beta) say "quoted word" ;;\nesac\ncommand -v optional && optional x\n')
        script.flush()
        tools = packages_lint.script_tools([script.name])
    if tools != {"cat", "sort", "uniq", "grep", "mount"}:
        failures += 1
        print(f"script_tools found {sorted(tools)}")
    print(f"{len(CASES) + len(usable) + 1} cases, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
