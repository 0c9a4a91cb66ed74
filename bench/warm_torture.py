#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `ctrun --warm` keep its promise whatever is killed? A job of two or three agents with two workers each, whose
membership a ctrdzvd keeps, loses workers, spares and agents at random moments, some of the spares by SIGSTOP
instead. An agent that was killed is started again, at once or some seconds later: then the job goes on with four
workers first, and with six afterwards, so ranks, world and master change. Half of the kills come when all spares are
ready.

    bench/warm_torture.py [--build DIR] [--kills N] [--seed N] [--limit SECONDS] [--out FILE]

With --limit the killing ends after that time, and the job is looked at as it is. --out adds the result to what the
file has: so 300 kills can be done in several calls, each of which takes the next seed by itself.

Each worker computes a chain of hashes and keeps its state in a file of its rank after each step. The next worker of
that rank goes on with it, also if there was none for a while. The end is compared with a chain that was computed
without any job. Each worker also writes down who it is: its rank must be one that ctrun has given to its agent in this
generation, no rank may be there twice in one generation, and all must agree on the world and on the master. At last
nothing may be left: no process with the job's mark, no folder of it in /dev/shm.

The spares must also have been of use: no agent may have given up making them, and of those that were ready when a
worker or another agent was killed, three in four at least must have become workers of the next generation. The others
could not: the next kill came during the hand-over, or there was no such generation, because one more agent came.

Ends with 1 if anything is wrong, in any of the calls, and with 2 when fewer have been killed than were asked for, or
the job never had four workers, or never six.
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
LEAST, NODES, WORKERS = 2, 3, 2
WORLDS = {nodes * WORKERS for nodes in range(LEAST, NODES + 1)}
DEADLINE = 300
SETTLE = 1  # seconds for which ctrun waits for a machine that was lost, before it goes on without it
AWAY = (3, 6)  # seconds until an agent that stays away is started again
ALL_READY = 30  # seconds at most until all spares are ready: they import at idle priority
USED = 0.75  # of the spares that were ready when a worker or another agent was killed
# The job ends when `end` is there; until then each rank goes on.
WORKER = """
import csv, hashlib, json, os, time

def main():
    folder, rank = os.environ["WARM_TORTURE"], int(os.environ["RANK"])
    generation = os.environ["CTRUN_GENERATION"]
    if f"attempt_{generation}/" not in os.environ["TORCHELASTIC_ERROR_FILE"]:
        with open(f"{folder}/stale", "a") as stale:
            stale.write(f"generation {generation}, rank {rank}: " + os.environ["TORCHELASTIC_ERROR_FILE"] + "\\n")
    told = [generation, rank, *map(os.environ.get, ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WARM_TORTURE_AGENT"))]
    with open(f"{folder}/seen", "a") as seen:
        seen.write(" ".join(map(str, [*told, os.getpid()])) + "\\n")
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

# What a worker was told, and its pid. `agent` is the number of its agent: each that is started has another one.
Told = collections.namedtuple("Told", "generation rank world address port agent pid")
# What an agent has said of a generation: it has the ranks from `first` on.
PLACE = re.compile(r"^ctrun: generation (\d+): node \d+ of \d+, ranks (\d+)-\d+ of (\d+)$", re.MULTILINE)
WARM = re.compile(r"^ctrun: generation (\d+): (\d+) of \d+ workers here were warm$", re.MULTILINE)
OFF = re.compile(r"--warm makes no spares: .*")


def chain(rank, steps):
    value = ""
    for step in range(1, steps + 1):
        value = hashlib.sha256(f"{value} {rank} {step}".encode()).hexdigest()
    return value


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_stopped(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return True  # it has ended


class Job:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.script = folder / "worker.py"
        self.script.write_text(WORKER)
        reading, writing = os.pipe()
        self.server = subprocess.Popen(
            [args.build / "ctrdzvd", "--port", "0", "--ready-fd", str(writing)], pass_fds=[writing],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(writing)
        self.reading = reading
        self.agents, self.started = [], 0
        self.away = None  # which agent is not there, and until when
        self.ready = []  # (generation, spares that were ready) at each kill of a worker or agent when all were

    def begin(self):
        with open(self.reading) as ready:
            self.port = int(ready.readline())
        self.agents += [self.start() for _ in range(NODES)]

    def start(self):
        number = self.started
        self.started += 1
        with open(self.folder / f"log.{number}", "w") as log:
            return subprocess.Popen(
                [self.args.build / "ctrun", "--nnodes", f"{LEAST}:{NODES}", "-n", str(WORKERS), "--rdzv-id", "torture",
                 "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--max-restarts", "100000",
                 # The end of a killed agent is seen at once. One that gets no CPU for a while is not to be blamed.
                 "--rdzv-conf", f"is_host=0,heartbeat_timeout=30,last_call_timeout={SETTLE}", "--warm", self.script],
                stdout=log, stderr=log,
                env={**os.environ, "WARM_TORTURE": str(self.folder), "WARM_TORTURE_AGENT": str(number),
                     "PYTHON_EXEC": sys.executable, "LOGLEVEL": "info"},
            )  # fmt: skip

    def logs(self):
        """What each agent has said, by its number."""
        return [(self.folder / f"log.{number}").read_text() for number in range(self.started)]

    def there(self):
        """The agents that are not away."""
        return [slot for slot in range(NODES) if self.away is None or self.away[0] != slot]

    def come_back(self, at):
        """Starts the agent that is away, if its time is over then."""
        if self.away is not None and at >= self.away[1]:
            self.agents[self.away[0]] = self.start()
            self.away = None

    def processes(self):
        """Workers and spares, by kind. A worker that was a spare is known by what it has written."""
        found = {"worker": [], "spare": []}
        working = {worker.pid for worker in told(self.folder)}
        for agent in self.agents:
            for child in children(agent.pid):
                names = {entry.partition(b"=")[0] for entry in ending.environment(child)}
                if child not in working and b"CTRUN_WARM" in names:
                    found["spare"].append(child)
                elif b"RANK" in names:
                    found["worker"].append(child)
        return found

    def ready_spares(self):
        said = set(map(int, re.findall(r"is ready \(pid (\d+)", "".join(self.logs()))))
        return said.intersection(self.processes()["spare"])

    def wait_for_spares(self, seconds):
        """Until each worker has a spare that is ready, but no longer than this. Returns whether they are."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if len(self.ready_spares()) >= len(self.there()) * WORKERS and self.is_whole():
                return True
            time.sleep(0.05)
        return False

    def is_whole(self):
        """Have all workers of one generation begun, and do they live?"""
        alive = set(self.processes()["worker"])
        of = [worker.generation for worker in told(self.folder) if worker.pid in alive]
        return len(of) == len(self.there()) * WORKERS and len(set(of)) == 1

    def kill(self, rng, waited):
        """Kills something; returns what. `waited`: all spares are ready."""
        kind = rng.choices(["worker", "spare", "agent"], [5, 4, 1])[0]
        generation = max((worker.generation for worker in told(self.folder)), default=-1)
        ready = self.ready_spares() if waited and kind != "spare" else set()
        ready = {pid for pid in ready if not is_stopped(pid)}
        if kind == "agent":
            slot = rng.choice(self.there())
            ready -= set(children(self.agents[slot].pid))
            killed = self.kill_agent(rng, slot)
        else:
            killed = self.kill_child(rng, kind)
        if killed is not None and ready:
            self.ready.append((generation, len(ready)))
        return killed

    def kill_child(self, rng, kind):
        among = self.processes()[kind]
        stop = kind == "spare" and rng.random() < 0.2
        if not among:
            return None
        try:
            os.kill(rng.choice(among), signal.SIGSTOP if stop else signal.SIGKILL)
        except ProcessLookupError:
            return None
        return "stopped spare" if stop else kind

    def kill_agent(self, rng, slot):
        """Half of them stay away for a while, if all others are there."""
        stays, seconds = rng.random() < 0.5, rng.choice(AWAY)
        self.agents[slot].kill()
        self.agents[slot].wait(DEADLINE)
        if stays and self.away is None:
            self.away = (slot, time.monotonic() + seconds)
            return "agent that stays away"
        self.agents[slot] = self.start()
        return "agent"

    def end(self):
        """Lets the job end when it is whole again; returns what is wrong then."""
        # One that became a worker just when it was to be stopped has not written who it is, and counts as a spare.
        for pid in itertools.chain(*self.processes().values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.come_back(float("inf"))
        limit = time.monotonic() + DEADLINE
        while not self.is_whole() and time.monotonic() < limit:
            time.sleep(0.1)
        wrong = [] if self.is_whole() else ["not all workers have begun again after the last kill"]
        (self.folder / "end").touch()
        codes = []
        for agent in self.agents:
            try:
                codes.append(agent.wait(DEADLINE))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return wrong + ([f"the agents have ended with {codes}"] if any(code != 0 for code in codes) else [])

    def close(self):
        """Whatever has happened, nothing of it goes on. What an agent has started dies with it."""
        for proc in [*self.agents, self.server]:
            proc.kill()
            proc.wait(DEADLINE)

    def left(self):
        """Processes of the job that still live."""
        return ending.marked(f"WARM_TORTURE={self.folder}")


def told(folder):
    """What each worker was told."""
    try:
        lines = [line.split() for line in (folder / "seen").read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [
        Told(int(generation), int(rank), int(world), address, int(port), int(agent), int(pid))
        for generation, rank, world, address, port, agent, pid in lines
    ]


def wrong_identities(workers, logs):
    """What is wrong with what the workers were told. `logs` are those of the agents."""
    wrong, generations = [], collections.defaultdict(list)
    given = {
        (agent, int(generation)): (range(int(first), int(first) + WORKERS), int(world))
        for agent, log in enumerate(logs) for generation, first, world in PLACE.findall(log)
    }  # fmt: skip
    for worker in workers:
        generations[worker.generation].append(worker)
        ranks, world = given.get((worker.agent, worker.generation), ((), -1))
        if worker.rank not in ranks or worker.world != world:
            wrong.append(f"ctrun has given {ranks} of {world} to the agent of {worker}")
    for generation, found in generations.items():
        ranks = [worker.rank for worker in found]
        masters = {(worker.world, worker.address, worker.port) for worker in found}
        if len(set(ranks)) != len(ranks) or len(masters) != 1 or any(
            not 0 <= worker.rank < worker.world or worker.world not in WORLDS for worker in found
        ):  # fmt: skip
            wrong.append(f"generation {generation}: {found}")
    return wrong


def wrong_states(folder):
    """What is wrong with what the workers have computed."""
    wrong = (folder / "stale").read_text().splitlines() if (folder / "stale").exists() else []
    for rank in range(max(WORLDS)):
        try:
            step, value = json.loads((folder / f"state.{rank}").read_text())
        except FileNotFoundError:
            wrong.append(f"rank {rank} has never run")
            continue
        if value != chain(rank, step):
            wrong.append(f"rank {rank} has another hash after {step} steps")
    return wrong


def turned_off(logs):
    """Why agents have given up making spares. Nothing in this job is a reason."""
    return sorted({line for log in logs for line in OFF.findall(log)})


def use_of_spares(logs, ready):
    """(workers that were spares, spares that were ready at the kills, those of them that became workers). `ready` has
    the generation and the number of spares at each kill."""
    warm = collections.Counter()
    for log in logs:
        for generation, number in WARM.findall(log):
            warm[int(generation)] += int(number)
    used = sum(min(number, warm[generation + 1]) for generation, number in ready)
    return warm.total(), sum(number for _, number in ready), used


def torture(args, job, rng):
    """Kills until there is enough of it; returns what was killed."""
    killed = collections.Counter()
    end = time.monotonic() + args.limit
    while killed.total() < args.kills and time.monotonic() < end:
        waited = rng.random() < 0.5
        pause = rng.choice([0.02, 0.3, 1.2, 1.5, 2, 3])
        job.come_back(time.monotonic())
        if waited:
            waited = job.wait_for_spares(ALL_READY)
        else:
            time.sleep(pause)
        ended = [job.agents[slot].returncode for slot in job.there() if job.agents[slot].poll() is not None]
        if ended:
            sys.exit(f"an agent has ended with {ended} after {dict(killed)}: " + job.logs()[-1][-2000:])
        killed.update(filter(None, [job.kill(rng, waited)]))
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
            wrong = job.end()
            limit = time.monotonic() + DEADLINE  # those of a killed agent are ended by the kernel, not by an agent
            while job.left() and time.monotonic() < limit:
                time.sleep(0.1)
            wrong += [f"process {pid} is left" for pid in job.left()]
        finally:
            job.close()
        logs, workers = job.logs(), told(folder)
        wrong += wrong_identities(workers, logs) + wrong_states(folder) + turned_off(logs)
    wrong += [f"/dev/shm/{entry} is left" for entry in left_in_memory(before)]
    warm, ready, used = use_of_spares(logs, job.ready)
    return {"seed": seed, "killed": killed, "generations": len({worker.generation for worker in workers}),
            "worlds": sorted({worker.world for worker in workers}), "workers": len(workers), "warm": warm,
            "ready": ready, "used": used, "refused": "".join(logs).count("starts cold"), "wrong": wrong}  # fmt: skip


def judge(runs, wanted):
    """Prints how the runs went; returns the exit code."""
    for each in runs:
        print(f"seed {each['seed']}: killed {dict(each['killed'])}; {each['generations']} generations, of "
              f"{' and '.join(map(str, each['worlds']))} workers; {each['warm']} of {each['workers']} workers "
              f"were warm, {each['refused']} spares were refused; {len(each['wrong'])} things are wrong")  # fmt: skip
        for line in each["wrong"]:
            print(line)
    total = sum(sum(each["killed"].values()) for each in runs)
    ready, used = (sum(each[name] for each in runs) for name in ("ready", "used"))
    missing = sorted(WORLDS - {world for each in runs for world in each["worlds"]})
    print(f"{total} kills of {wanted}" + "".join(f"; no generation had {world} workers" for world in missing))
    print(f"{used} of {ready} spares that were ready became workers (at least {USED:.0%})")
    if any(each["wrong"] for each in runs) or used < USED * ready:
        return 1
    return 2 if total < wanted or missing or ready == 0 else 0


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
    return judge(runs, wanted)


if __name__ == "__main__":
    sys.exit(main())
