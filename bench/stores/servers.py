# SPDX-License-Identifier: Apache-2.0
"""The servers that bench/store.py compares, each on a port of its own, and what runs against them."""

import contextlib
import json
import os
import pathlib
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 120


def raise_descriptors():
    """Takes all descriptors that this machine allows; returns their number."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


# Servers have one core. A client that takes turns with its server is put on the same one: the sum of
# their CPU time is then what counts, and not how long an idle core needs to wake up.
SERVER_CORE, SAME_CORE, OTHER_CORE = 0, 0, 1


def pin(pid, core):
    cores = sorted(os.sched_getaffinity(pid))
    os.sched_setaffinity(pid, {cores[core % len(cores)]})


@contextlib.contextmanager
def urgent(pid):
    """Before all other programs of this machine, where we may: for short measurements only."""
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass
    try:
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def read_line(process, what):
    ready, _, _ = select.select([process.stdout], [], [], TIMEOUT)
    line = process.stdout.readline().strip() if ready else ""
    if not line:
        raise RuntimeError(f"{what} said nothing (exit code {process.poll()})")
    return line


class Server:
    """A running server: `port`, `pid`."""

    def __init__(self, name, command, port=None, **kwargs):
        self.name = name
        self.process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **kwargs
        )
        self.pid = self.process.pid
        pin(self.pid, SERVER_CORE)
        self.port = port or int(read_line(self.process, name))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def cpu_seconds(self):
        """CPU time of all its threads so far."""
        threads = pathlib.Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def anonymous_bytes(self):
        """Memory that the process itself allocated and touched."""
        for line in pathlib.Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no memory figure")


class Bench:
    """All servers and clients of one run; everything ends with it."""

    def __init__(self, build, venv, descriptors):
        self.build = build
        self.python = venv / "bin" / "python"
        self.descriptors = descriptors
        self.running = contextlib.ExitStack()
        self.servers = {}

    def close(self):
        self.running.close()

    def add(self, name, *args, **kwargs):
        server = Server(name, *args, **kwargs)
        self.running.callback(server.stop)
        self.servers[name] = server
        return server

    # ---- servers --------------------------------------------------------------------------------

    def store(self, name="ctrdzvd"):
        """--ready-fd 1: the port comes as the first line of its output."""
        return self.add(
            name, [self.build / "ctrdzvd", "--port", "0", "--ready-fd", "1"], stderr=subprocess.DEVNULL
        )

    def watched(self, name, workers, viewers):
        """A store with a job of so many workers and viewers of its live page; False without HTTP."""
        server = self.store(name)
        process = subprocess.Popen(
            [sys.executable, HERE / "viewers.py", str(server.port), str(workers), str(viewers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.running.callback(process.wait)
        self.running.callback(process.kill)
        pin(process.pid, OTHER_CORE)
        try:
            return read_line(process, "bench/stores/viewers.py") == "ready"
        except RuntimeError:
            return False

    def floor_uv(self, name, *args):
        return self.add(name, [self.build / "bench" / "programs" / "bench-floor-uv", *args])

    def floor_epoll(self, name):
        return self.add(name, [self.build / "bench" / "programs" / "bench-floor-epoll"])

    def redis(self, name):
        """False when Redis is not installed."""
        program = shutil.which("redis-server")
        if program is None:
            return False
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        options = {
            "port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "daemonize": "no",
            "tcp-backlog": 65535, "maxclients": self.descriptors - 64,
            # It would refuse 127.0.0.2 otherwise, and 127.0.0.1 alone has too few ports.
            "protected-mode": "no",
        }  # fmt: skip
        command = [program, *(part for key, value in options.items() for part in (f"--{key}", str(value)))]
        self.add(name, command, port=port)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return True
            except ConnectionRefusedError:
                if time.monotonic() > deadline or self.servers[name].process.poll() is not None:
                    raise
                time.sleep(0.02)

    def torch(self, store, client):
        """PyTorch's own daemon, and one client process for all; False without PyTorch."""
        if not self.python.exists():
            return False
        script = HERE / "torch_side.py"
        self.add(store, [*self.without_dns(), self.python, script, "serve"], stderr=subprocess.DEVNULL)
        process = subprocess.Popen(
            [self.python, script, "client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.running.callback(process.wait)
        self.running.callback(process.kill)
        read_line(process, client)
        pin(process.pid, SAME_CORE)
        self.torch_client = process
        return True

    def without_dns(self):
        """PyTorch's daemon asks the resolver for the name of each peer, and serves nobody until that
        answers. This gives it a resolver that answers at once, where we may."""
        folder = self.running.enter_context(tempfile.TemporaryDirectory(prefix="ctrun-bench-"))
        names = pathlib.Path(folder) / "nsswitch.conf"
        names.write_text("hosts: files\n")
        mount = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/nsswitch.conf && exec "$@"', str(names)]
        self.torch_storms = subprocess.run([*mount, "true"], capture_output=True).returncode == 0
        return mount if self.torch_storms else []

    # ---- clients --------------------------------------------------------------------------------

    def load_command(self, server, mode, core=OTHER_CORE, **options):
        target = self.servers[server]
        command = [self.build / "bench" / "programs" / "bench-load", mode, "--port", target.port, "--server-pid", target.pid]
        for key, value in options.items():
            command += [f"--{key}"] if value is True else [f"--{key}", value]
        return [str(part) for part in command], (lambda: pin(0, core))

    def load(self, server, mode, **options):
        """Runs the generator against a server; returns its figures."""
        return self.run_load(*self.load_command(server, mode, **options))

    def run_load(self, command, setup):
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT + 10, preexec_fn=setup)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command[1:])}: {run.stderr.strip()}")
        return json.loads(run.stdout)

    def idle_bytes(self, connections):
        """Bytes of memory that each idle connection costs a fresh store."""
        server = self.store("idle")
        before = server.anonymous_bytes()
        command, setup = self.load_command("idle", "idle", connections=connections)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=setup
        ) as client:
            read_line(client, "bench-load idle")
            bytes_each = (server.anonymous_bytes() - before) / connections
            client.stdin.close()
            client.wait(TIMEOUT)
        server.stop()
        return bytes_each

    def load_first(self, server, mode, **options):
        """As load(), before other programs: a pause that one of those causes is no finding."""
        command, pin_core = self.load_command(server, mode, **options)
        with urgent(self.servers[server].pid), urgent(0):
            return self.run_load(command, pin_core)

    def ask_torch(self, server, operation, seconds):
        """What PyTorch's client found: operations per second, and the server's CPU time for one."""
        client, target = self.torch_client, self.servers[server]
        cpu = target.cpu_seconds()
        client.stdin.write(f"{target.port} {operation} {seconds}\n")
        client.stdin.flush()
        per_second, count = map(float, read_line(client, "PyTorch's client").split())
        return {"value": per_second, "cpu_us": (target.cpu_seconds() - cpu) / count * 1e6}


def require(program):
    if not program.exists():
        sys.exit(f"{program} is missing: run tools/bench, which builds it")
