# SPDX-License-Identifier: Apache-2.0
"""The client of etcd with a real etcd: values, compares, leases, users, TLS, and an etcd that dies."""

import json
import os
import pathlib
import signal
import socket
import subprocess

import testlib
from testlib import DEADLINE, wait_until
from testlib.failover_case import EtcdCase


class Client:
    """A program that has one client, and does what it is told line by line."""

    def __init__(self, case, endpoints, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ETCDCTL_")}
        self.popen = subprocess.Popen(
            [os.environ["ETCD_REQUESTS"], endpoints],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**clean, **env},
        )  # fmt: skip
        case.addCleanup(self.end)

    def end(self):
        if self.popen.poll() is None:
            self.popen.stdin.close()
            self.popen.wait(DEADLINE)
        self.popen.stdout.close()
        return self.popen.returncode

    def ask(self, *words):
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()
        return json.loads(self.popen.stdout.readline())

    def until(self, what, condition, *words):
        """Asks again until the answer is as wanted, which it gives."""

        def wanted():
            reply = self.ask(*words)
            return reply if condition(reply) else None

        return wait_until(wanted, what)


class ClientCase(EtcdCase):
    def client(self, endpoints=None, **env):
        return Client(self, endpoints or self.url, **env)

    def up(self, client):
        """Waits until etcd answers this client."""
        client.until("etcd answers", lambda reply: reply["rc"] == "", "get", "up")

    def assert_fine(self, reply):
        self.assertEqual(reply["error"], "")
        self.assertTrue(reply["sent"])

    def first(self, reply):
        self.assert_fine(reply)
        return reply["values"][0]


class Values(ClientCase):
    def test_values_compares_and_leases(self):
        client = self.client()
        self.up(client)
        self.assertFalse(self.first(client.ask("get", "k"))["found"])

        # The first one creates it, the second one sees who did.
        created = client.ask("swap", "k", "mine", 0)
        self.assert_fine(created)
        self.assertTrue(created["succeeded"])
        refused = client.ask("swap", "k", "theirs", 0)
        self.assertFalse(refused["succeeded"])
        value = self.first(refused)
        self.assertEqual((value["value"], value["mod"]), ("mine", created["revision"]))

        # Nobody may change what he has not seen.
        swapped = client.ask("swap", "k", "next", value["mod"])
        self.assertTrue(swapped["succeeded"])
        late = client.ask("swap", "k", "late", value["mod"])
        self.assertFalse(late["succeeded"])
        seen = self.first(late)
        self.assertEqual((seen["value"], seen["mod"]), ("next", swapped["revision"]))
        self.etcdctl("del", "k")
        self.assertFalse(self.first(client.ask("get", "k"))["found"])
        self.assertTrue(client.ask("swap", "k", "again", 0)["succeeded"])

        # A key ends with its lease.
        lease = client.ask("grant", 3600)
        self.assert_fine(lease)
        self.assertEqual(lease["ttl"], 3600)
        self.assert_fine(client.ask("put", "leased", "x", lease["lease"]))
        self.assertTrue(self.first(client.ask("get", "leased"))["found"])
        kept = client.ask("keep-alive", lease["lease"])
        self.assert_fine(kept)
        self.assertEqual(kept["ttl"], 3600)
        self.etcdctl("lease", "revoke", f"{lease['lease']:x}")
        self.assertFalse(self.first(client.ask("get", "leased"))["found"])
        self.assertEqual(client.ask("keep-alive", lease["lease"])["ttl"], 0)
        gone = client.ask("put", "leased", "x", lease["lease"])
        self.assertEqual(gone["rc"], "not found")
        self.assertEqual(gone["error"], f"etcd at {self.url}: the lease has ended")

        # One that nobody keeps ends by itself.
        short = client.ask("grant", 1)
        self.assert_fine(client.ask("put", "short", "x", short["lease"]))
        client.until("the lease ends", lambda reply: not self.first(reply)["found"], "get", "short")
        self.assertEqual(client.end(), 0)

    def test_an_etcd_that_is_killed_and_comes_back(self):
        client = self.client()
        self.up(client)
        self.assert_fine(client.ask("put", "k", "v"))
        self.etcd.signal(signal.SIGKILL)
        self.etcd.popen.wait(DEADLINE)
        lost = client.ask("get", "k")
        self.assertEqual(lost["rc"], "input/output error")
        self.assertIn(f"etcd at {self.url}: ", lost["error"])
        self.start_etcd()
        back = client.until("etcd is back", lambda reply: reply["rc"] == "", "get", "k")
        self.assertEqual(self.first(back)["value"], "v")

    def test_the_next_endpoint_takes_over(self):
        # Somebody who accepts nothing is first in the list.
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            client = self.client(f"127.0.0.1:{deaf.getsockname()[1]},127.0.0.1:{self.port}")
            self.up(client)
            self.assertEqual(client.ask("get", "k")["attempts"], 1)


class Users(ClientCase):
    def test_users_may_do_what_their_roles_allow(self):
        nobody = self.client()
        joe = self.client(ETCDCTL_USER="joe:sesame")
        self.up(joe)  # a user does no harm where none is wanted
        for args in (
            ("user", "add", "root:pw"), ("user", "grant-role", "root", "root"), ("user", "add", "joe:sesame"),
            ("role", "add", "r"), ("role", "grant-permission", "r", "readwrite", "a", "n"),
            ("user", "grant-role", "joe", "r"), ("auth", "enable"),
        ):  # fmt: skip
            self.etcdctl(*args)

        refused = nobody.ask("get", "k")
        self.assertEqual(refused["rc"], "not permitted")
        self.assertIn("it wants a user name and a password: set ETCDCTL_USER", refused["error"])

        self.assert_fine(joe.ask("put", "k", "v"))
        denied = joe.ask("put", "z", "v")
        self.assertEqual(denied["rc"], "not permitted")
        self.assertIn("grant it a role that may readwrite the prefix /ctrun/", denied["error"])
        self.assertIn("etcdserver: permission denied", denied["error"])
        lease = joe.ask("grant", 3600)
        self.assert_fine(lease)
        self.assertEqual(joe.ask("keep-alive", lease["lease"])["ttl"], 3600)

        wrong = self.client(ETCDCTL_USER="joe", ETCDCTL_PASSWORD="open").ask("get", "k")
        self.assertEqual(wrong["rc"], "not permitted")
        self.assertIn("wrong user name or password, see ETCDCTL_USER and ETCDCTL_PASSWORD", wrong["error"])

        # A new etcd knows no token of the old one.
        self.etcd.signal(signal.SIGKILL)
        self.etcd.popen.wait(DEADLINE)
        self.start_etcd()
        back = joe.until("etcd is back", lambda reply: reply["rc"] == "", "get", "k")
        self.assertEqual(self.first(back)["value"], "v")


class Tls(ClientCase):
    scheme = "https"
    extra = ("--auto-tls",)

    def test_an_unknown_certificate_is_refused(self):
        certificate = pathlib.Path(self.tmp / "etcd" / "fixtures" / "client" / "cert.pem")
        wait_until(certificate.exists, "etcd makes its certificate")
        known = self.client(f"127.0.0.1:{self.port}", ETCDCTL_CACERT=str(certificate))
        self.up(known)
        self.assert_fine(known.ask("put", "k", "v"))

        unknown = self.client().ask("get", "k")
        self.assertEqual(unknown["rc"], "not permitted")
        self.assertRegex(unknown["error"], "certificate.*; see ETCDCTL_CACERT")

        plain = self.client(f"http://127.0.0.1:{self.port}").ask("get", "k")
        self.assertRegex(plain["error"], r"\S; an etcd with TLS is at https://")

        careless = self.client(ETCDCTL_INSECURE_SKIP_TLS_VERIFY="true")
        self.assertEqual(self.first(careless.ask("get", "k"))["value"], "v")


class Plain(ClientCase):
    def test_an_etcd_without_tls_says_so(self):
        self.up(self.client())
        refused = self.client(f"https://127.0.0.1:{self.port}").ask("get", "k")
        self.assertRegex(refused["error"], r"\S; an etcd without TLS is at http://, and one that wants a certificate")


if __name__ == "__main__":
    testlib.main()
