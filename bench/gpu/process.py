# SPDX-License-Identifier: Apache-2.0
"""Runs a program with a time limit and shows its lines as they come. Nothing of it is left afterwards."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
import time

# Seconds that a program gets to end by itself after its limit, and that is waited for output of
# processes which it has left behind.
GRACE, LEFTOVERS = 3, 0.5

_running = set()
_lock = threading.Lock()


class Ended:
    """How a program ended: `code` is negative for a signal, and None if it could not be started."""

    def __init__(self, code, timed_out, seconds, lines):
        self.code, self.timed_out, self.seconds, self.lines = code, timed_out, seconds, lines


def _signal_group(process, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _has_ended(process):
    """Without taking its number away from it, which is also its group's."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _lines_until(process, deadline):
    """Yields lines. Asks the program to end at the deadline, and makes it end soon after."""
    fd, rest, asked, ended_at = process.stdout.fileno(), b"", False, None
    while True:
        now = time.monotonic()
        if now >= deadline and not asked:
            asked = True
            _signal_group(process, signal.SIGTERM)
        if now >= deadline + GRACE:
            break
        if ended_at is None and _has_ended(process):
            ended_at = now
        if ended_at is not None and now >= ended_at + LEFTOVERS:
            break
        if select.select([fd], [], [], 0.1)[0]:
            data = os.read(fd, 1 << 16)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def tied(argv):
    """The command so that it does not outlive this process, which may be killed at any moment."""
    return [*(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []), *map(str, argv)]


def run(argv, limit, on_line=None, env=None, cwd=None):
    """`on_line` gets each line of the standard output and error. At most `limit` seconds."""
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            tied(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, bufsize=0, cwd=cwd, env={**os.environ, **(env or {})},
            start_new_session=True,
        )  # fmt: skip
    except OSError as why:
        return Ended(None, False, 0.0, [str(why)])
    with _lock:
        _running.add(process)
    lines = []
    try:
        for line in _lines_until(process, started + limit):
            lines.append(line)
            if on_line is not None:
                on_line(line)
        # One that closes its output and goes on has the same limit.
        while not _has_ended(process) and time.monotonic() < started + limit:
            time.sleep(0.01)
    finally:
        with _lock:
            _running.discard(process)
        _signal_group(process, signal.SIGKILL)
        process.stdout.close()
        process.wait()
    seconds = time.monotonic() - started
    return Ended(process.returncode, seconds >= limit, seconds, lines)


def kill_all():
    """Ends what runs in other threads."""
    with _lock:
        for process in _running:
            _signal_group(process, signal.SIGKILL)
