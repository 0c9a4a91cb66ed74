# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check where there is no GPU: a rehearsal of all of it with a stand-in for the GPU, on a root
without the packages of this project, and what it leaves when it is stopped at any moment."""

import json
import os
import random
import signal
import time
import unittest

import testlib
from testlib import fake_toolkit

TOOL = testlib.SOURCE_ROOT / "tools" / "gpu-check"
FAKE_GPU_LIBRARY = os.environ["FAKE_GPU_LIBRARY"]
# tools/gpu-check must bear any number; so many are tried here.
KILLS = int(os.environ.get("GPU_CHECK_KILLS", "3"))
STATUSES = {"not reached", "running", "passed", "failed", "unfinished", "skipped", "left out"}
# Without cJSON and zlib these cannot be built.
NEED_PACKAGES = {"train", "ctrun"}


class GpuCheck(testlib.Case):
    """What is built is shared: the build is the longest part."""

    build = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build = testlib.BUILD_ROOT / "gpu-check-rehearsal"

    def setUp(self):
        super().setUp()
        self.out = self.tmp / "out"

    def compiler(self):
        """Can be told to refuse a file; the same for all, or all would be compiled again."""
        self.build.mkdir(exist_ok=True)
        path = self.build / "cc"
        path.write_text(
            '#!/bin/sh\nif [ -n "$REFUSED" ]; then\n'
            '    case "$*" in *"$REFUSED"*) echo "$REFUSED: error: no" >&2; exit 1 ;; esac\n'
            f'fi\nexec {os.environ.get("CC", "cc")} "$@"\n'
        )
        path.chmod(0o755)
        return {"CC": str(path)}

    def command(self, *args, budget=60, deps=None):
        """On the bare root, with the stand-in for a toolkit and a GPU."""
        if not FAKE_GPU_LIBRARY:
            self.skipTest("no stand-in in this build")
        self.env = self.compiler()
        folder = self.build / "toolkit"
        fake_toolkit.make(folder, FAKE_GPU_LIBRARY, os.environ["CUDA_INCLUDE"])
        self.env.update(fake_toolkit.environment(folder))
        if not hasattr(self, "root"):
            self.root = fake_toolkit.bare_root(self)
        return (*self.root, TOOL, "--tiny", "--out", self.out, "--build", self.build, "--deps", deps or self.tmp / "none",
                "--budget", budget, *args)  # fmt: skip

    def clear(self):
        for path in self.out.iterdir():
            path.unlink()

    def report(self):
        """The results, which are whole and flat at any moment."""
        report = json.loads((self.out / "gpu-check.json").read_text())
        names = list(self.out.iterdir())
        self.assertLessEqual(len(names), 8, names)
        self.assertTrue(all(path.is_file() for path in names), names)
        for item in report["items"]:
            self.assertIn(item["status"], STATUSES)
        return report

    def statuses(self, report):
        found = {}
        for item in report["items"]:
            found.setdefault(item["status"], []).append(item["name"])
        return found

    def test_rehearsal_on_a_bare_root(self):
        warm, command = self.command("--only", "ceilings", budget=600), self.command(budget=60)
        self.run_program(*warm, env=self.env, deadline=640)  # the build takes long with few processors
        self.clear()
        result = self.run_program(*command, env=self.env, deadline=300)
        self.assertEqual(result.code, 0, result)
        report = self.report()
        self.assertLess(report["elapsed_s"], 60 + 20, result)
        self.assertEqual(report["state"], "done")
        self.assertIn("cuda:0", report["device"])
        for name, state in report["build"]["programs"].items():
            self.assertEqual(state, "left out: no cjson, zlib here" if name == "train" else state)
            self.assertEqual(state.startswith("left out"), name in NEED_PACKAGES, state)
            self.assertFalse(state.startswith("failed"), f"{name}: {state}")
        self.assertEqual(report["build"]["failed"], {})
        found = self.statuses(report)
        self.assertNotIn("failed", found, report)
        self.assertNotIn("running", found)
        self.assertIn("train-learn", found["left out"])
        if report["build"]["seconds"] < 15:  # else others load this machine, and little is reached
            self.assertIn("kernels: linear", found["passed"])
            self.assertIn("ceilings", found["passed"])
            self.assertIn("graph_launch_us", (self.out / "table.txt").read_text())
        else:
            self.assertIn("small-32-f32", found["not reached"])
        for word in ("device: cuda:0", "left out: ", "written: "):
            self.assertIn(word, result.out)
        again = self.run_program(TOOL, "--table", self.out / "gpu-check.json")
        self.assertEqual((again.code, again.out), (0, (self.out / "table.txt").read_text()))

    def test_killed_at_any_moment(self):
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        command = self.command("--only", "ceilings", budget=600)
        self.run_program(*command, env=self.env, deadline=640)
        for _ in range(KILLS):
            self.clear()
            tool = self.start(*self.command("--only", "ceilings,kernels,wide,small,nccl,worlds"), env=self.env)
            testlib.wait_until((self.out / "gpu-check.json").exists, "the first results")
            time.sleep(rng.uniform(0, 12))
            os.kill(tool.pid, signal.SIGKILL)  # a fast machine may be done by now
            tool.wait()
            report = self.report()
            found = self.statuses(report)
            words = f"seed {seed}, {report['elapsed_s']} s: { {s: len(names) for s, names in found.items()} }"
            if "running" in found or "not reached" in found:
                self.assertEqual(report["state"], "running", words)
            else:
                self.assertIn(report["state"], ("running", "done"), words)
            self.assertIn("worlds", [item["name"] for item in report["items"]], words)
            self.assertNotIn("failed", found, words)
            testlib.wait_until(lambda tool=tool: tool.family() == [], "nothing is left of it")

    def test_it_reports_when_it_is_asked_to_end(self):
        command = self.command("--only", "ceilings,kernels,small", budget=600)
        tool = self.start(*command, env=self.env)
        there = (self.out / "gpu-check.json").exists
        testlib.wait_until(lambda: there() and "passed" in self.statuses(self.report()), "a result", 600)
        tool.signal(signal.SIGTERM)
        result = tool.wait()
        self.assertEqual(result.code, 3, result)
        report = self.report()
        self.assertEqual(report["state"], "stopped by SIGTERM")
        self.assertNotIn("running", self.statuses(report))
        self.assertIn("not reached: ", result.out)

    def test_packages_travel_with_the_tree(self):
        deps = self.tmp / "deps"
        packed = self.run_program(TOOL, "--pack", "--deps", deps)
        self.assertEqual(packed.code, 0, packed)
        command = self.command("--only", "train,loss", budget=600, deps=deps)
        # Of a launcher that this may be called from.
        others = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        result = self.run_program(*command, env={**self.env, **others}, deadline=640)
        self.assertEqual(result.code, 0, result)
        report = self.report()
        self.assertEqual(set(report["build"]["programs"].values()), {"built"}, report["build"])
        passed = self.statuses(report)["passed"]
        for name in ("learn", "resume", "evaluate", "consistent", "killed", "two-ranks", "stages", "peer-killed"):
            self.assertIn(f"train-{name}", passed, result)

    def test_what_cannot_be_built_is_said(self):
        command = self.command("--only", "ceilings,nccl", budget=600)
        (self.build / "objects/bench/programs/gpu_nccl.c.stamp").unlink(missing_ok=True)
        result = self.run_program(*command, env={**self.env, "REFUSED": "gpu_nccl.c"}, deadline=640)
        self.assertEqual(result.code, 1, result)
        self.assertIn("gpu_nccl.c: error: no", result.out)
        self.assertIn("gpu_nccl.c: error: no", (self.out / "build.log").read_text())
        report = self.report()
        self.assertEqual(list(report["build"]["failed"]), ["bench/programs/gpu_nccl.c"])
        self.assertEqual(self.statuses(report), {"passed": ["ceilings"], "left out": ["nccl"]})

    def test_a_failing_nvcc_costs_only_what_needs_it(self):
        command = self.command("--only", "ceilings,small-32-f32,memcheck", budget=600)
        (self.build / "objects/kernels/cuda/rows.cu.stamp").unlink(missing_ok=True)
        result = self.run_program(*command, env={**self.env, "NVCC_FAILS": "1"}, deadline=640)
        self.assertEqual(result.code, 1, result)
        self.assertIn("Unsupported gpu architecture", result.out)
        found = self.statuses(self.report())
        self.assertEqual(found, {"passed": ["ceilings"], "left out": ["small-32-f32", "memcheck"]}, result)
        self.assertFalse((self.build / "ctrun-cuda.so").exists(), "one of an earlier build")

    def test_results_are_safe_from_others_and_need_no_reader(self):
        secret = self.tmp / "secret"
        secret.write_text("mine")
        self.out.mkdir()
        for name in ("output.log", "build.log", "table.txt", "gpu-check.json.tmp"):
            (self.out / name).symlink_to(secret)
        command = self.command("--only", "ceilings", budget=600)
        result = self.run_program("sh", "-c", 'exec "$0" "$@" >/dev/full', *command, env=self.env, deadline=640)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(self.report()["state"], "done")
        self.assertEqual(secret.read_text(), "mine")
        again = self.run_program(*command, env=self.env)
        self.assertEqual(again.code, 2, again)
        self.assert_one_line(again.err)
        self.assertIn("name another folder", again.err)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a GPU: run tools/gpu-check")
    def test_builds_all_and_skips(self):
        # With what is installed here: the real compiler and libraries, but no GPU.
        result = self.run_program(TOOL, "--keep", "--out", self.out, "--build", self.build, env=self.compiler(), deadline=600)
        self.assertEqual(result.code, 77, result)
        self.assert_one_line(result.err)
        self.assertIn("found no usable GPU: ", result.err)
        report = self.report()
        self.assertEqual(set(report["build"]["programs"].values()), {"built"}, report["build"])
        for name in report["build"]["programs"]:
            self.assertTrue((self.build / name).is_file(), name)
        self.assertEqual(set(self.statuses(report)), {"left out"})
        self.assertNotIn("kept", result.out)

    def test_wrong_options_are_refused(self):
        file = self.tmp / "file"
        file.write_text("")
        for args in (
            ("--fast",), ("--budget", "1"), ("--budget", "nan"), ("--budget", "inf"), ("--budget", "1e300"), ("--only", "nothing"),
            ("--only", ""), ("--only", ",,"), ("--only", "kernels", "--timings-only"), ("--timings-only", "--checks-only"),
            ("--out", ""), ("--out", file), ("--out", "/proc/x"), ("--build", file), ("--keep", "--only", "kernels"),
            ("--pack", "--list"), ("--table", file), ("--table", self.tmp / "none"),
        ):  # fmt: skip
            result = self.run_program(TOOL, *args)
            self.assertEqual(result.code, 2, result)
            self.assertNotIn("Traceback", result.err)
        self.assertEqual(self.run_program(TOOL, "--list", env={"CC": "gcc '"}).code, 2)
        self.assertIn("kernels", self.run_program(TOOL, "--list").out)


if __name__ == "__main__":
    testlib.main()
