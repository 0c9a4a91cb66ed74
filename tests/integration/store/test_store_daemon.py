# SPDX-License-Identifier: Apache-2.0
"""ctrdzvd's own limits and its life as a service: addresses, caps, readiness, the way to its end."""

import os
import pathlib
import resource
import signal
import socket
import threading
import unittest

import testlib
from testlib import DEADLINE, program, wait_until
from testlib.fake_agents import FakeAgent
from testlib.store_client import GET, MAX_VALUE, SET, WAIT, Peer, request, text

MIB = 1 << 20
SANITIZED = os.environ.get("SANITIZE", "none") != "none"


def has_ipv6():
    path = pathlib.Path("/proc/net/if_inet6")
    return path.exists() and " lo" in path.read_text()


class DaemonCase(testlib.Case):
    def peer(self, port, **kwargs):
        peer = Peer(port, **kwargs)
        self.addCleanup(peer.close)
        return peer

    def refused(self, host, port):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as sock:
            sock.settimeout(DEADLINE)
            return sock.connect_ex((host, port)) != 0


class Addresses(DaemonCase):
    def test_exactly_those_that_were_named(self):
        _, port = self.start_ctrdzvd("--listen", "127.0.0.2", "--listen=127.0.0.3")
        for host in ("127.0.0.2", "127.0.0.3"):
            self.assertTrue(self.peer(port, host=host).ping())
        self.assertTrue(self.refused("127.0.0.1", port))
        if has_ipv6():
            self.assertTrue(self.refused("::1", port))

    def test_one_line_for_each(self):
        daemon, port = self.start_ctrdzvd("--listen", "127.0.0.1", "--listen", "127.0.0.2")
        daemon.wait_for(f"127.0.0.2:{port}")
        self.assertIn(f"listening on 127.0.0.1:{port}\n", daemon.err)

    def test_the_same_address_twice(self):
        _, port = self.start_ctrdzvd("--listen", "127.0.0.1", "--listen", "localhost")
        self.assertTrue(self.peer(port).ping())

    @unittest.skipUnless(has_ipv6(), "no IPv6 here")
    def test_ipv6_alone_and_beside_ipv4(self):
        _, port = self.start_ctrdzvd("--listen", "::1")
        self.assertTrue(self.peer(port, host="::1").ping())
        self.assertTrue(self.refused("127.0.0.1", port))
        _, port = self.start_ctrdzvd("--listen", "::", "--listen", "127.0.0.1")
        self.assertTrue(self.peer(port, host="::1").ping())
        self.assertTrue(self.peer(port).ping())
        self.assertTrue(self.refused("127.0.0.2", port))

    def test_one_that_is_taken_takes_all_down(self):
        # A port that the kernel chose for one address may be taken at 127.0.0.1, where all other tests listen.
        other, port = self.start_ctrdzvd("--listen", "127.9.0.2")
        result = self.run_program(
            program("ctrdzvd"), "--port", port, "--listen", "127.9.0.1", "--listen", "127.9.0.2"
        )
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn(f"port {port} on 127.9.0.2 is in use by pid {other.pid}", result.err)
        self.assertTrue(self.refused("127.9.0.1", port))

    def test_too_many_addresses_are_refused(self):
        many = [arg for i in range(17) for arg in ("--listen", f"127.0.0.{i + 1}")]
        result = self.run_program(program("ctrdzvd"), "--port", "0", *many)
        self.assertEqual(result.code, 2, result)
        self.assertIn("--listen '127.0.0.17'", result.err)


class Memory(DaemonCase):
    CAP = 64 * MIB

    def setUp(self):
        super().setUp()
        self.daemon, self.port = self.start_ctrdzvd("--max-memory", "64M")
        self.reader = self.peer(self.port)
        self.reader.set(b"/small", b"value")
        self.assertTrue(self.reader.ping())

    def assert_rss_below(self, limit):
        # A sanitizer keeps what is freed.
        if not SANITIZED:
            self.assertLess(testlib.anonymous_bytes(self.daemon.pid), limit)

    def fill(self):
        """Stores until a writer is refused; returns how many values are there."""
        for i in range(100):
            writer = self.peer(self.port)
            try:
                writer.set(b"/big/%d" % i, bytes(MAX_VALUE))
                if not writer.ping():
                    return i
            except (EOFError, OSError):
                return i
        self.fail("the cap was never reached")

    def test_full_store_ends_the_writer_alone(self):
        stored = self.fill()
        self.assertIn(stored, (5, 6, 7))
        self.assert_rss_below(self.CAP + 16 * MIB)
        self.assertRegex(self.daemon.err, r"ended: the store's memory is used up \(--max-memory\)")
        self.assertEqual(self.reader.get(b"/small"), b"value")
        self.assertEqual(len(self.reader.get(b"/big/0")), MAX_VALUE)
        # What is freed can be used again.
        self.reader.send(request(8, b"/big/0"))
        self.assertEqual(self.reader.number(), 1)
        again = self.peer(self.port)
        again.set(b"/again", bytes(MAX_VALUE // 4))
        self.assertTrue(again.ping())

    def test_half_requests_and_values_share_the_cap(self):
        peers = []
        for _ in range(12):
            peer = self.peer(self.port)
            try:
                peer.send(bytes([SET]) + text(b"/k") + (MAX_VALUE).to_bytes(8, "little"))
                peer.send(bytes(MAX_VALUE - 1))
            except OSError:
                pass
            peers.append(peer)
        wait_until(lambda: "memory is used up" in self.daemon.err, "a refusal")
        self.assert_rss_below(self.CAP + 32 * MIB)
        self.assertEqual(self.reader.get(b"/small"), b"value")
        for peer in peers:
            peer.close()
        writer = self.peer(self.port)
        wait_until(lambda: self.stores(b"/k", MAX_VALUE // 2), "the memory is free again")
        self.assertTrue(writer.ping())

    def stores(self, key, size):
        peer = self.peer(self.port)
        try:
            peer.set(key, bytes(size))
            return peer.ping()
        except (EOFError, OSError):
            return False

    def test_slow_readers_of_what_is_gone_count(self):
        self.reader.set(b"/k", bytes(MAX_VALUE))
        self.assertTrue(self.reader.ping())  # SET has no answer; now it has been served
        slow = []
        for i in range(20):
            peer = self.peer(self.port)
            peer.send(request(GET, b"/k"))
            self.assertEqual(peer.number(), MAX_VALUE)
            slow.append(peer)
            if not self.stores(b"/k", MAX_VALUE):
                break
        self.assertLess(i, 10, "replaced values that are still being sent must count")
        self.assert_rss_below(self.CAP + 32 * MIB)
        for peer in slow:
            self.assertEqual(len(peer.recv(MAX_VALUE)), MAX_VALUE)
        wait_until(lambda: self.stores(b"/k", MAX_VALUE), "the memory is free again")


class Connections(DaemonCase):
    def test_those_beyond_are_closed_at_once(self):
        daemon, port = self.start_ctrdzvd("--max-connections", "3")
        kept = [self.peer(port) for _ in range(3)]
        self.assertTrue(all(peer.ping() for peer in kept))
        for _ in range(20):
            self.assertTrue(self.peer(port, greet=False).ended())
        self.assertTrue(all(peer.ping() for peer in kept))
        lines = [line for line in daemon.err.splitlines() if "beyond --max-connections" in line]
        self.assertTrue(lines)
        self.assertLess(len(lines), 20, "the log must not grow with each refusal")
        kept.pop().close()

        def admitted():
            peer = self.peer(port, greet=False)
            try:
                peer.send(b"\0\xce\xf7\x85\x3c")
                return peer.ping()
            except (EOFError, OSError):
                return False

        wait_until(admitted, "the free place is given away")

    def test_out_of_descriptors_serves_those_it_has(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        daemon, port = self.start_ctrdzvd(preexec=few)
        kept = []
        for _ in range(100):
            peer = self.peer(port, greet=False)
            try:
                peer.send(b"\0\xce\xf7\x85\x3c")
                if peer.ping():
                    kept.append(peer)
            except (EOFError, OSError):
                pass
        self.assertTrue(20 < len(kept) < 64, len(kept))
        self.assertTrue(all(peer.ping() for peer in kept))
        daemon.wait_for("out of descriptors")
        for peer in kept[:10]:
            peer.close()
        kept = kept[10:]

        def admitted():
            peer = self.peer(port, greet=False)
            try:
                peer.send(b"\0\xce\xf7\x85\x3c")
                return peer.ping()
            except (EOFError, OSError):
                return False

        wait_until(admitted, "new clients are served again")
        self.assertTrue(all(peer.ping() for peer in kept))

    def test_soft_limit_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def low():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))

        daemon, _ = self.start_ctrdzvd(preexec=low)
        limits = pathlib.Path(f"/proc/{daemon.pid}/limits").read_text()
        line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        self.assertEqual(line.split()[3], line.split()[4])


class Service(DaemonCase):
    def notified(self, address):
        """Starts the daemon with that NOTIFY_SOCKET; checks what it is told, up to the end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(DEADLINE)
            manager.bind("\0" + address[1:] if address.startswith("@") else address)
            daemon, port = self.start_ctrdzvd(env={"NOTIFY_SOCKET": address})
            self.assertEqual(manager.recv(100), b"READY=1")
            self.assertTrue(self.peer(port).ping())
            daemon.signal(signal.SIGTERM)
            self.assertEqual(manager.recv(100), b"STOPPING=1")
            self.assertEqual(daemon.wait().code, 0)

    def test_readiness_on_a_path(self):
        self.notified(str(self.tmp / "notify"))

    def test_readiness_on_an_abstract_address(self):
        self.notified(f"@ctrdzvd-test-{os.getpid()}-{os.urandom(6).hex()}")

    def test_manager_that_is_gone(self):
        daemon, port = self.start_ctrdzvd(env={"NOTIFY_SOCKET": str(self.tmp / "nobody")})
        daemon.wait_for("NOTIFY_SOCKET")
        self.assertTrue(self.peer(port).ping())


class Drain(DaemonCase):
    def test_requests_on_their_way_are_answered(self):
        daemon, port = self.start_ctrdzvd()
        half, slow, waiting = (self.peer(port) for _ in range(3))
        slow.set(b"/big", bytes(MAX_VALUE))
        slow.send(request(GET, b"/big") * 2)
        self.assertEqual(slow.number(), MAX_VALUE)
        waiting.send(request(WAIT, 1, b"/never"))
        get = request(GET, b"/big")
        half.send(get[:5])
        self.assertTrue(self.peer(port).ping())
        daemon.signal(signal.SIGTERM)
        self.assertTrue(waiting.ended())
        wait_until(lambda: self.refused("127.0.0.1", port), "nobody is accepted any more")
        self.assertEqual(len(slow.recv(MAX_VALUE)), MAX_VALUE)
        self.assertEqual(len(slow.value()), MAX_VALUE)
        half.send(get[5:])
        self.assertEqual(len(half.value()), MAX_VALUE)
        self.assertTrue(slow.ended() and half.ended())
        self.assertEqual(daemon.wait().code, 0)

    def test_the_end_comes_all_the_same(self):
        daemon, port = self.start_ctrdzvd()
        half = self.peer(port)
        half.send(request(GET, b"/k")[:5])
        self.assertTrue(self.peer(port).ping())
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait().code, 0)
        self.assertTrue(half.ended())

    def test_second_signal_ends_it_at_once(self):
        daemon, port = self.start_ctrdzvd()
        half, waiting = self.peer(port), self.peer(port)
        half.send(request(GET, b"/k")[:5])
        waiting.send(request(WAIT, 1, b"/never"))
        self.assertTrue(self.peer(port).ping())
        daemon.signal(signal.SIGTERM)
        self.assertTrue(waiting.ended())
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait().code, 0)
        self.assertTrue(half.ended())


class Options(DaemonCase):
    def test_wrong_options_are_named(self):
        for args, named in (
            (["--max-memory", "x"], "'x'"),
            (["--max-memory", ""], "''"),
            (["--max-memory", "M"], "'M'"),
            (["--max-memory", "-64M"], "'-64M'"),
            (["--max-memory", "64MB"], "'64MB'"),
            (["--max-memory", "1M"], "less than 32M"),
            (["--max-memory", "99999999T"], "99999999T"),
            (["--max-memory", "9" * 30], "999"),
            (["--max-connections", "0"], "'0'"),
            (["--max-connections", "many"], "'many'"),
        ):
            with self.subTest(args=args):
                result = self.run_program(program("ctrdzvd"), *args)
                self.assertEqual(result.code, 2, result)
                self.assert_one_line(result.err)
                self.assertIn(named, result.err)

    def test_sizes_may_have_units(self):
        for size in ("33554432", "32768K", "32M", "1G", "1T"):
            with self.subTest(size=size):
                _, port = self.start_ctrdzvd("--max_memory", size, "--max_connections=9")
                self.assertTrue(self.peer(port).ping())


class HeldJoins(DaemonCase):
    """An agent of a machine whose older agent has the only place, and may be gone."""

    def setUp(self):
        super().setUp()
        _, self.port = self.start_ctrdzvd()
        self.old = self.agent()
        self.old.start(1)

    def agent(self):
        agent = FakeAgent(self.port, "gpu-0", 1, 1)
        self.addCleanup(agent.close)
        return agent

    def held(self):
        agent = self.agent()
        self.assertIn("still counts an earlier ctrun of this machine", agent.hear("waiting")["text"])
        return agent

    def test_it_gets_the_place_when_the_older_one_has_gone(self):
        new = self.held()
        new.send(type="beat", clock_ms=7, workers=[])
        beat = new.hear("beat")
        self.assertEqual(beat["clock_ms"], 7)
        self.assertNotIn("lease_ms", beat)
        # The job has ended with its last member, so this one begins it anew.
        self.old.close()
        new.start(1)
        self.assertEqual(new.generation, 0)

    def test_it_takes_the_place_of_the_older_one_in_a_job_that_goes_on(self):
        agents = [FakeAgent(self.port, f"gpu-{n}", 1, 2, run_id="two") for n in range(2)]
        for agent in agents:
            self.addCleanup(agent.close)
            agent.start(1)
        new = FakeAgent(self.port, "gpu-1", 1, 2, run_id="two")
        self.addCleanup(new.close)
        new.hear("waiting")
        agents[1].close()
        agents[0].stop()
        agents[0].start(1)
        new.start(1)
        self.assertEqual((new.generation, new.first_rank), (1, 1))

    def test_it_is_refused_when_the_older_one_beats(self):
        new = self.held()
        self.old.beat()
        with self.assertRaisesRegex(AssertionError, "one too many"):
            new.hear("world")

    def test_it_may_leave(self):
        new = self.held()
        new.send(type="leave", text="", exit_code=0)
        with self.assertRaisesRegex(AssertionError, "the connection ended"):
            new.hear("world")

    def test_it_may_say_nothing_else(self):
        new = self.held()
        new.send(type="finished", generation=0)
        with self.assertRaisesRegex(AssertionError, "broke the agents' protocol"):
            new.hear("world")


class Deadlines(DaemonCase):
    def test_they_come_although_an_agent_never_pauses(self):
        """The second agent comes when those that wait could have been told of it for a while."""
        _, port = self.start_ctrdzvd()
        first = FakeAgent(port, "gpu-0", 1, 3, join_ms=10000)
        first.hear("waiting")
        done = threading.Event()

        def beat():
            while not done.wait(0.005):
                first.beat()

        beating = threading.Thread(target=beat)
        self.addCleanup(first.close)
        self.addCleanup(beating.join)
        self.addCleanup(done.set)
        beating.start()
        done.wait(1.5)
        second = FakeAgent(port, "gpu-1", 1, 3, join_ms=10000)
        self.addCleanup(second.close)
        second.sock.settimeout(30)
        self.assertIn("waiting for 1 of 3 nodes", second.hear("waiting")["text"])
        self.assertIn("join_timeout (10 s) is over", second.hear("over")["text"])


class Footprint(DaemonCase):
    def test_idle_connections_are_small(self):
        """After they have been busy. A sanitizer's allocator is another, so it is only told."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = 5000
        if hard != resource.RLIM_INFINITY and hard < count + 100:
            self.skipTest(f"only {hard} descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        daemon, port = self.start_ctrdzvd()
        first = self.peer(port)
        first.set(b"/k", bytes(40000))
        self.assertEqual(len(first.get(b"/k")), 40000)
        before = testlib.anonymous_bytes(daemon.pid)
        peers = [self.peer(port) for _ in range(count)]
        for peer in peers:
            self.assertTrue(peer.ping())
            get = request(GET, b"/k")
            peer.send(get[:7])
            peer.send(get[7:])
            self.assertEqual(len(peer.value()), 40000)
        each = (testlib.anonymous_bytes(daemon.pid) - before) / count
        print(f"{each:.0f} bytes for each idle connection")
        if not SANITIZED:
            self.assertLessEqual(each, 400)


if __name__ == "__main__":
    testlib.main()
