#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No job is lost with its host: kills or cuts off whichever machine hosts, again and again, also while
a generation forms, and compares the final parameters with those of an undisturbed run.

    bench/failover.py [N] [--build DIR] [--seed N] [--each N] [--epochs N] [--heartbeat S]

N strikes (200), `each` (10) for each job. A job has four machines and a spare in network namespaces, and
runs `train --consistent`. A machine that was lost comes back as a new one. After each job: all agents
that live ended with 0, the hash is the same, and no generation ran twice (each says its place in it).
A second strike while a generation forms is a kill that follows a kill: with a silent machine among two
of four that are lost at once, there is no majority. Ends with 1 when anything is wrong.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
os.environ["SOURCE_ROOT"] = str(SOURCE)
sys.path.insert(0, str(SOURCE / "tests" / "integration"))

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("strikes", nargs="?", type=int, default=200)
parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--each", type=int, default=10)
parser.add_argument("--epochs", type=int, default=1500)
parser.add_argument("--heartbeat", type=float, default=3)
args = parser.parse_args()
os.environ["BUILD_ROOT"] = str(args.build.resolve())

import testlib  # noqa: E402
from testlib import idx, netns, wait_until  # noqa: E402

PATIENCE = 120
PLACE = re.compile(r"generation (\d+): node (\d+) of (\d+), ranks? (\d+)")
HOSTS = re.compile(r"hosts the job's store now, at ([\d.]+) port (\d+)")


class Agent:
    def __init__(self, job, machine):
        self.machine = machine
        self.proc = job.case.start(
            *job.cluster.nodes[machine], testlib.program("ctrun"), "--nproc-per-node", 1, "--nnodes", "4",
            "--spares", 1, "--max-restarts", 1000000, "--rdzv-backend", "c10d", "--rdzv-endpoint", job.endpoint,
            "--token-file", job.token, "--rdzv-conf", f"join_timeout=120,last_call_timeout=0.3,heartbeat_timeout={args.heartbeat}",
            "train", "--data", job.data, "--hidden", "24,16", "--batch-size", "36", "--device", "cpu",
            "--consistent", "--epochs", args.epochs, "--metrics", job.metrics, env={"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def places(self):
        return [tuple(map(int, found)) for found in PLACE.findall(self.proc.err)]

    def generation(self):
        places = self.places()
        return places[-1][0] if places else -1

    def joined(self):
        return bool(self.places()) or "waits as a spare" in self.proc.err

    def ended(self):
        return self.proc.popen.poll() is not None


class Job:
    def __init__(self, case, data, token, number):
        self.case, self.data, self.token = case, data, token
        self.metrics = case.tmp / f"metrics-{number}"
        self.cluster = netns.Cluster(case, 5)
        self.endpoint = f"{self.cluster.addresses[0]}:29400"
        self.agents, self.all = [], []
        for machine in range(5):
            self.add(machine)
            if machine == 0:
                wait_until(lambda: "waiting for" in self.agents[0].proc.err or self.agents[0].ended(), "host", PATIENCE)
        self.host = self.agents[0]

    def add(self, machine):
        self.look()
        self.agents.append(Agent(self, machine))
        self.all.append(self.agents[-1])

    def over(self):
        """Has any agent ended that was in the job? One that loses its host while it joins has no vote and no
        record; it ends, and is started again, as Slurm or systemd would do."""
        for agent in [a for a in self.agents if a.ended() and a.proc.popen.returncode == 121 and not a.joined()]:
            self.agents.remove(agent)
            self.add(agent.machine)
        return any(agent.ended() for agent in self.agents)

    def newest(self):
        return max(agent.generation() for agent in self.agents)

    def whole(self):
        """Four run the newest generation, and a fifth waits."""
        top = self.newest()
        placed = [agent for agent in self.agents if agent.generation() == top >= 0]
        others = [agent for agent in self.agents if agent not in placed]
        return len(placed) == 4 and len(others) == 1 and "waits as a spare" in others[0].proc.err

    def strike(self, rng, kill_only):
        """Kills or cuts off the host; returns (machine, was it cut off, when)."""
        victim, cut = self.host, not kill_only and rng.random() < 0.25
        self.agents.remove(victim)
        if cut:
            self.cluster.cut(victim.machine)
        else:
            victim.proc.signal(signal.SIGKILL)
        return victim, cut, time.monotonic()

    def look(self):
        """Finds out who hosts: whom most of the living name last. One that was elected and not joined gives up."""
        named = [HOSTS.findall(agent.proc.err)[-1:] for agent in self.agents]
        named = collections.Counter(found[0] for found in named if found)
        for (address, port), _ in named.most_common(1):
            self.endpoint = f"{address}:{port}"
            machine = self.cluster.addresses.index(address)
            self.host = next((agent for agent in self.agents if agent.machine == machine), self.host)

    def next_host(self):
        """Waits until others name a host that lives."""
        wait_until(lambda: self.look() or self.over() or self.host in self.agents, "another host", PATIENCE)
        return not self.over()


def last_hash(metrics):
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [event["param_hash"] for event in events if "param_hash" in event][-1]


def play(case, data, token, number, rng, times):
    """One job; returns (strikes, what is wrong)."""
    job, strikes = Job(case, data, token, number), 0
    while strikes < args.each:
        if not wait_until(lambda: job.over() or job.whole(), "a whole job", PATIENCE) or job.over():
            break
        time.sleep(rng.random() * 0.5)
        job.look()
        lost = []
        for second in range(2 if rng.random() < 0.3 else 1):
            newest = job.newest()
            victim, cut, when = job.strike(rng, second == 1)
            strikes += 1
            lost.append((victim, cut))
            if not job.next_host() or cut:
                break
        if len(lost) == 1 and not job.over():  # of two that are lost, one must come back first
            wait_until(lambda: job.over() or job.newest() > newest, "the next generation", PATIENCE)
            if not job.over():
                times["silence" if cut else "death"].append(time.monotonic() - when)
        for victim, cut in lost:
            if cut:
                code = victim.proc.wait(PATIENCE).code
                job.cluster.join(victim.machine)
                if code != 121:
                    return strikes, [f"the machine that was cut off ended with {code}"]
            else:
                victim.proc.popen.wait()
            if not job.over():
                job.add(victim.machine)
    wrong = []
    for agent in job.agents:
        result = agent.proc.wait(600)
        late = not agent.joined() and result.code in (1, 120, 121)  # the job ended while it joined
        if result.code != 0 and not late:
            wrong.append(f"machine {agent.machine} ended with {result.code}:\n{result}")
    worlds = {}
    for agent in job.all:
        for generation, node, count, rank in agent.places():
            if (node, count) in worlds.setdefault(generation, {}):
                wrong.append(f"generation {generation} has node {node} twice")
            worlds[generation][(node, count)] = agent
    for generation, nodes in worlds.items():
        if len({count for _, count in nodes}) != 1:
            wrong.append(f"generation {generation} is two worlds: {sorted(nodes)}")
    if wrong:
        wrong += [f"machine {agent.machine}: {agent.proc.err}" for agent in job.all]
    return strikes, wrong or [last_hash(job.metrics)]


class Bench(testlib.Case):
    def runTest(self):
        token, data = self.tmp / "token", idx.write_dataset(self.tmp)
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        calm, begun = self.tmp / "calm", time.monotonic()
        result = self.ctrun(
            "-n", 2, "train", "--data", data, "--hidden", "24,16", "--batch-size", "36", "--device", "cpu",
            "--consistent", "--epochs", args.epochs, "--metrics", calm, deadline=600)  # fmt: skip
        self.assertEqual(result.code, 0, result)
        print(f"undisturbed: {time.monotonic() - begun:.1f} s", flush=True)
        want, done, number, times = last_hash(calm), 0, 0, {"death": [], "silence": []}
        while done < args.strikes:
            rng = random.Random(f"{args.seed}/{number}")
            strikes, (found, *more) = play(self, data, token, number, rng, times)
            number, done = number + 1, done + strikes
            if found != want or more:
                print(f"job {number - 1} of seed {args.seed}, after {strikes} strikes: {found}", *more, sep="\n")
                sys.exit(1)
            self.doCleanups()
            self.tmp.mkdir(exist_ok=True)
            token.touch(mode=0o600)
            token.write_text("correct-horse-battery-staple\n")
            idx.write_dataset(self.tmp)
            print(f"{done} strikes, {number} jobs: one hash, none lost", flush=True)
        for kind, values in times.items():
            if values:
                values.sort()
                print(f"{kind}: next generation after {values[len(values) // 2]:.3f} s (median), {values[-1]:.3f} s at most, {len(values)} times")


if __name__ == "__main__":
    bench = Bench()
    bench.setUp()
    try:
        bench.runTest()
    finally:
        bench.doCleanups()
