#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `ctrun --warm` keep its promise whatever is killed? A job of two agents with two workers each, whose
membership a ctrdzvd keeps, loses workers, spares and agents at random moments, some of the spares by SIGSTOP
instead; an agent that was killed is started again at once. Half of the kills come when all spares are ready.

    bench/warm_torture.py [--build DIR] [--kills N] [--seed N]

Each worker computes a chain of hashes and keeps its state in a file after each step. The end is compared with a
chain that was computed without any job. Each worker also writes down who it is: in one generation no rank may
be there twice, and all must agree on the generation, the world and the port of the store. At last nothing may
be left: no process with the job's mark, no folder of it in /dev/shm. Ends with 1 if anything differs.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES, WORKERS = 2, 2
DEADLINE = 300
# The job ends when `end` is there; until then each rank goes on.
WORKER = """
import csv, hashlib, json, os, time

def main():
    folder, rank = os.environ["WARM_TORTURE"], int(os.environ["RANK"])
    generation = os.environ["CTRUN_GENERATION"]
    assert f"attempt_{generation}/" in os.environ["TORCHELASTIC_ERROR_FILE"]
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
        with open(reading) as ready:
            self.port = int(ready.readline())
        self.agents = [self.start(node) for node in range(NODES)]

    def start(self, node):
        with open(self.folder / f"log.{node}", "a") as log:
            return subprocess.Popen(
                [self.args.build / "ctrun", "--nnodes", str(NODES), "--node-rank", str(node), "-n", str(WORKERS),
                 "--rdzv-id", "torture", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--max-restarts", "100000",
                 "--warm", self.script],
                stdout=log, stderr=log, env={**os.environ, "WARM_TORTURE": str(self.folder), "PYTHON_EXEC": sys.executable, "LOGLEVEL": "info"},
            )  # fmt: skip

    def processes(self):
        """Workers and spares, by kind."""
        found = {"worker": [], "spare": []}
        for agent in self.agents:
            try:
                children = pathlib.Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            except OSError:
                continue
            for child in map(int, children):
                told = environment(child)
                if any(entry.startswith(b"CTRUN_WARM=") for entry in told):
                    found["spare"].append(child)
                elif any(entry.startswith(b"RANK=") for entry in told):
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
        """Kills something; returns what. A worker that was a spare looks like one from outside."""
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
        (self.folder / "end").touch()
        codes = [agent.wait(DEADLINE) for agent in self.agents]
        self.server.terminate()
        self.server.wait(DEADLINE)
        return codes

    def left(self):
        """Processes of the job that still live."""
        mark = self.mark.encode()
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        return [pid for pid in pids if mark in environment(pid)]


def check(folder):
    """What is wrong with what the workers have written."""
    wrong, generations = [], collections.defaultdict(list)
    for line in (folder / "seen").read_text().splitlines():
        generation, rank, world, port, _ = line.split()
        generations[int(generation)].append((int(rank), world, port))
    for generation, told in generations.items():
        ranks = [rank for rank, _, _ in told]
        if len(set(ranks)) != len(ranks) or len({rest[1:] for rest in told}) != 1:
            wrong.append(f"generation {generation}: {told}")
    for rank in range(NODES * WORKERS):
        step, value = eval((folder / f"state.{rank}").read_text())  # our own list of two
        if value != chain(rank, step):
            wrong.append(f"rank {rank} has another hash after {step} steps")
    return len(generations), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.build = args.build.resolve()
    rng = random.Random(args.seed)
    folders = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(prefix="ctrun-warm-torture-") as name:
        folder = pathlib.Path(name)
        job = Job(args, folder)
        killed = collections.Counter()
        while killed.total() < args.kills:
            if rng.random() < 0.5:
                job.wait_for_spares(20)
            else:
                time.sleep(rng.choice([0.02, 0.3, 1.2, 1.5, 2, 3]))
            ended = [agent.returncode for agent in job.agents if agent.poll() is not None]
            if ended:
                job.end()
                sys.exit(f"an agent has ended with {ended}: " + (folder / "log.0").read_text()[-2000:])
            killed.update(filter(None, [job.kill(rng)]))
        codes = job.end()
        limit = time.monotonic() + DEADLINE  # those of a killed agent are ended by the kernel, not by an agent
        while job.left() and time.monotonic() < limit:
            time.sleep(0.1)
        generations, wrong = check(folder)
        log = "".join((folder / f"log.{node}").read_text() for node in range(NODES))
        wrong += [f"process {pid} is left" for pid in job.left()]
    # What was there before, and what another ctrun of this machine has made meanwhile, is not ours.
    ours = {entry for entry in os.listdir("/dev/shm") if entry.startswith("ctrun_")} - folders
    wrong += [f"/dev/shm/{entry} is left" for entry in ours if "torture_" in str(os.listdir(f"/dev/shm/{entry}"))]
    wrong += [f"the agents have ended with {codes}"] if any(codes) else []
    warm = sum(int(number) for number in re.findall(r"generation \d+: (\d+) of \d+ workers here were warm", log))
    print(f"killed {dict(killed)}; {generations} generations, {warm} workers were warm, {log.count('starts cold')} "
          f"spares were refused; {len(wrong)} things are wrong")  # fmt: skip
    print(*sorted(set(re.findall(r"--warm makes no spares.*", log))), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
