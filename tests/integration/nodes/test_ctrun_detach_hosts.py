# SPDX-License-Identifier: Apache-2.0
"""`ctrun --hosts --detach`: a job on several machines that needs none of them, and not the one that has
started it. A shell stands in for ssh where the test is not about it."""

import os
import pathlib
import re
import shutil
import signal

from testlib import cookie_pids, main, pid_alive, program, wait_until
from testlib.case import WAITS, DetachedCase
from testlib.netns import SshCase

WORKER = ("--no-python", "sh", "-c", WAITS)

# Takes HOST COMMAND as ssh does; each machine has a home of its own. A host that begins with "no" is not
# there, one that begins with "stuck" never answers, and "mute" starts nothing; 127.0.0.9 never stops talking.
AGENT = """#!/bin/sh
case $1 in
no*) echo "agent: no way to $1" >&2; exit 255;;
stuck*) exec sleep 600;;
127.0.0.9) exec yes;;
mute) exit 0;;
esac
exec env -i PATH="$PATH" HOME="HOMES/$1" CTRUN_TEST_COOKIE="$CTRUN_TEST_COOKIE" sh -c "$2"
"""


def watchers(job):
    """Processes that show this job."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if path.read_bytes().endswith(f"--attach\0{job}\0".encode()) else []
        except OSError:
            pass  # it has ended
    return found


class Loopback(DetachedCase):
    """The machines are addresses of the loopback."""

    def setUp(self):
        super().setUp()
        self.homes = self.tmp / "homes"
        self.hosts = ("127.0.0.2", "127.0.0.3")
        self.states = [self.homes / host / ".local" / "state" for host in self.hosts]
        self.own = {"HOME": self.homes / "own", "XDG_STATE_HOME": None}
        for host in (*self.hosts, "own"):
            (self.homes / host).mkdir(parents=True)
        self.agent = self.script("agent", AGENT.replace("HOMES", str(self.homes)))
        os.chmod(self.agent, 0o755)

    def start_on(self, hosts, *options, command=None):
        return self.start_ctrun(
            "--hosts", hosts, "--detach", "--launch-agent", self.agent, "--rdzv-conf", "last_call_timeout=0.2",
            *options, *(command or (*WORKER, self.go)), env=self.own,
        )  # fmt: skip

    def detach(self, *options):
        """Returns the id of a job that runs on both machines."""
        done = self.start_on("127.0.0.2:2,127.0.0.3:1", *options).wait()
        self.assertEqual(done.code, 0, done)
        found = re.search(r"\Actrun: job (\S+) runs on 2 machines without this one: 127\.0\.0\.\[2-3]\n", done.out)
        self.assertTrue(found, done)
        return found.group(1)

    def attach(self, index, *args):
        return self.start_ctrun("--attach", *args, env={"HOME": self.homes / self.hosts[index]})

    def pid_of(self, job, index):
        return int(self.records()[f"{job}-{index}"]["pid"])

    def test_both_machines_have_their_output_and_the_code(self):
        job = self.detach()
        watching = [self.attach(0), self.attach(1, job)]
        watching[0].wait_for("rank 0 up")
        watching[0].wait_for("rank 1 up")
        watching[1].wait_for("rank 2 up")
        self.assertNotIn("rank 2", watching[0].out)
        self.end(0)
        for one in watching:
            self.assertEqual(one.wait().code, 0)
        self.assertIn("rank 2 ends", watching[1].out)

    def test_its_id_is_told_even_if_its_lines_cannot_be_written(self):
        argv = (program("ctrun"), "--hosts", "127.0.0.2,127.0.0.3", "--detach", "--launch-agent", self.agent,
                *WORKER, self.go)  # fmt: skip
        done = self.run_program("sh", "-c", 'exec "$@" >/dev/full', "sh", *argv, env=self.own)
        self.assertEqual(done.code, 0, done)  # the job runs
        (job,) = {record.rpartition("-")[0] for record in self.records()}
        self.assertTrue(
            done.err.endswith(
                f"\nctrun: cannot write to standard output: No space left on device; job {job} runs all the same: "
                f"ctrun --attach {job} shows it\n"
            ),
            done,
        )

    def test_the_machine_of_the_terminal_leads_to_the_job(self):
        job = self.detach()
        watching = [self.start_ctrun("--attach", *args, env=self.own) for args in ((), (job[:5],))]
        for one in watching:
            one.wait_for(f"ctrun: job {job} was started from here, and 127.0.0.2 shows it")
            one.wait_for(f"job {job}-0 runs on")
            one.wait_for("rank 1 up")
        self.end(7)
        for one in watching:
            self.assertEqual(one.wait().code, 7)
        self.assertEqual(self.start_ctrun("--attach", job, env=self.own).wait().code, 7)
        shutil.rmtree(self.homes / "127.0.0.2")
        done = self.start_ctrun("--attach", job, env=self.own).wait()
        self.assertEqual(done.code, 2, done)
        os.remove(self.agent)
        done = self.start_ctrun("--attach", job, env=self.own).wait()
        self.assertEqual(done.code, 1, done)
        self.assertIn(f"ctrun: the launch agent: {self.agent}: no such file", done.err)

    def test_no_machine_is_special(self):
        job = self.detach("--nnodes", "1:2")
        watching = self.attach(1)
        watching.wait_for("rank 2 up")
        os.kill(self.pid_of(job, 0), signal.SIGKILL)  # that of the store
        left = self.attach(0, job).wait()
        self.assertEqual(left.code, 1, left)
        self.assertIn(f"other machines may go on with it: ctrun --attach {job} on one of 127.0.0.", left.err)
        watching.wait_for("rank 0 up")
        self.end(0)
        done = watching.wait()
        self.assertEqual(done.code, 0, done)
        self.assertIn("hosts the job's store now", done.out)
        for one in (self.attach(0, job), self.start_ctrun("--attach", job, env=self.own)):
            done = one.wait()
            self.assertEqual(done.code, 1, done)  # a script must not start the job again
            self.assertNotIn("has ended", done.err)
        self.assertEqual(self.attach(1, job).wait().code, 0)

    def test_one_of_them_ends_the_job(self):
        job = self.detach()
        watching = self.attach(0)
        watching.wait_for("rank 1 up")
        os.kill(self.pid_of(job, 1), signal.SIGTERM)
        self.assertEqual(watching.wait().code, 143)

    def test_a_failure_is_told_on_every_machine(self):
        job = self.detach()
        self.end(7)
        for index in (0, 1):
            done = self.attach(index, job).wait()
            self.assertEqual(done.code, 7, done)
            self.assertRegex(done.out, r"rank \d failed on ")

    def assert_nothing_is_left(self, cookie):
        wait_until(lambda: not cookie_pids(cookie), "nothing is left")
        self.assertEqual(self.records(), {})

    def test_machine_that_cannot_be_reached(self):
        job = self.start_on("127.0.0.2,nowhere")
        done = job.wait()
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.err, r"ctrun: nowhere: ctrun could not be started there: .* code 255")
        self.assertIn(f'what to do: "{self.agent} nowhere true" must work without a question', done.err)
        self.assertNotIn("was killed by", done.err)  # the other machine's job, which ctrun itself has ended
        self.assertEqual(done.out, "")
        self.assert_nothing_is_left(job.cookie)

    def test_machine_that_is_not_needed(self):
        done = self.start_on("127.0.0.2,127.0.0.3,nowhere", "--nnodes", "2:3").wait()
        self.assertIn("nowhere: ctrun could not be started there", done.err)
        if done.code == 0:  # the others may run before that is known
            self.assertIn("runs on 2 machines", done.out)
            self.end(0)

    def test_program_that_is_not_there(self):
        job = self.start_on("127.0.0.2,127.0.0.3", command=("--no-python", "no-such-program"))
        done = job.wait()
        self.assertEqual(done.code, 127, done)
        self.assertIn("no-such-program: not found", done.err)
        self.assert_nothing_is_left(job.cookie)

    def test_signal_while_it_starts(self):
        job = self.start_on("127.0.0.2,stuck", "--shutdown-timeout", "1")
        wait_until(lambda: len(self.records()) == 1, "one machine waits for the other")
        job.signal(signal.SIGINT)
        done = job.wait()
        self.assertEqual(done.code, 130, done)
        self.assert_nothing_is_left(job.cookie)

    def test_killed_while_it_starts(self):
        job = self.start_on("127.0.0.2,stuck")
        wait_until(lambda: len(self.records()) == 1, "one machine waits for the other")
        (record,) = self.records().values()
        job.signal(signal.SIGKILL)
        wait_until(lambda: not pid_alive(int(record["pid"])), "the job has ended there")
        wait_until(lambda: not cookie_pids(job.cookie), "nothing runs")

    def test_machine_that_never_answers(self):
        job = self.start_on("127.0.0.2,stuck", "--shutdown-timeout", "1", "--rdzv-conf", "join_timeout=1")
        done = job.wait()
        self.assertEqual(done.code, 120, done)
        self.assert_nothing_is_left(job.cookie)

    def test_machine_that_never_stops_talking(self):
        job = self.start_on("127.0.0.9", "--shutdown-timeout", "0", "--rdzv-conf", "join_timeout=0.1")
        done = job.wait()
        self.assertEqual(done.code, 120, done.err[-400:])
        self.assert_nothing_is_left(job.cookie)

    def test_launch_agent_that_starts_nothing(self):
        job = self.start_on("127.0.0.2,mute")
        done = job.wait()
        self.assertEqual(done.code, 1, done)
        self.assertIn("ctrun: mute: no ctrun runs there: the launch agent", done.err)
        self.assertEqual(done.out, "")
        self.assert_nothing_is_left(job.cookie)

    def test_what_makes_no_sense(self):
        for args, says in (
            (("--local-addr", "127.0.0.1"), "--local-addr has no meaning with --hosts and --detach"),
            (("--standalone",), "--standalone has no meaning with --hosts"),
            (("--preflight-only",), "--detach and --preflight-only exclude each other"),
        ):
            with self.subTest(args=args):
                done = self.start_on("a", *args).wait()
                self.assertEqual(done.code, 2, done)
                self.assertIn(says, done.err)
                self.assert_one_line(done.err)


class RealSsh(SshCase, DetachedCase):
    """The terminal is on the first machine, the job on the others."""

    def setUp(self):
        super().setUp()
        home = self.tmp / "home"  # which the machines share, as by NFS
        self.states = [home / ".local" / "state"]
        self.env = {"HOME": home, "XDG_STATE_HOME": None}

    def detach(self, *options):
        machines = self.machines
        done = self.start(
            *machines.nodes[0], program("ctrun"), "--hosts", ",".join(machines.addresses[1:]), "--detach",
            *self.agent, *options, *WORKER, self.go, env={"HOME": self.tmp / "laptop", "XDG_STATE_HOME": None},
        ).wait()  # fmt: skip
        self.assertEqual(done.code, 0, done)
        return re.search(r"job (\S+) runs on \d machines", done.out).group(1)

    def attach(self, index, job):
        return self.start(*self.machines.nodes[index], program("ctrun"), "--attach", job, env=self.env)

    def test_the_machine_of_the_terminal_is_lost(self):
        self.set_up_machines(3)
        job = self.detach()
        led = self.start(*self.machines.nodes[0], program("ctrun"), "--attach",
                         env={"HOME": self.tmp / "laptop", "XDG_STATE_HOME": None})  # fmt: skip
        led.wait_for("rank 0 up")
        led.signal(signal.SIGINT)
        left = led.wait()
        self.assertEqual(left.code, 130, left)
        self.assertTrue(left.err.endswith(f"ctrun: the job goes on; ctrun --attach {job} shows it again\n"), left)
        wait_until(lambda: not watchers(f"{job}-0"), "nobody shows it over there")
        self.machines.cut(0)
        watching = [self.attach(i, job) for i in (1, 2)]
        for rank, one in enumerate(watching):
            one.wait_for(f"rank {rank} up")
        elsewhere = self.attach(0, f"{job}-0").wait()
        self.assertEqual(elsewhere.code, 1, elsewhere)
        self.assertIn("runs on node-2 and not on node-1", elsewhere.err)
        self.end(0)
        for rank, one in enumerate(watching):
            done = one.wait()
            self.assertEqual(done.code, 0, done)
            self.assertIn(f"rank {rank} ends", done.out)

    def test_another_machine_tells_of_the_end(self):
        self.set_up_machines(4)
        job = self.detach("--nnodes", "2:3", "--max-restarts", "3")
        watching = self.attach(2, job)
        watching.wait_for("rank 1 up")
        os.kill(int(self.records()[f"{job}-0"]["pid"]), signal.SIGKILL)
        watching.wait_for("rank 0 up")
        found = re.search(r"ctrun (--attach \S+) on one of (\S+) shows it", self.attach(1, f"{job}-0").wait().err)
        self.assertEqual(found.group(1), f"--attach {job}")
        self.assertEqual(found.group(2), "10.9.1.[3-4]")
        self.end(0)
        self.assertEqual(watching.wait().code, 0)

    def test_the_machine_of_the_store_is_lost_after_it(self):
        self.set_up_machines(4)
        job = self.detach("--nnodes", "2:3", "--shutdown-timeout", "5")
        self.machines.cut(0)
        watching = [self.attach(i, job) for i in (2, 3)]
        for rank, one in enumerate(watching, 1):
            one.wait_for(f"rank {rank} up")
        self.machines.cut(1)  # it is silent, so the others wait until its workers must have stopped
        for rank, one in enumerate(watching):
            one.wait_for(f"rank {rank} up")
        self.end(0)
        for one in watching:
            done = one.wait()
            self.assertEqual(done.code, 0, done)
            self.assertIn("the job's store now", done.out)


if __name__ == "__main__":
    main()
