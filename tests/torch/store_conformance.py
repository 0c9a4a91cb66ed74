# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own client sees of the empty store at port argv[1], one function for each promise.

    store_conformance.py PORT [own]

Written from the documentation of the calls: what a program may rely on, whoever serves it. `own`
says that PyTorch serves, whose oldest versions fall short of a few. Each function gets a connection
of its own and keys of its own. Calls that this version of PyTorch lacks are skipped, and said."""

import datetime
import sys
import threading
import traceback

import torch
import torch.distributed as dist

PORT = int(sys.argv[1])
OWN = "own" in sys.argv[2:]
# Before 2.2: no cancelled waits, and a server without limits.
LEGACY = not hasattr(dist.TCPStore, "multi_get")

SHORT = datetime.timedelta(milliseconds=200)
LONG = datetime.timedelta(seconds=20)
MIB = 1024 * 1024
CHECKS = []


class Skip(Exception):
    """Why a check has nothing to say here."""


def conformance(*needed):
    """Registers a check that needs these calls of TCPStore."""

    def register(function):
        CHECKS.append((function, needed))
        return function

    return register


def connect(timeout=LONG):
    store = dist.TCPStore("127.0.0.1", PORT, is_master=False, timeout=LONG)
    store.set_timeout(timeout)  # after the connect, which gets its time in whole seconds in 1.13
    return store


def same(got, expected, what):
    if got != expected:
        raise AssertionError(f"{what}: got {str(got)[:200]}, expected {str(expected)[:200]}")


def raises(call, what, kind=RuntimeError):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{what}: nothing was raised, expected {kind.__name__}")


def usable(store, key):
    """The connection still pairs requests with their answers."""
    same(store.add(key, 3), 3, "add after a failed call")
    store.set(key, "fine")
    same(store.get(key), b"fine", "get after a failed call")


class Background:
    """A call in a thread; pending() and result() look at it."""

    def __init__(self, call):
        self.value = self.error = None
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()

    def _run(self, call):
        try:
            self.value = call()
        except BaseException as error:  # noqa: B902, told by result()
            self.error = error

    def still_pending(self, what):
        self.thread.join(SHORT.total_seconds())
        if not self.thread.is_alive():
            raise AssertionError(f"{what}: returned at once with {self.value!r}, {self.error!r}")

    def result(self, what):
        self.thread.join(2 * LONG.total_seconds())
        if self.thread.is_alive():
            raise AssertionError(f"{what}: never returned")
        if self.error is not None:
            raise AssertionError(f"{what}: raised {self.error!r}")
        return self.value


@conformance("set", "get")
def set_and_get(store):
    store.set("sg/text", "value")
    same(store.get("sg/text"), b"value", "what was set")
    store.set("sg/text", "other")
    same(store.get("sg/text"), b"other", "what was set over an older value")
    store.set("sg/empty", "")
    same(store.get("sg/empty"), b"", "an empty value")
    every_byte = bytes(range(256)) * 16
    store.set("sg/bytes", every_byte)
    same(store.get("sg/bytes"), every_byte, "a value of every byte")
    store.set("sg/k\u00e9y with blanks/\n", "odd")
    same(connect().get("sg/k\u00e9y with blanks/\n"), b"odd", "an odd key seen by another client")


@conformance("get")
def get_waits_for_the_key(store):
    reader = Background(lambda: connect().get("gw/late"))
    reader.still_pending("get of a missing key")
    store.set("gw/late", "here")
    same(reader.result("get of a key set later"), b"here", "the value of a key set later")
    raises(lambda: connect(SHORT).get("gw/never"), "get of a key that nobody sets")


@conformance("add")
def add(store):
    same(store.add("add/n", 5), 5, "add to a missing key")
    same(store.add("add/n", -7), -2, "add of a negative number")
    same(store.add("add/n", 0), -2, "add of nothing")
    same(store.get("add/n"), b"-2", "the counter as text")
    store.set("add/n", "41")
    same(store.add("add/n", 1), 42, "add to a number that was set as text")
    same(store.add("add/big", 2**62), 2**62, "add of a large number")


@conformance("compare_set")
def compare_set_missing_and_nothing_expected(store):
    same(store.compare_set("cs/1", "", "new"), b"new", "the reply is the desired value")
    same(store.get("cs/1"), b"new", "the desired value was stored")


@conformance("compare_set")
def compare_set_missing_and_something_expected(store):
    before = store.num_keys()
    same(store.compare_set("cs/2", "old", "new"), b"old", "the reply echoes the expected value")
    same(store.num_keys(), before, "no key was made")


@conformance("compare_set")
def compare_set_present_and_equal(store):
    store.set("cs/3", "old")
    same(store.compare_set("cs/3", "old", "new"), b"new", "the reply is the desired value")
    same(store.get("cs/3"), b"new", "the desired value was stored")


@conformance("compare_set")
def compare_set_present_and_different(store):
    store.set("cs/4", "old")
    same(store.compare_set("cs/4", "other", "new"), b"old", "the reply is the present value")
    same(store.compare_set("cs/4", "", "new"), b"old", "the same when nothing was expected")
    same(store.get("cs/4"), b"old", "the value was left alone")


@conformance("check")
def check(store):
    store.set("check/here", "")
    same(store.check(["check/here"]), True, "check of a key, its value being empty")
    same(store.check(["check/gone"]), False, "check of a missing key")
    same(store.check(["check/here", "check/gone"]), False, "check of one of each")
    same(store.check(["check/here", "check/here"]), True, "check of one key twice")
    same(store.check([]), True, "check of no keys")


@conformance("wait")
def wait(store):
    store.set("wait/1", "a")
    store.wait(["wait/1"], LONG)
    waiter = Background(lambda: connect().wait(["wait/1", "wait/2", "wait/3"], LONG))
    store.set("wait/2", "b")
    waiter.still_pending("wait for three keys of which two are there")
    same(store.add("wait/3", 1), 1, "add of the last key")
    waiter.result("wait for three keys")


@conformance("wait")
def wait_times_out_and_the_connection_lives(store):
    kind = getattr(dist, "DistStoreError", RuntimeError)
    for turn in ("first", "second"):
        raises(lambda: store.wait(["wt/never"], SHORT), f"{turn} wait for a missing key", kind)
        usable(store, f"wt/{turn}")
    raises(lambda: connect(SHORT).wait(["wt/never"]), "wait with the store's own timeout", kind)


@conformance("wait")
def a_wait_that_timed_out_is_forgotten(store):
    if LEGACY and OWN:
        raise Skip("this version's own server answers it when the key comes")
    raises(lambda: store.wait(["wf/late"], SHORT), "wait for a missing key")
    # 1.13 cancels nothing: the server learns from this request that nobody waits any more.
    same(store.add("wf/other", 1), 1, "add after the wait")
    connect().set("wf/late", "x")
    same(connect().get("wf/late"), b"x", "the key that came too late")
    usable(store, "wf/after")


@conformance("set_timeout")
def set_timeout(store):
    store.set_timeout(SHORT)
    raises(lambda: store.get("st/never"), "get under a short set_timeout")
    usable(store, "st/after")


@conformance("delete_key")
def delete(store):
    store.set("delete/k", "v")
    same(store.delete_key("delete/k"), True, "delete of a key")
    same(store.delete_key("delete/k"), False, "delete of a key that is gone")
    same(store.add("delete/k", 1), 1, "add after delete starts from nothing")


@conformance("num_keys")
def num_keys(store):
    before = store.num_keys()
    store.set("num/1", "")
    store.add("num/2", 1)
    store.set("num/1", "again")
    same(store.num_keys(), before + 2, "number of keys after two were made")
    store.delete_key("num/1")
    same(store.num_keys(), before + 1, "number of keys after one was deleted")


@conformance("append")
def append(store):
    store.append("append/log", "a")
    store.append("append/log", "bc")
    store.append("append/log", "")
    same(store.get("append/log"), b"abc", "three appends")
    same(store.has_extended_api(), True, "has_extended_api")


@conformance("multi_get", "multi_set")
def multi_get_and_multi_set(store):
    store.multi_set(["m/1", "m/2", "m/3"], ["1", "", "three"])
    got = list(store.multi_get(["m/3", "m/1", "m/2", "m/1"]))
    same(got, [b"three", b"1", b"", b"1"], "four values in the order asked for")
    keys = [f"m/many/{i}" for i in range(5000)]
    store.multi_set(keys, [str(i) for i in range(5000)])
    same(list(store.multi_get(keys)), [b"%d" % i for i in range(5000)], "5,000 values at once")
    reader = Background(lambda: list(connect().multi_get(["m/1", "m/late"])))
    reader.still_pending("multi_get with a missing key")
    store.multi_set(["m/late"], ["x"])
    same(reader.result("multi_get of a late key"), [b"1", b"x"], "values with a late key")


@conformance("clone")
def clone(store):
    twin = store.clone()
    store.set("clone/k", "v")
    same(twin.get("clone/k"), b"v", "what the clone reads")
    waiter = Background(lambda: twin.wait(["clone/late"], LONG))
    waiter.still_pending("wait of the clone")
    store.set("clone/late", "v")
    waiter.result("the clone's wait, ended by the original")


@conformance("queue_push", "queue_pop", "queue_len")
def queues(store):
    same(store.queue_len("q/1"), 0, "length of a queue that does not exist")
    raises(lambda: store.queue_pop("q/1", block=False), "pop of nothing", dist.QueueEmptyError)
    keys = store.num_keys()
    for item in ("a", "", "c"):
        store.queue_push("q/1", item)
    same(store.queue_len("q/1"), 3, "length after three pushes")
    same(store.num_keys(), keys, "queues are no keys")
    same(store.check(["q/1"]), True, "a queue with something in it exists")
    got = [store.queue_pop("q/1", block=False), store.queue_pop("q/1"), store.queue_pop("q/1")]
    same(got, [b"a", b"", b"c"], "items in the order they were pushed")
    same(store.check(["q/1"]), False, "an emptied queue does not exist")
    same(store.queue_len("q/1"), 0, "length of an emptied queue")


@conformance("queue_push", "queue_pop")
def a_pop_blocks_until_a_push(store):
    popper = Background(lambda: connect().queue_pop("q/2"))
    popper.still_pending("pop of an empty queue")
    store.queue_push("q/2", "item")
    same(popper.result("pop after a push"), b"item", "the item popped")
    short = connect(SHORT)
    raises(lambda: short.queue_pop("q/2"), "pop of a queue that nobody feeds")
    usable(short, "q/after")


@conformance("list_keys")
def list_keys(store):
    store.set("list/a", "1")
    store.add("list/b", 1)
    keys = store.list_keys()
    same(len(keys), len(set(keys)), "each key once")
    mine = sorted(key for key in keys if key.startswith("list/"))
    same(mine, ["list/a", "list/b"], "the keys of this check")


@conformance("barrier")
def barrier(store):
    first = Background(lambda: connect().barrier("bar/1", 3, LONG))
    second = Background(lambda: connect().barrier("bar/1", 3, LONG))
    first.still_pending("barrier of three with two in it")
    second.still_pending("barrier of three with two in it")
    store.barrier("bar/1", 3, LONG)
    first.result("barrier, first in it")
    second.result("barrier, second in it")
    store.barrier("bar/1", 3, SHORT)
    raises(lambda: store.barrier("bar/2", 2, SHORT), "barrier of two with one in it")
    usable(store, "bar/after")


@conformance("set", "get")
def a_value_of_8_mib(store):
    value = bytes(range(256)) * (8 * MIB // 256)
    store.set("big/1", value)
    if store.get("big/1") != value:
        raise AssertionError("a value of 8 MiB came back changed")
    if store.compare_set("big/1", value, "small") != b"small":
        raise AssertionError("compare_set did not find the 8 MiB it expected")
    store.delete_key("big/1")


def ends_only_this_connection(key, value, what):
    if LEGACY and OWN:
        raise Skip("this version's own server has no limits")
    other, doomed = connect(), connect()
    before = other.num_keys()

    def use():
        doomed.set(key, value)
        doomed.num_keys()

    raises(use, what)
    raises(doomed.num_keys, "the dropped connection stays dropped")
    same(other.num_keys(), before, "nothing was stored")


@conformance("set")
def a_key_of_8_kib_is_the_longest(store):
    key = "k" * 8191  # the client adds a slash
    store.set(key, "v")
    same(store.get(key), b"v", "the value at the longest key")
    store.delete_key(key)
    ends_only_this_connection("k" * 8192, "v", "a key too long")


@conformance("set")
def a_value_above_8_mib(store):
    ends_only_this_connection("big/2", b"x" * (8 * MIB + 1), "a value too large")
    usable(store, "big/after")


@conformance("set", "get")
def prefix_store(store):
    inner = dist.PrefixStore("p", store)
    inner.set("k", "v")
    same(inner.get("k"), b"v", "what the PrefixStore reads")
    same(store.get("p/k"), b"v", "the same key without it")
    same(dist.PrefixStore("b", dist.PrefixStore("a", store)).add("n", 2), 2, "add two deep")
    same(store.get("a/b/n"), b"2", "the innermost store's prefix comes first")
    same(inner.num_keys(), store.num_keys(), "num_keys is not filtered")
    same(inner.delete_key("k"), True, "delete through the PrefixStore")


@conformance("list_keys", "multi_get", "queue_push", "barrier")
def prefix_store_of_the_newer_calls(store):
    inner = dist.PrefixStore("pn", store)
    inner.multi_set(["a", "b"], ["1", "2"])
    inner.append("a", "+")
    same(list(inner.multi_get(["a", "b"])), [b"1+", b"2"], "multi_get through the PrefixStore")
    same(inner.compare_set("a", "1+", "3"), b"3", "compare_set through the PrefixStore")
    same(inner.check(["a", "c"]), False, "check through the PrefixStore")
    same(sorted(inner.list_keys()), ["a", "b"], "list_keys is filtered and stripped")
    inner.queue_push("q", "x")
    same(store.queue_pop("pn/q", block=False), b"x", "a queue through the PrefixStore")
    partner = Background(lambda: dist.PrefixStore("pn", connect()).barrier("bar", 2, LONG))
    partner.still_pending("barrier of two with one in it")
    inner.barrier("bar", 2, LONG)
    partner.result("barrier through the PrefixStore")


def run(function, needed):
    """Runs one check; returns how it went."""
    missing = [call for call in needed if not hasattr(dist.TCPStore, call)]
    try:
        if missing:
            raise Skip(f"torch {torch.__version__} has no {', '.join(missing)}")
        function(connect())
    except Skip as reason:
        print(f"skipped {function.__name__}: {reason}", flush=True)
        return "skipped"
    except Exception:
        print(f"FAILED {function.__name__}\n{traceback.format_exc()}", flush=True)
        return "failed"
    print(f"ok {function.__name__}", flush=True)
    return "ok"


def main():
    ends = [run(function, needed) for function, needed in CHECKS]
    tally = ", ".join(f"{ends.count(end)} {end}" for end in ("ok", "skipped", "failed"))
    print(f"torch {torch.__version__}: {tally}", flush=True)
    sys.exit(1 if "failed" in ends else 0)


main()
