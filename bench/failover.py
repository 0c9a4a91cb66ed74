#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No job is lost with its host. Kills or cuts off whichever machine hosts, again and again, also while a generation
forms, and compares the parameters with those of an undisturbed run. Machines are network namespaces.

    bench/failover.py [--strikes N]                   four machines and a spare (200 strikes)
    bench/failover.py --etcd PATH [--strikes N]       two machines and an etcd on a third one (100 strikes)
    bench/failover.py --etcd PATH --etcd-outage       etcd itself is killed and brought back (12 times)
    bench/failover.py --torchrun PYTHON               the same script under torchrun and ctrun, for comparison

A job runs `train --consistent` with checkpoints and is struck EACH times; then it must come to its end. A silence
is a machine whose cable is pulled (a quarter of the strikes, half with etcd), a death a ctrun that is killed. About
three of ten strikes come while a generation forms: a worker is killed just before, or a second host just after the
first. A machine that was lost comes back. Each job must end with 0 on all machines, with the hashes of the
undisturbed run after every epoch. By the logs of all agents no generation may have run twice, and no worker of a
lost machine may have gone on beside the next world. "Next step" is the time from a strike until each machine has
done a step.

--etcd-outage, in turn: nobody is lost, the host is killed, the host is cut off. While etcd is away, the job must go
on in its generation; after a proven death the other machine goes on alone, and a new ctrun waits for etcd and
says so; after silence the other machine waits and says so. When etcd is back, all are together again.

In parts: each run ends with a summary, and `--out FILE` adds it to those that are there and prints the sum.
--limit stops striking in time; the job under way then ends as usual. A job that is lost leaves its logs in a folder.
Ends with 1 when anything is wrong, a time missed (0.5 s after a death, 8 s after silence), or strikes are left.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
FORMING = 0.06  # seconds from a worker's death in which a generation forms
# By mode: strikes, those of each job, the share of silences, epochs. A job must be long enough to be struck so often.
DEFAULTS = {"four": (200, 10, 0.25, 1500), "etcd": (100, 10, 0.5, 3500), "outage": (12, 3, 0, 7000)}
SPARE_TIME = 200  # seconds that a job must have left to be struck again


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--etcd", metavar="PATH", help="a binary of etcd")
    parser.add_argument("--etcd-outage", action="store_true")
    parser.add_argument("--torchrun", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--strikes", type=int, metavar="N", help="or outages")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what is random: give each part another one")
    parser.add_argument("--each", type=int, metavar="N", help="strikes of one job (10), or outages (3)")
    parser.add_argument("--silences", type=float, metavar="SHARE", help="the share of strikes that are silences")
    parser.add_argument("--epochs", type=int, metavar="N", help="how long a job trains (1500, 3500, 7000)")
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS", help="0 = never (50)")
    parser.add_argument("--heartbeat", type=float, default=3, metavar="SECONDS", help="heartbeat_timeout (3)")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="no strike after that (3600)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="add the result to this file, as JSON")
    args = parser.parse_args()
    if args.etcd_outage and args.etcd is None:
        parser.error("--etcd-outage needs --etcd PATH")
    if args.torchrun and args.etcd:
        parser.error("--torchrun and --etcd exclude each other")
    args.mode = "outage" if args.etcd_outage else "etcd" if args.etcd else "four"
    for name, value in zip(("strikes", "each", "silences", "epochs"), DEFAULTS[args.mode]):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.strikes < 1 or args.each < 1 or args.epochs < 1 or not 0 <= args.silences <= 1:
        parser.error("--strikes, --each and --epochs are at least 1, and --silences is from 0 to 1")
    return args


args = arguments()
os.environ |= {"SOURCE_ROOT": str(SOURCE), "BUILD_ROOT": str(args.build.resolve())}
sys.path.insert(0, str(SOURCE / "tests" / "integration"))

import testlib  # noqa: E402 the paths come first
from strikes import beside, etcd, job, verdict  # noqa: E402
from testlib import idx  # noqa: E402


class Case(testlib.Case):
    def runTest(self):
        pass


@contextlib.contextmanager
def new_case():
    """A folder of its own, with the data; what was started there is ended."""
    case = Case()
    case.setUp()
    try:
        case.data = idx.write_dataset(case.tmp)
        yield case
    finally:
        case.doCleanups()


def undisturbed():
    """The metrics of one without any job of several machines."""
    with new_case() as case:
        metrics, begun = case.tmp / "metrics", time.monotonic()
        result = case.ctrun(
            "-n", 2, "train", "--data", case.data, *job.TRAIN, "--epochs", args.epochs, "--metrics", metrics,
            env={"OMP_NUM_THREADS": "1"}, deadline=600)  # fmt: skip
        if result.code != 0:
            sys.exit(f"the undisturbed training failed: {result}")
        text = metrics.read_text()
    print(f"undisturbed: hash {verdict.end_hash(text)} after {time.monotonic() - begun:.1f} s", flush=True)
    return text


class Strikes:
    """Strikes that are left, for one job after another."""

    def __init__(self):
        self.rng = random.Random(f"{args.seed}")
        self.plan = verdict.in_parts(args.strikes, args.silences, self.rng)
        self.left = len(self.plan)
        self.end = time.monotonic() + args.limit

    def may_go_on(self):
        return self.left > 0 and time.monotonic() < self.end

    def play(self, now):
        """Strikes one job, until it was struck often enough or is over."""
        for _ in range(args.each):
            if not self.may_go_on() or time.monotonic() > now.begun + job.LIFE - SPARE_TIME:
                return
            if not now.wait(now.whole, "a job that is whole, with a step on each machine"):
                return
            time.sleep(self.rng.random() * 0.5)
            if now.tend():
                return
            if now.look():
                self.strike(now)

    def strike(self, now):
        forming = self.rng.random() < 0.3
        before = now.newest()
        if forming:
            self.rng.choice(now.world()[0] or now.agents).kill_worker()
            time.sleep(self.rng.random() * FORMING)
        victim, cut = self.hit(now, before, forming)
        lost = [victim]
        # A machine that is silent may be alive, and then two of four are no majority.
        if not cut and not forming and now.size > 2 and self.plan[:1] == [False] and self.rng.random() < 0.2:
            if not now.next_host():
                return
            lost.append(self.hit(now, before, True)[0])
        if len(lost) == 1:  # of two, one must come back first
            seconds = now.seconds()
            if seconds is None:
                return
            now.tally.times["silence" if cut else "death"].append(seconds)
        for victim in lost:
            if not now.over:
                now.replace(victim)

    def hit(self, now, before, disturbed):
        """Strikes the host. Was the generation after that one still forming, if one was?"""
        cut = self.plan.pop(0)
        self.left -= 1
        victim = now.strike(cut)
        now.tally.counts["forming"] += disturbed and now.forms(before, victim)
        return victim, cut


class Outages(Strikes):
    """Of etcd."""

    HOLD = 2.5  # leases

    def strike(self, now):
        kind = verdict.Tally.OUTAGES[self.left % 3]
        host, before, steps = now.host, now.newest(), now.host.worker()[0]
        said = len(host.log)
        now.etcd.kill()
        now.wait(lambda: "etcd cannot be used: " in host.log[said:], "the host says that it cannot use etcd", 30)
        now.hold(self.HOLD * args.heartbeat, lambda: now.newest() == before, "the job noticed that etcd was lost")
        if now.over:
            return
        if host.worker()[0] <= steps:
            raise job.Lost("no step was done while etcd was away")
        victim = {"nobody": lambda *_: None, "death": self.death, "silence": self.silence}[kind](now, before)
        if now.over:
            return
        now.etcd.start()
        if victim is None:
            now.wait(lambda: "etcd answers again" in host.log[said:], "the host says that etcd is back", 30)
            now.hold(args.heartbeat, lambda: now.newest() == before, "the job noticed that etcd came back")
        elif kind == "silence":
            back_ns = time.monotonic_ns()
            done_ns = now.wait(now.stepped, "the next step after etcd came back")
            if done_ns is None:
                return
            now.tally.times["etcd"].append((done_ns - back_ns) / 1e9)
            now.replace(victim)
        if kind == "nobody" or now.wait(now.whole, "both are together again"):
            self.left -= 1
            now.tally.counts[kind] += 1

    def death(self, now, _):
        """The other one goes on, as it knows that the host is dead. The new one does not come in without etcd."""
        victim = now.strike(False)
        seconds = now.seconds()
        if seconds is None:
            return victim
        now.tally.times["death without etcd"].append(seconds)
        fresh, alone = now.add(victim.machine), now.newest()
        now.wait(lambda: verdict.waits_for_etcd(fresh.log), "a new ctrun says that it waits for etcd", 30)
        now.hold(self.HOLD * args.heartbeat, lambda: now.newest() == alone and not fresh.joined(),
                 "somebody joined while etcd was away")  # fmt: skip
        return victim

    def silence(self, now, before):
        """The other one cannot know whether the host goes on, so it waits."""
        left = next(agent for agent in now.agents if agent is not now.host)
        said = len(left.log)
        victim = now.strike(True)
        now.wait(lambda: verdict.waits_for_etcd(left.log[said:]), "the other machine says that it waits for etcd", 30)
        now.hold(self.HOLD * args.heartbeat, lambda: now.newest() == before, "a generation began without etcd")
        return victim


def keep_logs(case, now):
    """The case's folder goes; what its agents said stays."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"ctrun-failover-{args.seed}-{now.number}-"))
    for agent in now.lives:
        (folder / f"{agent.name.replace(', ', '-').replace(' ', '-')}.log").write_text(f"{agent.log}\n{agent.proc.out}")
    if now.metrics.exists():
        shutil.copy(now.metrics, folder)
    return folder


def play(kind, strikes, calm, number, tally):
    """One job. Returns whether all was well."""
    with new_case() as case:
        begun, before = time.monotonic(), tally.strikes() + tally.outages()
        now, ended, wrong = kind(case, args, number, tally), False, []
        try:
            now.begin()
            strikes.play(now)
            now.finish()
            ended = True
        except (job.Lost, AssertionError) as why:
            tally.counts["lost"] += 1
            wrong.append(str(why))
        tally.counts["jobs"] += 1
        wrong += [text for text in now.judge(calm, ended) if text not in wrong]
        done = tally.strikes() + tally.outages() - before
        generations = 1 + max((agent.generation() for agent in now.lives), default=-1)
        print(f"job {number}: {done} times, {generations} generations, {time.monotonic() - begun:.0f} s", *wrong, sep="\n  ", flush=True)
        if wrong:
            print(f"  what its agents said is in {keep_logs(case, now)}", flush=True)
        return not wrong


def add_up(part, what):
    """Adds this part to the file, and prints the sum of the parts of its kind, which have one hash."""
    parts = json.loads(args.out.read_text()) if args.out.exists() else []
    parts.append({"what": what, "seed": args.seed, "epochs": args.epochs, **part.fields()})
    args.out.write_text(json.dumps(parts, indent=1) + "\n")
    total = verdict.Tally()
    same = [fields for fields in parts if (fields["what"], fields["epochs"]) == (what, args.epochs)]
    for fields in same:
        total.add(verdict.Tally(**fields))
    print(f"sum of {len(same)} runs, {what}: {total.line()}", *total.slow(), sep="\n", flush=True)


def main():
    if args.torchrun:
        return 0 if beside.compare(new_case, args.torchrun) else 1
    what = "four machines and a spare"
    if args.etcd:
        args.etcd = etcd.Binary(args.etcd)
        what = f"two machines and etcd {args.etcd.version}{', which is lost' if args.etcd_outage else ''}"
    print(f"{what}, seed {args.seed}", flush=True)
    begun, tally, number = time.monotonic(), verdict.Tally(), 0
    strikes = Outages() if args.mode == "outage" else Strikes()
    calm, fine = undisturbed(), True
    while fine and strikes.may_go_on():
        fine = play(job.TwoWithEtcd if args.etcd else job.FourAndSpare, strikes, calm, number, tally)
        number += 1
    left = f", {strikes.left} of {args.strikes} left" if strikes.left > 0 else ""
    print(f"seed {args.seed}, {time.monotonic() - begun:.0f} s{left}: {tally.line()}", *tally.slow(), sep="\n", flush=True)
    if args.out is not None:
        add_up(tally, what)
    return 1 if tally.broken() or tally.slow() or strikes.left > 0 else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except etcd.NoEtcd as why:
        sys.exit(f"bench/failover.py: {why}")
