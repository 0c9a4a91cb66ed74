# SPDX-License-Identifier: Apache-2.0
"""A real job whose machines are network namespaces, and which is struck: the agent that hosts is killed, or its
machine cut off. Four machines and a spare meet at an address, two through etcd."""

import collections
import os
import pathlib
import signal
import struct
import subprocess
import time

from testlib import netns, program, wait_until

from . import verdict

# Nothing takes as long on a machine that is free.
PATIENCE = 120
# The namespaces of testlib live for ten minutes.
LIFE = 560
# A newcomer that loses its host while it joins ends, and is started again so often.
RETRIES = 20
FIRST_PORT = 29400
# common/progress_page.h: version, steps of this process, where, last stamp, two doubles, first step.
SLOT = struct.Struct("<IIQqddq")
SLOT_VERSION = 0x31505443
# A step takes about 2 ms, by one, two or four machines, if all share two processors.
TRAIN = ("--hidden", "256,256", "--batch-size", "256", "--device", "cpu", "--consistent")


class Lost(Exception):
    """The job, or the claim that is tried."""


class Agent:
    """One life of a ctrun, and the worker of its machine."""

    def __init__(self, job, machine):
        self.job, self.machine, self.beside_ns, self.page = job, machine, 0, None
        self.name = f"machine {machine + 1}, life {1 + sum(life.machine == machine for life in job.lives)}"
        self.proc = job.case.start(
            *job.cluster.nodes[machine], program("ctrun"), "--nproc-per-node", 1, "--max-restarts", 1000000,
            "--token-file", job.token, "--rdzv-conf",
            f"join_timeout=120,last_call_timeout={job.settle},heartbeat_timeout={job.args.heartbeat}",
            *job.meeting(), "train", *job.training, env={"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        job.case.addCleanup(self.close)

    @property
    def log(self):
        return self.proc.err

    def generation(self):
        places = verdict.places(self.log)
        return places[-1].generation if places else -1

    def joined(self):
        log = self.log
        return bool(verdict.places(log)) or verdict.is_spare(log)

    def host(self):
        """(machine, port) of the host as it knows it, or None."""
        found = verdict.host(self.log)
        if found is None:
            return None
        name, port = found
        if name == "this machine":
            return self.machine, port
        return (self.job.cluster.names.index(name), port) if name in self.job.cluster.names else None

    def code(self):
        """None while it runs."""
        return self.proc.popen.poll()

    def worker(self):
        """(steps of its newest worker, when its last stamp was, when the first step was done), by CLOCK_MONOTONIC.
        Read from the page that the agent and its worker share, which stays while it is open here."""
        if self.page is None:
            self.page = self._open_page()
        slot = os.pread(self.page, SLOT.size, 0) if self.page is not None else b""
        if len(slot) < SLOT.size:
            return 0, 0, 0
        version, steps, _, stamp_ns, _, _, first_ns = SLOT.unpack(slot)
        return (steps, stamp_ns, first_ns) if version == SLOT_VERSION else (0, 0, 0)

    def _open_page(self):
        try:
            for fd in pathlib.Path(f"/proc/{self.proc.pid}/fd").iterdir():
                if "ctrun-progress" in os.readlink(fd):
                    return os.open(fd, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass
        return None

    def kill_worker(self):
        try:
            children = pathlib.Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text()
            for pid in map(int, children.split()):
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "train\n":
                    os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended

    def close(self):
        if self.page is not None:
            os.close(self.page)
            self.page = None


class Job:
    """What both kinds share. `agents` live and can be reached, `away` live and are cut off, `lives` are all."""

    size = settle = machines = None

    def __init__(self, case, args, number, tally):
        self.case, self.args, self.number, self.tally = case, args, number, tally
        self.cluster = netns.Cluster(case, self.machines)
        self.agents, self.away, self.lives = [], [], []
        self.host = None
        self.since_ns = 0  # of the last strike
        self.was_whole, self.over, self.retries = False, False, 0
        self.wrong = []
        self.metrics = case.tmp / "metrics"
        self.token = case.tmp / "token"
        self.token.touch(mode=0o600)
        self.token.write_text("correct-horse-battery-staple\n")
        checkpoints = ("--checkpoint-dir", case.tmp / "checkpoints", "--resume", "auto",
                       "--checkpoint-every", f"{args.checkpoint_every}steps")  # fmt: skip
        self.training = (
            "--data", case.data, *TRAIN, "--epochs", args.epochs, "--metrics", self.metrics,
            *(checkpoints if args.checkpoint_every > 0 else ()),
        )  # fmt: skip
        self.begun = time.monotonic()

    def add(self, machine):
        agent = Agent(self, machine)
        self.lives.append(agent)
        self.agents.append(agent)
        return agent

    # ---- what is seen

    def world(self):
        """The agents that say the newest generation, if these are all of its nodes; when all had a step in it."""
        top = max((agent.generation() for agent in self.agents), default=-1)
        placed = [agent for agent in self.agents if agent.generation() == top >= 0]
        if not placed or len(placed) != verdict.places(placed[0].log)[-1].count:
            return [], 0, 0
        firsts = [agent.worker()[2] for agent in placed]
        return placed, min(firsts), max(firsts)

    def newest(self):
        return max(agent.generation() for agent in self.agents)

    def stepped(self):
        """Has the world that followed the last strike done a step everywhere? Returns when the last one had."""
        placed, first_ns, last_ns = self.world()
        if not placed or first_ns <= self.since_ns:
            return 0
        for agent in self.lives:
            if agent not in self.agents and agent.beside_ns == 0:
                agent.beside_ns = first_ns
        return last_ns

    def whole(self):
        """Is everybody in place, and is it plain who hosts?"""
        found = self.stepped() != 0 and len(self.world()[0]) == self.size and self.rest_waits() and self.look()
        self.was_whole = self.was_whole or found
        return found

    def look(self):
        """Finds out who hosts: whom most of the living name last. False if that is not plain, or not one of them."""
        opinions = [agent.host() for agent in self.agents]
        ranking = collections.Counter(found[0] for found in opinions if found is not None).most_common(2)
        if len(ranking) == 2 and ranking[0][1] == ranking[1][1]:
            return False
        if ranking:
            self.host = next((agent for agent in self.agents if agent.machine == ranking[0][0]), None)
        return self.host in self.agents

    def tend(self):
        """Looks after the agents. True when the job is over; raises Lost when it is lost."""
        ended = [agent for agent in self.agents if agent.code() is not None]
        self.over = self.over or any(agent.code() == 0 for agent in ended)
        for agent in ended:
            code = agent.code()
            if code != 0 and agent.joined():
                raise Lost(f"{agent.name} ended with {code}")
            if code == 121 and not self.over and self.retries < RETRIES:
                self.retries += 1  # as Slurm or systemd would do
                self.agents.remove(agent)
                self.add(agent.machine)
            elif code not in (0, 1, 120, 121):
                raise Lost(f"{agent.name} ended with {code} before it joined")
            else:
                self.over = True  # the job ended while it joined; if not, finish() finds that
        for agent in self.agents if self.was_whole and not self.over else ():
            # A job of one machine does not say its generation.
            if agent.worker()[0] > 0 and not verdict.places(agent.log):
                self.wrong.append(f"{agent.name} began a world of its own")
                raise Lost(self.wrong[-1])
        for agent in list(self.away):
            self.tend_away(agent)
        return self.over

    def wait(self, condition, what, patience=PATIENCE):
        """Until it is true or the job is over; returns what it is, or None."""
        try:
            found = wait_until(lambda: condition() or (self.tend() and "over"), what, patience)
        except AssertionError as why:
            raise Lost(str(why)) from None
        return None if found == "over" else found

    def hold(self, seconds, fine, what):
        """Watches that it stays true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.tend():
                return
            if not fine():
                raise Lost(what)
            time.sleep(0.05)

    # ---- what is done

    def strike(self, cut):
        """Kills or cuts off the host; returns it."""
        victim = self.host
        self.agents.remove(victim)
        victim.worker()  # opens the page
        self.since_ns = time.monotonic_ns()
        if cut:
            self.cluster.cut(victim.machine)
            self.away.append(victim)
        else:
            victim.proc.signal(signal.SIGKILL)
            victim.proc.popen.wait(PATIENCE)
        self.tally.counts["silences" if cut else "deaths"] += 1
        return victim

    def forms(self, before, victim):
        """Has a generation after that one not begun on all machines yet?"""
        return sum(agent.generation() > before for agent in (*self.agents, victim)) < self.size

    def next_host(self):
        """Waits until others name a host that lives."""
        return self.wait(self.look, "another host")

    def seconds(self):
        """From the last strike to the next step of all machines, None if the job is over."""
        done_ns = self.wait(self.stepped, "the next step")
        return None if done_ns is None else (done_ns - self.since_ns) / 1e9

    def ran_on(self, agent):
        """Did its worker give a sign of life after the world without it had begun its steps?"""
        _, stamp_ns, _ = agent.worker()
        if 0 < agent.beside_ns < stamp_ns:
            self.wrong.append(f"the worker of {agent.name} ran on for {(stamp_ns - agent.beside_ns) / 1e9:.3f} s "
                              "beside the next world")  # fmt: skip

    def finish(self):
        """Waits for the end, which must be a good one."""
        end = self.begun + LIFE
        for agent in list(self.away):
            self.end_silence(agent)
        self.wait(lambda: False, "the end of the job", max(1.0, end - time.monotonic()))
        for agent in self.lives:
            if agent.joined() and agent.code() is None:
                try:
                    agent.proc.popen.wait(max(1.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise Lost(f"{agent.name} has not ended") from None
        for agent in self.agents:
            if agent.joined() and agent.code() != 0:
                raise Lost(f"{agent.name} ended with {agent.code()}")
            self.tally.counts["late"] += not agent.joined()
        if not any(agent.joined() for agent in self.agents):
            raise Lost("nobody was left to end the job")

    def judge(self, calm, ended):
        """What was wrong, once nothing can come any more. Parameters are compared if the job has ended as it should."""
        for agent in self.lives:
            self.ran_on(agent)
        worlds = self.wrong + verdict.two_worlds({agent.name: agent.log for agent in self.lives})
        self.tally.counts["worlds"] += bool(worlds)
        if not ended:
            return worlds
        metrics = self.metrics.read_text()
        parameters = verdict.other_parameters(metrics, calm)
        self.tally.counts["parameters"] += bool(parameters)
        self.tally.hashes = sorted({*self.tally.hashes, str(verdict.end_hash(metrics))})
        return worlds + parameters


class FourAndSpare(Job):
    """Fixed, so the spare takes the place of who is lost. A machine that was cut off gives up: it comes back as a new
    one, but the job gets another one at once, so there are more machines than it has agents."""

    size, settle, machines = 4, 0.3, 8

    def add(self, machine):
        self.look()
        return super().add(machine)

    def begin(self):
        self.endpoint = f"{self.cluster.addresses[0]}:{FIRST_PORT}"
        self.host = self.add(0)
        self.wait(lambda: "waiting for" in self.host.log, "the host")
        for machine in range(1, self.size + 1):
            self.add(machine)

    def meeting(self):
        return ("--nnodes", self.size, "--spares", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint)

    def look(self):
        found = super().look()
        if found:
            # The first host says nothing.
            ports = [at[1] for at in (agent.host() for agent in self.agents) if at and at[0] == self.host.machine]
            self.endpoint = f"{self.cluster.addresses[self.host.machine]}:{ports[0] if ports else FIRST_PORT}"
        return found

    def rest_waits(self):
        placed, _, _ = self.world()
        rest = [agent for agent in self.agents if agent not in placed]
        return len(rest) == 1 and verdict.is_spare(rest[0].log)

    def free(self):
        """Machines that nobody uses."""
        return sorted({*range(self.machines)} - {agent.machine for agent in (*self.agents, *self.away)})

    def replace(self, victim):
        if self.wait(lambda: self.free() and self.look(), "a free machine"):
            self.add(victim.machine if victim.machine in self.free() else self.free()[0])

    def tend_away(self, agent):
        """121 is what one of these ends with; 0 if the job's end was decided when it was cut off."""
        code = agent.code()
        if code is None:
            return
        if code != 121 and not (self.over and code == 0):
            raise Lost(f"{agent.name}, which was cut off, ended with {code}")
        self.away.remove(agent)
        self.cluster.join(agent.machine)

    def end_silence(self, agent):
        """Without a majority it goes on looking for a while."""
        try:
            code = agent.proc.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Lost(f"{agent.name}, which was cut off, has not ended") from None
        if code not in (0, 121):
            raise Lost(f"{agent.name}, which was cut off, ended with {code}")
        self.away.remove(agent)


class TwoWithEtcd(Job):
    """Elastic. A machine that was cut off comes back with the agent that it has, one that was killed with a new one."""

    size, settle, machines = 2, 0.1, 3

    def begin(self):
        self.etcd = self.args.etcd.place(self.case, self.cluster, 2)
        self.etcd.start()
        self.add(0)
        self.add(1)

    def meeting(self):
        return ("--nnodes", "1:2", "--rdzv-backend", "etcd", "--rdzv-endpoint", self.etcd.endpoint,
                "--rdzv-id", f"job-{self.number}")  # fmt: skip

    def rest_waits(self):
        return True

    def replace(self, victim):
        if victim in self.away:
            self.end_silence(victim)
        else:
            self.add(victim.machine)

    def tend_away(self, agent):
        if agent.code() is not None:
            raise Lost(f"{agent.name}, which was cut off, ended with {agent.code()}")

    def end_silence(self, agent):
        self.ran_on(agent)
        agent.beside_ns = 0
        self.cluster.join(agent.machine)
        self.away.remove(agent)
        self.agents.append(agent)
