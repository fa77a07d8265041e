#!/usr/bin/python3
"""Whole networks beside onnxruntime, for `whet-bench run networks scaling`, which calls this and takes its result.

usage: network_bench.py networks|scaling --ort FOLDER --json FILE [--build FOLDER] [--models FOLDER] [--db LOG] [--rounds N] [NAME...]

networks: one thread. With --db ours is compiled from that tuning log, and stands beside the same network untuned; without it,
ours is the untuned one. A contender "tasks" is the sum of its tasks, each timed by itself on weights that take turns. scaling: ResNet-50
and BERT on one and on two threads, ours compiled for each, all four in turn.
Models are those of model_bench.py: generated, or trained and unpacked by tests/models/fetch. What is not there is left out by name.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_bench  # noqa: E402

NETWORKS = ["resnet50", "mobilenetv2", "bert_base", "blazeface_128", "blazeface_256", "mlsd_320_tiny", "mlsd_320_large", "ocr_det",
            "ocr_rec", "ocr_cls", "silero_vad", "ssd_300"]
SCALING = ["resnet50", "bert_base"]
# Times as many rounds of shorter blocks: on a machine whose clock moves, a ratio of two ratios scatters most.
SCALING_ROUNDS = 4
# That both compute the same network; how well ours does is for `whet verify`, which knows each operator's error and is asked
# where this is not met. MLSD's offsets are 0.0004 of the largest one off from the reference in double precision, and its scores
# are zero but for peaks.
CLOSE = ["--rtol", "1e-3", "--atol", "1e-6"]
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_onnxruntime.mjs")


def write_npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def values(count):
    """Numbers in [-1, 1), the same ones always."""
    out, state = bytearray(), 12345
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2 ** 32
        out += struct.pack("<f", state / 2 ** 31 - 1)
    return bytes(out)


def inputs_of(flags, scratch):
    """What the peer's script needs besides the model: inputs whose shape the model leaves open, and those that became constants."""
    out = []
    for kind, text in zip(flags[::2], flags[1::2]):
        name, value = text.split("=")
        path = os.path.join(scratch, re.sub(r"\W", "_", name) + ".npy")
        if kind == "--shape":
            shape = tuple(int(d) for d in value.split(","))
            count = 1
            for d in shape:
                count *= d
            write_npy(path, "<f4", shape, values(count))
            out += ["--input", f"{name}={path}"]
        else:
            write_npy(path, "<i8", (), struct.pack("<q", int(value)))
            out += ["--ort-input", f"{name}={path}"]
    return out


def command(arguments):
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or "it failed").splitlines()[-1])
    return done.stdout


def compile_network(args, model, flags, scratch, threads):
    """Artifacts by the names they have in the result."""
    def artifact(name, schedules, threads):
        path = os.path.join(scratch, f"{name}.so")
        command([f"{args.build}/bin/whet", "compile", model, *flags, "-o", path, "--threads", str(threads), *schedules])
        return path
    if not args.db:
        return {"whet": artifact("whet", ["--untuned"], threads)}
    return {"whet": artifact("whet", ["--db", args.db], threads), "untuned": artifact("untuned", ["--untuned"], threads)}


def case_of(args, suite, name, scratch, versions):
    if name in model_bench.TRAINED:
        model, flags = os.path.join(args.models, model_bench.TRAINED[name][0]), model_bench.TRAINED[name][1]
        if not os.path.exists(model):
            return None, f"{name} is not fetched: tests/models/fetch does so"
    else:
        model, flags = os.path.join(scratch, name + ".onnx"), []
        command([f"{args.build}/tests/generate_model", name, model])
    cores = sorted(os.sched_getaffinity(0))
    if suite == "scaling" and len(cores) < 2:
        return None, f"{name}: two threads need two processors, this process may use one"
    artifacts = compile_network(args, model, flags, scratch, 1)
    extra = ["--tasks", "yes"]
    if suite == "scaling":
        artifacts.pop("untuned", None)
        both = os.path.join(scratch, "both")
        os.mkdir(both)
        extra = ["--artifact-on", "2=" + compile_network(args, model, flags, both, 2)["whet"]]
    result = os.path.join(scratch, "result.json")
    threads = "1,2" if suite == "scaling" else "1"
    pinned = ",".join(str(c) for c in cores[:2 if suite == "scaling" else 1])
    command(["node", PEER, "--ort", args.ort, "--model", model, "--whet", f"{args.build}/bin/whet", "--threads", threads, "--core", pinned,
             "--pairs", str(args.rounds * (SCALING_ROUNDS if suite == "scaling" else 1)), *CLOSE, "--verify", " ".join(flags), *extra, "--json", result, *inputs_of(flags, scratch),
             *[word for path in artifacts.values() for word in ("--artifact", path)]])
    with open(result, encoding="utf-8") as file:
        measured = json.load(file)
    versions["onnxruntime"] = measured["versions"]["onnxruntime-node"]
    contenders = [{"name": c["name"].replace(".so", ""), "detail": "", "calls": c["runs_per_block"], "median_us": c["median_ms"] * 1000,
                   "samples_us": [round(ms * 1000, 2) for ms in c["samples_ms"]]} for c in measured["contenders"]]
    contenders.sort(key=lambda c: not c["name"].startswith("whet"))  # stable: ours first
    return {"suite": suite, "case": name, "contenders": contenders}, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=["networks", "scaling"])
    parser.add_argument("--ort", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build"))
    parser.add_argument("--models", default="")
    parser.add_argument("--db", default="")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    args.models = args.models or os.path.join(args.build, "models")
    out = {"versions": {}, "absent": [], "cases": []}
    for name in args.names or (SCALING if args.suite == "scaling" else NETWORKS):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                case, why = case_of(args, args.suite, name, scratch, out["versions"])
            except KeyboardInterrupt:
                break  # what was measured is kept
            except (RuntimeError, OSError) as error:
                case, why = {"suite": args.suite, "case": name, "failed": str(error)}, ""
        if case is None:
            out["absent"].append({"peer": "onnxruntime", "why": why})
            print(f"left out: {why}", flush=True)
            continue
        out["cases"].append(case)
        if "failed" in case:
            print(f"{name:16} FAILED: {case['failed']}", flush=True)
        else:
            print(f"{name:16} " + "  ".join(f"{c['name']} {c['median_us'] / 1000:.3f} ms" for c in case["contenders"]), flush=True)
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(out, file)


if __name__ == "__main__":
    main()
