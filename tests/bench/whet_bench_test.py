#!/usr/bin/python3
"""whet-bench from outside: a small run with whatever peers are there, its result file, what compare and table make of it, and a
tuning log that is packed, restored and used. No time decides anything here.

usage: whet_bench_test.py FOLDER_OF_PROGRAMS"""
import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = ""
SOURCES = os.path.dirname(os.path.abspath(__file__))
CASES = ["gemm 6 16 24", "conv 8 16 6 6 3 1 1", "softmax 4 16"]


# In place of node and onnxruntime, which need not be there: what was asked for, with times that say who is who.
NODE = """#!/usr/bin/python3
import json, os, sys
flags = list(zip(sys.argv[2::2], sys.argv[3::2]))
of = lambda key: [v for k, v in flags if k == key]
threads, contenders = of("--threads")[0].split(","), []
for t in threads:
    suffix = "" if t == threads[0] else " on " + t
    artifacts = [v.split("=", 1)[1] for v in of("--artifact-on") if v.startswith(t + "=")] or of("--artifact")
    contenders.append(("onnxruntime" + suffix, 8))
    contenders += [(os.path.basename(a) + suffix, os.path.getsize(a)) for a in artifacts]
contenders += [("tasks", 4)] * (of("--tasks") == ["yes"])
with open(of("--json")[0], "w") as file:
    json.dump({"versions": {"onnxruntime-node": "0"}, "contenders": [
        {"name": n, "median_ms": ms, "runs_per_block": 1, "samples_ms": [ms] * int(of("--pairs")[0])} for n, ms in contenders]}, file)
"""


class WhetBenchTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, text=None):
        path = os.path.join(self.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def call(self, *args, code=0, program="whet-bench"):
        done = subprocess.run([os.path.join(BIN, program), *args], check=False, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def run_cases(self, name, *args):
        path = self.path(name)
        cases = [word for c in CASES for word in ("--case", c)]
        text = self.call("run", *cases, "--seconds", "0.001", "--rounds", "5", "--json", path, *args)
        with open(path, encoding="utf-8") as file:
            return json.load(file), text

    def write(self, name, result):
        return self.path(name, json.dumps(result))

    def test_a_run_says_what_was_measured_and_who_was_not_there(self):
        result, text = self.run_cases("a.json")
        self.assertEqual((result["whet_bench"], result["threads"], result["caches"], result["schedules"]), (1, 1, "warm", "untuned"))
        self.assertTrue(result["machine"]["processor"] and result["versions"]["whet"] and result["date"])
        for peer in ("onednn", "openblas"):
            absent = [a["why"] for a in result["absent"] if a["peer"] == peer]
            self.assertEqual(len(absent), 0 if peer in result["versions"] else 1)
            self.assertTrue(all("apt-get install" in why and why in text for why in absent), absent)
        self.assertEqual([c["case"] for c in result["cases"]], CASES)
        for case in result["cases"]:
            own = case["contenders"][0]
            self.assertEqual(own["name"], "whet")
            self.assertLessEqual(own["worst_error"], 1)
            rounds = len(case["fma_gflops"])
            self.assertGreaterEqual(rounds, 5)
            for contender in case["contenders"]:
                self.assertEqual(len(contender["samples_us"]), rounds)
                self.assertTrue(all(us > 0 for us in contender["samples_us"]))
            peers = [c["name"] for c in case["contenders"][1:] if c["name"] != "floor"]
            self.assertEqual([r["peer"] for r in case["ratios"]], peers)
            if "onednn" in result["versions"]:
                self.assertTrue(case["best"].startswith("onednn"), case["best"])
        self.assertGreater(result["cases"][2]["share_of_floor"], 0)

    def test_no_peer_at_all_is_a_run_too(self):
        result, _ = self.run_cases("a.json", "--peers", "none", "--search", "2")
        self.assertEqual([[c["name"] for c in case["contenders"]] for case in result["cases"]], [["whet"], ["whet"], ["whet", "floor"]])
        self.assertEqual(result["schedules"], "best of the prior's 2")

    def test_compare_marks_what_changed(self):
        before, _ = self.run_cases("a.json", "--peers", "none")
        # A peer that takes twice our time, give or take; afterwards ours is half as fast in one case.
        for case in before["cases"]:
            noise = [1 + 0.01 * (k % 5) for k in range(len(case["fma_gflops"]))]
            case["contenders"] = [{"name": "whet", "median_us": 10, "samples_us": [10 * n for n in noise]},
                                  {"name": "onednn direct", "median_us": 20, "samples_us": [20.0 for _ in noise]}]
        after = copy.deepcopy(before)
        own = after["cases"][1]["contenders"][0]
        own["samples_us"] = [2 * us for us in own["samples_us"]]
        del after["cases"][2]
        text = self.call("compare", self.write("a.json", before), self.write("b.json", after))
        lines = {case: [line for line in text.splitlines() if case in line] for case in CASES}
        self.assertIn("SLOWER", lines[CASES[1]][0])
        self.assertIn("0.500 (", lines[CASES[1]][0])
        self.assertNotIn("SLOWER", lines[CASES[0]][0])
        self.assertNotIn("faster", lines[CASES[0]][0])
        self.assertIn("only in the first", lines[CASES[2]][0])
        self.assertIn("2 cases, 0 faster, 1 slower", text)
        self.assertIn("2 cases, 1 faster, 0 slower", self.call("compare", self.path("b.json"), self.path("a.json")))
        after["threads"] = 2
        self.assertIn("differ in threads", self.call("compare", self.path("a.json"), self.write("b.json", after), code=2))
        self.assertIn("is not a result", self.call("compare", self.path("a.json"), self.path("c.json", "{}"), code=2))

    def test_the_table_judges_what_is_there(self):
        def case(suite, name, own, **others):
            return {"suite": suite, "case": name, "flops": 1e6, "fma_gflops": [100.0] * 9,
                    "contenders": [{"name": n.replace("_", " "), "median_us": us, "samples_us": [float(us)] * 9}
                                   for n, us in {"whet": own, **others}.items()]}
        result = {"whet_bench": 1, "cases": [
            case("conv", "conv 1", 10, onednn_direct=11, onednn_winograd=12),
            case("conv", "conv 2", 10, onednn_direct=20, onednn_winograd=9),
            case("depthwise", "depthwise 1", 10, onednn_direct=17), case("depthwise", "depthwise 2", 10, onednn_direct=19),
            case("networks", "a", 10, onnxruntime=30, untuned=11, tasks=9), case("networks", "b", 10, onnxruntime=9, untuned=14, tasks=10.2),
            case("scaling", "a", 10, onnxruntime=12, whet_on_2=5, onnxruntime_on_2=6.6),
            case("scaling", "b", 10, onnxruntime=12, whet_on_2=6, onnxruntime_on_2=6.6)]}
        table = self.call("table", self.write("r.json", result))
        rows = {cells[1].strip(): [c.strip() for c in cells[2:-1]] for cells in (line.split("|") for line in table.splitlines()[2:])}
        self.assertEqual(rows["conv of ResNet-50 where oneDNN's best is direct"][2:], ["1.100 (1.100 to 1.100)", "aim met"])
        self.assertEqual(rows["conv of ResNet-50 where it is Winograd"][2:], ["0.900 (0.900 to 0.900)", "**missed**"])
        self.assertEqual(rows["depthwise of MobileNetV2 / oneDNN"][2:], ["1.797 (1.797 to 1.797), 2 cases, least 1.70: depthwise 1", "aim met"])
        # A good mean does not make up for one that is too slow.
        self.assertTrue(rows["networks / onnxruntime"][2].startswith("1.643"), rows["networks / onnxruntime"])
        self.assertEqual(rows["networks / onnxruntime"][3], "**missed**")
        self.assertEqual(rows["untuned / tuned network, time"][2:], ["1.400 (1.400 to 1.400), greatest of 2 cases: b", "**missed**"])
        self.assertEqual(rows["two threads: our scaling"][2:], ["1.667 (1.667 to 1.667), least of 2 cases: b", "aim missed"])
        self.assertEqual(rows["two threads: our scaling over onnxruntime's"][2:], ["0.917 (0.917 to 0.917), least of 2 cases: b", "**missed**"])
        self.assertEqual(rows["sum of a network's tasks / the network, time: furthest from 1"][2:],
                         ["1.111 (1.111 to 1.111), greatest of 2 cases: a", "**missed**"])
        self.assertEqual(rows["GELU 128x3072 / oneDNN"][2:], ["not measured", ""])

        readme = self.path("README.md", "before\n<!-- figures: written by whet-bench table -->\nold\n<!-- end of figures -->\nafter\n")
        self.call("table", self.path("r.json"), "--readme", readme)
        with open(readme, encoding="utf-8") as file:
            self.assertEqual(file.read(), "before\n<!-- figures: written by whet-bench table -->\n" + table + "<!-- end of figures -->\nafter\n")
        self.call("table", self.path("r.json"), "--readme", readme, "--check")
        result["cases"][0]["contenders"][1]["samples_us"] = [12.0] * 9
        self.assertIn("is not that of", self.call("table", self.write("r.json", result), "--readme", readme, "--check", code=1))
        self.call("table", self.path("r.json"), "--readme", self.path("other.md", "no markers\n"), code=2)

    def test_what_is_kept_of_a_result_gives_the_same_table_in_fewer_rounds(self):
        rounds = 200
        us = [100 + 0.123456 * (k % 10) for k in range(rounds)]
        result = {"whet_bench": 1, "threads": 1, "cases": [
            {"suite": "depthwise", "case": f"depthwise {i}", "flops": 1e6, "fma_gflops": [100.0 + k for k in range(rounds)], "contenders": [
                {"name": "whet", "median_us": 100.555555, "samples_us": us}, {"name": "onednn", "median_us": 150, "samples_us": [1.5 * v for v in us]}]}
            for i in range(2)] + [{"suite": "networks", "case": "a", "failed": "why"}]}
        kept = self.path("kept.json")
        self.call("keep", self.write("all.json", result), kept)
        with open(kept, encoding="utf-8") as file:
            small = json.load(file)
        self.assertEqual([c["case"] for c in small["cases"]], ["depthwise 0", "depthwise 1", "a"])
        own, peer = small["cases"][0]["contenders"]
        self.assertEqual({len(samples) for samples in (own["samples_us"], peer["samples_us"], small["cases"][0]["fma_gflops"])}, {41})
        self.assertEqual(own["samples_us"][:2], [100.0, 100.5])
        self.assertLess(max(abs(b / a - 1.5) for a, b in zip(own["samples_us"], peer["samples_us"])), 0.002)  # of the same rounds
        self.assertIn("1.500 (", self.call("table", kept))
        again = self.path("again.json")
        self.call("keep", kept, again)
        with open(kept, "rb") as a, open(again, "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_a_log_is_packed_restored_and_used(self):
        text = self.call("workloads", "gemm")
        workloads = [w for w in text.split("whet-workload ") if "[128,768]" in w and "[768,768]" in w]
        self.assertEqual(len(workloads), 1)
        log, packed, restored = self.path("tuning.db"), self.path("log.jsonl.gz"), self.path("again.db")
        self.call("tune", self.path("some.txt", "whet-workload " + workloads[0]), "--db", log, "--trials", "6", "--state-dir",
                  self.path("state"), program="whet")
        self.call("pack", log, packed)
        self.call("restore", packed, restored)
        best = [json.loads(self.call("log", "best", "--db", path, "--json", "-", program="whet")) for path in (log, restored)]
        decided = [[[t.get(k) for k in ("workload", "default_ms", "best_ms", "ratio")] for t in b["tasks"]] for b in best]
        self.assertEqual(len(decided[0]), 1)
        self.assertGreater(decided[0][0][1], 0)
        self.assertEqual(decided[0], decided[1])
        result = self.path("r.json")
        self.call("run", "--case", "gemm 128 768 768", "--db", packed, "--peers", "none", "--seconds", "0.001", "--rounds", "3", "--json", result)
        with open(result, encoding="utf-8") as file:
            detail = json.load(file)["cases"][0]["contenders"][0]["detail"]
        # Six trials need not beat the default.
        self.assertTrue(detail.startswith("tuned: " if decided[0][0][2] else "untuned: "), detail)
        self.call("restore", packed, restored, code=2)
        with open(packed, "rb") as file:
            data = file.read()
        with open(packed, "wb") as file:
            file.write(data[:len(data) // 2])
        self.call("restore", packed, self.path("third.db"), code=2)

    def networks(self, suite, *args):
        result, node = self.path("networks.json"), self.path("node", NODE)
        os.chmod(node, 0o755)
        environment = {**os.environ, "PATH": self.folder.name + ":" + os.environ["PATH"]}
        done = subprocess.run(["/usr/bin/python3", "-B", os.path.join(SOURCES, "network_bench.py"), suite, "--build", os.path.dirname(BIN), "--ort",
                               "none", "--rounds", "3", "--json", result, *args], check=False, capture_output=True, text=True, timeout=120,
                              env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(result, encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        self.assertNotIn("failed", cases[0], cases)
        return {c["name"]: c["samples_us"] for c in cases[0]["contenders"]}

    def test_networks_stand_beside_themselves_untuned_in_tasks_and_on_two_threads(self):
        self.assertEqual(list(self.networks("networks", "tiny_ssd")), ["whet", "onnxruntime", "tasks"])
        model, log = self.path("tiny.onnx"), self.path("tuning.db")
        subprocess.run([os.path.join(BIN, "../tests/generate_model"), "tiny_ssd", model], check=True)
        self.call("tune", model, "--db", log, "--time", "3", "--state-dir", self.path("state"), program="whet")
        tuned = self.networks("networks", "tiny_ssd", "--db", log)
        self.assertEqual(list(tuned), ["whet", "onnxruntime", "untuned", "tasks"])
        self.assertEqual(tuned["tasks"], [4000.0] * 3)
        if len(os.sched_getaffinity(0)) > 1:
            self.assertEqual(list(self.networks("scaling", "tiny_ssd")), ["whet", "whet on 2", "onnxruntime", "onnxruntime on 2"])

    def test_the_log_of_the_figures_is_made_by_one_command(self):
        packed, log = self.path("log.jsonl.gz"), self.path("tuning.db")
        done = subprocess.run(["/usr/bin/python3", "-B", os.path.join(SOURCES, "tune_figures.py"), packed, "--minutes", "0.05", "--db", log, "--build",
                               os.path.dirname(BIN), "tiny_ssd", "tiny_ssd@2", "ocr_cls", "--models", self.folder.name],
                              check=False, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("left out: ocr_cls is not fetched", done.stdout)
        self.call("restore", packed, self.path("again.db"))
        threads = [{t["threads"] for t in json.loads(self.call("log", "stats", "--db", path, "--json", "-", program="whet"))["tasks"]}
                   for path in (log, self.path("again.db"))]
        self.assertEqual(threads, [{1, 2}, {1, 2}])

    def test_what_is_not_a_case_is_said(self):
        self.assertIn("gemm takes 3 to 3 numbers", self.call("run", "--case", "gemm 1 2", code=2))
        self.assertIn("there is no suite 'nothing'", self.call("run", "nothing", code=2))
        self.assertIn("name suites", self.call("run", code=2))
        self.assertIn("cannot be written", self.call("run", "--case", CASES[0], "--json", self.path("no/such.json"), code=2))

    def test_who_interrupts_a_run_keeps_what_was_measured(self):
        for number, known in ((signal.SIGINT, "{"), (signal.SIGTERM, "")):
            kept = self.path("kept.json", known) if known else self.path("new.json")
            run = subprocess.Popen([os.path.join(BIN, "whet-bench"), "run", "depthwise", "--peers", "none", "--seconds", "0.05", "--json", kept],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertIn("depthwise", run.stdout.readline())
            run.send_signal(number)
            _, text = run.communicate(timeout=120)
            self.assertEqual(run.returncode, 130, text)
            with open(kept, encoding="utf-8") as file:
                cases = json.load(file)["cases"]
            self.assertIn(f"interrupted after {len(cases)} cases; '{kept}' has them", text)
            self.assertGreaterEqual(len(cases), 1)
            self.assertLess(len(cases), 10)

    def test_networks_end_with_a_signal_and_what_they_started_too(self):
        pid, kept = self.path("pid"), self.path("kept.json")
        os.chmod(self.path("node", f"#!/bin/sh\necho $$ > {pid}.part && mv {pid}.part {pid}\nexec sleep 300\n"), 0o755)
        run = subprocess.Popen([os.path.join(BIN, "whet-bench"), "run", "networks", "--ort", "none", "--json", kept], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PATH": self.folder.name + ":" + os.environ["PATH"]})
        until = time.monotonic() + 100
        while not os.path.exists(pid) and time.monotonic() < until:
            time.sleep(0.05)
        with open(pid, encoding="utf-8") as file:
            node = int(file.read())
        run.send_signal(signal.SIGTERM)
        _, text = run.communicate(timeout=20)
        self.assertEqual(run.returncode, 130, text)
        self.assertIn("interrupted after 0 cases", text)
        self.assertFalse(os.path.exists(f"/proc/{node}"))
        self.assertTrue(os.path.exists(kept))


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
