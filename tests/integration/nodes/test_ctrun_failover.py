# SPDX-License-Identifier: Apache-2.0
"""A job outlives the machine that hosts its rendezvous, and its ctrun; each machine is a network namespace."""

import re
import signal

import testlib
from testlib import netns, wait_until
from testlib.fake_agents import CONTROL_VERSION
from testlib.failover_case import PATIENCE, FailoverCase

# Garbage, a frame that is too long, half a proof, a proof without the token, and a crowd that says nothing.
NOISE = """
import json, socket, sys
VERSION = int(sys.argv[3])
def to(data):
    try:
        with socket.create_connection(sys.argv[1:3], 5) as there:
            there.sendall(data)
            there.shutdown(socket.SHUT_WR)
            while there.recv(4096):
                pass
    except ConnectionError:
        pass
def frame(**fields):
    text = json.dumps(fields).encode()
    return (0x80000000 | len(text)).to_bytes(4, "big") + text
for data in (
    b"\\x80", b"\\xff" * 100, b"GET / HTTP/1.0\\r\\n\\r\\n", frame(type="open", version=VERSION, nonce="00" * 32),
    frame(type="ask", id=7, term=99, record_term=1, record_version=1),
    frame(type="open", version=VERSION, nonce="00" * 32) + frame(type="answer", answer="00" * 32),
    frame(type="open", version=VERSION, nonce="00" * 32) + frame(type="join"),
):
    to(data)
crowd = [socket.create_connection(sys.argv[1:3], 5) for _ in range(300)]
"""


class Failover(FailoverCase):
    def test_the_host_is_killed(self):
        _, jobs = self.start_job(3, "--nnodes", "2:3", "--max-restarts", 3)
        before = self.all_up(jobs)
        jobs[0].signal(signal.SIGKILL)
        self.all_up(jobs[1:], before)
        results = self.finish(jobs[1:])
        for result in results:
            self.assertIn("node-1 (10.9.1.1), which hosts the job's store, is lost", result.err)
        said = [("this machine hosts the job's store now" in result.err) for result in results]
        self.assertEqual(sorted(said), [False, True], results)

    def test_the_machine_of_the_host_falls_silent(self):
        cluster, jobs = self.start_job(3, "--nnodes", "2:3", "--max-restarts", 3)
        before = self.all_up(jobs)
        cluster.cut(0)
        self.all_up(jobs[1:], before)
        # Alone it may not go on: the others may have a world.
        alone = jobs[0].wait(PATIENCE)
        self.assertEqual(alone.code, 121, alone)
        # If it missed one of the others first, its workers were stopped for that.
        self.assertIn("no other one was found that more than half of the job's machines can reach", alone.err)
        for result in self.finish(jobs[1:]):
            self.assertIn("node-1 (10.9.1.1), which hosts the job's store, is lost", result.err)

    def test_a_spare_takes_the_place_of_the_host(self):
        _, jobs = self.start_job(4, "--nnodes", 3, "--spares", 1, "--max-restarts", 0)
        spare = wait_until(lambda: [job for job in jobs if "waits as a spare" in job.err], "a spare", PATIENCE)[0]
        world = [job for job in jobs if job is not spare]
        before = self.all_up(world)
        jobs[0].signal(signal.SIGKILL)
        self.all_up(jobs[1:], before)
        for result in self.finish(jobs[1:]):
            self.assertIn("generation 1: node", result.err)

    def test_those_who_wait_are_told_where_a_replacement_must_come(self):
        cluster, jobs = self.start_job(3, "--nnodes", 3, "--max-restarts", 3)
        before = self.all_up(jobs)
        jobs[0].signal(signal.SIGKILL)

        def told():
            return re.search(
                r"waiting for 1 of 3 nodes: node rank 0 \(node-1\) hosted the job's store at 10\.9\.1\.1 and was lost "
                r"\d+ s ago; present: node-\[2-3\]; a replacement must come to (10\.9\.1\.[23]:\d+) "
                r"\(--rdzv-endpoint\) within 1\d\d s",
                jobs[1].err,
            )

        where = wait_until(told, "where to come", PATIENCE).group(1)
        jobs[0] = self.start_node(cluster, 0, "--nnodes", 3, "--max-restarts", 3, endpoint=where)
        self.all_up(jobs, before)
        self.assertEqual(self.rank(jobs[0]), 0)
        self.finish(jobs)

    def test_the_next_host_is_killed_too(self):
        _, jobs = self.start_job(5, "--nnodes", "2:5", "--max-restarts", 3)
        before = -1
        while len(jobs) > 3:
            before = self.all_up(jobs, before)
            host = next((job for job in jobs if "this machine hosts" in job.err), jobs[0])
            host.signal(signal.SIGKILL)
            jobs.remove(host)
        self.all_up(jobs, before)
        self.finish(jobs)

    def test_nobody_waits_for_a_host_that_died_before_it_was_followed(self):
        """Nor for a machine that died with the host. Silence is waited for longer than this test lasts."""
        more = {"conf": ",heartbeat_timeout=250", "env": {"LOGLEVEL": "debug"}}
        _, jobs = self.start_job(5, "--nnodes", "2:5", "--max-restarts", 3, **more)
        before = self.all_up(jobs)
        self.all_reached(jobs)
        jobs.pop(0).signal(signal.SIGKILL)
        new = wait_until(lambda: [job for job in jobs if "this machine hosts" in job.err], "a host", PATIENCE)[0]
        new.signal(signal.SIGKILL)
        jobs.remove(new)
        self.all_up(jobs, before)
        self.finish(jobs)

        self.go.unlink()
        _, jobs = self.start_job(5, "--nnodes", "2:5", "--max-restarts", 3, **more)
        before = self.all_up(jobs)
        self.all_reached(jobs)
        for job in jobs[:2]:
            job.signal(signal.SIGKILL)
        self.all_up(jobs[2:], before)
        self.finish(jobs[2:])

    def test_two_machines_go_on_after_a_death(self):
        _, jobs = self.start_job(2, "--nnodes", "1:2", "--max-restarts", 3)
        before = self.all_up(jobs)
        jobs[0].signal(signal.SIGKILL)
        self.all_up(jobs[1:], before)
        self.finish(jobs[1:])

    def test_of_two_machines_only_the_host_goes_on_after_silence(self):
        cluster, jobs = self.start_job(2, "--nnodes", "1:2", "--max-restarts", 3)
        before = self.all_up(jobs)
        cluster.cut(1)
        self.all_up(jobs[:1], before)
        alone = jobs[1].wait(PATIENCE)
        self.assertEqual(alone.code, 121, alone)
        self.assertIn("no other one was found", alone.err)
        self.finish(jobs[:1])

    def test_nobody_waits_for_another_machine_that_died(self):
        """The next world waits for a machine that is silent, but this one's kernel says that it is dead."""
        _, jobs = self.start_job(3, "--nnodes", "2:3", "--max-restarts", 3, conf=",heartbeat_timeout=100")
        before = self.all_up(jobs)
        jobs[2].signal(signal.SIGKILL)
        self.all_up(jobs[:2], before)
        self.finish(jobs[:2])

    def test_a_job_that_is_told_to_ends_with_its_host(self):
        for more in ({"conf": ",failover=no"}, {"token": False}):
            _, jobs = self.start_job(3, "--nnodes", "2:3", "--max-restarts", 3, **more)
            self.all_up(jobs)
            jobs[0].signal(signal.SIGKILL)
            for job in jobs[1:]:
                result = job.wait(PATIENCE)
                self.assertEqual(result.code, 121, result)
                self.assertIn("the connection to the job's store on 10.9.1.1 was lost", result.err)
                self.assertEqual("failover=1 and a token" in result.err, "conf" not in more, result)

    def test_one_that_cannot_outlive_the_host_is_not_taken(self):
        cluster = netns.Cluster(self, 2)
        jobs = [self.start_node(cluster, 0, "--nnodes", "1:2")]
        self.all_up(jobs)
        other = self.start_node(cluster, 1, "--nnodes", "1:2", conf=",failover=no").wait()
        self.assertEqual(other.code, 2, other)
        self.assertIn("cannot outlive the job's host", other.err)
        self.finish(jobs)

    def test_a_stranger_at_the_port_of_an_agent_is_sent_away(self):
        cluster, jobs = self.start_job(3, "--nnodes", "2:3", "--max-restarts", 3)
        before = self.all_up(jobs)
        port = self.listening(jobs[1])
        script = self.script("noise.py", NOISE)
        place = cluster.addresses[1], port
        noise = self.run_program(*cluster.nodes[0], "python3", script, *place, CONTROL_VERSION)
        self.assertEqual(noise.code, 0, noise)
        jobs[0].signal(signal.SIGKILL)
        self.all_up(jobs[1:], before)
        self.finish(jobs[1:])

    def listening(self, job):
        """The port at which that agent can be asked."""
        listing = self.run_program("nsenter", "-t", job.pid, "--user", "--preserve-credentials", "--net", "ss", "-ltnpH")
        ports = [line.split()[3].rpartition(":")[2] for line in listing.out.splitlines() if f"pid={job.pid}," in line]
        self.assertEqual(len(ports), 1, listing)
        return ports[0]


if __name__ == "__main__":
    testlib.main()
