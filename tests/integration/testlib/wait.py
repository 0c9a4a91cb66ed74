# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition."""

import time

# Seconds. Generous: only what hangs may reach it, and a loaded machine of two slow cores may take ten times
# as long as a free one.
DEADLINE = 120


def wait_until(condition, what, deadline=DEADLINE):
    """Polls until `condition()` is true and returns its value; AssertionError names `what`."""
    end = time.monotonic() + deadline
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"{what}: not within {deadline} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
