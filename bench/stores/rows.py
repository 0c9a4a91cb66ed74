# SPDX-License-Identifier: Apache-2.0
"""What bench/store.py measures: each row is one figure of two sides, measured one after the other."""

import dataclasses
import typing

from stores import servers

MANY = 19000
TORCH_BARRIER = 4000
WATCHED, VIEWERS = 1000, 20


@dataclasses.dataclass
class Row:
    goal: str  # S1 ... S8
    name: str
    against: str
    unit: str
    target: float
    ours: typing.Callable[[], dict]  # figures; "value" is the one that counts
    theirs: typing.Callable[[], dict] | None  # None: ours is compared with the target itself
    at_least: bool  # the ratio ours/theirs must reach the target; else it must not pass it
    times: int = 1  # pairs per round: more for what takes half a second and varies by a third
    values: list = dataclasses.field(default_factory=list)  # (ours, theirs) per pair
    extra: list = dataclasses.field(default_factory=list)  # further figures per pair

    def measure(self, ours_first):
        theirs = self.theirs or (lambda: {"value": 1.0})
        for i in range(self.times):
            if ours_first == (i % 2 == 0):
                a, b = self.ours(), theirs()
            else:
                b, a = theirs(), self.ours()
            self.values.append((a["value"], b["value"]))
            self.extra.append((a, b))


def echo_args(operation):
    """Bytes of a request, and the reply, of bench/programs/load_codec.c's operations."""
    key, value, ping = 8 + len("/bench"), 8 + 16, 5
    if operation == "get":
        return str(1 + key), (16).to_bytes(8, "little").hex() + b"0123456789abcdef".hex()
    return str(1 + key + value + ping), (0x62656E63).to_bytes(4, "little").hex()


def rate_rows(bench, seconds, many, redis):
    def rate(server, **options):
        figures = bench.load(server, "rate", core=servers.SAME_CORE, seconds=seconds, **options)
        return {"value": figures["per_second"], "cpu_us": figures["cpu_us"]}

    def row(goal, against, server, protocol, target, **options):
        words = [f"{options['op'].upper()} 16 B, {options['connections']:,} connections"]
        if "depth" in options:
            words.append(f"{options['depth']} deep")
        return Row(goal, ", ".join(words), against, "1/s", target,
                   lambda: rate("ctrdzvd", **options),
                   lambda: rate(server, protocol=protocol, **options), True)  # fmt: skip

    for connections in (1, 1000, many):
        for op in ("get", "set"):
            yield row("S1", "bare libuv echo", f"echo {op}", "echo", 0.8, op=op, connections=connections)
    if redis:
        for connections in (1, 50, 1000):
            for op in ("get", "set"):
                yield row("S2", "redis-server", "redis", "redis", 1.0, op=op, connections=connections)
        for op in ("get", "set"):
            yield row("S2", "redis-server", "redis", "redis", 1.0, op=op, connections=50, depth=32)


def viewer_rows(bench, seconds):
    """What viewers of the live page cost. The page looks at the job once a second, so a rate is
    measured for some seconds."""
    def get(server):
        figures = bench.load(server, "rate", core=servers.SAME_CORE, op="get", connections=50,
                             seconds=max(4 * seconds, 2))  # fmt: skip
        return {"value": figures["per_second"], "cpu_us": figures["cpu_us"]}

    yield Row("S8", f"GET 16 B, {VIEWERS} viewers of a job of {WATCHED:,}", "no viewer", "1/s", 0.98,
              lambda: get("watched"), lambda: get("unwatched"), True, times=3)  # fmt: skip


def torch_rows(bench, seconds):
    def ask(server, operation):
        return lambda: bench.ask_torch(server, operation, seconds)

    for operation, aim in (("get", 2.0), ("add", 1.2)):
        yield Row("S3", f"PyTorch's client, {operation}", "bare libuv echo", "1/s", 0.95,
                  ask("ctrdzvd", operation), ask("echo torch", operation), True)  # fmt: skip
        yield Row("S3", f"PyTorch's client, {operation} (aim {aim:g})", "PyTorch's store", "1/s", 1.0,
                  ask("ctrdzvd", operation), ask("torch", operation), True)  # fmt: skip

    if not bench.torch_storms:
        print("no name space of its own for PyTorch's daemon, which waits for DNS: connect + barrier is left out")
        return
    def meet(server):
        cpu = bench.servers[server].cpu_seconds()
        figures = bench.load(server, "barrier", core=servers.SAME_CORE, connections=TORCH_BARRIER)
        cpu = bench.servers[server].cpu_seconds() - cpu
        return {"value": 1 / figures["with_connect"], "cpu_us": cpu * 1e6, **figures}

    # Most of it is the clients' own and the kernel's time, which is the same for both.
    yield Row("S3", f"connect + barrier of {TORCH_BARRIER:,} (aim 3)", "PyTorch's store", "1/s", 1.0,
              lambda: meet("ctrdzvd"), lambda: meet("torch"), True)  # fmt: skip


def growth_rows(bench, many, native):
    """How much longer four times as many clients take. More than four times already without a store,
    since the kernel's part of so many sockets outgrows the caches: hence the floor beside it."""
    large, small = min(16000, many // 4 * 4), min(16000, many // 4 * 4) // 4
    options = {"core": servers.SAME_CORE, **({"native": True} if native else {})}

    def meet(server, connections):
        return bench.load_first(server, "barrier", connections=connections, **options)

    def growth(server):
        first, second = meet(server, small), meet(server, large)
        return {"value": second["seconds"] / first["seconds"], "seconds": [first, second]}

    def whole(connections):
        return lambda: {"value": meet("ctrdzvd", connections)["with_connect"]}

    yield Row("S5", f"connect + barrier of {large:,}", f"of {small:,}", "s", 4.6, whole(large), whole(small), False)
    if native:
        yield Row("S5", f"barrier: time of {large:,} / of {small:,}", "bare epoll", "x", 1.15,
                  lambda: growth("ctrdzvd"), lambda: growth("epoll"), False)  # fmt: skip


def wave_rows(bench, many):
    def seconds(server, mode, **options):
        figures = bench.load(server, mode, **options)
        return {"value": figures["seconds"], **figures}

    yield Row("S4", f"{many:,} connects", "bare epoll acceptor", "s", 1.25,
              lambda: seconds("ctrdzvd", "connect", connections=many),
              lambda: seconds("epoll", "connect", connections=many), False, times=3)  # fmt: skip
    stalls = []

    def wake(server):
        figures = bench.load_first(server, "wake", connections=many)
        if server == "ctrdzvd":
            stalls.append(figures["stall_ms"])
        return {"value": figures["seconds"], **figures}

    yield Row("S6", f"{many:,} waiters woken", "bare epoll waker", "s", 1.3,
              lambda: wake("ctrdzvd"), lambda: wake("epoll"), False)  # fmt: skip
    # Taken in the row before, which each round runs first.
    yield Row("S6", "an unrelated client's longest wait meanwhile", "5 ms", "ms", 5.0,
              lambda: {"value": stalls.pop()}, None, False)  # fmt: skip
    yield Row("S7", f"memory per idle connection, {many:,}", "400 B", "B", 400.0,
              lambda: {"value": bench.idle_bytes(many)}, None, False)  # fmt: skip
