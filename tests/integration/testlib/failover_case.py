# SPDX-License-Identifier: Apache-2.0
"""What the tests of jobs that outlive their host share, and a real etcd, which can be the arbiter of such a job."""

import os
import shutil
import signal
import socket
import subprocess
import unittest

from . import netns
from .case import Case
from .paths import program
from .wait import DEADLINE, wait_until

# A machine that is silent is waited for twice the heartbeat timeout; a busy machine makes that longer.
PATIENCE = 120
# Runs until the file is there, and says what it was told.
WORKER = 'echo "up $CTRUN_GENERATION $RANK $MASTER_ADDR"; while [ ! -e "$0" ]; do sleep 0.05; done'


class FailoverCase(Case):
    """Jobs of several machines, each a network namespace, that end when the file `go` is there."""

    def setUp(self):
        super().setUp()
        self.go, self.token = self.tmp / "go", self.tmp / "token"
        self.token.touch(mode=0o600)
        self.token.write_text("correct-horse-battery-staple\n")

    def start_node(self, cluster, i, *options, conf="", worker=None, token=True, endpoint=None, settle=0.5, env=None):
        worker = worker or ("--no-python", "sh", "-c", WORKER.replace("$", "$$"), self.go)
        return self.start(
            *cluster.nodes[i], program("ctrun"), "--nproc-per-node", 1, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", endpoint or f"{cluster.addresses[0]}:29400", *(("--token-file", self.token) if token else ()), "--rdzv-conf",
            f"join_timeout=120,last_call_timeout={settle}{conf}", "--shutdown-timeout", 20, *options, *worker, env=env,
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

    def all_reached(self, jobs):
        """Waits until each has heard from all others once, so that a refusal proves a death. Needs LOGLEVEL=debug."""
        wait_until(lambda: all(job.err.count(" has answered\n") >= len(jobs) - 1 for job in jobs), "all to be reached", PATIENCE)

    def finish(self, jobs):
        self.go.touch()
        results = [job.wait(PATIENCE) for job in jobs]
        self.assertEqual([result.code for result in results], [0] * len(jobs), results)
        return results

    def kill(self, job):
        """Kills an agent, and waits until it is gone."""
        job.signal(signal.SIGKILL)
        job.wait(PATIENCE)


def free_ports(count):
    """Ports that nobody has now: etcd cannot be asked which one it got."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@unittest.skipIf(shutil.which("etcd") is None, "needs etcd (tools/setup --ci)")
class EtcdCase(Case):
    scheme = "http"
    extra = ()

    def setUp(self):
        super().setUp()
        client, peer = free_ports(2)
        self.port = client
        self.url = f"{self.scheme}://127.0.0.1:{client}"
        self.peer = f"http://127.0.0.1:{peer}"
        self.start_etcd()

    def start_etcd(self):
        """Not with --unsafe-no-fsync: when it is killed, some versions would lose what they have answered."""
        self.etcd = self.start(
            "etcd", "--name", "t", "--data-dir", str(self.tmp / "etcd"),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
            "--initial-cluster", f"t={self.peer}", *self.extra,
        )  # fmt: skip

    def etcdctl(self, *args):
        done = subprocess.run(
            ["etcdctl", "--endpoints", self.url, *args],
            env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=DEADLINE,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done)
