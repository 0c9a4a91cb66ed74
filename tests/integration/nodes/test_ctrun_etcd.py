# SPDX-License-Identifier: Apache-2.0
"""Jobs whose agents meet through a real etcd, which is also their arbiter. All on this machine, over the loopback."""

import contextlib
import http.server
import os
import pathlib
import signal
import socket
import threading

import testlib
from testlib import DEADLINE, wait_until
from testlib.failover_case import PATIENCE, EtcdCase, FailoverCase, free_ports

# Connects to the store and says so, notes all the time that it runs, and fails if the file fail-RANK is there.
WORKER = r"""
import os, pathlib, socket, sys, time
folder = pathlib.Path(sys.argv[1])
rank, generation = os.environ["RANK"], os.environ["CTRUN_GENERATION"]
notes = open(folder / "notes", "a", buffering=1)
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 120).close()
print("up", generation, rank, os.environ["WORLD_SIZE"], os.environ["TORCHELASTIC_RUN_ID"], flush=True)
fail = folder / f"fail-{rank}"
while not (folder / "go").exists():
    notes.write(f"{time.monotonic_ns()} {generation} {rank} {os.getppid()}\n")
    if fail.exists():
        fail.unlink()
        sys.exit(7)
    time.sleep(0.02)
"""


class EtcdJobCase(EtcdCase, FailoverCase):
    def setUp(self):
        super().setUp()
        self.worker = self.script("worker.py", WORKER)
        self.endpoint = f"127.0.0.1:{self.port}"

    def start_agent(self, *options, name="job", conf="", heartbeat=15, endpoint=None, nnodes=2, token=None, env=None):
        """Mostly nobody falls silent here, so the heartbeat is slow: a busy machine must not count as lost."""
        clean = {k: None for k in os.environ if k.startswith("ETCDCTL_")}
        return self.start_ctrun(
            "--nproc-per-node", 1, "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint or self.endpoint,
            "--rdzv-id", name, "--token-file", token or self.token, "--nnodes", nnodes, "--shutdown-timeout", 20,
            "--local-addr", "127.0.0.1",
            "--rdzv-conf", f"join_timeout=120,last_call_timeout=1,heartbeat_timeout={heartbeat}{conf}", *options,
            self.worker, self.tmp, env={**clean, **(env or {})},
        )  # fmt: skip

    def start_two(self, *options, **more):
        """Returns the one that hosts, and the other one."""
        self.etcd_answers()
        jobs = [self.start_agent(*options, **more) for _ in range(2)]
        self.all_up(jobs)
        (host,) = self.hosts(jobs)
        return host, jobs[1 - jobs.index(host)]

    def etcd_answers(self):
        self.etcdctl("--dial-timeout=100s", "--command-timeout=100s", "get", "up")

    def kill_etcd(self):
        self.etcd.signal(signal.SIGKILL)
        self.etcd.popen.wait(DEADLINE)

    def assert_ends_at_once(self, job, line):
        """By a refusal of etcd. On a busy machine etcd may have been too slow for an answer before."""
        result = job.wait(PATIENCE)
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.err.splitlines()[-1], rf"\Actrun: {line}\Z")

    def hosts(self, jobs):
        """Those whose last word is that they host the store: none, or one."""

        def last(job):
            return [line for line in job.err.splitlines() if "hosts the job's store now" in line][-1:]

        return [job for job in jobs if last(job) and "this machine hosts" in last(job)[0]]

    def ups(self, job):
        return [line.split()[1:] for line in job.out.splitlines() if line.startswith("up ")]

    def signal_machine(self, job, number):
        """As if its whole machine stood still, or went on."""
        for pid in job.family():
            with contextlib.suppress(ProcessLookupError):  # those that went on first may end others
                os.kill(pid, number)

    def notes(self):
        """The generation, rank and time of each note."""
        for line in (self.tmp / "notes").read_text().splitlines():
            ns, generation, rank, _ = line.split()
            yield int(generation), int(rank), int(ns)


class Meeting(EtcdJobCase):
    def test_two_agents_meet_and_the_name_is_free_again_at_once(self):
        for _ in range(2):
            self.go.unlink(missing_ok=True)
            jobs = [self.start_agent() for _ in range(2)]
            self.assertEqual(self.all_up(jobs), 0)
            self.assertEqual(sorted(self.rank(job) for job in jobs), [0, 1])
            self.assertEqual(len(self.hosts(jobs)), 1)
            self.finish(jobs)

    def test_jobs_of_other_names_do_not_mix(self):
        jobs = {name: [self.start_agent(name=name) for _ in range(2)] for name in ("a", "b")}
        for name, pair in jobs.items():
            self.all_up(pair)
            self.assertEqual(sorted(sum(map(self.ups, pair), [])), [["0", "0", "2", name], ["0", "1", "2", name]])
            self.assertEqual(len(self.hosts(pair)), 1)
        self.finish(sum(jobs.values(), []))

    def test_three_that_start_together_have_one_host(self):
        self.etcd_answers()
        jobs = [self.start_agent(nnodes=3) for _ in range(3)]
        self.assertEqual(self.all_up(jobs), 0)
        self.assertEqual(sorted(self.rank(job) for job in jobs), [0, 1, 2])
        self.assertEqual(len(self.hosts(jobs)), 1)
        self.finish(jobs)

    def test_the_next_endpoint_is_used(self):
        (nobody,) = free_ports(1)
        endpoint = f"no.such.host.invalid:2379,127.0.0.1:{nobody},{self.endpoint}"
        jobs = [self.start_agent(endpoint=endpoint) for _ in range(2)]
        self.all_up(jobs)
        self.finish(jobs)


    def test_an_address_may_be_a_name(self):
        """The others have to get a number, and 0.0.0.0 is an address of no machine."""
        own = socket.gethostname()
        try:
            socket.getaddrinfo(own, None)
        except OSError:
            self.skipTest(f"the name of this machine, {own}, cannot be resolved")
        for address in own, "0.0.0.0":
            self.go.unlink(missing_ok=True)
            jobs = [self.start_agent("--local-addr", address, name=f"on-{address}") for _ in range(2)]
            self.all_up(jobs)
            self.finish(jobs)


class Loss(EtcdJobCase):
    def test_the_other_one_goes_on_when_the_host_is_killed(self):
        host, other = self.start_two("--max-restarts", 3, nnodes="1:2")
        self.kill(host)
        self.assertEqual(self.all_up([other], 0), 1)
        third = self.start_agent("--max-restarts", 3, nnodes="1:2")
        self.all_up([other, third], 1)
        self.finish([other, third])

    def test_the_other_one_goes_on_when_the_host_is_silent(self):
        host, other = self.start_two("--max-restarts", 3, nnodes="1:2", heartbeat=3)
        rank = self.rank(other)
        self.signal_machine(host, signal.SIGSTOP)
        second = self.all_up([other], 0)
        self.signal_machine(host, signal.SIGCONT)
        third = self.all_up([host, other], second)
        self.finish([host, other])
        notes = list(self.notes())
        before = [ns for generation, its, ns in notes if generation == 0 and its == rank]
        self.assertLess(max(before), min(ns for generation, _, ns in notes if generation == second))
        # That of the host has run on until it was told; nothing of it is left in the next one.
        before = [ns for generation, _, ns in notes if generation < third]
        self.assertLess(max(before), min(ns for generation, _, ns in notes if generation == third))


class LossOfEtcd(EtcdJobCase):
    def lose_etcd(self, host):
        self.kill_etcd()
        wait_until(lambda: self.troubles(host), "the host says that etcd cannot be used")

    def troubles(self, job):
        """What it has said since etcd answered last."""
        text = job.err.rpartition("etcd answers again")[2]
        return [line for line in text.splitlines() if "etcd cannot be used" in line]

    def test_the_workers_run_on_and_a_failed_one_is_restarted(self):
        host, other = self.start_two("--max-restarts", 3)
        self.lose_etcd(host)
        (self.tmp / "fail-1").touch()
        self.assertEqual(self.all_up([host, other], 0), 1)
        self.finish([host, other])
        (line,) = self.troubles(host)
        self.assertIn(f"ctrun: etcd cannot be used: etcd at {self.url}: ", line)
        self.assertTrue(line.endswith("; the job goes on, but if a machine falls silent, it waits for etcd"), line)
        self.assertEqual(self.troubles(other), [])

    def test_the_last_one_goes_on_after_a_death_that_is_proved(self):
        for victim in ("host", "other"):
            with self.subTest(victim):
                self.go.unlink(missing_ok=True)
                host, other = self.start_two("--max-restarts", 3, nnodes="1:2", name=victim)
                self.lose_etcd(host)
                lost, left = (host, other) if victim == "host" else (other, host)
                self.kill(lost)
                self.assertEqual(self.all_up([left], 0), 1)
                self.finish([left])
                self.assertEqual(len(self.troubles(left)), 1, left.result())
                self.start_etcd()

    def test_the_last_one_waits_for_etcd_when_the_host_is_silent(self):
        host, other = self.start_two("--max-restarts", 3, nnodes="1:2", heartbeat=3)
        self.lose_etcd(host)
        self.signal_machine(host, signal.SIGSTOP)
        wait_until(lambda: self.troubles(other), "it says that it waits")
        self.assertTrue(self.troubles(other)[0].endswith("; this machine waits for it"), other.result())
        self.assertEqual(self.generation(other), 0)
        self.start_etcd()
        second = self.all_up([other], 0)
        self.signal_machine(host, signal.SIGCONT)
        self.all_up([host, other], second)
        self.finish([host, other])


class NotEtcd(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = b"<html>nothing here</html>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class BadInput(EtcdJobCase):
    def assert_refused(self, job, line):
        result = job.wait()
        self.assertEqual((result.code, result.err), (2, f"ctrun: {line}\n"), result)

    def assert_waits(self, why, **more):
        """It says at once what is wrong, and at the end once more."""
        job = self.start_agent(conf=",join_timeout=1", **more)
        line = job.wait_for("; this machine waits for it")
        self.assertIn(f"ctrun: etcd cannot be used: {why}", line)
        result = job.wait()
        self.assertEqual(result.code, 120, result)
        lines = result.err.splitlines()
        self.assertEqual(len(lines), 2, result)
        self.assertIn(f"ctrun: no host of the job was found in 1 s: {why}", lines[1])
        self.assertEqual(result.out, "")

    def test_wrong_arguments_are_refused(self):
        no_endpoint = self.start_ctrun("--rdzv-backend", "etcd", "--nnodes", 2, "--token-file", self.token, self.worker)
        self.assert_refused(
            no_endpoint, "--rdzv-backend etcd needs --rdzv-endpoint HOST[:PORT][,...]: where etcd is"
        )
        self.assert_refused(
            self.start_agent(conf=",failover=0"), "--rdzv-backend etcd and --rdzv-conf failover=0 exclude each other"
        )
        for endpoint, line in (
            ("ftp://x", "--rdzv-endpoint: etcd: 'ftp://x' does not begin with http:// or https://"),
            ("joe:pw@h:1", "--rdzv-endpoint: an address of etcd has an '@': the user belongs into ETCDCTL_USER"),
            ("a,,b", "--rdzv-endpoint: the list of etcd's addresses has an empty one"),
        ):
            self.assert_refused(self.start_agent(endpoint=endpoint), line)
        self.assert_refused(
            self.start_agent(env={"ETCDCTL_USER": "joe"}),
            "ETCDCTL_USER has no password: set ETCDCTL_PASSWORD, too",
        )
        self.etcd_answers()
        self.assert_ends_at_once(
            self.start_agent(env={"ETCDCTL_CACERT": self.tmp / "nowhere.pem"}),
            "etcd at https://.*: cannot use the files of ETCDCTL_CACERT: .*",
        )

    def test_an_etcd_that_does_not_listen_is_named(self):
        (port,) = free_ports(1)
        self.assert_waits(f"etcd at http://127.0.0.1:{port}: Failed to connect", endpoint=f"127.0.0.1:{port}")

    def test_it_is_no_etcd(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotEtcd)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"127.0.0.1:{server.server_address[1]}"
        why = f"etcd at http://{endpoint}: no etcd of version 3.4 or newer answers there (HTTP status 404)"
        self.assert_waits(why, endpoint=endpoint)

    def test_the_key_holds_something_else(self):
        self.etcd_answers()
        for value in ("not json", "[]", '{"host_term":1}', "x" * 1000):
            self.etcdctl("put", "/ctrun/job/arbiter", value)
            self.assert_waits("the key /ctrun/job/arbiter has a value that is not ctrun's, so delete it: ")
        self.etcdctl("put", "/ctrun/job/arbiter", "x" * 65537)
        self.assert_waits(
            f"the key /ctrun/job/arbiter: etcd at {self.url}: the value has more than 65536 bytes, so it is not "
            "ctrun's: delete it"
        )

    def test_a_machine_with_another_token_is_not_taken(self):
        host = self.start_agent()
        host.wait_for("waiting for 1 of 2 nodes")
        token = self.tmp / "other-token"
        token.touch(mode=0o600)
        token.write_text("staple-battery-horse-correct\n")
        job = self.start_agent(conf=",join_timeout=5", token=token)
        line = job.wait_for("does not have this job's token")
        self.assertRegex(line, r"\Actrun: 127\.0\.0\.1:\d+ does not take this machine: the store at ")
        result = job.wait()
        self.assertEqual(result.code, 120, result)
        lines = result.err.splitlines()
        self.assertEqual(len(lines), 2, result)
        self.assertRegex(lines[1], r"\Actrun: no host of the job was found in 5 s: 127\.0\.0\.1:\d+ does not take ")
        right = self.start_agent()
        self.all_up([host, right])
        self.finish([host, right])

    def test_a_machine_with_other_options_is_not_taken(self):
        host = self.start_agent()
        host.wait_for("waiting for 1 of 2 nodes")
        result = self.start_agent(nnodes=3).wait()
        self.assertEqual(result.code, 2, result)
        self.assertIn("ctrun: the job does not take this node: ", result.err)

    def test_a_user_needs_the_right_password(self):
        self.etcd_answers()
        for args in (
            ("user", "add", "root:pw"), ("user", "grant-role", "root", "root"), ("user", "add", "joe:sesame"),
            ("role", "add", "r"), ("role", "grant-permission", "r", "readwrite", "/ctrun/", "--prefix"),
            ("user", "grant-role", "joe", "r"), ("auth", "enable"),
        ):  # fmt: skip
            self.etcdctl(*args)
        variables = "ETCDCTL_USER and ETCDCTL_PASSWORD"
        self.assert_ends_at_once(
            self.start_agent(), f"etcd at {self.url}: it wants a user name and a password: set {variables}"
        )
        wrong = {"ETCDCTL_USER": "joe", "ETCDCTL_PASSWORD": "open"}
        self.assert_ends_at_once(
            self.start_agent(env=wrong),
            f"etcd at {self.url}: authentication failed: wrong user name or password, see {variables}",
        )
        jobs = [self.start_agent(env={"ETCDCTL_USER": "joe:sesame"}) for _ in range(2)]
        self.all_up(jobs)
        self.finish(jobs)


class Tls(EtcdJobCase):
    scheme = "https"
    extra = ("--auto-tls",)

    def test_an_unknown_certificate_is_refused(self):
        certificate = pathlib.Path(self.tmp / "etcd" / "fixtures" / "client" / "cert.pem")
        wait_until(certificate.exists, "etcd makes its certificate")
        jobs = [self.start_agent(env={"ETCDCTL_CACERT": certificate}) for _ in range(2)]
        self.all_up(jobs, -1)
        self.finish(jobs)
        self.assert_ends_at_once(
            self.start_agent(endpoint=self.url), f"etcd at {self.url}: .*certificate.*; see ETCDCTL_CACERT"
        )


if __name__ == "__main__":
    testlib.main()
