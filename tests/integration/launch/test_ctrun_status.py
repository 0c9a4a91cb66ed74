# SPDX-License-Identifier: Apache-2.0
"""Status of a job under ctrun, asked at the store's port while it runs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import testlib
from testlib import DEADLINE, wait_until
from testlib.store_client import WAIT, Peer, request

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


class Asking(testlib.Case):
    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")

    def status(self, port):
        code, body = fetch(port, "/status")
        self.assertEqual(code, 200)
        return json.loads(body)


class Status(Asking):
    def start_job(self, *args):
        self.go = self.tmp / "go"
        job = self.start_ctrun(
            "--nproc-per-node", "3", "--rdzv-id", "job-7", *args,
            self.script("worker.py", WORKER), str(self.go),
        )  # fmt: skip
        port = int(job.wait_for("store ").split("store ")[1].split()[0])
        return job, port

    def until_ready(self, port):
        return wait_until(
            lambda: (s := self.status(port))["ready"] and s, "the job runs"
        )

    def test_the_progress_of_train_is_told(self):
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
            self.assertRegex(metrics, rf'\nctrun_{name}\{{run_id="[^"]*",rank="1"\}} [\d.e+-]+\n')
        table = self.run_program(testlib.program("ctrun-stat"), f"127.0.0.1:{port}")
        self.assertRegex(table.out, r"\n    1 +\d+ (compute|collective|checkpoint) +0 s +[\d.e+-]+ +\d")
        job.signal(signal.SIGTERM)
        self.assertIn(job.wait().code, (123, 128 + signal.SIGTERM))

    def test_ranks_and_pids_are_told(self):
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
        self.assertIn('\nctrun_job_workers{run_id="job-7",state="running"} 3\n', fetch(port, "/metrics")[1])
        job.signal(signal.SIGTERM)
        job.wait()

    def test_a_failure_and_its_restart_are_told(self):
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


# The page's section of each object of the document; "" stands for the whole, [] for an element.
SECTIONS = {
    "": "The status",
    "http": "The status",
    "store": "The store",
    "store.waiting[]": "The store",
    "job": "The job",
    "jobs[]": "The job",
}
SECTIONS |= {
    f"{job}.{path}": section
    for job in ("job", "jobs[]")
    for path, section in (
        ("nodes[]", "Nodes"),
        ("nodes[].warm", "Spares"),
        ("workers[]", "Workers"),
        ("workers[].progress", "Progress"),
        ("rounds[]", "Generations"),
        ("failures[]", "Failures"),
    )
}


def fields(value, path=""):
    """Each field of a document as (section, name)."""
    if isinstance(value, list):
        for item in value:
            yield from fields(item, path + "[]")
    elif isinstance(value, dict) and path != "store.operations":  # its names are no fields
        for name, inner in value.items():
            yield SECTIONS[path], name
            yield from fields(inner, f"{path}.{name}" if path else name)


def described():
    """The fields that ctstatus(5) describes, likewise."""
    found, section = set(), None
    for line in (testlib.SOURCE_ROOT / "man" / "ctstatus.5").read_text().splitlines():
        if line.startswith(".Ss "):
            section = line[4:]
        elif line.startswith((".It Va ", ".Va ")):
            names = line.split(".Va ")[-1].split("It Va ")[-1]
            found |= {(section, name) for name in re.findall(r"\w+", names)}
    return {item for item in found if item[0] in SECTIONS.values()}


class Page(Asking):
    """ctstatus(5) names what /status holds, no more and no less."""

    def start_agents(self, port, count, *command, rdzv_id="pages"):
        return [
            self.start_ctrun(
                "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", rdzv_id,
                "--max-restarts", "1", *command,
            )
            for _ in range(count)
        ]  # fmt: skip

    def until(self, port, holds, what):
        return wait_until(lambda: (s := self.status(port)) and holds(s) and s, what)

    def test_every_field_is_described(self):
        _, port = self.start_ctrdzvd()
        waiter = Peer(int(port))
        self.addCleanup(waiter.close)
        waiter.send(request(WAIT, 1, b"a key"))
        command = ("train", "--data", "synthetic", "--epochs", "1000000")
        agents = self.start_agents(port, 1, *command)
        documents = [
            self.until(
                port,
                lambda s: s["store"]["waiting"] and s.get("job") and s["job"]["min_nodes"],
                "a job and a client wait",
            )
        ]
        waiting = documents[0]
        self.assertEqual((waiting["job"]["state"], waiting["ready"]), ("waiting", False))
        self.assertEqual([n["state"] for n in waiting["job"]["nodes"]], ["waiting"])
        problem = "waiting for 1 of 2 nodes; present: " + waiting["job"]["nodes"][0]["host"]
        self.assertEqual(waiting["problems"], [problem])
        where = f"127.0.0.1:{port}"
        health = self.run_program(testlib.program("ctrun-stat"), "--health", where)
        self.assertEqual((health.code, health.out), (1, f"degraded: {problem}\n"))
        agents += self.start_agents(port, 1, *command)

        def trains(s, generation):
            workers = s.get("job", {}).get("workers", [])
            return (
                "job" in s and s["ready"] and s["job"]["generation"] == generation and len(workers) == 2
                and all(w["state"] == "running" and w["progress"] for w in workers)
            )  # fmt: skip

        documents.append(self.until(port, lambda s: trains(s, 0), "both nodes train"))
        os.kill(documents[-1]["job"]["workers"][0]["pid"], signal.SIGKILL)
        documents.append(self.until(port, lambda s: trains(s, 1), "they train again"))
        job = documents[-1]["job"]
        self.assertEqual((job["restarts"], job["failure_count"], job["min_nodes"]), (1, 1, 2))
        self.assertEqual(job["failures"][0]["exit"], 128 + signal.SIGKILL)
        self.assertEqual(sorted(n["index"] for n in job["nodes"]), [0, 1])
        table = self.run_program(testlib.program("ctrun-stat"), where)
        self.assertRegex(table.out, r"\n    1 running        1 0 s      127\.0\.0\.1")
        metrics = fetch(port, "/metrics")[1]
        for name, value in (("restarts_total", 1), ("nodes_expected", 2), ("nodes_present", 2)):
            self.assertIn(f'\nctrun_job_{name}{{run_id="pages"}} {value}\n', metrics)
        self.check_metrics(metrics)

        agents += self.start_agents(port, 1, *command, rdzv_id="other")
        documents.append(
            self.until(port, lambda s: len(s.get("jobs", [])) == 2 and s["problems"], "two jobs")
        )
        several = documents[-1]
        self.assertEqual(several["problems"], [f"job other: {problem}"])
        self.assertEqual([j["run_id"] for j in several["jobs"]], ["pages", "other"])
        self.assertIs(several["ready"], False)
        self.check_metrics(fetch(port, "/metrics")[1])
        table = self.run_program(testlib.program("ctrun-stat"), where)
        self.assertIn("\njob other: waiting, 1 of 2 nodes are there, restarts 0 of 1\n", table.out)
        self.assertEqual([line for line in table.out.splitlines() if len(line) > 80], [])

        script = self.script("warm.py", "import time\ntime.sleep(1000)\n")
        agents += self.start_agents(port, 2, "--warm", script, rdzv_id="warm")
        documents.append(
            self.until(port, lambda s: any("warm_ready" in job for job in s.get("jobs", [])), "a job with spares")
        )
        self.maxDiff = None
        told = {field for document in documents for field in fields(document)}
        self.assertEqual(sorted(told ^ described()), [])
        for agent in agents:
            agent.signal(signal.SIGTERM)
        for agent in agents:
            agent.wait()

    def check_metrics(self, text):
        if shutil.which("promtool") is not None:
            check = subprocess.run(
                ["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                timeout=DEADLINE, check=False,
            )  # fmt: skip
            self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""), text)


if __name__ == "__main__":
    testlib.main()
