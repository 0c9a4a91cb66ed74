# SPDX-License-Identifier: Apache-2.0
"""One ctrun for each rank, as mpirun and srun start them; here with nothing but their environment.
Under the launchers themselves: test_schedulers.py."""

import os
import re
import signal
import socket

import testlib
from testlib import wait_until

WORKER = """
import os, sys, time
rank, generation = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print("up", rank, generation, os.environ["OMP_NUM_THREADS"], flush=True)
while True:
    for end in ("go", f"fail-{rank}-{generation}"):
        if os.path.exists(os.path.join(sys.argv[1], end)):
            sys.exit(7 if end != "go" else 0)
    time.sleep(0.02)
"""


class Shims(testlib.Case):
    count = 3

    def start_ranks(self, *options):
        script = self.script("worker.py", WORKER)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        return [
            self.start_ctrun(
                "--master-port", port, *options, script, self.tmp,
                env={
                    "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": self.count,
                    "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": self.count,
                },
            )
            for rank in range(self.count)
        ]  # fmt: skip

    def wait_up(self, jobs, generation):
        wait_until(
            lambda: all(f"up {r} {generation} " in job.out for r, job in enumerate(jobs)),
            f"all ranks of generation {generation}: {[job.err for job in jobs]}",
        )

    def test_the_first_speaks_for_all_and_who_fails_for_itself(self):
        jobs = self.start_ranks("--max-restarts", "1")
        self.wait_up(jobs, 0)
        (self.tmp / "fail-2-0").touch()
        self.wait_up(jobs, 1)
        (self.tmp / "fail-2-1").touch()
        first, other, failed = [job.wait() for job in jobs]
        self.assertEqual([r.code for r in (first, other, failed)], [7, 7, 7], first)
        self.assertEqual(other.err, "")
        # They share a screen: the failed one says so at once, and the first tells the story at the end.
        headline = r"rank 2 failed on \S+: process \d+ exited"
        self.assertEqual(len(re.findall(headline, failed.err)), 2, failed)
        self.assertEqual(len(re.findall(headline, first.err)), 1, first)
        for generation in (0, 1):
            line = f"ctrun: generation {generation}: node 0 of 3"
            self.assertEqual(first.err.count(line), 1, first)
        self.assertIn("ctrun: start-up here:", first.err)
        self.assertNotIn("node 2 of 3", failed.err)
        self.assertNotIn("ctrun: the job failed", failed.err)
        self.assertEqual(first.err.count("ctrun: what to do: "), 1, first)
        self.assertNotIn("what to do", failed.err)

    def test_an_end_in_order_is_told_once(self):
        jobs = self.start_ranks()
        self.wait_up(jobs, 0)
        for job in jobs:  # as a launcher does
            job.signal(signal.SIGTERM)
        results = [job.wait() for job in jobs]
        self.assertIn("received SIGTERM", results[0].err)
        self.assertEqual([r.err for r in results[1:]], ["", ""])

    def test_a_lost_line_is_told_by_each(self):
        jobs = self.start_ranks()
        self.wait_up(jobs, 0)
        jobs[0].signal(signal.SIGKILL)
        jobs[0].popen.wait()
        for job in jobs[1:]:
            self.assertIn("the connection to the job's store on", job.wait().err)
        jobs[0].wait_no_family(testlib.DEADLINE)

    def test_the_ranks_of_a_machine_share_its_cpus(self):
        jobs = self.start_ranks()
        self.wait_up(jobs, 0)
        (self.tmp / "go").touch()
        threads = max(1, len(os.sched_getaffinity(0)) // self.count)
        for rank, job in enumerate(jobs):
            self.assertEqual(job.wait().out, f"up {rank} 0 {threads}\n")


if __name__ == "__main__":
    testlib.main()
