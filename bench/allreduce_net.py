#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce between two hosts against what one TCP connection between them moves.

    bench/allreduce_net.py [--build DIR] [--rounds N] [--workers N] [--out FILE]

The hosts are two network namespaces of this machine, joined by a virtual cable. In an all-reduce of B
bytes over two hosts each sends half of its numbers and half of the sums, so B bytes cross the cable
each way, at the same time; the numbers must also be added. The bound is the time in which one plain
TCP connection, with nothing else to do, moves B bytes each way at once ("both ways"). Shown beside it
is the time of B bytes one way alone, which the all-reduce could only reach if sending cost a host's
CPU nothing that receiving needs; here both hosts share this machine's cores.

"zero-copy" and "copying" are as in bench/allreduce.py. Rounds alternate between the two programs; the
figures are medians over the rounds. Ends with 1 when the all-reduce of 26 MB takes longer than the
bound divided by 0.7.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("SOURCE_ROOT", str(ROOT))
os.environ.setdefault("BUILD_ROOT", str(ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import testlib  # noqa: E402
from testlib.netns import SERVER4, TwoMachines  # noqa: E402

NAMES = {4: "4 B", 65536: "64 KB", 1628200: "1.63 MB", 26000000: "26 MB"}
GOAL_BYTES, GOAL = 26000000, 0.7
DEADLINE = 300


class Bench:
    def __init__(self, case, build, workers):
        self.case, self.build, self.workers = case, build, workers
        self.net = TwoMachines(case)
        daemon = case.start(
            *self.net.server, build / "ctrdzvd", "--port", "0", "--listen", "*",
            "--allow", "10.9.0.0/24",
        )  # fmt: skip
        self.port = daemon.wait_for("listening on").rpartition(":")[2]
        self.times = collections.defaultdict(list)
        self.round = 0

    def raw(self):
        program = self.build / "bench" / "programs" / "bench-net-raw"
        server = self.case.start(*self.net.server, program, "listen", SERVER4)
        port = server.wait_for("port").split()[1]
        client = self.case.start(*self.net.stranger, program, SERVER4, port)
        self.read(client, ("both ways", "one way"))
        server.wait(DEADLINE)

    def allreduce(self):
        self.round += 1
        started = []
        for rank in range(2 * self.workers):
            node = rank // self.workers
            env = {
                "RANK": rank, "WORLD_SIZE": 2 * self.workers, "LOCAL_RANK": rank % self.workers,
                "LOCAL_WORLD_SIZE": self.workers, "GROUP_RANK": node, "GROUP_WORLD_SIZE": 2,
                "MASTER_ADDR": SERVER4, "MASTER_PORT": self.port, "CTRUN_GENERATION": self.round,
                "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "bench",
            }  # fmt: skip
            where = self.net.stranger if node else self.net.server
            program = self.build / "bench" / "programs" / "bench-allreduce"
            started.append(self.case.start(*where, program, env=env))
        self.read(started[0], None)
        for worker in started:
            worker.wait(DEADLINE)

    def read(self, proc, names):
        result = proc.wait(DEADLINE)
        if result.code != 0:
            sys.exit(f"failed: {result}")
        for line in result.out.splitlines():
            words = line.split()
            if names is None:
                self.times[int(words[0]), words[1]].append(float(words[2]))
            else:
                for name, value in zip(names, words[1:], strict=True):
                    self.times[int(words[0]), name].append(float(value))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="of each host")
    parser.add_argument("--out", type=pathlib.Path, help="write the figures there as JSON")
    args = parser.parse_args()
    build = args.build.resolve()
    targets = ["bench/programs/bench-allreduce", "bench/programs/bench-net-raw", "ctrdzvd"]
    subprocess.run(["ninja", "-C", build, *targets], stdout=subprocess.DEVNULL, check=True)

    case = testlib.Case()
    case.setUp()
    try:
        bench = Bench(case, build, args.workers)
        for _ in range(args.rounds):
            bench.raw()
            bench.allreduce()
    finally:
        case.doCleanups()

    medians = {key: statistics.median(values) for key, values in bench.times.items()}
    print(f"2 hosts with {args.workers} workers, medians of {args.rounds} rounds, microseconds")
    columns = ("one way", "both ways", "zero-copy", "copying")
    print(f"{'':>8}" + "".join(f"{c:>12}" for c in columns) + "  bound/zero-copy bound/copying")
    for size, name in NAMES.items():
        row = [medians[size, c] for c in columns]
        print(f"{name:>8}" + "".join(f"{v:12.1f}" for v in row), end="")
        print(f"{row[1] / row[2]:16.2f}x {row[1] / row[3]:12.2f}x")
    ratio = medians[GOAL_BYTES, "both ways"] / medians[GOAL_BYTES, "zero-copy"]
    print(f"{NAMES[GOAL_BYTES]} at least {GOAL}x of the bound: {'yes' if ratio >= GOAL else 'NO'}")
    if args.out is not None:
        figures = {f"{size} {name}": value for (size, name), value in sorted(medians.items())}
        report = {"workers": args.workers, "rounds": args.rounds, "microseconds": figures}
        args.out.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(0 if ratio >= GOAL else 1)


if __name__ == "__main__":
    main()
