# SPDX-License-Identifier: Apache-2.0
"""The one file that says what was seen: whole at every moment, whatever happens to who writes it.

Everything that is planned stands in it from the start as "not reached". Each change replaces the file
by a new one, so that a reader finds the one before or the one after, and never a half of it. A disk that
is full for a while loses nothing: the next change writes all of it again.
"""

import contextlib
import json
import os
import sys
import threading
import time

# What can be said of an item. Only "failed" is bad news about the code.
STATUSES = (
    "not reached",  # nothing was tried
    "running",  # it was under way when this file was written
    "passed", "failed",
    "unfinished",  # stopped by its time limit or from outside, or by a failure of a tool that it runs
                   # under; results so far are there
    "skipped",  # it said itself that it cannot run here
    "left out",  # not tried: not built, not installed, or no time was left for it
)  # fmt: skip


def create(path):
    """Opens a new file for writing, in place of what has its name, and never what a link of that name
    points to: others may be able to write into the folder."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    return open(fd, "w", encoding="utf-8")  # noqa: SIM115 the caller closes it


def say(*words, **how):
    """Prints for a person who may have stopped listening: the results are in the files."""
    try:
        print(*words, flush=True, **how)
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 for the rest of the process


class Report:
    def __init__(self, path, **head):
        self.path, self.lock, self.lost = path, threading.RLock(), False
        self.started = time.monotonic()
        self.data = {"format": 1, "state": "running", **head, "build": {}, "items": []}

    def write(self):
        """Writes all of it. OSError."""
        self.data["elapsed_s"] = round(time.monotonic() - self.started, 3)
        text = json.dumps(self.data, indent=1, allow_nan=False) + "\n"
        with create(f"{self.path}.tmp") as f:
            f.write(text)
        os.replace(f"{self.path}.tmp", self.path)

    def save(self):
        with self.lock:
            try:
                self.write()
                self.lost = False
            except OSError as why:
                if not self.lost:
                    print(f"gpu-check: {why}; going on, the next result tries again", file=sys.stderr)
                self.lost = True

    def set(self, **values):
        with self.lock:
            self.data.update(values)
            self.save()

    def plan(self, items):
        """Adds items, each a dictionary with a name, as not reached; gives what stands for them."""
        with self.lock:
            made = [{**item, "status": "not reached"} for item in items]
            self.data["items"] += made
            self.save()
            return made

    def replace(self, old, items):
        """Puts items in the place of one that stood for all of them."""
        with self.lock:
            at = self.data["items"].index(old)
            made = [{**item, "status": "not reached"} for item in items]
            self.data["items"][at : at + 1] = made
            self.save()
            return made

    def update(self, item, **values):
        assert values.get("status", "passed") in STATUSES
        with self.lock:
            item.update(values)
            self.save()

    def add(self, item, key, value):
        """Appends to a list of the item."""
        with self.lock:
            item.setdefault(key, []).append(value)
            self.save()

    def named(self, name):
        """The rows of an item, none if there is no such item."""
        return [row for item in self.data["items"] if item["name"] == name for row in item.get("rows", [])]

    def with_status(self, status):
        return [item for item in self.data["items"] if item["status"] == status]
