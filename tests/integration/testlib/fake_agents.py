# SPDX-License-Identifier: Apache-2.0
"""Agents of a job without processes: each speaks the control protocol (docs/PROTOCOL.md) and tells of
workers that do not exist, so that a test can show a job of any size in any state."""

import json
import re
import socket
import struct
import time

from .paths import SOURCE_ROOT
from .wait import DEADLINE

# A store refuses a greeting of another version, and a test of what follows would pass without having tried it.
_HEADER = (SOURCE_ROOT / "rendezvous" / "control" / "control.h").read_text()
CONTROL_VERSION = int(re.search(r"^#define CT_CONTROL_VERSION (\d+)$", _HEADER, re.M).group(1))


class FakeAgent:
    def __init__(self, port, host, workers, nodes, run_id="page", **more):
        self.host, self.count, self.workers = host, workers, []
        self.generation = self.first_rank = 0
        self.text = b""
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.send(type="open", version=CONTROL_VERSION, nonce="0" * 64)
        self.hear("challenge")
        self.send(type="answer")
        self.hear("accepted")
        join = dict(
            type="join", run_id=run_id, host=host, role="default", node_rank=-1, workers=workers,
            pid=1, hosts=False, min_nodes=nodes, max_nodes=nodes, spares=0, max_restarts=3,
            settle_ms=0, join_ms=600000, heartbeat_ms=600000,
        )  # fmt: skip
        self.send(**{**join, **more})

    def send(self, **message):
        text = json.dumps(message).encode()
        self.sock.sendall(struct.pack(">I", 0x80000000 | len(text)) + text)

    def hear(self, kind):
        """Reads messages until one of this kind has come, and gives it."""
        while True:
            while len(self.text) < 4 or len(self.text) < 4 + self.length():
                part = self.sock.recv(1 << 16)
                assert part, f"{self.host}: the connection ended before {kind}"
                self.text += part
            end = 4 + self.length()
            message, self.text = json.loads(self.text[4:end]), self.text[end:]
            assert message["type"] != "refused", message
            if message["type"] == kind:
                return message

    def length(self):
        return struct.unpack(">I", self.text[:4])[0] & 0x7FFFFFFF

    def start(self, step):
        """Waits for the world and tells that its workers run."""
        world = self.hear("world")
        self.generation, self.first_rank = world["generation"], world["first_rank"]
        if world["serve"]:
            self.send(type="serving", generation=self.generation, port=1, address="")
        self.workers = [
            {
                "rank": self.first_rank + i, "local_rank": i, "generation": self.generation,
                "state": "running", "pid": 1000 + i, "ended": False, "exit": 0,
                "phase": "compute", "step": step, "age_ms": 10, "loss": 0.5, "rate": 312000,
            }
            for i in range(self.count)
        ]  # fmt: skip
        self.send(type="started", generation=self.generation, workers=self.workers)

    def beat(self):
        clock_ms = time.monotonic_ns() // 10**6
        self.send(type="beat", clock_ms=clock_ms, workers=self.workers)

    def answer(self, text, ok=True):
        """Waits for a question and answers it. Gives the question."""
        query = self.hear("query")
        self.send(type="result", id=query["id"], ok=ok, text=text)
        return query

    def fail(self, local_rank, what, tail=""):
        worker = self.workers[local_rank]
        worker.update(state="failed", ended=True, exit=3)
        self.failure = {
            "kind": "worker", "generation": self.generation, "node_rank": 0, "host": self.host,
            "address": "", "rank": worker["rank"], "local_rank": local_rank, "pid": worker["pid"],
            "exit_code": 3, "permanent": True, "early": False, "time_ms": int(time.time() * 1000),
            "what": what,
        }  # fmt: skip
        self.beat()
        clock_ms = time.monotonic_ns() // 10**6
        self.send(type="failed", generation=self.generation, clock_ms=clock_ms, failure=self.failure)
        self.tail = tail

    def stop(self):
        """Waits for STOP and tells that nothing is left."""
        self.hear("stop")
        more = {"failure": dict(self.failure, tail=self.tail)} if hasattr(self, "failure") else {}
        self.send(type="stopped", generation=self.generation, **more)

    def close(self):
        self.sock.close()


def fake_job(port, nodes, workers, step=1204, **more):
    """A job whose workers all run."""
    agents = [FakeAgent(port, f"gpu-{n}", workers, nodes, **more) for n in range(nodes)]
    # Node rank 0 serves before the others hear of the world.
    for agent in sorted(agents, key=lambda a: (len(a.host), a.host)):
        agent.start(step)
    return agents
