# SPDX-License-Identifier: Apache-2.0
"""An etcd of any version, by the path of its binary, also one in the root of another Debian."""

import pathlib
import signal
import subprocess

from testlib import wait_until

PORT, PEER_PORT = 2379, 2380
PATIENCE = 60


class NoEtcd(Exception):
    """Why it cannot be run."""


class Binary:
    def __init__(self, path):
        self.path = pathlib.Path(path).absolute()
        if not self.path.is_file():
            raise NoEtcd(f"{self.path} is not there")
        self.command = self._with_loader() or [self.path]
        done = self._version()
        if done.returncode != 0 or not done.stdout.startswith("etcd Version: "):
            raise NoEtcd(f"{self.path} does not run: {(done.stderr or done.stdout).strip()}")
        self.version = done.stdout.splitlines()[0].removeprefix("etcd Version: ")

    def _with_loader(self):
        """Below another root than this system's it needs that root's C library, and the loader that belongs to it."""
        if not self.path.match("*/usr/bin/*") or self.path.parents[2] == pathlib.Path("/"):
            return None
        root = self.path.parents[2]
        for loader in sorted(root.glob("usr/lib/*/ld-linux*.so.*")) + sorted(root.glob("lib/*/ld-linux*.so.*")):
            return [loader, "--library-path", loader.parent, self.path]
        return None

    def _version(self):
        try:
            return subprocess.run(
                [*self.command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as why:
            raise NoEtcd(f"{self.path} does not run: {why}") from None

    def place(self, case, cluster, machine):
        return Etcd(self, case, cluster, machine)


class Etcd:
    """One member on a machine of its own. Its data stay when it is killed: with --unsafe-no-fsync some versions would
    lose what they have answered."""

    def __init__(self, binary, case, cluster, machine):
        self.binary, self.case, self.node = binary, case, cluster.nodes[machine]
        self.address = cluster.addresses[machine]
        self.endpoint = f"{self.address}:{PORT}"
        self.proc = None

    def start(self):
        client, peer = f"http://{self.endpoint}", f"http://{self.address}:{PEER_PORT}"
        self.proc = self.case.start(
            *self.node, *self.binary.command, "--name", "t", "--data-dir", self.case.tmp / "etcd",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"t={peer}",
        )  # fmt: skip
        wait_until(self._is_ready, f"etcd {self.binary.version} is ready: see {self.proc.err_path}", PATIENCE)

    def _is_ready(self):
        if not self.proc.running():
            raise NoEtcd(f"etcd has ended: {self.proc.result()}")
        return "ready to serve client requests" in self.proc.err

    def kill(self):
        self.proc.signal(signal.SIGKILL)
        self.proc.popen.wait(PATIENCE)
