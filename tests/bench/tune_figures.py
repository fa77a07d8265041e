#!/usr/bin/python3
"""Makes the tuning log behind README's figures: of the kernels and of the networks, on one thread, and of ResNet-50 and BERT on two.

usage: tune_figures.py FILE.jsonl.gz [--minutes N] [--db LOG] [--build FOLDER] [--models FOLDER] [NAME...]

The time is shared out by the number of tasks; a task that several have is tuned once, and within a job trials go where they gain.
A schedule counts only where it has beaten the untuned one in turn with it. NAME: "suites", a network, or "NETWORK@2" for two
threads; all of them unless given. With --db the log is kept, and what is in it is gone on with. Trained networks that are not
there are left out by name (tests/models/fetch).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_bench  # noqa: E402
import network_bench  # noqa: E402

SUITES = ["gemm", "conv", "depthwise", "pointwise", "misc"]  # chains are made of these


def source(args, name, scratch):
    """What `whet tune` takes: a file and its flags; or None and why not."""
    if name == "suites":
        path = os.path.join(scratch, name + ".txt")
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([f"{args.build}/bin/whet-bench", "workloads", *SUITES], stdout=file, check=True)
        return [path], ""
    network, _, threads = name.partition("@")
    flags = ["--threads", threads] if threads else []
    if network in model_bench.TRAINED:
        path = os.path.join(args.models, model_bench.TRAINED[network][0])
        if not os.path.exists(path):
            return None, f"{network} is not fetched: tests/models/fetch does so"
        return [path, *model_bench.TRAINED[network][1], *flags], ""
    path = os.path.join(scratch, network + ".onnx")
    if not os.path.exists(path):
        subprocess.run([f"{args.build}/tests/generate_model", network, path], check=True)
    return [path, *flags], ""


def tasks_of(args, tuned):
    done = subprocess.run([f"{args.build}/bin/whet", "tune", *tuned, "--dry-run", "--json", "-"], check=True, capture_output=True, text=True)
    return len(json.loads(done.stdout)["tasks"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--db", default="")
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build"))
    parser.add_argument("--models", default="")
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    args.models = args.models or os.path.join(args.build, "models")
    names = args.names or ["suites"] + network_bench.NETWORKS + [name + "@2" for name in network_bench.SCALING]
    for path in filter(None, (args.file, args.db)):  # before the minutes of tuning, not after
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
            parser.error(f"'{path}' cannot be written")
    end = time.monotonic() + args.minutes * 60
    with tempfile.TemporaryDirectory() as scratch:
        db = args.db or os.path.join(scratch, "tuning.db")
        jobs = []
        for name in names:
            tuned, why = source(args, name, scratch)
            if tuned is None:
                print(f"left out: {why}", flush=True)
                continue
            jobs.append((name, tuned, tasks_of(args, tuned)))
        left = sum(tasks for _, _, tasks in jobs)
        for name, tuned, tasks in jobs:
            seconds = max(1, (end - time.monotonic()) * tasks / left)
            left -= tasks
            print(f"{name}: {tasks} tasks, {seconds:.0f} s", flush=True)
            subprocess.run([f"{args.build}/bin/whet", "tune", *tuned, "--db", db, "--time", f"{seconds:.1f}", "--state-dir",
                            os.path.join(scratch, "state")], check=True)
        subprocess.run([f"{args.build}/bin/whet-bench", "pack", db, args.file], check=True)


if __name__ == "__main__":
    main()
