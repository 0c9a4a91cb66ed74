# SPDX-License-Identifier: Apache-2.0
"""A job outlives the machine that hosts its rendezvous, and its ctrun; each machine is a network namespace."""

import re
import signal

import testlib
from testlib import netns, wait_until

# A machine that is silent is waited for twice the heartbeat timeout; a busy machine makes that longer.
PATIENCE = 120
# Runs until the file is there, and says what it was told.
WORKER = 'echo "up $CTRUN_GENERATION $RANK $MASTER_ADDR"; while [ ! -e "$0" ]; do sleep 0.05; done'


# Garbage, a frame that is too long, half a proof, a proof without the token, and a crowd that says nothing.
NOISE = """
import json, socket, sys
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
    b"\\x80", b"\\xff" * 100, b"GET / HTTP/1.0\\r\\n\\r\\n", frame(type="open", version=2, nonce="00" * 32),
    frame(type="ask", id=7, term=99, record_term=1, record_version=1),
    frame(type="open", version=2, nonce="00" * 32) + frame(type="answer", answer="00" * 32),
    frame(type="open", version=2, nonce="00" * 32) + frame(type="join"),
):
    to(data)
crowd = [socket.create_connection(sys.argv[1:3], 5) for _ in range(300)]
"""


class Failover(testlib.Case):
    def setUp(self):
        super().setUp()
        self.go, self.token = self.tmp / "go", self.tmp / "token"
        self.token.touch(mode=0o600)
        self.token.write_text("correct-horse-battery-staple\n")

    def start_node(self, cluster, i, *options, conf="", worker=None, token=True, endpoint=None, settle=0.5):
        worker = worker or ("--no-python", "sh", "-c", WORKER.replace("$", "$$"), self.go)
        return self.start(
            *cluster.nodes[i], testlib.program("ctrun"), "--nproc-per-node", 1, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", endpoint or f"{cluster.addresses[0]}:29400", *(("--token-file", self.token) if token else ()), "--rdzv-conf",
            f"join_timeout=120,last_call_timeout={settle}{conf}", "--shutdown-timeout", 20, *options, *worker,
        )  # fmt: skip

    def start_job(self, count, *options, **more):
        cluster = netns.Cluster(self, count)
        jobs = [self.start_node(cluster, 0, *options, **more)]
        wait_until(lambda: "up 0" in jobs[0].out or "waiting for" in jobs[0].err or jobs[0].popen.poll(), "the host", PATIENCE)
        jobs += [self.start_node(cluster, i, *options, **more) for i in range(1, count)]
        return cluster, jobs

    def generation(self, job):
        """The newest generation in which the job's worker has begun."""
        return max((int(line.split("up ")[1].split()[0]) for line in job.out.splitlines() if "up " in line), default=-1)

    def rank(self, job):
        """That of its newest worker; each node has one."""
        return int(job.out.split("up ")[-1].split()[1])

    def all_up(self, jobs, after=-1):
        """Waits until one generation after that one runs on all; returns it."""

        def one():
            generations = {self.generation(job) for job in jobs}
            return generations if len(generations) == 1 and min(generations) > after else None

        try:
            return wait_until(one, "all run", PATIENCE).pop()
        except AssertionError as failed:
            raise AssertionError("\n".join([str(failed), *(str(job.result()) for job in jobs)])) from None

    def finish(self, jobs):
        self.go.touch()
        results = [job.wait(PATIENCE) for job in jobs]
        self.assertEqual([result.code for result in results], [0] * len(jobs), results)
        return results

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

    def kill(self, job):
        """Kills an agent that is to be started again: as systemd does it, not before the old one is gone. Else the
        new one may come before the end of the old one's connection, and finds all places taken."""
        job.signal(signal.SIGKILL)
        job.wait(PATIENCE)

    def start_again(self, *options, settle, go_on=False):
        """Kills an agent that does not host, and starts it with the same command line: at once, or when the others
        have gone on. Returns the node ranks before and after."""
        cluster, jobs = self.start_job(3, *options, "--max-restarts", 9, settle=settle)
        before = self.all_up(jobs)
        ranks = [self.rank(job) for job in jobs]
        self.kill(jobs[1])
        if go_on:
            before = self.all_up([jobs[0], jobs[2]], before)
        jobs[1] = self.start_node(cluster, 1, *options, "--max-restarts", 9, settle=settle)
        self.all_up(jobs, before)
        again = [self.rank(job) for job in jobs]
        self.finish(jobs)
        return ranks, again

    def test_an_agent_that_is_started_again_has_its_old_node_rank(self):
        before, again = self.start_again("--nnodes", 3, settle=0.5)
        self.assertEqual(before, again)

    def test_so_has_one_of_an_elastic_job_that_waits_for_it(self):
        before, again = self.start_again("--nnodes", "2:3", settle=100)
        self.assertEqual(before, again)

    def test_one_that_is_started_again_joins_a_job_that_went_on_without_it(self):
        _, again = self.start_again("--nnodes", "2:3", settle=0.5, go_on=True)
        self.assertEqual(sorted(again), [0, 1, 2])

    def host_again(self, nodes):
        """Kills the first host, and starts it with the same command line, which says that it hosts the job."""
        cluster, jobs = self.start_job(3, "--nnodes", nodes, "--max-restarts", 9)
        before = self.all_up(jobs)
        self.kill(jobs[0])
        wait_until(lambda: any("this machine hosts the job's store now" in job.err for job in jobs), "a host", PATIENCE)
        jobs[0] = self.start_node(cluster, 0, "--nnodes", nodes, "--max-restarts", 9, settle=100)
        self.all_up(jobs, before)
        ranks = [self.rank(job) for job in jobs]
        result = self.finish(jobs)[0]
        self.assertRegex(
            result.err,
            r"the job runs already, so this ctrun joins it and hosts no other\n"
            r"ctrun: node-[23] hosts the job's store now, at 10\.9\.1\.[23] port",
        )
        return ranks

    def test_the_first_host_that_is_started_again_joins_the_job(self):
        self.assertEqual(self.host_again("3"), [0, 1, 2])

    def test_the_first_host_that_is_started_again_joins_an_elastic_job(self):
        self.assertEqual(sorted(self.host_again("2:3")), [0, 1, 2])

    def test_agents_that_know_the_first_address_are_sent_on(self):
        """One may join the first host's new life before that knows of the running job; another comes later."""
        options = ("--nnodes", "2:5", "--max-restarts", 9)
        cluster, jobs = self.start_job(5, *options)
        before = self.all_up(jobs)
        for i in (4, 0):
            self.kill(jobs[i])

        def hosts():
            return [i for i in (1, 2, 3) if "this machine hosts the job's store now" in jobs[i].err]

        host = wait_until(hosts, "a host", PATIENCE)[0]
        for i in (4, 0):
            jobs[i] = self.start_node(cluster, i, *options, settle=100)
        before = self.all_up(jobs, before)
        late = 1 if host != 1 else 2
        self.kill(jobs[late])
        jobs[late] = self.start_node(cluster, late, *options)
        self.all_up(jobs, before)
        results = self.finish(jobs)
        self.assertIn(
            f"another machine hosts the job's store now, at {cluster.addresses[host]} port", results[late].err
        )

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
        noise = self.run_program(*cluster.nodes[0], "python3", script, cluster.addresses[1], port)
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
