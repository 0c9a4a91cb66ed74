# SPDX-License-Identifier: Apache-2.0
"""One job on several machines: each a network namespace with its own name and address."""

import json
import os
import re
import signal
import socket
import sys
import time

import testlib
from testlib import netns, wait_until

NODE_LOST, PREEMPTED = 121, 123

# Says who it is; ends when the test says so, in the way that the test says.
WORKER = """
import os, sys, time
e = os.environ
folder = sys.argv[1]
print("up", e["CTRUN_GENERATION"], e["RANK"], e["WORLD_SIZE"], e["GROUP_RANK"], e["LOCAL_RANK"],
      e["MASTER_ADDR"], os.getpid(), flush=True)
while True:
    for name in (f"go-{e['CTRUN_GENERATION']}", "go"):
        if os.path.exists(f"{folder}/{name}"):
            sys.exit(0)
    time.sleep(0.02)
"""

# Asks the workers' store for an echo (VALIDATE, PING) and says what came of it; then as above.
ASKING = """
import os, socket, struct, sys
where = sys.argv[2:] or [os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]]
with socket.create_connection((where[0], int(where[1])), timeout=20) as s:
    try:
        s.sendall(struct.pack("=BI", 0, 0x3C85F7CE) + struct.pack("=BI", 13, 4711))
        heard = s.recv(4)
    except ConnectionError:
        heard = b""
print("the store", *where, "serves" if heard == struct.pack("=I", 4711) else "refuses", flush=True)
""" + "if sys.argv[2:]: sys.exit()" + WORKER


class Worker:
    def __init__(self, line):
        words = line.split("up ", 1)[1].split()
        self.generation, self.rank, self.size, self.node, self.local = map(int, words[:5])
        self.master, self.pid = words[5], int(words[6])


def workers_of(job, generation):
    lines = re.findall(r"^.*\bup \d.*$", job.out, re.M)
    return [w for w in map(Worker, lines) if w.generation == generation]


class Nodes(testlib.Case):
    count, per_node = 4, 2

    def setUp(self):
        super().setUp()
        self.cluster = netns.Cluster(self, self.count)
        self.worker = self.script("worker.py", WORKER)

    def start_node(self, i, *options, workers=None, nnodes=None, command=None):
        return self.start(
            *self.cluster.nodes[i], testlib.program("ctrun"),
            "--nnodes", nnodes or self.count, "--nproc-per-node", workers or self.per_node,
            "--master-addr", self.cluster.addresses[0],
            "--rdzv-conf", "heartbeat_timeout=2.5,last_call_timeout=0.2,join_timeout=60", *options,
            *(command or (self.worker, self.tmp)),
        )  # fmt: skip

    def start_all(self, *options, **kwargs):
        # The last one first: order of coming is not order of ranks.
        jobs = [self.start_node(i, *options, **kwargs) for i in reversed(range(self.count))]
        return jobs[::-1]

    def wait_up(self, jobs, generation, per_node=None):
        def all_up():
            found = [w for job in jobs for w in workers_of(job, generation)]
            return len(found) == len(jobs) * (per_node or self.per_node) and found

        return wait_until(all_up, f"all workers of generation {generation}: {jobs[0].err}")

    def go(self, generation=None):
        (self.tmp / ("go" if generation is None else f"go-{generation}")).touch()

    def finish(self, jobs, code, says):
        """All end with `code` and tell the same story."""
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, code, result)
            self.assertRegex(result.err, says, result)
            self.assertEqual(job.family(), [], result)

    def test_ranks_follow_the_names_and_all_end_together(self):
        jobs = self.start_all("--report", self.tmp / "report.json")
        found = self.wait_up(jobs, 0)
        for i, job in enumerate(jobs):
            mine = sorted(w.rank for w in workers_of(job, 0))
            self.assertEqual(mine, [2 * i, 2 * i + 1])
            self.assertEqual({w.node for w in workers_of(job, 0)}, {i})
        self.assertEqual({w.size for w in found}, {8})
        self.assertEqual({w.master for w in found}, {self.cluster.addresses[0]})
        self.go()
        self.finish(jobs, 0, "ranks")
        report = json.loads((self.tmp / "report.json").read_text())
        self.assertEqual((report["exit_code"], report["first_failure"]), (0, None))

    def test_a_killed_worker_is_named_everywhere_and_the_job_goes_on(self):
        jobs = self.start_all("--max-restarts", "1")
        victim = next(w for w in self.wait_up(jobs, 0) if w.rank == 5)
        os.kill(victim.pid, signal.SIGKILL)
        self.wait_up(jobs, 1)
        # Its own ctrun, and those that quote it.
        said = rf"rank 5 failed on node-3( at 10.9.1.3)?: process {victim.pid} was killed by signal 9"
        for job in jobs:
            self.assertEqual(len(re.findall(said, job.err)), 1, job.err)
        self.go()
        self.finish(jobs, 0, said)

    def test_every_machine_is_told_the_ports_of_rank_0(self):
        script = "echo told $CTRUN_PORT_PEER ${port:peer}"
        jobs = self.start_all(command=("--no-python", "sh", "-c", script), workers=1)
        told = [re.search(r"told (\d+) (\d+)\n", job.wait().out).groups() for job in jobs]
        self.assertEqual(len(set(sum(told, ()))), 1, told)

    def test_a_machine_that_asks_for_another_port_says_so(self):
        jobs = [
            self.start_node(i, nnodes=2, workers=1, command=("--no-python", "sleep", "1000${port:%s}" % name))
            for i, name in enumerate(["one", "two"])
        ]
        for job in jobs:
            self.assertNotEqual(job.wait().code, 0)
        self.assertIn("the machine of rank 0 has reserved no port 'two'", jobs[1].err)
        self.assertNotIn("make room", jobs[1].err)

    def test_the_story_of_a_failed_job_is_told_on_every_node(self):
        script = "echo the very reason >&2; [ $RANK = 6 ] && exit 41; sleep 1000"
        jobs = self.start_all(
            "--report", self.tmp / "report-$$", command=("sh", "-c", script)
        )
        self.finish(
            jobs, 41,
            r"(?s)the job failed at .* in generation 0: rank 6 failed on node-4 at 10.9.1.4: process \d+ exited "
            r"with code 41\n.*generation 0: 4 nodes, 8 ranks, formed in .*start-up here: ",
        )  # fmt: skip
        for job in jobs:
            self.assertIn("the very reason", job.err)

    def test_every_machine_says_once_that_no_restart_is_left(self):
        command = ("--no-python", "sh", "-c", "[ $$GROUP_RANK = 0 ] && exec sleep 600; exit 7")
        for job in self.start_all("--max-restarts", 2, workers=1, command=command):
            result = job.wait()
            self.assertEqual(result.code, 7, result)
            self.assertEqual(result.err.count("no restarts are left (--max-restarts 2)"), 1, result)

    def test_a_killed_agent_is_told_at_once(self):
        jobs = self.start_all()
        self.wait_up(jobs, 0)
        jobs[2].signal(signal.SIGKILL)
        jobs[2].popen.wait()
        self.finish(jobs[:2] + jobs[3:], NODE_LOST, r"node 2 \(node-3 at 10.9.1.3\) is lost: ")
        self.assertIn("what to do: --nnodes MIN:MAX or --spares lets the job outlive a machine", jobs[0].err)
        jobs[2].wait_no_family(testlib.DEADLINE)

    def test_a_cut_cable_is_noticed_on_both_ends(self):
        jobs = self.start_all()
        self.wait_up(jobs, 0)
        self.cluster.cut(1)
        self.finish(
            jobs[:1] + jobs[2:], NODE_LOST,
            r"node 1 \(node-2 at 10.9.1.2\) is lost: nothing was heard from it for [1-9]\.\d s",
        )  # fmt: skip
        self.finish(
            jobs[1:2], NODE_LOST, r"the connection to the job's store on 10\.9\.1\.1 was lost: "
        )

    def test_the_end_of_the_host_is_the_end_of_the_job(self):
        jobs = self.start_all("--max-restarts", "3")
        self.wait_up(jobs, 0)
        jobs[0].signal(signal.SIGKILL)
        jobs[0].popen.wait()
        self.finish(
            jobs[1:], NODE_LOST, r"(?s)the connection to the job's store on 10\.9\.1\.1 was lost: .*"
            r"what to do: --rdzv-conf failover=1 and a token, on every machine, let the job outlive ",
        )  # fmt: skip
        jobs[0].wait_no_family(testlib.DEADLINE)

    def test_sigterm_on_one_node_ends_all_in_order(self):
        polite = self.script("polite.py", (
            "import os, signal, sys, time\n"
            "def handler(*_):\n"
            "    path = os.environ['CTRUN_PREEMPT_FILE']\n"
            "    print('asked', open(path).read(), flush=True)\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, handler)\n"
            "print('up', flush=True)\n"
            "while True: time.sleep(60)\n"
        ))  # fmt: skip
        jobs = self.start_all("--shutdown-timeout", "20", command=(polite,))
        wait_until(lambda: all(job.out.count("up") == 2 for job in jobs), "all workers")
        jobs[3].signal(signal.SIGTERM)
        self.finish(jobs, PREEMPTED, "SIGTERM")
        for job in jobs:
            notices = re.findall(r"asked (\{.*\})", job.out)
            self.assertEqual(len(notices), 2, job.out)
            self.assertEqual(json.loads(notices[0])["signo"], signal.SIGTERM)
            self.assertAlmostEqual(json.loads(notices[0])["seconds"], 20)

    def test_workers_get_the_signal_of_choice_on_every_node(self):
        save = "trap 'echo saved $RANK >>FOLDER/saved; exit 0' USR1; trap 'exit 9' TERM;" \
            " echo up; while :; do sleep 0.05; done"  # fmt: skip
        jobs = self.start_all(
            "--preempt-signal", "SIGUSR1",
            command=("sh", "-c", save.replace("FOLDER", str(self.tmp))),
        )  # fmt: skip
        wait_until(lambda: all(job.out.count("up") == self.per_node for job in jobs), "the workers")
        jobs[1].signal(signal.SIGTERM)
        self.finish(jobs, PREEMPTED, r"node-2 at 10.9.1.2 received SIGTERM|received SIGTERM: stopping")
        saved = sorted((self.tmp / "saved").read_text().splitlines())
        self.assertEqual(saved, [f"saved {rank}" for rank in range(self.count * self.per_node)])

    def test_strangers_do_not_reach_the_store_of_a_job_with_a_token(self):
        token, worker = self.tmp / "token", self.script("asking.py", ASKING)
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        # Node 0 hosts the job's store, node 1 that of the workers, who are told another address.
        jobs = [
            self.start_node(
                i, "--node-rank", 1 - i, "--token-file", token, "--max-restarts", 1,
                nnodes=2, command=(worker, self.tmp),
            )
            for i in range(2)
        ]  # fmt: skip
        for generation in range(2):
            found = self.wait_up(jobs, generation)
            self.assertEqual({w.master for w in found}, {self.cluster.addresses[1]})
            said = [re.findall(r"the store (\S+) (\d+) (\w+)", job.out) for job in jobs]
            self.assertEqual({what for of_job in said for *_, what in of_job}, {"serves"})
            for where in (said[0][-1][:2], (self.cluster.addresses[0], 29500)):
                stranger = self.run_program(
                    *self.cluster.nodes[2], sys.executable, worker, self.tmp, *where
                )
                self.assertIn("refuses", stranger.out, stranger)
            if generation == 0:
                os.kill(next(w.pid for w in found if w.node == 1), signal.SIGKILL)
        self.go()
        self.finish(jobs, 0, "generation 1")

    def test_without_a_token_the_host_says_what_strangers_can_do(self):
        token = self.tmp / "token"
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        line = r"^ctrun: there is no token: whoever reaches port 29500 of 10\.9\.1\.1 can .*--open"
        for options, times in (((), 1), (("--open",), 0), (("--token-file", token), 0)):
            jobs = [self.start_node(i, *options, nnodes=2, command=("true",)) for i in range(2)]
            said = [len(re.findall(line, job.wait().err, re.M)) for job in jobs]
            self.assertEqual([job.result().code for job in jobs], [0, 0], jobs[0].err)
            self.assertEqual(said, [times, 0], jobs[0].err)


class Spares(Nodes):
    count = 3

    def test_a_spare_takes_the_place_of_a_lost_node(self):
        options = ("--spares", "1")
        jobs = [self.start_node(i, *options, nnodes=2) for i in (0, 1)]
        self.wait_up(jobs, 0)
        spare = self.start_node(2, *options, nnodes=2)
        spare.wait_for("spare")
        jobs[1].signal(signal.SIGKILL)
        jobs[1].popen.wait()
        self.wait_up([jobs[0], spare], 1)
        self.assertEqual({w.rank for w in workers_of(spare, 1)}, {2, 3})
        self.assertIn("node 1 (node-2 at 10.9.1.2) is lost", jobs[0].err)
        self.go()
        self.finish([jobs[0], spare], 0, "generation 1")
        jobs[1].wait_no_family(testlib.DEADLINE)


# Only what Spares adds: the rest has been tried on four machines.
for _name in [name for name in dir(Nodes) if name.startswith("test_")]:
    setattr(Spares, _name, None)


class HostsFile(Nodes):
    """The machine's own name is 127.0.1.1 to itself, as Debian's installer has it."""

    count, per_node = 2, 1

    def start_named(self, i, *args, name="node-1", hosts=None):
        """ctrun on node i; that node finds node-1 at 127.0.1.1 if it is its own."""
        own = hosts or ("127.0.1.1" if i == 0 else self.cluster.addresses[0])
        return self.start(*self.cluster.knowing(i, f"{own} {name}"), *args)

    def job(self, i, *options):
        return self.start_named(
            i, testlib.program("ctrun"), "--nnodes", 2, "--rdzv-conf", "join_timeout=60", *options,
            self.worker, self.tmp,
        )  # fmt: skip

    def check_masters(self, jobs):
        """The name for others, and for node-1 itself the address by which others come to it."""
        self.wait_up(jobs, 0)
        masters = [w.master for job in jobs for w in workers_of(job, 0)]
        self.assertEqual(masters, [self.cluster.addresses[0], "node-1"])

    def test_the_others_reach_a_host_that_knows_itself_as_127_0_1_1(self):
        jobs = [self.job(i, "--master-addr", "node-1") for i in (0, 1)]
        self.check_masters(jobs)
        self.go()
        self.finish(jobs[:1], 0, "node-1 is the loopback on this machine .* all its addresses")
        self.finish(jobs[1:], 0, "generation 0")

    def test_workers_reach_rank_0_beside_an_external_store(self):
        store = self.start_named(0, testlib.program("ctrdzvd"), "--listen", "*", "--open", "--port", 0)
        port = store.wait_for("listening on").rpartition(":")[2]
        endpoint = ["--rdzv-endpoint", f"node-1:{port}", "--rdzv-conf", "is_host=0"]
        jobs = [self.job(i, *endpoint, "--node-rank", i) for i in (0, 1)]
        self.check_masters(jobs)
        self.go()
        self.finish(jobs, 0, "generation 0")

    def interfaces(self, i, name, hosts, options=(), env=()):
        """What the worker of node i is told, which calls itself by that name."""
        show = "echo told gloo ${GLOO_SOCKET_IFNAME-nothing}, NCCL ${NCCL_SOCKET_IFNAME-nothing}."
        return self.start_named(
            i, *(env if env[:1] == ("sh",) else ("env", *env)), testlib.program("ctrun"), "--nnodes", 2, "--master-addr",
            self.cluster.addresses[0], *options, "--no-python", "sh", "-c", show,
            name=name, hosts=hosts,
        )  # fmt: skip

    def test_workers_are_told_the_interface_where_the_name_misleads(self):
        here, there = self.cluster.addresses
        told, none = "told gloo ctlink, NCCL =ctlink.", "told gloo nothing, NCCL nothing."
        for first, second, say in (
            # the loopback as Debian has it, a name that nobody knows
            (("node-1", "127.0.1.1"), ("node-1", here), (told, told)),
            # a name that leads to a real interface
            (("node-1", here), ("node-2", there), (none, none)),
            # what the user has decided stays; an address that is not this machine's
            (("node-1", "127.0.1.1", (), ("GLOO_SOCKET_IFNAME=lo",)), ("node-2", here),
             ("told gloo lo, NCCL =ctlink.", told)),
        ):  # fmt: skip
            with self.subTest(first=first, second=second):
                jobs = [self.interfaces(0, *first), self.interfaces(1, *second)]
                for job, line in zip(jobs, say):
                    result = job.wait()
                    self.assertEqual(result.code, 0, result)
                    self.assertIn(line, result.out)

    def test_a_file_of_nccl_decides_for_it(self):
        conf = self.script("nccl.conf", "# of this machine\nNCCL_SOCKET_IFNAME=eth\n")
        jobs = [
            self.interfaces(i, "node-1", "127.0.1.1", env=(f"NCCL_CONF_FILE={conf}",))
            for i in (0, 1)
        ]
        for job in jobs:
            result = job.wait()
            self.assertIn("told gloo ctlink, NCCL nothing.", result.out, result)

    def test_print_config_shows_the_interface(self):
        result = self.interfaces(1, "node-2", "127.0.1.1", options=("--print-config",)).wait()
        way = "the way to the store: node-2 means 127.0.1.1 here"
        self.assertRegex(result.out, rf"\ngloo uses +ctlink +{way}\nNCCL uses +=ctlink +{way}\n")

    def test_a_name_service_that_is_silent_holds_nobody_up(self):
        # It would take a minute and more to give up.
        silent = self.script("silent.py", (
            "import socket, time\n"
            "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
            f"    s.bind(('{self.cluster.addresses[1]}', 53))\n"
            "    print('bound', flush=True)\n"
            "    time.sleep(600)\n"
        ))  # fmt: skip
        self.start(*self.cluster.nodes[1], sys.executable, silent).wait_for("bound")
        conf = self.tmp / "resolv.conf"
        conf.write_text(
            f"nameserver {self.cluster.addresses[1]}\noptions timeout:30 attempts:2\n"
        )
        bind = ("sh", "-c", f'mount --bind {conf} /etc/resolv.conf && exec env "$0" "$@"')
        jobs = [
            self.interfaces(0, "node-1", "127.0.1.1"),
            self.interfaces(1, "node-9", "127.0.1.1", env=bind),
        ]
        for job in jobs:
            result = job.wait(50)
            self.assertIn("told gloo ctlink, NCCL =ctlink.", result.out, result)

    def test_one_machine_is_told_no_interface(self):
        job = self.interfaces(0, "node-1", "127.0.1.1", options=("--nnodes", 1))
        self.assertIn("told gloo nothing, NCCL nothing.", job.wait().out)

    def test_train_over_a_host_that_knows_itself_as_127_0_1_1(self):
        """Its workers publish the address by which they have come to the store."""
        jobs = [
            self.start_named(
                i, testlib.program("ctrun"), "--nnodes", 2, "--master-addr", "node-1", "train",
                "--data", "synthetic", "--device", "cpu", "--epochs", "1",
            )
            for i in (0, 1)
        ]  # fmt: skip
        for job in jobs:
            self.assertEqual(job.wait(120).code, 0, job.result())


for _name in [name for name in dir(Nodes) if name.startswith("test_")]:
    setattr(HostsFile, _name, None)


class AnyAddress(Nodes):
    """The first node names no address of its own, only that it listens on all."""

    count, per_node = 2, 1

    def test_workers_everywhere_reach_a_store_on_0_0_0_0(self):
        worker = self.script("asking.py", ASKING)
        for any_address in ("0.0.0.0", "::"):
            with self.subTest(address=any_address):
                jobs = [
                    self.start(
                        *self.cluster.nodes[i], testlib.program("ctrun"), "--nnodes", 2,
                        "--master-addr", (any_address, self.cluster.addresses[0])[i],
                        "--rdzv-conf", "join_timeout=60", worker, self.tmp,
                    )
                    for i in (0, 1)
                ]  # fmt: skip
                found = self.wait_up(jobs, 0)
                self.assertEqual({w.master for w in found}, {self.cluster.addresses[0]})
                self.go()
                listens = f"listens on all addresses .* \\(--master-addr {any_address}\\)"
                self.finish(jobs[:1], 0, listens)
                self.finish(jobs[1:], 0, "generation 0")
                (self.tmp / "go").unlink()


for _name in [name for name in dir(Nodes) if name.startswith("test_")]:
    setattr(AnyAddress, _name, None)


class OneMachine(testlib.Case):
    """Several agents on one machine, as users try it at first."""

    def setUp(self):
        super().setUp()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.worker = self.script("worker.py", WORKER)

    def start_agent(self, *options, nnodes="2", workers=1, conf="join_timeout=60", **kwargs):
        return self.start_ctrun(
            "--nnodes", nnodes, "--rdzv-backend", "c10d", "--nproc-per-node", workers,
            "--rdzv-endpoint", f"localhost:{self.port}",
            "--rdzv-conf", f"last_call_timeout=0.2,{conf}", *options,
            self.worker, self.tmp, **kwargs,
        )  # fmt: skip

    def test_different_numbers_of_workers(self):
        jobs = [self.start_agent("--node-rank", 1 - i, workers=3 - i) for i in range(2)]
        found = wait_until(
            lambda: len(ws := workers_of(jobs[0], 0) + workers_of(jobs[1], 0)) == 5 and ws, "five"
        )
        self.assertEqual(sorted(w.rank for w in found), [0, 1, 2, 3, 4])
        self.assertEqual(sorted(w.rank for w in workers_of(jobs[1], 0)), [0, 1])
        (self.tmp / "go").touch()
        for job in jobs:
            self.assertEqual(job.wait().code, 0, job.result())

    def test_who_is_missing_is_told_and_the_wait_ends(self):
        job = self.start_agent("--node-rank", "0", conf="join_timeout=6")
        result = job.wait()
        self.assertEqual(result.code, 120, result)
        self.assertRegex(
            result.err,
            r"ctrun: waiting for 1 of 2 nodes: node rank 1 never connected; present: \S+\n",
        )

    def test_the_last_words_of_a_wait_say_who_came(self):
        result = self.start_agent("--node-rank", "0", conf="join_timeout=0.5").wait()
        self.assertEqual(result.code, 120, result)
        self.assertRegex(
            result.err,
            r"^ctrun: the job ends: join_timeout \(0.5 s\) is over while waiting for 1 of 2 nodes: "
            r"node rank 1 never connected; present: \S+\nctrun: what to do: start ctrun on the missing nodes.*\n$",
        )

    def test_a_name_that_is_not_known_is_told_at_once(self):
        result = self.start_ctrun(
            "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"nowhere.invalid:{self.port}",
            "--rdzv-conf", "join_timeout=1,is_host=0", self.worker, self.tmp,
        ).wait()  # fmt: skip
        self.assertEqual(result.code, 120, result)
        self.assertRegex(
            result.err,
            "warning: the name of the job's store, nowhere.invalid, cannot be resolved so far: ",
        )
        self.assertIn("cannot reach the job's store at nowhere.invalid", result.err)

    def test_another_program_at_the_address_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            result = self.start_ctrun(
                "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                f"127.0.0.1:{silent.getsockname()[1]}", "--rdzv-conf", "join_timeout=1,is_host=0",
                self.worker, self.tmp,
            ).wait()  # fmt: skip
        self.assertEqual(result.code, 120, result)
        self.assertRegex(
            result.err,
            rf"cannot reach the job's store at \S+: pid {os.getpid()} \(.*\) takes connections, but does not"
            " answer as a store does",
        )

    def test_a_store_that_does_not_answer_is_told(self):
        result = self.start_agent("--node-rank", "1", conf="is_host=0,join_timeout=7").wait()
        self.assertEqual(result.code, 120, result)
        self.assertRegex(
            result.err,
            f"cannot reach the job's store at [^ ]*:{self.port} so far: connection refused; trying on",
        )

    def test_a_token_is_needed_where_one_is_set(self):
        secret = "0123456789abcdef0123456789abcdef"
        host = self.start_agent(env={"CTRUN_TOKEN": secret}, conf="join_timeout=30")
        for env in ({"CTRUN_TOKEN": secret[::-1]}, {}):
            result = self.start_agent(env=env, conf="join_timeout=5,is_host=0").wait()
            self.assertEqual(result.code, 1, result)
            self.assertIn("token", result.err)
            self.assertNotIn(secret, result.err)
        good = self.start_agent(env={"CTRUN_TOKEN": secret})
        (self.tmp / "go").touch()
        for job in (host, good):
            self.assertEqual(job.wait().code, 0, job.result())

    def test_a_stranger_on_the_port_is_named(self):
        with socket.create_server(("127.0.0.1", self.port)):
            result = self.start_agent(conf="join_timeout=3").wait()
        self.assertIn(result.code, (1, 120), result)
        self.assertIn(str(os.getpid()), result.err)

    def test_one_hosts_the_store_when_the_port_is_free_again(self):
        # As another job's agent does that is about to end, or two agents that bind at the same moment.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port))
            jobs = [self.start_agent() for _ in range(2)]
            time.sleep(0.5)
        (self.tmp / "go").touch()
        for job in jobs:
            result = job.wait()
            self.assertEqual(result.code, 0, result)
            self.assertNotIn("in use", result.err)

    def test_a_job_that_differs_is_refused(self):
        host = self.start_agent()
        wait_until(self.listening, "the store")
        result = self.start_agent("--max-restarts", "7").wait()
        self.assertEqual(result.code, 2, result)
        self.assertIn("--max-restarts", result.err)
        good = self.start_agent()
        (self.tmp / "go").touch()
        for job in (host, good):
            self.assertEqual(job.wait().code, 0, job.result())

    def listening(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def test_an_elastic_job_grows_and_shrinks(self):
        first = self.start_agent(nnodes="1:2")
        wait_until(lambda: len(workers_of(first, 0)) == 1, "the first alone")
        second = self.start_agent(nnodes="1:2")
        wait_until(
            lambda: len(workers_of(first, 1)) == len(workers_of(second, 1)) == 1, "both"
        )
        self.assertEqual({w.size for w in workers_of(first, 1)}, {2})
        second.signal(signal.SIGKILL)
        second.popen.wait()
        wait_until(lambda: len(workers_of(first, 2)) == 1, "the first alone again")
        (self.tmp / "go").touch()
        self.assertEqual(first.wait().code, 0, first.result())

    def test_train_grows_and_shrinks_and_loses_no_step(self):
        def start():
            return self.start_ctrun(
                "--nnodes", "1:2", "--rdzv-backend", "c10d", "-n", "2", "--rdzv-endpoint",
                f"localhost:{self.port}", "--rdzv-conf", "last_call_timeout=0.1",
                "train", "--data", "synthetic", "--batch-size", "64", "--epochs", "100000",
                "--checkpoint-dir", self.tmp / "ckpt", "--checkpoint-every", "20steps",
                "--resume", "auto", "--metrics", self.tmp / "metrics", "--metrics-every", "10",
            )  # fmt: skip

        def lines():
            path = self.tmp / "metrics"
            text = path.read_text() if path.exists() else ""
            return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

        def checkpoints():
            return sorted((self.tmp / "ckpt").glob("*")) if (self.tmp / "ckpt").exists() else []

        first = start()
        wait_until(lambda: len(checkpoints()) > 0, "a checkpoint of two workers")
        second = start()
        first.wait_for("generation 1: node 0 of 2, ranks 0-1 of 4")
        before = len(lines())
        wait_until(lambda: len(lines()) > before + 3, "steps of four workers")
        second.signal(signal.SIGKILL)
        second.popen.wait()
        first.wait_for("generation 2: node 0 of 1, ranks 0-1 of 2")
        before = len(lines())
        wait_until(lambda: len(lines()) > before + 10, "steps of two workers")
        first.signal(signal.SIGTERM)
        result = first.wait()
        self.assertEqual(result.code, 123, result)  # saved and ended in order
        steps = [line["step"] for line in lines() if "step" in line]
        # Each generation goes on from a checkpoint: never back by more than lies between two.
        self.assertGreater(len(steps), 10)
        falls = [a - b for a, b in zip(steps, steps[1:]) if b <= a]
        self.assertTrue(all(fall < 60 for fall in falls), steps)

    def test_an_external_store_outlives_the_job(self):
        daemon, self.port = self.start_ctrdzvd()
        jobs = [self.start_agent(conf="is_host=0") for _ in range(2)]
        (self.tmp / "go").touch()
        for job in jobs:
            self.assertEqual(job.wait().code, 0, job.result())
        self.assertTrue(daemon.running())


if __name__ == "__main__":
    testlib.main()
