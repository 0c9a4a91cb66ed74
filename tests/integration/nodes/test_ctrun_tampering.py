# SPDX-License-Identifier: Apache-2.0
"""Two machines with a token, and between them somebody who passes on what they say, almost."""

import json
import socket
import struct
import threading

import testlib
from testlib import wait_until

NODE_LOST = 121
TO_HOST, TO_GUEST = "to the host", "to the guest"

WORKER = """
import os, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


class Relay:
    """Passes frames on; `change(direction, n, frame)` gives the frames to send instead of the n-th
    of that direction. The proof takes the first two of each."""

    def __init__(self, case, port, change):
        self.target, self.change = port, change
        self.listener = socket.create_server(("127.0.0.1", 0))
        case.addCleanup(self.listener.close)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                guest = self.listener.accept()[0]
            except OSError:
                return
            try:
                host = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # it is not there yet; the guest tries again
                guest.close()
                continue
            for pair in ((guest, host, TO_HOST), (host, guest, TO_GUEST)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, direction):
        stream, n = source.makefile("rb"), 0
        try:
            while header := stream.read(4):
                frame = header + stream.read(struct.unpack(">I", header)[0] & 0x7FFFFFFF)
                for changed in self.change(direction, n, frame):
                    target.sendall(changed)
                n += 1
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def flipped(frame):
    return frame[:40] + bytes([frame[40] ^ 1]) + frame[41:]


def made_up(**fields):
    text = json.dumps(fields).encode()
    return struct.pack(">I", 0x80000000 | len(text)) + text


class Tampering(testlib.Case):
    def start_pair(self, change):
        token = self.tmp / "token"
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        relay = Relay(self, port, change)
        worker = self.script("worker.py", WORKER)
        return [
            self.start_ctrun(
                "--nnodes", 2, "--node-rank", rank, "--token-file", token,
                "--master-addr", "127.0.0.1", "--master-port", where,
                "--rdzv-conf", f"is_host={1 - rank},heartbeat_timeout=3,join_timeout=60",
                worker, self.tmp / "go",
            )
            for rank, where in ((0, port), (1, relay.port))
        ]  # fmt: skip

    def wait_up(self, jobs):
        wait_until(lambda: all("up" in job.out for job in jobs), f"workers: {jobs[0].err}")

    def test_what_is_passed_on_as_it_was_said_arrives(self):
        jobs = self.start_pair(lambda _direction, _n, frame: [frame])
        self.wait_up(jobs)
        (self.tmp / "go").touch()
        self.assertEqual([job.wait().code for job in jobs], [0, 0], jobs[0].err)

    def ends_with(self, change, who, says, codes=(NODE_LOST,)):
        jobs = self.start_pair(change)
        jobs[who].wait_for(says)
        (self.tmp / "go").touch()
        self.assertIn(jobs[1].wait().code, codes, jobs[1].err)
        jobs[0].kill()

    def test_an_altered_message_is_not_heard(self):
        self.ends_with(
            lambda direction, n, frame: [flipped(frame) if (direction, n) == (TO_HOST, 2) else frame],
            0, "store: agent at 127.0.0.1",
        )  # fmt: skip

    def test_an_altered_answer_of_the_store_is_not_heard(self):
        self.ends_with(
            lambda direction, n, frame: [
                flipped(frame) if (direction, n) == (TO_GUEST, 2) else frame
            ],
            1, "was lost: a message was altered on its way",
        )  # fmt: skip

    def test_a_message_of_the_relay_is_not_heard(self):
        end = made_up(type="preempt", text="all your ranks", signo=9, deadline_ms=0)

        def change(direction, n, frame):
            return [frame, end] if (direction, n) == (TO_HOST, 2) else [frame]

        jobs = self.start_pair(change)
        jobs[0].wait_for("or inserted by somebody without the token")
        jobs[1].wait()
        self.assertNotIn("your ranks", jobs[0].err + jobs[1].err)
        self.assertNotIn("received SIG", jobs[0].err + jobs[1].err)

    def test_a_repeated_message_is_not_heard(self):
        self.ends_with(
            lambda direction, n, frame: [frame] * (2 if (direction, n) == (TO_HOST, 3) else 1),
            0, "message 1 came where 2 was due",
        )  # fmt: skip

    def test_a_message_that_is_left_out_is_missed(self):
        self.ends_with(
            lambda direction, n, frame: [] if (direction, n) == (TO_HOST, 3) else [frame],
            0, "message 2 came where 1 was due",
        )  # fmt: skip

    def test_messages_in_another_order_are_not_heard(self):
        held = []

        def change(direction, n, frame):
            if direction == TO_HOST and n == 3:
                held.append(frame)
                return []
            return [frame, held.pop()] if direction == TO_HOST and held else [frame]

        self.ends_with(change, 0, "message 2 came where 1 was due")


if __name__ == "__main__":
    testlib.main()
