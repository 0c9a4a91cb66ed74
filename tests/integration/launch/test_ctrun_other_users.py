# SPDX-License-Identifier: Apache-2.0
"""Other users of the machine at the port of a job: they neither end it nor make it grow."""

import os
import re
import resource
import socket
import struct
import sys
import unittest

import testlib
from testlib.fake_agents import CONTROL_VERSION

NOBODY = 65534
CROWD = 50
FEW = 256  # descriptors
RESIDENT_MAX_KIB = 20 * 1024

# Says where its store is, and ends when the test says so.
WORKER = """
import os, sys, time
if os.environ["RANK"] == "0":
    print("up", os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""

# Tries everything on one connection after the other and all at once; says what was answered.
STRANGER = """
import encodings.idna, json, os, socket, struct, sys
port, crowd, user, version = map(int, sys.argv[1:])
os.setgroups([])
os.setgid(user)
os.setuid(user)
HOLD = 20

def frame(**fields):
    text = json.dumps(fields).encode()
    return struct.pack(">I", 0x80000000 | len(text)) + text

def text(value):
    return struct.pack("<Q", len(value)) + value

def heard(s):
    try:
        return s.recv(4096)
    except ConnectionError:
        return b""

def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=HOLD)

def tries(name, *parts):
    answers = b""
    with connect() as s:
        for part in parts:
            try:
                s.sendall(part)
            except ConnectionError:
                pass
            answer = heard(s)
            answers += answer
            if not answer:
                break
    print(name, "answered" if answers else "refused", flush=True)

HELLO = frame(type="open", version=1, nonce="ab" * 32)
HELLO2 = frame(type="open", version=version, nonce="ab" * 32)
JOIN = frame(type="join", run_id="none", host="mallory", role="default", node_rank=-1, workers=1,
             pid=1, hosts=False, spare_ok=True, min_nodes=1, max_nodes=1, spares=0, max_restarts=0,
             settle_ms=3000, join_ms=600000, heartbeat_ms=3000)
END = frame(type="preempt", text="all your ranks", signo=9, deadline_ms=0)
VALIDATE = b"\\x00" + struct.pack("=I", 0x3C85F7CE)
for first in (HELLO, HELLO2, JOIN, END):
    tries("joining", first, frame(type="answer"), JOIN, END)
tries("stopping", frame(type="stop", generation=0, will_restart=False, text="", story={}))
tries("over", frame(type="over", exit_code=9, text="all your ranks", story={}))
if not crowd:
    sys.exit()
tries("writing", VALIDATE + b"\\x01" + text(b"k") + text(b"v") + b"\\x0d" + b"ping")
tries("legacy", b"\\x00" + text(b"k") + text(b"v") + b"\\x05")
tries("deleting", VALIDATE + b"\\x08" + text(b"k"))
crowd = [connect() for _ in range(crowd)]
for i, s in enumerate(crowd):
    s.settimeout(HOLD)
    value = b"x" * (8 << 20)
    begun = VALIDATE + b"\\x01" + text(b"key-%d" % i) + text(value)
    try:
        s.sendall(begun if i % 2 else frame(type="open", filler="x" * 1000000))
    except OSError:
        pass
print("crowd", sum(heard(s) != b"" for s in crowd), flush=True)
"""

# Holds as many connections as it may, each with a few bytes; makes a new one for each that is ended,
# until it is told to stop, which the alarm bounds.
FLOOD = """
import encodings.idna, os, select, signal, socket, sys
port, crowd, user, source = *map(int, sys.argv[1:4]), sys.argv[4]
said = [bytes.fromhex(x) for x in sys.argv[5:]]
os.setgroups([])
os.setgid(user)
os.setuid(user)
signal.alarm(60)
made = 0
def connect():
    global made
    made += 1
    s = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
    try:
        s.sendall(said[made % len(said)])
    except ConnectionError:
        pass
    return s
poll, held = select.poll(), {}
poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
while True:
    while len(held) < crowd:
        try:
            s = connect()
        except OSError:
            break
        held[s.fileno()] = s
        poll.register(s, select.POLLIN)
    if made >= crowd and made < crowd * 2:
        made = crowd * 2
        print("flooding", flush=True)
    for fd, _ in poll.poll(20):
        if fd == 0:
            sys.exit()
        poll.unregister(fd)
        held.pop(fd).close()
"""

# Asks the store something ten times after the test says so, each on a connection of its own.
ASKING = """
import os, socket, struct, sys, time
print("up", os.environ["MASTER_PORT"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
for _ in range(10):
    with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as s:
        s.settimeout(20)
        s.sendall(struct.pack("=BI", 0, 0x3C85F7CE) + struct.pack("=BI", 13, 4711))
        assert len(s.recv(4)) == 4
"""

# A client of the store, as PyTorch is one.
CLIENT = """
import encodings.idna, os, socket, struct, sys
if len(sys.argv) > 1:
    os.setuid(int(sys.argv[1]))
source = (os.environ["SOURCE"], 0) if "SOURCE" in os.environ else None
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
with socket.create_connection(where, source_address=source) as s:
    s.settimeout(20)
    try:
        s.sendall(struct.pack("=BI", 0, 0x3C85F7CE) + struct.pack("=BI", 13, 4711))
        heard = s.recv(4)
    except ConnectionError:
        heard = b""
print("served" if heard else "refused", flush=True)
"""


def own_address():
    """An address of this machine other than the loopback's, None where it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.255", 9))  # sends nothing
        except OSError:
            return None
        address = s.getsockname()[0]
    return None if address.startswith("127.") else address


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))


# Asks for what a worker has written and where it stands, as this user.
ASKER = """
import encodings.idna, http.client, json, os, sys, time
port, user = map(int, sys.argv[1:])
os.setgroups([])
os.setgid(user)
os.setuid(user)

def ask(method, path):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(method, path)
    answer = c.getresponse()
    return answer.status, answer.read()

while ask("GET", "/page/rank/0/0")[0] != 200:
    time.sleep(0.05)
for path in ("/page/ask/output/0/0", "/page/ask/stack/0/0"):
    print(path, ask("POST", path)[0])
print("locked" if json.loads(ask("GET", "/page/rank/0/0")[1])["locked"] else "open")
"""


@unittest.skipIf(os.geteuid() != 0, "needs root, to be two users")
class OtherUsers(testlib.Case):
    def start_job(self, *options, **kwargs):
        worker = self.script("worker.py", WORKER)
        # They know the id of the job: the status tells it.
        return self.start_ctrun("--rdzv-id", "none", *options, worker, self.tmp / "go", **kwargs)

    def port_of(self, job):
        return int(job.wait_for("up").split()[-1])

    def attack(self, port, crowd=CROWD, user=NOBODY):
        said = self.run_program(sys.executable, "-c", STRANGER, port, crowd, user, CONTROL_VERSION)
        self.assertEqual(said.code, 0, said)
        return said

    def end(self, job):
        (self.tmp / "go").touch()
        return job.wait()

    def test_another_user_neither_ends_nor_bloats_a_job(self):
        job = self.start_job("-n", "2")
        said = self.attack(self.port_of(job))
        self.assertNotIn("answered", said.out, said)
        self.assertEqual(said.out.count("refused"), 9, said)
        self.assertIn("crowd 0", said.out)
        resident = resident_kib(job.pid)
        result = self.end(job)
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.err, r"refused \d+ connections? of other users \(--open admits")
        self.assertNotIn("your ranks", result.err)
        if os.environ.get("SANITIZE", "none") == "none":
            self.assertLess(resident, RESIDENT_MAX_KIB)

    @unittest.skipUnless(os.environ.get("HAVE_HTTP") == "1", "this build has no HTTP")
    def test_another_user_sees_no_output_and_no_stack_of_a_worker(self):
        job = self.start_job("-n", "2")
        port = self.port_of(job)
        answers = {}
        for user in (NOBODY, 0):
            said = self.run_program(sys.executable, "-c", ASKER, port, user)
            self.assertEqual(said.code, 0, said)
            answers[user] = said.out.split()
        self.assertEqual(answers[NOBODY], ["/page/ask/output/0/0", "403", "/page/ask/stack/0/0", "403", "locked"])
        self.assertEqual(answers[0], ["/page/ask/output/0/0", "200", "/page/ask/stack/0/0", "200", "open"])
        self.assertEqual(self.end(job).code, 0)

    def test_another_user_with_an_address_of_this_machine_is_refused(self):
        own = own_address()
        if own is None:
            self.skipTest("this machine has the loopback's addresses alone")
        job = self.start_job("-n", "1")
        port = self.port_of(job)
        for user, want in ((NOBODY, "refused"), (0, "served")):
            env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "SOURCE": own}
            said = self.run_program(sys.executable, "-c", CLIENT, *([user] if user else []), env=env)
            self.assertEqual(said.out, f"{want}\n", said)
        self.assertEqual(self.end(job).code, 0)

    def test_a_job_of_one_machine_speaks_no_control_protocol(self):
        job = self.start_job("-n", "1")
        said = self.attack(self.port_of(job), crowd=0, user=0)
        self.assertNotIn("joining answered", said.out)
        self.assertEqual(self.end(job).code, 0)

    def test_another_user_does_not_join_the_ranks_of_a_scheduler(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        jobs = [
            self.start_job(
                "--master-port", port,
                env={
                    "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2,
                    "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
                },
            )
            for rank in range(2)
        ]  # fmt: skip
        said = self.attack(self.port_of(jobs[0]))
        self.assertNotIn("answered", said.out, said)
        (self.tmp / "go").touch()
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 0, result)
            self.assertNotIn("your ranks", result.err)

    def start_flood(self, port, crowd, *said, source="127.0.0.1"):
        """Returns how to stop it; it ends by itself after a while."""
        read, write = os.pipe()
        flood = self.start(
            sys.executable, "-c", FLOOD, port, crowd, NOBODY, source,
            *(part.hex() for part in said), stdin=read,
        )  # fmt: skip
        os.close(read)
        flood.wait_for("flooding")

        def stop():
            os.close(write)
            self.assertEqual(flood.wait().code, 0)

        return stop

    def test_strangers_do_not_take_the_descriptors_of_a_job_with_a_token(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))

        token, worker = self.tmp / "token", self.script("asking.py", ASKING)
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        jobs = [
            self.start_ctrun(
                "--nnodes", 2, "--node-rank", i, "--master-addr", "127.0.0.1",
                "--master-port", port, "--token-file", token, "--max-restarts", 0,
                worker, self.tmp / "go", preexec=few if i == 0 else None,
            )
            for i in range(2)
        ]  # fmt: skip
        for job in jobs:
            job.wait_for("up")
        begun = b'{"type":"open","version":3,"nonce":"%s"}' % (b"ab" * 32)
        opening = struct.pack(">I", 0x80000000 | len(begun)) + begun
        stop = self.start_flood(port, 2 * FEW, b"", opening, b"", b"\x80")
        held = len(os.listdir(f"/proc/{jobs[0].pid}/fd"))
        self.assertLess(held, FEW // 2)
        (self.tmp / "go").touch()
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 0, result)
            self.assertNotIn("no descriptor is left", result.err)
        stop()

    def test_another_user_does_not_keep_the_status_from_us(self):
        job = self.start_job("-n", "1")
        port = self.port_of(job)
        stop = self.start_flood(port, 400, b"G")
        for page in (b"/healthz", b"/status") * 10:
            with socket.create_connection(("127.0.0.1", port), timeout=testlib.DEADLINE) as s:
                s.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % page)
                answer = b"".join(iter(lambda: s.recv(4096), b""))
            self.assertRegex(answer, b"^HTTP/1.1 200" if page == b"/healthz" else b"^HTTP/1.1 (200|501)")
        stop()
        self.assertEqual(self.end(job).code, 0)

    def test_a_worker_that_becomes_another_user_needs_open(self):
        command = ("--no-python", sys.executable, "-c", CLIENT)
        for options, user, want in (
            ((), (), "served"), ((), (NOBODY,), "refused"), (("--open",), (NOBODY,), "served")
        ):  # fmt: skip
            result = self.ctrun(*options, *command, *user)
            self.assertEqual(result.out, f"{want}\n", result)
            self.assertEqual("--open" in result.err, want == "refused", result)


if __name__ == "__main__":
    testlib.main()
