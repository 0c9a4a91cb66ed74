# SPDX-License-Identifier: Apache-2.0
"""The tools behind tools/bench store and bench/launch.py do what they measure: small loads against the real store and
against each floor, and the report's arithmetic. No figure is judged here. Benchmarks leave nothing behind."""

import json
import os
import signal
import subprocess
import sys

import testlib
from testlib import BUILD_ROOT, DEADLINE, SOURCE_ROOT

BENCH = BUILD_ROOT / "bench" / "programs"
sys.path.insert(0, str(SOURCE_ROOT / "bench"))

from shared import ending, store_report  # noqa: E402
from stores import rows as store_rows  # noqa: E402

# More than the generator lets run ahead of its server.
MANY = 600


def load(port, mode, *options):
    run = subprocess.run(
        [BENCH / "bench-load", mode, "--port", str(port), *options],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    if run.returncode != 0:
        raise AssertionError(run.stderr)
    return json.loads(run.stdout)


class Load(testlib.Case):
    def floor(self, name, *args):
        process = subprocess.Popen([BENCH / name, *args], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return int(process.stdout.readline())

    def test_rates_of_the_store(self):
        _, port = self.start_ctrdzvd()
        for op in ("get", "set"):
            found = load(port, "rate", "--op", op, "--connections", "20", "--depth", "8", "--seconds", "0.05")
            self.assertGreater(found["per_second"], 0)

    def test_rates_of_the_echo_that_answers_the_same_bytes(self):
        for op in ("get", "set"):
            port = self.floor("bench-floor-uv", "fixed", *store_rows.echo_args(op))
            found = load(port, "rate", "--protocol", "echo", "--op", op, "--connections", "20", "--seconds", "0.05")
            self.assertGreater(found["per_second"], 0)

    def test_storms_and_barriers_of_store_and_floor(self):
        _, port = self.start_ctrdzvd()
        for target in (port, self.floor("bench-floor-epoll")):
            for mode in (["connect"], ["wake"], ["barrier", "--native"]):
                self.assertGreater(load(target, *mode, "--connections", str(MANY))["seconds"], 0)
        self.assertGreater(load(port, "barrier", "--connections", str(MANY))["seconds"], 0)

    def test_idle_connections_are_held_until_the_input_ends(self):
        _, port = self.start_ctrdzvd()
        self.assertEqual(load(port, "idle", "--connections", str(MANY)), {"connections": MANY})

    def test_a_wrong_answer_is_no_figure(self):
        port = self.floor("bench-floor-uv", "fixed", store_rows.echo_args("get")[0], "00" * 24)
        with self.assertRaisesRegex(AssertionError, "bench-load: the server answered something else"):
            load(port, "rate", "--protocol", "echo", "--seconds", "0.05")


class Launch(testlib.Case):
    def test_the_floor_and_ctrun_start_workers_that_meet(self):
        client = BENCH / "bench-floor-client"
        for argv in ([BENCH / "bench-floor-launch", "5"], [testlib.program("ctrun"), "-n", "5", "--no-python"]):
            self.assertEqual(self.run_program(*argv, client).code, 0)

    def test_the_floor_tells_that_a_worker_failed(self):
        self.assertEqual(self.run_program(BENCH / "bench-floor-launch", "2", "/bin/false").code, 1)

    def test_a_worker_that_is_alone_waits_for_the_other(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("built without HTTP, which tells who waits")
        _, port = self.start_ctrdzvd()
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        first = self.start(BENCH / "bench-floor-client", env=env)
        testlib.wait_until(lambda: self.load_waiters(port) == 1, "the first one waits")
        self.assertEqual(self.run_program(BENCH / "bench-floor-client", env=env).code, 0)
        self.assertEqual(first.wait().code, 0)

    def load_waiters(self, port):
        found = self.run_program(testlib.program("ctrun-stat"), "--json", f"127.0.0.1:{port}")
        return json.loads(found.out)["store"]["waiters"]

    def test_spawns_beside_a_store(self):
        self.assertGreater(float(self.run_program(BENCH / "bench-spawn-size", "2", "3").out), 0)


class Ending(testlib.Case):
    """bench/shared/ending.py: nothing of a benchmark goes on after it."""

    LAUNCHER = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' & wait; wait"

    def test_the_workers_of_a_launcher_that_must_be_killed_are_ended(self):
        with subprocess.Popen(["sh", "-c", self.LAUNCHER], stdout=subprocess.PIPE, text=True) as launcher:
            worker = int(launcher.stdout.readline())
            ending.end(launcher, 0.1)
            self.assertEqual(launcher.returncode, -signal.SIGKILL)
            testlib.wait_until(lambda: not testlib.pid_alive(worker), "the end of the worker")

    def test_a_benchmark_that_gets_a_signal_ends_what_it_has_started(self):
        text = ("import subprocess, sys\nfrom shared import ending\nending.on_signals()\n"
                f"proc = subprocess.Popen(['sh', '-c', {self.LAUNCHER!r}])\n"
                "try:\n  print('begun', flush=True)\n  proc.wait()\nfinally: ending.end(proc, 0.1)\n")  # fmt: skip
        for signo in (signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": str(SOURCE_ROOT / "bench")}) as benchmark:  # fmt: skip
                # The worker may write before the benchmark has its launcher, which it could not end then.
                lines = {benchmark.stdout.readline().strip() for _ in range(2)}
                worker = int((lines - {"begun"}).pop())
                benchmark.send_signal(signo)
                self.assertEqual(benchmark.wait(DEADLINE), 128 + signo)
            testlib.wait_until(lambda worker=worker: not testlib.pid_alive(worker), "the end of the worker")


class Report(testlib.Case):
    def row(self, at_least, values):
        row = store_rows.Row("S0", "name", "other", "s", 1.25, None, lambda: {}, at_least)
        row.values, row.extra = values, [({"cpu_us": 2.0}, {"cpu_us": 3.0})] * len(values)
        return store_report.verdict(row)

    def test_the_median_of_the_ratios_decides(self):
        values = [(1.0, 1.0), (6.0, 4.0), (2.6, 2.0)]  # 1, 1.5, 1.3
        self.assertTrue(self.row(True, values)["met"])
        self.assertFalse(self.row(False, values)["met"])
        found = self.row(False, values)
        self.assertAlmostEqual(found["ratio"], 1.3)
        self.assertAlmostEqual(found["cpu_ratio"], 1.5)

    def test_table_and_plot_name_what_was_missed(self):
        found = self.row(False, [(2.0, 1.0)])
        self.assertRegex(store_report.table([found]), r"S0 +name +other .* 2\.00 .*<= 1\.25 MISSED")
        path = self.tmp / "plot.svg"
        store_report.write_svg(path, [found], "a < b")
        self.assertIn("a &lt; b", path.read_text())


if __name__ == "__main__":
    testlib.main()
