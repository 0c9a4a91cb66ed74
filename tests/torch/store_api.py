# SPDX-License-Identifier: Apache-2.0
"""Every call of PyTorch's TCPStore client that its version has, against the store at argv[1].
Written from the documentation of the calls: what a program may rely on, whoever serves it."""

import datetime
import sys
import threading

import torch.distributed as dist

PORT = int(sys.argv[1])
SECOND = datetime.timedelta(seconds=1)
LONG = datetime.timedelta(seconds=20)


def connect(timeout=LONG):
    return dist.TCPStore("127.0.0.1", PORT, is_master=False, timeout=timeout)


def raises(call, *arguments):
    try:
        call(*arguments)
    except RuntimeError:
        return
    raise AssertionError(f"{call} should have timed out")


def basics(store):
    store.set("key", "value")
    assert store.get("key") == b"value"
    store.set("key", "")
    assert store.get("key") == b""
    store.set("bytes", bytes(range(256)) * 4096)
    assert store.get("bytes") == bytes(range(256)) * 4096
    assert store.add("counter", 5) == 5
    assert store.add("counter", -7) == -2
    assert store.get("counter") == b"-2"
    keys = store.num_keys()
    assert store.delete_key("key") is True
    assert store.delete_key("key") is False
    assert store.num_keys() == keys - 1


def compare_and_set(store):
    assert store.compare_set("cas", "", "first") == b"first"
    assert store.compare_set("cas", "other", "second") == b"first"
    assert store.compare_set("cas", "first", "second") == b"second"
    assert store.compare_set("absent", "x", "y") == b"x"
    assert store.get("cas") == b"second"


def waiting(store):
    # A wait that fails leaves the connection usable, twice in a row.
    for _ in range(2):
        raises(store.wait, ["never"], SECOND / 5)
    assert store.add("after-timeout", 1) == 1
    store.delete_key("after-timeout")

    def late():
        other = connect()
        other.set("late-1", "a")
        other.set("late-2", "b")

    thread = threading.Timer(0.2, late)
    thread.start()
    store.wait(["late-1", "late-2"], LONG)
    assert store.get("late-2") == b"b"
    thread.join()


def prefixes(store):
    inner = dist.PrefixStore("p", store)
    inner.set("k", "v")
    assert inner.get("k") == b"v"
    assert store.get("p/k") == b"v"


def newer_calls(store):
    """What PyTorch 2.1 and later add."""
    assert store.check(["cas"]) and not store.check(["cas", "nowhere"])
    store.append("log", "a")
    store.append("log", "b")
    assert store.get("log") == b"ab"
    store.multi_set(["m1", "m2"], ["1", "2"])
    assert list(store.multi_get(["m2", "m1"])) == [b"2", b"1"]


def main():
    store = connect()
    basics(store)
    compare_and_set(store)
    waiting(store)
    prefixes(store)
    if hasattr(store, "multi_get"):
        newer_calls(store)
    raises(connect(SECOND).get, "never")
    print("store ok", dist.__name__, flush=True)


main()
