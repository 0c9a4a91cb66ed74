# SPDX-License-Identifier: Apache-2.0
"""Processes with a deadline. Output goes to files, so that no full pipe can block a child, and each
process carries a cookie in its environment that its descendants inherit: what is left of a job is
found by the cookie even when it was re-parented."""

import os
import pathlib
import signal
import subprocess
import time
import uuid

from .wait import DEADLINE, wait_until

COOKIE = "CTRUN_TEST_COOKIE"

# Whoever started the tests (nohup, a shell's background) may ignore these, and children inherit it.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# A launcher above the test (or a user's shell) must not leak into the job under test.
_FOREIGN_PREFIXES = (
    "TORCHELASTIC_", "TORCH_ELASTIC_", "PET_", "CTRUN_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "PALS_",
    "MPI_LOCAL", "MV2_COMM_", "FLUX_", "HOROVOD_", "TPU_WORKER_", "MEGASCALE_",
)  # fmt: skip
_FOREIGN = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
    "LOGLEVEL", "PYTHON_EXEC", "NODE_RANK", "NNODES", "CROSS_RANK", "CROSS_SIZE", "PBS_NODEFILE",
    "LSB_DJOB_HOSTFILE", "JOB_COMPLETION_INDEX", "TORCHX_RANK0_HOST",
}  # fmt: skip


def anonymous_bytes(pid):
    """The memory that a process has touched and that is no file's. The resident set in /proc/PID/status is
    rounded by up to 128 KiB a processor, and grows by 64 KiB where a piece of code runs for the first time."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))


def clean_environment():
    return {
        k: v
        for k, v in os.environ.items()
        if k not in _FOREIGN and not k.startswith(_FOREIGN_PREFIXES)
    }


_PF_KTHREAD = 0x00200000  # linux/sched.h


def _stat(pid):
    """The fields of /proc/PID/stat behind the name (state, ppid, ...), [] when there is none."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def pid_alive(pid):
    """True while the process runs; a zombie counts as gone (only its parent can still see it)."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def descriptors_of(pid):
    """How many it has open, but for the kernel's log, which ctrun opens when its workers run."""
    count = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(fd) != "/dev/kmsg"
        except FileNotFoundError:
            pass  # closed since
    return count


def zombies_of(pid):
    """Children of the process that have ended and that it has not reaped."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if _stat(child)[:1] == ["Z"]:
                found.append(int(child))
    return found


def _environment(pid):
    """The raw environment, b"" when the process has none or is gone. In the middle of an exec it
    reads as empty too, so an empty answer is asked again before it is believed."""
    data = b""
    for _ in range(20):
        try:
            data = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return b""
        fields = _stat(pid)
        if data or not fields or fields[0] in ("Z", "X") or int(fields[6]) & _PF_KTHREAD:
            break
        time.sleep(0.0005)
    return data


def cookie_pids(cookie):
    """Pids of the living processes that carry this cookie."""
    needle = f"{COOKIE}={cookie}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if needle in _environment(pid).split(b"\0") and pid_alive(pid):
            found.append(pid)
    return found


class Result:
    """How a process ended. `code` is negative for a signal, as in subprocess."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    def __repr__(self):
        return (
            f"{' '.join(self.argv)}\n  code {self.code}\n--- stdout ---\n{self.out}"
            f"\n--- stderr ---\n{self.err}"
        )


class Proc:
    """A running process. `env` entries are added to a clean environment (None removes one)."""

    def __init__(self, argv, folder, env=None, cwd=None, stdin=subprocess.DEVNULL, preexec=None):
        self.argv = [str(a) for a in argv]
        self.cookie = uuid.uuid4().hex
        base = pathlib.Path(folder) / f"proc-{self.cookie[:8]}"
        self.out_path, self.err_path = base.with_suffix(".out"), base.with_suffix(".err")
        environment = clean_environment()
        environment[COOKIE] = self.cookie
        for name, value in (env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = str(value)
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(
                self.argv, stdin=stdin, stdout=out, stderr=err, cwd=cwd, env=environment,
                preexec_fn=preexec,
            )  # fmt: skip
        self.pid = self.popen.pid

    @property
    def out(self):
        return self.text(self.out_path)

    @property
    def err(self):
        return self.text(self.err_path)

    def text(self, path):
        """While it runs only whole lines: the last one may have been read while it was written."""
        running = self.running()
        text = path.read_text(errors="replace")
        return text[: text.rfind("\n") + 1] if running else text

    def result(self):
        return Result(self.argv, self.popen.returncode, self.out, self.err)

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, deadline=DEADLINE):
        """Waits for the end; past the deadline kills the whole job and fails with its output."""
        try:
            self.popen.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {deadline} s: {self.result()}") from None
        return self.result()

    def wait_for(self, text, deadline=DEADLINE, meanwhile=lambda: None):
        """Waits until `text` stands in its stdout or stderr; returns the line that holds it. Calls `meanwhile` before
        each look."""

        def line():
            meanwhile()
            running = self.running()
            for text_line in (self.out + "\n" + self.err).splitlines():
                if text in text_line:
                    return text_line
            if not running:
                raise AssertionError(f"ended without printing {text!r}: {self.result()}")
            return None

        return wait_until(line, f"{text!r} from {self.argv[0]}", deadline)

    def family(self):
        """Living processes of the job, itself included."""
        return cookie_pids(self.cookie)

    def wait_no_family(self, deadline):
        wait_until(
            lambda: not self.family(), f"no process of {' '.join(self.argv)} is left", deadline
        )

    def kill(self):
        """Ends the process and everything that it started."""
        for _ in range(100):
            left = self.family()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.popen.poll()
        self.popen.wait(DEADLINE)
