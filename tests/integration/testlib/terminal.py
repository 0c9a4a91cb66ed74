# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, and the other end of that."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from .proc import clean_environment
from .wait import DEADLINE


def _take_terminal():
    os.setsid()
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)


class Terminal:
    """Starts `argv` with the terminal as its standard output and error, and as its input too when
    `interactive`. `env` entries are added to a clean environment."""

    def __init__(self, *argv, env=None, cwd=None, interactive=False, size=(24, 80)):
        self.fd, inside = pty.openpty()
        self.seen = b""
        self.resize(*size)
        self.proc = subprocess.Popen(
            [str(a) for a in argv], cwd=cwd, stdin=inside if interactive else subprocess.DEVNULL,
            stdout=inside, stderr=inside, env={**clean_environment(), **(env or {})},
            preexec_fn=_take_terminal if interactive else None,
        )  # fmt: skip
        os.close(inside)

    def close(self):
        self.proc.kill()
        self.proc.wait(DEADLINE)
        os.close(self.fd)

    def write(self, text):
        os.write(self.fd, text.encode())

    def _read(self, deadline):
        """False at the end: the last one has closed the other side."""
        if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing more than {self.seen[-2000:]!r}")
        try:
            piece = os.read(self.fd, 65536)
        except OSError:
            piece = b""
        self.seen += piece
        return piece != b""

    def read_until(self, text):
        """All that was shown so far, up to `text` at least."""
        deadline = time.monotonic() + DEADLINE
        while text.encode() not in self.seen:
            if not self._read(deadline):
                raise AssertionError(f"no {text!r} in {self.seen!r}")
        return self.text()

    def read_until_more(self):
        """Waits for more to be shown."""
        if not self._read(time.monotonic() + DEADLINE):
            raise AssertionError(f"the end after {self.seen[-2000:]!r}")

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_all(self):
        """All that was shown, up to its end."""
        deadline = time.monotonic() + DEADLINE
        while self._read(deadline):
            pass
        return self.text()

    def text(self):
        return self.seen.decode(errors="replace").replace("\r\n", "\n")
