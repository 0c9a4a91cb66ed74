# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a cable: a machine that serves and a stranger. Needs no
privileges where the kernel lets users make namespaces."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from . import lossy_link
from .case import Case
from .wait import DEADLINE, wait_until

SERVER4, STRANGER4 = "10.9.0.1", "10.9.0.2"
SERVER6, STRANGER6 = "fd09::1", "fd09::2"


class TwoMachines:
    """`server` and `stranger` are beginnings of command lines that run a program there."""

    def __init__(self, case):
        self.case = case
        self.server = self._inside("unshare", "--user", "--map-root-user", "--net")
        self.stranger = self._inside(*self.server, "unshare", "--net")
        peer = self.stranger_pid
        self._do(self.server, "ip", "link", "set", "lo", "up")
        self._do(self.server, "ip", "link", "add", "ctveth0", "type", "veth",
                 "peer", "name", "ctveth1", "netns", str(peer))  # fmt: skip
        for where, link, v4, v6 in (
            (self.server, "ctveth0", SERVER4, SERVER6),
            (self.stranger, "ctveth1", STRANGER4, STRANGER6),
        ):
            self._do(where, "ip", "link", "set", link, "up")
            self._do(where, "ip", "addr", "add", f"{v4}/24", "dev", link)
            self._do(where, "ip", "addr", "add", f"{v6}/64", "dev", link, "nodad", may_fail=True)

    def _inside(self, *unshare):
        """Starts a process that holds a new namespace; gives the command line that enters it."""
        try:
            holder = self.case.start(*unshare, "sh", "-c", "echo inside; exec sleep 600")
            holder.wait_for("inside")
        except (OSError, AssertionError) as why:
            raise unittest.SkipTest(f"no network namespaces here: {why}") from None
        self.stranger_pid = holder.pid
        return ("nsenter", "-t", str(holder.pid), "--user", "--preserve-credentials", "--net")

    def _do(self, where, *argv, may_fail=False):
        try:
            done = subprocess.run(
                [*where, *argv], capture_output=True, text=True, timeout=DEADLINE
            )
        except FileNotFoundError as why:
            raise unittest.SkipTest(f"cannot join two namespaces: {why}") from None
        if done.returncode == 0 or may_fail:
            return
        why = f"{' '.join(argv)}: {done.stderr.strip()}"
        # Only what the machine forbids may skip a test; a mistake of ours must not.
        if re.search("not permitted|not supported|No such file|Unknown device type", why):
            raise unittest.SkipTest(f"cannot join two namespaces: {why}")
        raise AssertionError(why)

    def has_ipv6(self):
        """Both ends have their IPv6 address and may use it."""

        def route():
            done = subprocess.run(
                [*self.stranger, "ip", "-6", "addr", "show", "dev", "ctveth1"],
                capture_output=True, text=True, timeout=DEADLINE,
            )  # fmt: skip
            return done.returncode != 0 or "tentative" not in done.stdout and done.stdout

        return STRANGER6 in str(wait_until(route, "the addresses settle"))


class Cluster:
    """Machines with a name and an address each, on one cable: `nodes[i]` is the beginning of a
    command line that runs a program on machine i, `names[i]` and `addresses[i]` are its own."""

    def __init__(self, case, count, real_root=False):
        """With `real_root` they know all users, as sshd(8) needs it."""
        if real_root and os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        self.case = case
        self.names = [f"node-{i + 1}" for i in range(count)]
        self.addresses = [f"10.9.1.{i + 1}" for i in range(count)]
        holder = self._hold("unshare", *([] if real_root else ["--user", "--map-root-user"]), "--net")
        self.enter = () if real_root else ("--user", "--preserve-credentials")
        self.hub = ("nsenter", "-t", str(holder), *self.enter, "--net")
        self._do(self.hub, "ip", "link", "add", "ctbridge", "type", "bridge")
        self._do(self.hub, "ip", "link", "set", "ctbridge", "up")
        self.nodes = [self._add(i) for i in range(count)]

    def _hold(self, *unshare, do="true"):
        try:
            holder = self.case.start(*unshare, "sh", "-c", f"{do} && echo inside; exec sleep 600")
            holder.wait_for("inside")
        except (OSError, AssertionError) as why:
            raise unittest.SkipTest(f"no namespaces here: {why}") from None
        return holder.pid

    def _add(self, i):
        pid = self._hold(*self.hub, "unshare", "--net", "--uts", do=f"hostname {self.names[i]}")
        node = ("nsenter", "-t", str(pid), *self.enter, "--net", "--uts")
        self._do(self.hub, "ip", "link", "add", f"ctport{i}", "type", "veth",
                 "peer", "name", "ctlink", "netns", str(pid))  # fmt: skip
        self._do(self.hub, "ip", "link", "set", f"ctport{i}", "master", "ctbridge", "up")
        self._do(node, "ip", "link", "set", "lo", "up")
        self._do(node, "ip", "link", "set", "ctlink", "up")
        self._do(node, "ip", "addr", "add", f"{self.addresses[i]}/24", "dev", "ctlink")
        return node

    def knowing(self, i, hosts):
        """`nodes[i]` with a file /etc/hosts of its own: the loopback's name, and these lines."""
        path = self.case.tmp / f"hosts-{i}"
        path.write_text(f"127.0.0.1 localhost\n{hosts}\n")
        return (*self.nodes[i], "unshare", "--mount", "sh", "-c",
                f'mount --bind {path} /etc/hosts && exec "$0" "$@"')  # fmt: skip

    def cut(self, i):
        """Pulls the cable of machine i: what is sent to it, and by it, is lost without a word."""
        self._do(self.hub, "ip", "link", "set", f"ctport{i}", "down")

    def join(self, i):
        self._do(self.hub, "ip", "link", "set", f"ctport{i}", "up")

    def worsen(self, delay, loss, seed=1):
        """Joins the first two machines by a cable of that delay (seconds, each way) and loss (a
        share of frames) instead of the good one."""
        cable = self.case.start(*self.hub, sys.executable, lossy_link.__file__, delay, loss, seed)
        try:
            cable.wait_for("cable is there")
        except AssertionError as why:
            raise unittest.SkipTest(f"no tap devices here: {why}") from None
        for i in (0, 1):
            node, device = self.nodes[i], f"ctlossy{i}"
            pid = node[node.index("-t") + 1]
            self._do(self.hub, "ip", "link", "set", device, "netns", pid)
            self._do(node, "ip", "link", "del", "ctlink")
            self._do(node, "ip", "addr", "add", f"{self.addresses[i]}/24", "dev", device)
            self._do(node, "ip", "link", "set", device, "up")

    _do = TwoMachines._do


@unittest.skipUnless(shutil.which("sshd", path="/usr/sbin:/sbin"), "there is no sshd here")
class SshCase(Case):
    """Machines with an sshd each: `self.machines` is a Cluster; `self.agent` are the options that make ctrun use its sshd."""

    def set_up_machines(self, count):
        self.machines = Cluster(self, count, real_root=True)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.tmp / name], check=True
            )
        server = self.script("sshd_config", f"""
            HostKey {self.tmp}/host
            AuthorizedKeysFile {self.tmp}/user.pub
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin yes
            SetEnv HOME={self.tmp}/home
        """)  # fmt: skip
        client = self.script("ssh_config", f"""
            IdentityFile {self.tmp}/user
            IdentitiesOnly yes
            StrictHostKeyChecking no
            UserKnownHostsFile /dev/null
            LogLevel ERROR
        """)  # fmt: skip
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation insists on it
        for node in self.machines.nodes:
            sshd = self.start(*node, "/usr/sbin/sshd", "-D", "-e", "-f", server)
            self.addCleanup(sshd.popen.kill)  # its title stands where its environment was
            sshd.wait_for("listening on")
        self.agent = ("--launch-agent", f"ssh -F {client}")
