# SPDX-License-Identifier: Apache-2.0
"""Status of a job under ctrun, asked at the store's port while it runs."""

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request

import testlib
from testlib import DEADLINE, wait_until

# Says where the store is, then lives until it is told to end.
WORKER = """
import os, sys, time
print("store", os.environ["MASTER_PORT"], os.getpid(), flush=True)
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(3)
time.sleep(1000)
"""


def fetch(port, path):
    """(code, body) of one page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Status(testlib.Case):
    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")

    def start_job(self, *args):
        self.go = self.tmp / "go"
        job = self.start_ctrun(
            "--nproc-per-node", "3", "--rdzv-id", "job-7", *args,
            self.script("worker.py", WORKER), str(self.go),
        )  # fmt: skip
        port = int(job.wait_for("store ").split("store ")[1].split()[0])
        return job, port

    def status(self, port):
        code, body = fetch(port, "/status")
        self.assertEqual(code, 200)
        return json.loads(body)

    def until_ready(self, port):
        return wait_until(
            lambda: (s := self.status(port))["ready"] and s, "the job runs"
        )

    def test_progress_of_train(self):
        job = self.start_ctrun(
            "-n", "2", "--rdzv-endpoint", "localhost:0", "train", "--data", "synthetic",
            "--epochs", "1000000", env={"LOGLEVEL": "INFO"},
        )  # fmt: skip
        port = int(re.search(r"store on [^ ]*:(\d+)", job.wait_for("store on")).group(1))

        def told():
            workers = self.status(port)["job"]["workers"]
            found = [w["progress"] for w in workers if w["progress"]]
            return len(found) == 2 and all(p["loss"] is not None for p in found) and found

        for progress in wait_until(told, "the workers tell their loss"):
            self.assertIn(progress["phase"], ("compute", "collective", "checkpoint"))
            self.assertGreater(progress["step"], 0)
            self.assertGreater(progress["samples_per_s"], 0)
        metrics = fetch(port, "/metrics")[1]
        for name in ("worker_step", "worker_loss", "worker_samples_per_second"):
            self.assertRegex(metrics, rf'\nctrun_{name}\{{rank="1"\}} [\d.e+-]+\n')
        table = self.run_program(testlib.program("ctstat"), f"127.0.0.1:{port}")
        self.assertRegex(table.out, r"\n    1 +\d+ (compute|collective|checkpoint) +0 s +[\d.e+-]+ +\d")
        job.signal(signal.SIGTERM)
        self.assertIn(job.wait().code, (123, 128 + signal.SIGTERM))

    def test_ranks_and_pids(self):
        job, port = self.start_job()
        status = self.until_ready(port)
        self.assertEqual(status["health"], "healthy")
        told = status["job"]
        self.assertEqual(
            (told["run_id"], told["state"], told["generation"], told["world_size"]),
            ("job-7", "running", 0, 3),
        )
        self.assertEqual([w["rank"] for w in told["workers"]], [0, 1, 2])
        self.assertEqual([w["local_rank"] for w in told["workers"]], [0, 1, 2])
        self.assertEqual({w["state"] for w in told["workers"]}, {"running"})
        self.assertEqual({w["host"] for w in told["workers"]}, {socket.gethostname()})
        self.assertEqual([w["exit"] for w in told["workers"]], [None] * 3)
        wait_until(lambda: job.out.count("store ") == 3, "all workers speak")
        pids = {int(line.split()[-1]) for line in job.out.splitlines() if "store " in line}
        self.assertEqual({w["pid"] for w in told["workers"]}, pids)
        self.assertEqual((told["failures"], told["missing_nodes"]), ([], []))
        self.assertEqual(fetch(port, "/readyz")[0], 200)
        self.assertIn('\nctrun_job_workers{state="running"} 3\n', fetch(port, "/metrics")[1])
        job.signal(signal.SIGTERM)
        job.wait()

    def test_failure_and_restart(self):
        job, port = self.start_job("--max-restarts", "1")
        first = self.until_ready(port)["job"]["workers"]
        self.go.touch()
        status = wait_until(
            lambda: (s := self.status(port))["job"]["generation"] == 1 and s["ready"] and s,
            "the job runs again",
        )
        told = status["job"]
        self.assertEqual([w["restarts"] for w in told["workers"]], [1, 1, 1])
        self.assertTrue({w["pid"] for w in told["workers"]}.isdisjoint(w["pid"] for w in first))
        self.assertEqual(told["failure_count"], 1)
        (failure,) = told["failures"]
        self.assertEqual(
            (failure["generation"], failure["rank"], failure["pid"], failure["exit"]),
            (0, 1, first[1]["pid"], 3),
        )
        self.assertIn("exited with code 3", failure["reason"])
        job.signal(signal.SIGTERM)
        job.wait()

    def test_degraded_while_it_stops(self):
        stubborn = WORKER.replace(
            "time.sleep(1000)",
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('deaf', flush=True)\n"
            "time.sleep(1000)",
        )
        go = self.tmp / "go"
        job = self.start_ctrun(
            "--nproc-per-node", "2", self.script("worker.py", stubborn), str(go)
        )
        port = int(job.wait_for("store ").split("store ")[1].split()[0])
        job.wait_for("deaf")
        go.touch()
        status = wait_until(
            lambda: (s := self.status(port))["health"] == "degraded" and s, "it is degraded"
        )
        (problem,) = status["problems"]
        self.assertRegex(problem, r"^rank 1 on .*: process \d+ exited with code 3$")
        self.assertIs(status["ready"], False)
        self.assertEqual(status["job"]["workers"][1]["state"], "failed")
        code, body = fetch(port, "/readyz")
        self.assertEqual((code, json.loads(body)["problems"]), (503, status["problems"]))
        job.kill()


if __name__ == "__main__":
    testlib.main()
