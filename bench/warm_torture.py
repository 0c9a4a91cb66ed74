#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `ctrun --warm` keep its promise whatever is killed? A job of two agents with two workers each, whose
membership a ctrdzvd keeps, loses workers, spares and agents at random moments, some of the spares by SIGSTOP
instead; an agent that was killed is started again at once. Half of the kills come when all spares are ready.

    bench/warm_torture.py [--build DIR] [--kills N] [--seed N] [--limit SECONDS] [--out FILE]

With --limit the killing ends after that time, and the job is looked at as it is. --out adds the result to what the
file has: so 300 kills can be done in several calls, each of which takes the next seed by itself. Each worker computes a chain of hashes and keeps its state in a file after each step. The end is compared with a
chain that was computed without any job. Each worker also writes down who it is: in one generation no rank may
be there twice, and all must agree on the generation, the world and the port of the store. At last nothing may
be left: no process with the job's mark, no folder of it in /dev/shm. Ends with 1 if anything differs, in any of the
calls, and with 2 when fewer have been killed than were asked for.
"""

import argparse
import collections
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from shared import ending

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES, WORKERS = 2, 2
DEADLINE = 300
# The job ends when `end` is there; until then each rank goes on.
WORKER = """
import csv, hashlib, json, os, time

def main():
    folder, rank = os.environ["WARM_TORTURE"], int(os.environ["RANK"])
    generation = os.environ["CTRUN_GENERATION"]
    if f"attempt_{generation}/" not in os.environ["TORCHELASTIC_ERROR_FILE"]:
        with open(f"{folder}/stale", "a") as stale:
            stale.write(f"generation {generation}, rank {rank}: " + os.environ["TORCHELASTIC_ERROR_FILE"] + "\\n")
    told = [generation, rank, os.environ["WORLD_SIZE"], os.environ["MASTER_PORT"], os.getpid()]
    with open(f"{folder}/seen", "a") as seen:
        seen.write(" ".join(map(str, told)) + "\\n")
    path = f"{folder}/state.{rank}"
    step, value = 0, ""
    if os.path.exists(path):
        with open(path) as state:
            step, value = json.load(state)
    while not os.path.exists(f"{folder}/end"):
        step += 1
        value = hashlib.sha256(f"{value} {rank} {step}".encode()).hexdigest()
        with open(f"{path}.{os.getpid()}", "w") as state:
            json.dump([step, value], state)
        os.replace(f"{path}.{os.getpid()}", path)
        time.sleep(0.005)

main()
"""


def chain(rank, steps):
    value = ""
    for step in range(1, steps + 1):
        value = hashlib.sha256(f"{value} {rank} {step}".encode()).hexdigest()
    return value


def environment(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Job:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.mark = f"WARM_TORTURE={folder}"
        self.script = folder / "worker.py"
        self.script.write_text(WORKER)
        reading, writing = os.pipe()
        self.server = subprocess.Popen(
            [args.build / "ctrdzvd", "--port", "0", "--ready-fd", str(writing)], pass_fds=[writing],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(writing)
        self.reading = reading
        self.agents = []

    def begin(self):
        with open(self.reading) as ready:
            self.port = int(ready.readline())
        self.agents += [self.start(node) for node in range(NODES)]

    def start(self, node):
        with open(self.folder / f"log.{node}", "a") as log:
            return subprocess.Popen(
                [self.args.build / "ctrun", "--nnodes", str(NODES), "--node-rank", str(node), "-n", str(WORKERS),
                 "--rdzv-id", "torture", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--max-restarts", "100000",
                 # The end of a killed agent is seen at once. One that gets no CPU for a while is not to be blamed.
                 "--rdzv-conf", "heartbeat_timeout=30", "--warm", self.script],
                stdout=log, stderr=log, env={**os.environ, "WARM_TORTURE": str(self.folder), "PYTHON_EXEC": sys.executable, "LOGLEVEL": "info"},
            )  # fmt: skip

    def processes(self):
        """Workers and spares, by kind. A worker that was a spare is known by what it has written."""
        found = {"worker": [], "spare": []}
        working = {pid for *_, pid in told(self.folder)}
        for agent in self.agents:
            try:
                children = pathlib.Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            except OSError:
                continue
            for child in map(int, children):
                names = {entry.partition(b"=")[0] for entry in environment(child)}
                if child not in working and b"CTRUN_WARM" in names:
                    found["spare"].append(child)
                elif b"RANK" in names:
                    found["worker"].append(child)
        return found

    def wait_for_spares(self, seconds):
        """Until all spares that are wanted are ready, but no longer than this."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            log = "".join((self.folder / f"log.{node}").read_text() for node in range(NODES))
            ready = set(map(int, re.findall(r"is ready \(pid (\d+)", log)))
            if len(ready.intersection(self.processes()["spare"])) >= NODES * WORKERS:
                return
            time.sleep(0.05)

    def kill(self, rng):
        """Kills something; returns what."""
        kind = rng.choices(["worker", "spare", "agent"], [5, 4, 1])[0]
        if kind == "agent":
            node = rng.randrange(NODES)
            self.agents[node].kill()
            self.agents[node].wait(DEADLINE)
            self.agents[node] = self.start(node)
            return kind
        among = self.processes()[kind]
        if not among:
            return None
        stop = kind == "spare" and rng.random() < 0.2
        try:
            os.kill(rng.choice(among), signal.SIGSTOP if stop else signal.SIGKILL)
        except ProcessLookupError:
            return None
        return "stopped spare" if stop else kind

    def end(self):
        """Lets the job end; returns how the agents have ended, None for one that does not."""
        (self.folder / "end").touch()
        # One that became a worker just when it was to be stopped has not written who it is, and counts as a spare.
        for pid in itertools.chain(*self.processes().values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        codes = []
        for agent in self.agents:
            try:
                codes.append(agent.wait(DEADLINE))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes

    def close(self):
        """Whatever has happened, nothing of it goes on. What an agent has started dies with it."""
        for proc in [*self.agents, self.server]:
            proc.kill()
            proc.wait(DEADLINE)

    def left(self):
        """Processes of the job that still live."""
        mark = self.mark.encode()
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        return [pid for pid in pids if mark in environment(pid)]


def told(folder):
    """What each worker was told: (generation, rank, world, port of the store, its pid)."""
    try:
        lines = (folder / "seen").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [tuple(map(int, line.split())) for line in lines if len(line.split()) == 5]


def check(folder):
    """How many generations there were, and what is wrong with what the workers have written."""
    wrong, generations = [], collections.defaultdict(list)
    for generation, *rest, _ in told(folder):
        generations[generation].append(tuple(rest))
    size = NODES * WORKERS
    for generation, workers in generations.items():
        ranks = [rank for rank, _, _ in workers]
        ports = {port for _, _, port in workers}
        if len(set(ranks)) != len(ranks) or len(ports) != 1 or any(
            rank not in range(size) or world != size for rank, world, _ in workers
        ):
            wrong.append(f"generation {generation}: {workers}")
    if (folder / "stale").exists():
        wrong += (folder / "stale").read_text().splitlines()
    for rank in range(size):
        try:
            step, value = json.loads((folder / f"state.{rank}").read_text())
        except FileNotFoundError:
            wrong.append(f"rank {rank} has never run")
            continue
        if value != chain(rank, step):
            wrong.append(f"rank {rank} has another hash after {step} steps")
    return len(generations), wrong


def torture(args, job, rng):
    """Kills until there is enough of it; returns what was killed."""
    killed = collections.Counter()
    end = time.monotonic() + args.limit
    while killed.total() < args.kills and time.monotonic() < end:
        if rng.random() < 0.5:
            job.wait_for_spares(20)
        else:
            time.sleep(rng.choice([0.02, 0.3, 1.2, 1.5, 2, 3]))
        ended = [agent.returncode for agent in job.agents if agent.poll() is not None]
        if ended:
            sys.exit(f"an agent has ended with {ended} after {dict(killed)}: " + (job.folder / "log.0").read_text()[-2000:])
        killed.update(filter(None, [job.kill(rng)]))
    return killed


def left_in_memory(before):
    """Folders of the job in /dev/shm. What was there before, and what another ctrun has made, is not ours."""
    for entry in set(os.listdir("/dev/shm")) - before:
        with contextlib.suppress(OSError):  # it is no folder, or is gone
            if entry.startswith("ctrun_") and "torture_" in str(os.listdir(f"/dev/shm/{entry}")):
                yield entry


def run(args, seed):
    """One job; returns what there is to say of it."""
    before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(prefix="ctrun-warm-torture-") as name:
        folder = pathlib.Path(name)
        job = Job(args, folder)
        try:
            job.begin()
            killed = torture(args, job, random.Random(seed))
            codes = job.end()
            limit = time.monotonic() + DEADLINE  # those of a killed agent are ended by the kernel, not by an agent
            while job.left() and time.monotonic() < limit:
                time.sleep(0.1)
            generations, wrong = check(folder)
            wrong += [f"process {pid} is left" for pid in job.left()]
        finally:
            job.close()
        log = "".join((folder / f"log.{node}").read_text() for node in range(NODES))
    wrong += [f"/dev/shm/{entry} is left" for entry in left_in_memory(before)]
    wrong += [f"the agents have ended with {codes}"] if any(code != 0 for code in codes) else []
    warm = sum(int(number) for number in re.findall(r"generation \d+: (\d+) of \d+ workers here were warm", log))
    return {"seed": seed, "killed": killed, "generations": generations, "warm": warm, "wrong": wrong,
            "refused": log.count("starts cold"), "off": sorted(set(re.findall(r"--warm makes no spares.*", log)))}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, help="1, or the next one of --out")
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.build = args.build.resolve()
    ending.on_signals()
    wanted = args.kills
    runs = json.loads(args.out.read_text()) if args.out is not None and args.out.exists() else []
    args.kills -= sum(sum(each["killed"].values()) for each in runs)
    if args.kills > 0:
        runs.append(run(args, args.seed or len(runs) + 1))
        if args.out is not None:
            args.out.write_text(json.dumps(runs, indent=1) + "\n")
    for each in runs:
        print(f"seed {each['seed']}: killed {dict(each['killed'])}; {each['generations']} generations, {each['warm']} "
              f"workers were warm, {each['refused']} spares were refused; {len(each['wrong'])} things are wrong")  # fmt: skip
        for line in [*each["off"], *each["wrong"]]:
            print(line)
    total = sum(sum(each["killed"].values()) for each in runs)
    print(f"{total} kills of {wanted}")
    return 1 if any(each["wrong"] for each in runs) else 2 if total < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
