#!/usr/bin/python3
"""model_bench.py tells a network that compiles and verifies from one that does not: it runs with programs in place of
whet's that answer as these do."""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_bench.py")
# `resnet50` does not agree with the reference, `resnet18` does not compile.
WHET = """#!/bin/sh
case "$1 $*" in
  compile*resnet18*) echo "whet compile: no such operator" >&2; exit 2 ;;
  compile*) while [ "$1" != -o ]; do shift; done; : > "$2"
    echo '{"peak_bytes": 1, "artifact_bytes": 1, "arena_bytes": 1}' ;;
  inspect*) cat "${0%/*}/inspected" ;;
  verify*resnet50*) echo MISMATCH; exit 1 ;;
esac
"""
# Three kernels, one of which is a copy, for a convolution and a pool. Names may look like nodes.
INSPECTED = {"parameter_bytes": 1, "launches": 3,
             "tasks": [{"count": 1, "summary": "Transpose 1x2"}, {"count": 2, "summary": "Conv 1x2"}],
             "graph": {"before": 'graph "g"\n  input x: f32[1]\n  "a: f32[1] = Conv(": f32[1,2] = Relu(x) "Conv"\n'
                                 '  "b \\" b": f32[1,2] = ConvTranspose(x)\n  y: f32[], z: i64[] = MaxPoolIndices(x)\n'}}
# (networks, exit code, what standard error has, what standard output has)
CASES = [
    (["mobilenetv2"], 0, [], ["       3      2       1"]),
    (["resnet50", "mobilenetv2"], 1, ["resnet50: MISMATCH"], ["MISMATCH"]),
    (["resnet18", "mobilenetv2"], 1, ["resnet18: whet compile: no such operator"], ["no such operator"]),
    (["ocr_det"], 1, ["ocr_det: not fetched"], ["not fetched"]),
]


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as build:
        for name, text in {"bin/whet": WHET, "bin/load_bench": "#!/bin/sh\necho 1 2\n",
                           "bin/inspected": json.dumps(INSPECTED), "tests/generate_model": '#!/bin/sh\n: > "$2"\n'}.items():
            path = os.path.join(build, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        for names, code, errors, outputs in CASES:
            done = subprocess.run([sys.executable, "-B", SCRIPT, "--build", build, "--verify", *names], check=False,
                                  capture_output=True, text=True)
            lines = done.stderr.splitlines()
            if (done.returncode != code or len(lines) != len(errors) or not all(e in l for e, l in zip(errors, lines))
                    or not all(o in done.stdout for o in outputs)):
                failures += 1
                print(f"{names}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{len(CASES)} cases, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
