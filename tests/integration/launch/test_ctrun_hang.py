# SPDX-License-Identifier: Apache-2.0
"""Hang detection: who stands still is named, who is only slow is not."""

import json
import os
import pathlib
import re
import signal
import socket
import urllib.request

import testlib
from testlib import program, python_package, wait_until

# Lives for a while, then waits for a peer that never comes, or does as its rank is told.
WORKER = """
import os, signal, socket, sys, time
while time.process_time() < 0.7:
    pass
print("living", os.environ["RANK"], os.getpid(), flush=True)
here = os.path.dirname(__file__)
open(os.path.join(here, "lived-" + os.environ["RANK"]), "w").close()
if os.environ["RANK"] == "1" and os.environ["CTRUN_GENERATION"] == "0":
    # Not before the others wait: on a busy machine they need longer than is allowed to stand still.
    others = [rank for rank in range(int(os.environ["WORLD_SIZE"])) if rank != 1]
    while not all(os.path.exists(os.path.join(here, f"lived-{rank}")) for rank in others):
        time.sleep(0.01)
    if sys.argv[1] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if sys.argv[1] == "sleep":
        time.sleep(1000)
if os.environ["CTRUN_GENERATION"] == "0":
    with socket.create_server(("127.0.0.1", 0)) as peer:
        peer.accept()
"""


def can_read_kernel_stacks():
    try:
        return pathlib.Path("/proc/self/stack").read_text() != ""
    except OSError:  # only root may
        return False


class Hang(testlib.Case):
    def run_worker(self, what, *args):
        script = self.script("worker.py", WORKER)
        return self.ctrun("-n", "3", "--hang-timeout", "2", *args, script, what)

    def test_a_stopped_worker_is_named(self):
        result = self.run_worker("stop", "--on-hang", "abort", "--max-restarts", "3")
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, r"rank 1 hangs: it has stood still for [2-9]\.\d s.*stopped")
        self.assertRegex(result.err, r"rank 1: process \d+ is stopped")
        self.assertRegex(result.err, r"rank 0: process \d+ is asleep")
        self.assertRegex(result.err, r"rank 1 failed on .*: process \d+ hung: it was stopped \(SIGSTOP\) and stood still for")
        self.assertNotIn("restarting", result.err)
        kernel, line = result.err.find("stack of rank 1 in the kernel:"), result.err.find("at worker.py:")
        self.assertGreater(line, 0, result)
        if can_read_kernel_stacks():
            self.assertGreater(kernel, line, result)
        self.assertIn("ctrun: what to do: find out who stopped it", result.err)

    def test_a_restart_is_the_answer(self):
        result = self.run_worker("sleep", "--max-restarts", "1")
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err.count("rank 1 hangs"), 1, result)
        self.assertIn("restarting the job (restart 1 of 1)", result.err)
        self.assertTrue(result.err.endswith("ctrun: the job succeeded after 1 restart\n"), result)
        self.assertEqual(result.out.count("living 1"), 2, result)

    def test_nobody_is_blamed_where_none_stands_out(self):
        path = self.tmp / "report.json"
        result = self.run_worker("wait", "--on-hang", "abort", "--report", path)
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, r"ctrun: the job hangs: no rank has made progress for \d+\.\d s \(allowed are \d\.0 s\)\n")
        self.assertEqual(result.err.count("ctrun: no rank stands out\n"), 1, result)
        self.assertEqual(result.err.count("ctrun: the workers tell no steps, so use of less than a fiftieth"), 1, result)
        self.assertRegex(result.err, r"ctrun: the job hung on \S+: no rank has moved for [2-9] s and none")
        self.assertNotRegex(result.err, r"rank \d (hung|hangs|failed)|later, rank")
        self.assertIn("ctrun: stopping ranks 0-2 because of it", result.err)
        self.assertIn("ctrun: stopped because of it: ranks 0-2\n", result.err)
        failure = json.loads(path.read_text())["first_failure"]
        self.assertEqual((failure["rank"], failure["exit_code"]), (-1, 122))
        (hang,) = json.loads(path.read_text())["hangs"]
        self.assertEqual((hang["rank"], hang["host"], hang["outcome"]), (-1, "", "killed"))
        self.assertGreaterEqual(hang["for_s"], 2)

    def start_two(self, what, *args):
        """Two machines with one worker each."""
        script = self.script("worker.py", WORKER)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return [
            self.start_ctrun(
                "-n", "1", "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1",
                "--master-port", port, "--hang-timeout", "6", "--rdzv-conf", "heartbeat_timeout=5",
                *args, script, what,
            )
            for rank in range(2)
        ]  # fmt: skip

    def test_one_that_stands_out_among_the_machines(self):
        jobs = self.start_two("sleep", "--max-restarts", "1")
        results = [job.wait() for job in jobs]
        for result in results:
            self.assertEqual(result.code, 0, result)
        elsewhere = r"ctrun: rank 1 hangs on \S+: no rank of the job has moved for \d+\.\d s, and it sleeps"
        self.assertEqual(len(re.findall(elsewhere, results[0].err)), 1, results[0])
        here = r"ctrun: rank 1 hangs: it has stood still for \d+\.\d s.*: it sleeps in"
        self.assertEqual(len(re.findall(here, results[1].err)), 1, results[1])
        self.assertEqual(results[1].out.count("living 1"), 2, results[1])

    def test_every_machine_hears_of_a_stopped_worker(self):
        jobs = self.start_two("stop", "--on-hang", "report")
        jobs[0].wait_for("rank 1 hangs on ")
        jobs[1].wait_for("rank 1 hangs: it has stood still")
        for job in jobs:
            job.signal(signal.SIGTERM)
        for job in jobs:
            self.assertEqual(job.wait().err.count("rank 1 hangs"), 1, job.result())

    def start_train(self, *args):
        job = self.start_ctrun(
            "-n", "3", *args, "train", "--data", "synthetic", "--epochs", "1000000",
            env={"LOGLEVEL": "INFO"},
        )  # fmt: skip
        job.wait_for("epoch 2/")
        return job

    def ranks(self, job):
        """Pids by rank."""
        found = {}
        for pid in job.family():
            for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"RANK="):
                    found[int(entry[5:])] = pid
        return found

    def test_train_with_one_rank_stopped(self):
        job = self.start_train("--hang-timeout", "3", "--on-hang", "report")
        pid = self.ranks(job)[2]
        os.kill(pid, signal.SIGSTOP)
        line = job.wait_for("hangs")
        self.assertIn("rank 2 hangs", line)
        job.wait_for("rank 2: process")
        self.assertRegex(job.err, rf"rank 2: process {pid} is stopped.*; phase \w+ of step \d+ for")
        self.assertTrue(job.running())
        before = job.out.count("epoch ")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: job.out.count("epoch ") > before, "the job goes on")
        said = job.wait_for("is over")
        self.assertRegex(
            said, r"^ctrun: the hang of rank 2 is over: the workers have made progress again after \d+\.\d s"
        )
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait().code, 128 + signal.SIGTERM)
        self.assertEqual(len(re.findall(" hangs", job.err)), 1)

    def test_the_status_shows_a_hang_until_it_is_over(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        job = self.start_ctrun(
            "-n", "3", "--hang-timeout", "3", "--on-hang", "report", "--print-url",
            "train", "--data", "synthetic", "--epochs", "1000000",
        )  # fmt: skip
        url = job.wait_for("live page: ").split()[-1]
        job.wait_for("epoch 2/")

        def stat(*args):
            return self.run_program(program("ctrun-stat"), *args, url)

        def metric(name):
            with urllib.request.urlopen(url.partition("#")[0] + "metrics", timeout=testlib.DEADLINE) as answer:
                return re.findall(rf"^ctrun_{name}(?:{{.*?}})? .*$", answer.read().decode(), re.M)

        self.assertEqual(stat("--health").out, "healthy\n")
        self.assertRegex(metric("job_hangs")[0], r"} 0$")
        self.assertEqual(metric("job_hang_seconds"), [])
        pid = self.ranks(job)[1]
        os.kill(pid, signal.SIGSTOP)
        job.wait_for("rank 1 hangs")
        wait_until(lambda: stat("--health").code == 1, "the status has it")
        self.assertRegex(stat("--health").out, r"^degraded: rank 1 on \S+ hangs: it is stopped")
        (hang,) = json.loads(stat("--json").out)["job"]["hangs"]
        self.assertEqual((hang["rank"], hang["node"]), (1, 0))
        self.assertGreaterEqual(hang["for_s"], 3)
        self.assertRegex(stat().out, r"\n    1     1 +\d+ hangs        -        0 \S")
        self.assertRegex(metric("job_hangs")[0], r"} 1$")
        self.assertRegex(metric("job_hang_seconds")[0], r',rank="1"} [1-9]')
        self.assertEqual(metric("ready"), ["ctrun_ready 0"])
        os.kill(pid, signal.SIGCONT)
        job.wait_for("the hang of rank 1 is over")
        wait_until(lambda: stat("--health").out == "healthy\n", "the status says that it is over")
        self.assertEqual(json.loads(stat("--json").out)["job"]["hangs"], [])
        job.signal(signal.SIGTERM)
        job.wait()

    def test_a_stopped_worker_is_shown_also_where_no_hang_is_looked_for(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        job = self.start_ctrun("-n", "2", "--print-url", "sleep", "1000")
        url = job.wait_for("live page: ").split()[-1]

        def states():
            document = json.loads(self.run_program(program("ctrun-stat"), "--json", url).out)
            return {row["pid"]: row["state"] for row in document["job"]["workers"]}

        wait_until(lambda: list(states().values()) == ["running"] * 2, "both run")
        pid = list(states())[1]
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: list(states().values()) == ["running", "stopped"], "it is stopped")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: list(states().values()) == ["running"] * 2, "it goes on")
        job.signal(signal.SIGTERM)
        job.wait()

    def test_words_that_are_none(self):
        for args, text in (
            (("--hang-timeout", "soon"), "--hang-timeout: 'soon' is neither auto, off nor a number"),
            (("--hang-timeout", "0.1"), "--hang-timeout: '0.1' is neither"),
            (("--on-hang", "pray"), "--on-hang: 'pray' is not report, restart or abort"),
        ):
            result = self.ctrun(*args, "true")
            self.assertEqual(result.code, 2, result)
            self.assertIn(text, result.err)
            self.assert_one_line(result.err)


# Tells its steps and nothing else, validates for longer than the timeout, and then waits for a peer that
# never comes, or sleeps, if its rank is told to.
STEPS = """
import os, socket, sys, time, ctworker
for step in range(1, 6):
    ctworker.progress(step)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
end = time.monotonic() + 4
while time.monotonic() < end:  # validation
    pass
ctworker.progress(6)
if os.environ["RANK"] == sys.argv[1]:
    time.sleep(1000)
with socket.create_server(("127.0.0.1", 0)) as peer:
    peer.accept()
"""


class Steps(python_package.Case):
    def test_a_worker_that_stamps_steps_only_and_stops(self):
        job = self.python_job(3, STEPS, "--hang-timeout", "3", "--on-hang", "abort", arguments=["1"])
        result = job.wait()
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, r"ctrun: rank 1 hangs: it has stood still for [3-9]\.\d s.*: it sleeps in \S+, the")
        self.assertRegex(result.err, r"rank 1: process \d+ is asleep in \S+; phase compute of step 6 for")
        self.assertEqual(result.err.count(" hangs: "), 1, result)

    def test_none_stands_out_among_those_that_stamp_steps_only(self):
        job = self.python_job(3, STEPS, "--hang-timeout", "3", "--hang-stacks", "off", "--on-hang", "abort",
                              arguments=["none"])  # fmt: skip
        result = job.wait()
        self.assertEqual(result.code, 122, result)
        self.assertRegex(result.err, r"ctrun: the job hangs: no rank has made progress for \d+\.\d s \(allowed are \d\.0 s\)\n")
        self.assertEqual(result.err.count("ctrun: no rank stands out\n"), 1, result)
        self.assertRegex(result.err, r"phase compute of step 6 for")


if __name__ == "__main__":
    testlib.main()
