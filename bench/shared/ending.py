# SPDX-License-Identifier: Apache-2.0
"""Leaves nothing of a benchmark behind, whatever ends the benchmark."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

PATIENCE = 30  # seconds for a launcher to end its workers


def on_signals():
    """`timeout` and a terminal that is closed end this program as Ctrl-C does: it ends what it has started."""
    for signo in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signo, lambda number, _: sys.exit(128 + number))


def descendants(pid):
    """The pids below this process."""
    found = []
    for tasks in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, tasks.read_text().split()):
                found += [child, *descendants(child)]
    return found


def environment(pid):
    """The entries of its environment; none if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def marked(mark):
    """The pids of the processes that have this entry, `NAME=value`, in their environment."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if os.fsencode(mark) in environment(pid)]


def end(proc, patience=PATIENCE):
    """Ends a launcher, whatever it does, and then its workers: those of torchrun outlive it when it is killed."""
    family = []
    for pid in descendants(proc.pid):
        with contextlib.suppress(ProcessLookupError):
            family.append(os.pidfd_open(pid))  # a pid alone could be that of another process by then
    proc.terminate()
    try:
        proc.wait(patience)
    except subprocess.TimeoutExpired:
        proc.kill()
        proc.wait(PATIENCE)
    finally:
        for process in family:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)
