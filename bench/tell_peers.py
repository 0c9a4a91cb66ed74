#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon the other machines of a job hear of a death: four ctruns on this one, a worker of the last
is killed again and again, and the time is taken until each of the others says so on its stderr.

    bench/tell_peers.py [--build DIR] [--rounds N] [--out FILE]

Ends with 1 when the median is above the goal, 5 ms.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

from shared import store_report

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL_MS = 5.0
AGENTS = 4
SCRIPT = 'echo "up $CTRUN_GENERATION $RANK $$$$"; exec sleep 1000'


class Agent:
    def __init__(self, ctrun, port, rounds):
        self.process = subprocess.Popen(
            [ctrun, "--nnodes", str(AGENTS), "--rdzv-backend", "c10d", "--no-python",
             "--rdzv-endpoint", f"localhost:{port}", "--max-restarts", str(rounds + 1),
             "sh", "-c", SCRIPT],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.up = {}  # generation -> (rank, pid)
        self.heard = {}  # pid -> when it was said to have failed
        self.news = threading.Condition()
        for stream, take in ((self.process.stdout, self.take_up), (self.process.stderr, self.take_death)):
            threading.Thread(target=self.read, args=(stream, take), daemon=True).start()

    def read(self, stream, take):
        for line in stream:
            now = time.perf_counter()
            with self.news:
                take(line, now)
                self.news.notify_all()

    def take_up(self, line, _):
        found = re.search(r"up (\d+) (\d+) (\d+)", line)
        if found:
            generation, rank, pid = map(int, found.groups())
            self.up[generation] = (rank, pid)

    def take_death(self, line, now):
        found = re.search(r"^ctrun: rank \d+ failed on .*process (\d+) was killed", line)
        if found:
            self.heard.setdefault(int(found.group(1)), now)

    def wait(self, table, key):
        with self.news:
            if not self.news.wait_for(lambda: key in table, timeout=30):
                sys.exit("a ctrun does not answer")
            return table[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results" / "tell_peers.json")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    agents = [Agent(str(args.build / "ctrun"), port, args.rounds) for _ in range(AGENTS)]
    times, restarts = [], []
    for generation in range(args.rounds):
        ranks = {a: a.wait(a.up, generation) for a in agents}
        victim = max(agents, key=lambda a: ranks[a][0])
        pid = ranks[victim][1]
        began = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        times += [(a.wait(a.heard, pid) - began) * 1e3 for a in agents if a is not victim]
        for agent in agents:
            agent.wait(agent.up, generation + 1)
        restarts.append((time.perf_counter() - began) * 1e3)
    for agent in agents:
        agent.process.send_signal(signal.SIGTERM)
    for agent in agents:
        agent.process.wait(30)
    times.sort()
    print(f"told to {AGENTS - 1} peers, {args.rounds} deaths: median {statistics.median(times):.2f} ms, "
          f"p90 {times[len(times) * 9 // 10]:.2f} ms, max {times[-1]:.2f} ms")  # fmt: skip
    print(f"until all workers of the next generation speak: median {statistics.median(restarts):.1f} ms")
    report = {
        "machine": store_report.machine(), "peers": AGENTS - 1, "deaths": args.rounds, "goal_ms": GOAL_MS,
        "told_ms": {"median": statistics.median(times), "p90": times[len(times) * 9 // 10], "max": times[-1]},
        "next_generation_ms": {"median": statistics.median(restarts), "max": max(restarts)},
    }  # fmt: skip
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if statistics.median(times) <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
