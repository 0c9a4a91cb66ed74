# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/gpu-check that need neither a GPU nor a build: the report, processes with a limit,
what is chosen to be run, and the conclusions from figures."""

import gc
import json
import sys
import types
import unittest
import unittest.mock
import weakref

import testlib

sys.path.insert(0, str(testlib.SOURCE_ROOT / "bench"))
import gpu_peers  # noqa: E402 the path comes first
from gpu import build, data, main, plan, process, table, toolkit  # noqa: E402 the path comes first
from gpu.report import Report  # noqa: E402

ROW = {"program": "train", "features": 784, "hidden": "512", "classes": 10, "batch": 128, "precision": "f32"}


TOOL_FAILS = "echo '========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception.'"
ONE_HAZARD = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"


class Reports(testlib.Case):
    def setUp(self):
        super().setUp()
        self.report = Report(self.tmp / "r.json", began="now")

    def read(self):
        return json.loads((self.tmp / "r.json").read_text())

    def test_what_is_planned_is_there_from_the_start(self):
        first, second = self.report.plan([{"name": "a"}, {"name": "b"}])
        self.assertEqual([item["status"] for item in self.read()["items"]], ["not reached"] * 2)
        self.report.update(first, status="passed")
        self.report.add(second, "rows", {"x": 1})
        items = self.read()["items"]
        self.assertEqual([item["status"] for item in items], ["passed", "not reached"])
        self.assertEqual(items[1]["rows"], [{"x": 1}])

    def test_one_item_becomes_several(self):
        _, old, _ = self.report.plan([{"name": "a"}, {"name": "b"}, {"name": "c"}])
        self.report.replace(old, [{"name": "b1"}, {"name": "b2"}])
        self.assertEqual([item["name"] for item in self.read()["items"]], ["a", "b1", "b2", "c"])

    def verdict(self, script, kind, limit=20, **more):
        [item] = self.report.plan([{"name": "x", "kind": kind, **more}])
        with open(self.tmp / "log", "w", encoding="utf-8") as log:
            reader = main.Reader(self.report, item, log)
            ended = process.run(["sh", "-c", script], limit, reader.line)
        return (*reader.verdict(ended), item)

    def test_each_end_of_a_program_has_its_status(self):
        for script, kind, status, why in (
            ("echo 'ok 1 - a'; echo 1..1", "tap", "passed", ""),
            ("echo '# reason'; echo 'not ok 1 - a'; echo 1..1; exit 1", "tap", "failed", "1 - a"),
            ("echo 'ok 1 - a'", "tap", "failed", "plan"),
            ("echo 'ok 1 - a'; echo 1..2", "tap", "failed", "2 were planned"),
            ("echo 'ok 1 - a'; echo 1..1; kill -SEGV $$", "tap", "failed", "exit code -11"),
            ("echo '1..0 # SKIP no GPU'; exit 77", "tap", "skipped", "no GPU"),
            ('echo \'{"what": "x", "value": 1}\'', "rows", "passed", ""),
            ("echo '{broken}'", "rows", "failed", "no row"),
            ("echo 'out of memory' >&2; exit 1", "rows", "failed", "out of memory"),
            # The words of compute-sanitizer on an H200.
            (f"{TOOL_FAILS}; echo 'not ok 1 - a'; echo 1..1; echo '{ONE_HAZARD}'; exit 9", "tap", "unfinished", "tool itself"),
            (f"{TOOL_FAILS}; kill -SEGV $$", "tap", "unfinished", "failed to handle"),
            (f"{TOOL_FAILS}; echo 'ok 1 - a'; echo 1..1; echo '{ONE_HAZARD}'; exit 9".replace("1 error", "2 error"),
             "tap", "failed", "exit code 9"),
            (f"echo 'ok 1 - a'; echo 1..1; echo '{ONE_HAZARD}'; exit 9", "tap", "failed", "exit code 9"),
        ):
            got = self.verdict(script, kind)
            self.assertEqual(got[0], status, (script, got))
            self.assertIn(why, got[1], script)

    def test_the_limit_makes_it_unfinished_and_keeps_what_there_was(self):
        status, why, item = self.verdict("echo 'ok 1 - a'; echo '{\"x\": 1}'; sleep 60", "tap", limit=0.5)
        self.assertEqual((status, item["passed"], item["rows"]), ("unfinished", 1, [{"x": 1}]), why)


class Checks(testlib.Case):
    """The checks of test_cuda, by themselves and under a tool."""

    def setUp(self):
        super().setUp()
        program = self.tmp / "test_cuda"
        program.write_text(
            "#!/bin/sh\n[ $1 = --list ] && exec printf 'a\\nb\\nc\\n'\n"
            f"""case "$TOOL $2" in "1 b") {TOOL_FAILS}; echo 'not ok 1 - b'; echo 1..1; exit 1 ;; esac\n"""
            """echo "ok 1 - $2"; echo 1..1\n"""
        )
        tool = self.tmp / "compute-sanitizer"
        tool.write_text("""#!/bin/sh\nfor word; do shift; case $word in */test_cuda) break ;; esac; done\n"""
                        f"""TOOL=1 exec {program} "$@"\n""")  # fmt: skip
        for path in program, tool:
            path.chmod(0o755)
        self.tool = tool

    def run_items(self, built=("test_cuda", "ctrun-cuda.so", "compute-sanitizer"), budget=600, **seconds):
        report = Report(self.tmp / f"{len(list(self.tmp.iterdir()))}.json", began="now")
        items = plan.chosen(plan.Plan(self.tool, True).items(), ["kernels", "racecheck"], False, False)
        check = main.Check(types.SimpleNamespace(build=self.tmp, out=self.tmp, budget=budget), report)
        check.programs = dict.fromkeys(built, "built")
        self.addCleanup(check.log.file.close)
        check.everything(report.plan([{**item, **seconds} for item in items]))
        return {item["name"]: item for item in report.data["items"]}

    def test_each_has_a_process_of_its_own(self):
        items = self.run_items()
        self.assertEqual(list(items), [f"{of}: {name}" for of in ("kernels", "racecheck") for name in "abc"])
        bad = items.pop("racecheck: b")
        self.assertEqual((bad["status"], bad["exit_code"]), ("unfinished", 1))
        self.assertIn("the tool itself failed", bad["why"])
        self.assertEqual({item["status"] for item in items.values()}, {"passed"})

    def test_without_the_tool_or_the_time_it_is_one_item(self):
        items = self.run_items(built=("test_cuda", "ctrun-cuda.so"))
        self.assertEqual(items["racecheck"]["status"], "left out")
        self.assertIn("kernels: a", items)
        items = self.run_items(estimate_s=601)
        self.assertEqual({item["status"] for item in items.values()}, {"not reached"})
        self.assertEqual(list(items), ["kernels", "racecheck"])


class Processes(testlib.Case):
    def test_one_that_ignores_its_limit_ends_too(self):
        ended = process.run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], 0.3)
        self.assertTrue(ended.timed_out)
        self.assertLess(ended.seconds, 0.3 + process.GRACE + 5)

    def test_what_is_left_behind_is_ended(self):
        ended = process.run(["sh", "-c", "sleep 600 & echo $!"], 20)
        self.assertEqual((ended.code, ended.timed_out), (0, False))
        self.assertLess(ended.seconds, 10)
        testlib.wait_until(lambda: not testlib.pid_alive(int(ended.lines[0])), "it is gone")

    def test_what_cannot_be_started(self):
        ended = process.run([str(self.tmp / "nothing")], 5)
        self.assertNotEqual(ended.code, 0)
        self.assertIn("nothing", ended.lines[0])

    def test_lines_without_an_end(self):
        self.assertEqual(process.run(["printf", "a\\nb"], 5).lines, ["a", "b"])


class Plans(unittest.TestCase):
    ITEMS = plan.Plan("/opt/compute-sanitizer", tiny=False).items()

    def chosen(self, *only, timings=False, checks=False):
        return [item["name"] for item in plan.chosen(self.ITEMS, list(only), timings, checks)]

    def test_names_are_different_and_groups_known(self):
        names = [item["name"] for item in self.ITEMS]
        self.assertEqual(len(set(names)), len(names))
        self.assertLessEqual({item["group"] for item in self.ITEMS}, set(plan.GROUPS))

    def test_the_most_valuable_comes_first(self):
        groups = list(dict.fromkeys(item["group"] for item in self.ITEMS))
        self.assertEqual(groups, list(plan.GROUPS))

    def test_only_chooses_items_in_order(self):
        self.assertEqual(self.chosen("nccl", "wide-2"), ["wide-2", "nccl"])
        self.assertIn("memcheck", self.chosen("sanitizer"))
        with self.assertRaises(ValueError):
            self.chosen("nothing")

    def test_timings_and_checks_are_all_there_is(self):
        timings, checks = self.chosen(timings=True), self.chosen(checks=True)
        self.assertEqual(len(timings) + len(checks), len(self.ITEMS))
        self.assertIn("wide-1", timings)
        self.assertIn("kernels", checks)

    def test_own_kernels_are_found_by_their_mangled_names(self):
        names = plan.own_kernels()
        for name in ("11mask_kernel", "12adamw_kernel", "11head_kernel", "18column_sums_kernel"):
            self.assertIn(name, names)
        [memcheck] = [item for item in self.ITEMS if item["name"] == "memcheck"]
        self.assertIn("kns=11mask_kernel", memcheck["argv"])


class Toolkits(testlib.Case):
    def find(self, *files):
        """What is found where only these files are."""
        for name in files:
            (self.tmp / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tmp / name).touch(mode=0o755)
        for name in ("_toolkit_roots", "_wheel_folders", "_system_folders"):
            self.addCleanup(setattr, toolkit, name, getattr(toolkit, name))
        toolkit._toolkit_roots = lambda: [self.tmp / "cuda"]
        toolkit._wheel_folders = lambda: sorted(str(path) for path in self.tmp.glob("site/nvidia/*"))
        toolkit._system_folders = list
        return toolkit.Toolkit(self.tmp / "deps")

    def test_libraries_of_wheels_have_no_plain_names(self):
        kit = self.find("cuda/bin/nvcc", "cuda/include/cuda_runtime_api.h", "cuda/lib64/libcudart_static.a",
                        "cuda/lib64/libcudart.so.13", "site/nvidia/cu13/lib/libcublasLt.so.13",
                        "site/nvidia/cu13/include/cublasLt.h", "site/nvidia/nccl/lib/libnccl.so.2",
                        "site/nvidia/nccl/include/nccl.h")  # fmt: skip
        self.assertEqual(kit.cublaslt.name, "libcublasLt.so.13")
        self.assertEqual(kit.nccl.name, "libnccl.so.2")
        self.assertEqual(kit.header("nccl.h"), self.tmp / "site/nvidia/nccl/include")
        self.assertEqual(kit.nvcc, self.tmp / "cuda/bin/nvcc")

    def test_the_toolkit_s_own_come_first(self):
        kit = self.find("cuda/lib64/libcublasLt.so", "site/nvidia/cu13/lib/libcublasLt.so.13")
        self.assertEqual(kit.cublaslt, self.tmp / "cuda/lib64/libcublasLt.so")

    def test_packages_that_travel_with_the_tree(self):
        kit = self.find("deps/include/cjson/cJSON.h", "deps/lib/libcjson.so.1", "deps/include/zlib.h")
        self.assertEqual(kit.packages["cjson"], (self.tmp / "deps/include", self.tmp / "deps/lib/libcjson.so.1"))
        self.assertIsNone(kit.packages["zlib"])  # no library


class Sources(unittest.TestCase):
    def test_needs_come_through_headers(self):
        sources = build.Sources()
        self.assertEqual(sources.needs("kernels/cuda/scratch.c"), {"cuda", "cublaslt"})
        self.assertEqual(sources.needs("trainer/formats/gzip.c"), {"zlib"})
        self.assertEqual(sources.needs("trainer/loop/step.c"), set())

    def test_an_error_is_told_by_its_own_lines(self):
        said = "In file included from a.c:1:\na.c:3:1: error: no\n    3 | x\nnote: here\n"
        self.assertEqual(build.why_of(said), "a.c:3:1: error: no")
        self.assertEqual(build.why_of("killed\n"), "killed")


class Tables(testlib.Case):
    def report(self, rows):
        report = Report(self.tmp / "r.json")
        [ceilings, item] = report.plan([{"name": "ceilings"}, {"name": "x"}])
        report.update(ceilings, rows=[{"what": "gemm_f32_tflops", "value": 50.0}, {"what": "graph_launch_us", "value": 2.0}])
        report.update(item, rows=rows)
        return report

    def test_operations_of_a_step(self):
        # Forward, weights and inputs of each layer, but the inputs of the first one.
        self.assertEqual(table.flops("3,4,5", 10), 2 * 10 * (2 * 3 * 4 + 3 * 4 * 5))

    def test_ratios_against_others_are_computed(self):
        report = self.report([
            {**ROW, "us_per_step": 10.0}, {**ROW, "us_per_step": 30.0}, {**ROW, "nccl": True, "us_per_step": 25.0},
            {"program": "gemm", "sizes": "784,512,10", "batch": 128, "precision": "f32", "us_per_step": 16.0},
            {**ROW, "program": "torch eager", "us_per_step": 180.0}, {"plan": "product", "product": "y"},
        ])  # fmt: skip
        found = {(row["program"], row["variant"]): row for row in table.ratios(report)}
        own = found["train", ""]
        self.assertEqual((own["us_per_step"], own["times_bare_gemms"], own["empty_launches"]), (20.0, 1.25, 10.0))
        self.assertAlmostEqual(own["share_of_gemm_ceiling"], table.flops("784,512,10", 128) / 20e-6 / 50e12, 3)
        self.assertEqual(found["train", "nccl"]["times_train"], 1.25)
        self.assertEqual(found["torch eager", ""]["times_train"], 9.0)

    def test_goals_are_met_or_missed(self):
        report = self.report([{**ROW, "us_per_step": 20.0}, {**ROW, "program": "torch eager", "us_per_step": 180.0},
                              {**ROW, "program": "jax scan", "us_per_step": 30.0}])  # fmt: skip
        met = {goal["name"]: (goal["ratio"], goal["met"]) for goal in table.goals(report)}
        self.assertEqual(met, {"784-512-10, batch 128, f32: against torch eager": (9.0, False),
                               "784-512-10, batch 128, f32: against jax scan": (1.5, True)})  # fmt: skip
        wide = {**ROW, "features": 8192, "hidden": "8192,8192", "classes": 16, "batch": 8192, "precision": "bf16"}
        bare = {"program": "gemm", "sizes": "8192,8192,8192,16", "batch": 8192, "precision": "bf16", "us_per_step": 100.0}
        for us, met in ((107.0, True), (109.0, False)):
            [goal] = table.goals(self.report([{**wide, "us_per_step": us}, bare]))
            self.assertEqual((goal["ratio"], goal["met"]), (us / 100, met))
        report.set(**table.conclusions(report))
        self.assertIn("MISSED 784-512-10, batch 128, f32: against torch eager: 9.0 (at least 10)", table.text(report))


class Held:
    """Stands for data, a model or an optimizer of PyTorch."""

    def __init__(self, *_arguments, **_words):
        pass

    def __getattr__(self, name):
        return unittest.mock.MagicMock()

    def __getitem__(self, index):
        return unittest.mock.MagicMock()

    def __call__(self, x):
        return unittest.mock.MagicMock()

    def to(self, device):
        return self


class Peers(unittest.TestCase):
    def test_a_recorded_step_keeps_alive_what_its_kernels_read(self):
        """A recording keeps no memory, and a replay does not run what was recorded."""
        for way in gpu_peers.NAMES:
            if not way.startswith("torch"):
                continue
            made = []

            def make(*_arguments, made=made, **_words):
                held = Held()
                made.append(weakref.ref(held))
                return held

            torch = unittest.mock.MagicMock()
            torch.nn.Sequential, torch.randint, torch.optim.AdamW = make, make, make
            torch.compile = lambda function: function
            modules = {"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional}
            with unittest.mock.patch.dict(sys.modules, modules):
                step = gpu_peers.torch_step(gpu_peers.Case("32:f32:784:512:10", 1), way)
                gc.collect()
                self.assertEqual([held() is not None for held in made], [True] * 4, way)
                step(unittest.mock.MagicMock())
            del step


class Data(testlib.Case):
    def test_what_is_written_is_read(self):
        data.write(self.tmp, 20, 10, 6)
        images, labels, pixels = data.read(self.tmp, "train")
        self.assertEqual((len(images), len(labels), pixels), (20 * 36, 20, 36))
        self.assertLess(max(labels), data.CLASSES)
        self.assertGreater(len(set(images)), 100)

    def test_tensors_of_a_file(self):
        header = json.dumps({"__metadata__": {"step": "1"}, "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}})
        path = self.tmp / "m.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"12345678")
        self.assertEqual(data.tensors(path), {"a": ([1, 2], b"12345678")})


if __name__ == "__main__":
    testlib.main()
