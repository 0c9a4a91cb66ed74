# SPDX-License-Identifier: Apache-2.0
"""Workers, agents and the host of the store are killed at random, CTRUN_KILLS times (30). After each
time the job is whole again; nothing of the dead is left, no zombie, and no descriptor more is open."""

import os
import random
import signal
import socket

import testlib
from testlib import wait_until

AGENTS, WORKERS = 3, 2
SCRIPT = 'echo "up $CTRUN_GENERATION $$$$"; exec sleep 1000'


class Agent:
    def __init__(self, case, port):
        self.job = case.start_ctrun(
            "--nnodes", f"1:{AGENTS}", "--rdzv-backend", "c10d", "-n", WORKERS,
            "--rdzv-endpoint", f"localhost:{port}", "--max-restarts", "1000000",
            "--rdzv-conf", "last_call_timeout=0.05,join_timeout=60", "--no-python",
            "sh", "-c", SCRIPT,
        )  # fmt: skip

    def workers(self):
        """(generation, pids) of the last generation that is complete here."""
        last = {}
        for line in self.job.out.splitlines():
            if "up " in line:
                generation, pid = line.split("up ")[1].split()
                last.setdefault(int(generation), []).append(int(pid))
        whole = [g for g, pids in last.items() if len(pids) == WORKERS]
        return (max(whole), last[max(whole)]) if whole else (-1, [])

    def descriptors(self):
        return testlib.descriptors_of(self.job.pid)


class RandomKillsOfNodes(testlib.Case):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("CTRUN_KILLS_SEED", random.randrange(1 << 30)))
        self.random = random.Random(self.seed)
        self.settled = {}  # agent -> descriptors when it was first whole

    def new_job(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        host = Agent(self, self.port)
        wait_until(lambda: host.workers()[1], "the host alone")
        return [host] + [Agent(self, self.port) for _ in range(AGENTS - 1)]

    def whole(self, agents, dead):
        """The generation in which all are up again and none of the dead is."""
        states = [a.workers() for a in agents]
        generations = {g for g, _ in states}
        pids = [p for _, own in states for p in own]
        alive = all(map(testlib.pid_alive, pids)) and not set(pids) & set(dead)
        return len(generations) == 1 and -1 not in generations and alive and pids

    def check(self, agents):
        for agent in agents:
            # What has just been read or reaped is closed within moments.
            first = self.settled.setdefault(agent, agent.descriptors())
            wait_until(lambda a=agent, n=first: a.descriptors() <= n, "no descriptor leaks")
            wait_until(lambda a=agent: not testlib.zombies_of(a.job.pid), "no zombie")

    def test_nothing_is_left(self):
        agents, dead = self.new_job(), []
        for n in range(int(os.environ.get("CTRUN_KILLS", "30"))):
            pids = wait_until(
                lambda: self.whole(agents, dead),
                f"seed {self.seed}: whole before kill {n}: {[a.job.result() for a in agents]}",
            )
            self.check(agents)
            victim = self.random.choice(("worker", "worker", "agent", "host"))
            if victim == "worker":
                dead = [self.random.choice(pids)]
                os.kill(dead[0], signal.SIGKILL)
            elif victim == "agent":
                dead = pids
                self.end(agents.pop(self.random.randrange(1, AGENTS)))
                agents.append(Agent(self, self.port))
            else:
                self.end(agents[0])
                for agent in agents[1:]:
                    self.assertEqual(agent.job.wait().code, 121, f"seed {self.seed}")
                    self.assertEqual(agent.job.family(), [])
                agents, dead = self.new_job(), []
                self.settled = {}
        for agent in agents:
            agent.job.signal(signal.SIGTERM)
        for agent in agents:
            # One that has stopped by what the others told it may die of the signal: its guard sees to the rest.
            agent.job.wait()
            agent.job.wait_no_family(10)

    def end(self, agent):
        agent.job.signal(signal.SIGKILL)
        agent.job.popen.wait()
        agent.job.wait_no_family(testlib.DEADLINE)


if __name__ == "__main__":
    testlib.main()
