# SPDX-License-Identifier: Apache-2.0
"""What the logs of a job's agents and its metrics say: where each agent was, who hosted, whether there were two
worlds, whether the parameters are right. Pure: it is tried on texts by
tests/integration/tools/test_failover_bench.py."""

import collections
import json
import re
import statistics

Place = collections.namedtuple("Place", "generation node count rank")
PLACE = re.compile(r"^ctrun: generation (\d+): node (\d+) of (\d+), ranks? (\d+)(?:-\d+)? of \d+$", re.MULTILINE)
HOST = re.compile(r"^ctrun: (this machine|\S+) hosts the job's store now, at \S+ port (\d+)$", re.MULTILINE)
SPARE = "the job is complete; this node waits as a spare"


def places(log):
    """Each time that this agent began a generation."""
    return [Place(*map(int, found)) for found in PLACE.findall(log)]


def is_spare(log):
    """Does it wait, and was in no generation since it was told so?"""
    return SPARE in log[max((found.end() for found in PLACE.finditer(log)), default=0) :]


def host(log):
    """Whom it named last as host: (name or "this machine", port), or None."""
    found = HOST.findall(log)
    return (found[-1][0], int(found[-1][1])) if found else None


def waits_for_etcd(log):
    """Does it say so?"""
    return re.search(r"^ctrun: etcd cannot be used: .*; this machine waits for it$", log, re.MULTILINE) is not None


def two_worlds(logs):
    """What contradicts that there was one world at a time. `logs` are those of all lives of all agents, by name."""
    wrong, worlds = [], collections.defaultdict(list)
    for name, log in logs.items():
        generations = [place.generation for place in places(log)]
        if any(later <= earlier for earlier, later in zip(generations, generations[1:])):
            wrong.append(f"{name} went back: its generations are {generations}")
        for place in places(log):
            worlds[place.generation].append((name, place))
    for generation, members in sorted(worlds.items()):
        sizes = {place.count for _, place in members}
        if len(sizes) != 1:
            wrong.append(f"generation {generation} has the sizes {sorted(sizes)}")
        for field in ("node", "rank"):
            taken = collections.defaultdict(list)
            for name, place in members:
                taken[getattr(place, field)].append(name)
            wrong += [
                f"generation {generation} has {field} {number} twice: {', '.join(names)}"
                for number, names in sorted(taken.items()) if len(names) > 1
            ]  # fmt: skip
        wrong += [
            f"generation {generation}: {name} is node {place.node} of {place.count}"
            for name, place in members if place.node >= place.count
        ]  # fmt: skip
    return wrong


def hashes(metrics):
    """(epoch, hash of the parameters after it) in the order in which they were written; the epoch of the end is None.
    A line that says something else counts as (line, None)."""
    found = []
    for line in metrics.splitlines():
        try:
            event = json.loads(line)
            if event["event"] in ("epoch", "done"):
                found.append((event.get("epoch"), event["param_hash"]))
        except (ValueError, KeyError, TypeError):
            found.append((line, None))
    return found


def end_hash(metrics):
    """That of the parameters at the end, None without one."""
    return next((parameters for epoch, parameters in reversed(hashes(metrics)) if epoch is None), None)


def other_parameters(metrics, calm):
    """Where the metrics of a job differ from those of a calm one. An epoch may be there several times."""
    want = dict(hashes(calm))
    wrong = [
        f"{'at the end' if epoch is None else f'after epoch {epoch}'} the hash is {found}, not {want.get(epoch)}"
        for epoch, found in hashes(metrics) if found is None or found != want.get(epoch)
    ]  # fmt: skip
    return wrong if end_hash(metrics) is not None else [*wrong, "the training did not come to its end"]


def spread(values):
    """Of seconds."""
    return f"{statistics.median(values):.3f} s (median of {len(values)}; {min(values):.3f} to {max(values):.3f})"


def in_parts(strikes, share, rng):
    """Is each of these strikes a silence? Exactly that share, in random order."""
    silent = round(strikes * share)
    plan = [True] * silent + [False] * (strikes - silent)
    rng.shuffle(plan)
    return plan


class Tally:
    """What was done and seen; several runs add up."""

    OUTAGES = ("nobody", "death", "silence")  # what happens while etcd is away
    # Counted: deaths, silences, forming, jobs, lost, worlds, parameters, late, and each of these.
    LIMITS = {"death": 0.5, "silence": 8.0}  # seconds to the next step of all machines
    TIMES = {
        "death": "after a death", "silence": "after silence", "death without etcd": "after a death while etcd was away",
        "etcd": "after etcd came back to a job that waited",
    }  # fmt: skip

    def __init__(self, **fields):
        self.counts = collections.Counter(fields.get("counts", {}))
        self.times = {kind: list(fields.get("times", {}).get(kind, [])) for kind in self.TIMES}
        self.hashes = sorted(set(fields.get("hashes", ())))

    def add(self, other):
        self.counts.update(other.counts)
        for kind, values in other.times.items():
            self.times[kind] += values
        self.hashes = sorted({*self.hashes, *other.hashes})

    def fields(self):
        return {"counts": dict(self.counts), "times": self.times, "hashes": self.hashes}

    def strikes(self):
        return self.counts["deaths"] + self.counts["silences"]

    def outages(self):
        return sum(self.counts[kind] for kind in self.OUTAGES)

    def line(self):
        c = self.counts
        outages = ", ".join(f"{c[kind]} with {kind} lost" if kind == "nobody" else f"{c[kind]} with a {kind}"
                            for kind in self.OUTAGES if c[kind] > 0)  # fmt: skip
        outages = f", {self.outages()} outages of etcd ({outages})" if outages else ""
        late = f", {c['late']} newcomers were too late" if c["late"] else ""
        same = self.hashes[0] if len(self.hashes) == 1 else " and ".join(self.hashes) or "none"
        text = (
            f"{self.strikes()} strikes ({c['deaths']} deaths, {c['silences']} silences; {c['forming']} of them while a "
            f"generation formed){outages} in {c['jobs']} jobs: {c['lost']} lost, hash {same}, "
            f"{c['parameters']} with other parameters, {c['worlds']} with two worlds{late}"
        )
        return "\n".join([text] + [f"  next step {self.TIMES[k]}: {spread(v)}" for k, v in self.times.items() if v])

    def slow(self):
        """Which times were missed, and how often."""
        found = []
        for kind, limit in self.LIMITS.items():
            missed = sum(value >= limit for value in self.times[kind])
            if missed:
                found.append(f"missed: {missed} of {len(self.times[kind])} took {limit:g} s or more {self.TIMES[kind]}")
        return found

    def broken(self):
        return any(self.counts[what] for what in ("lost", "worlds", "parameters")) or len(self.hashes) > 1
