# SPDX-License-Identifier: Apache-2.0
"""`ctrun --hosts`: one command that starts a job on several machines. A shell stands in for ssh
where the test is not about it; a real sshd on two machines of their own is held against it too."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import testlib
from testlib import Case, main, program, wait_until
from testlib.netns import Cluster

# Takes HOST COMMAND as ssh does; a host that begins with "no" is not there.
AGENT = """#!/bin/sh
case $1 in no*) echo "agent: no way to $1" >&2; exit 255;; esac
exec env -i PATH="$PATH" sh -c "$2"
"""


def running(marker):
    """Processes whose command line holds the marker."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
        except OSError:
            pass
    return found


class Hosts(Case):
    """A shell is the launch agent."""

    def setUp(self):
        super().setUp()
        self.agent = self.script("agent", AGENT)
        os.chmod(self.agent, 0o755)

    def args(self, hosts, *command, options=()):
        return (
            "--hosts", hosts, "--launch-agent", self.agent, "--local-addr", "127.0.0.1", *options,
            "--no-python", *command,
        )  # fmt: skip

    def test_places_and_environment(self):
        done = self.ctrun(
            *self.args(
                "127.0.0.2:2,127.0.0.3",
                "sh", "-c", 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $OMP_NUM_THREADS"',
            ),
            env={"OMP_NUM_THREADS": "3", "CTRUN_TOKEN": "never shown to any worker"},
        )  # fmt: skip
        self.assertEqual(done.code, 0, done.err)
        lines = sorted(line.split("] ")[-1] for line in done.out.splitlines())
        lines = sorted(re.sub(r"^.*?(\d+/\d+ )", r"\1", line) for line in lines)
        self.assertEqual(lines, ["0/3 0/2 0 3", "1/3 1/2 0 3", "2/3 0/1 1 3"])

    def test_words_arrive_as_they_are(self):
        done = self.ctrun(*self.args("127.0.0.2", "printf", "%s|", "a b", "it's", "$HOME", "*"))
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("a b|it's|$HOME|*|", done.out)

    def test_no_token_in_sight(self):
        peek = "tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' '\\n' </proc/self/environ"
        done = self.ctrun(*self.args("127.0.0.2", "sh", "-c", peek))
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("--agent-stdin", done.out)
        self.assertNotIn("CTRUN_TOKEN", done.out)
        self.assertNotRegex(done.out, r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

    def test_localhost_needs_no_agent(self):
        done = self.ctrun("--hosts", "localhost:2", "--launch-agent", "/nowhere/ssh",
                          "--no-python", "sh", "-c", "echo $RANK")  # fmt: skip
        self.assertEqual(done.code, 0, done.err)

    def test_equal_lines_of_all_machines_become_one(self):
        argv = self.args("127.0.0.2:2,127.0.0.3:1", "sh", "-c", "echo hello; echo only $RANK")
        for how in ((), ("--fold", "off")):
            terminal = testlib.Terminal(program("ctrun"), *how, *argv, env={"TERM": "xterm"})
            self.addCleanup(terminal.close)
            lines = terminal.read_all().splitlines()
            for rank in range(3):
                of_it = [x for x in lines if re.search(rf"[\[:]{rank}] only {rank}$", x)]
                self.assertEqual(len(of_it), 1, lines)
            hello = [x for x in lines if x.endswith("] hello")]
            # The machine may be slow: then an equal line comes too late for the others.
            self.assertTrue(len(hello) == 3 if how else len(hello) < 3, lines)

    def test_hostfile(self):
        path = self.script("hosts", "# two machines\n127.0.0.2 slots=2\n127.0.0.3:1\n")
        done = self.ctrun("--hostfile", path, "--launch-agent", self.agent, "--local-addr",
                          "127.0.0.1", "--no-python", "sh", "-c", "echo of $WORLD_SIZE")  # fmt: skip
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.out.count("of 3"), 3)

    def test_failure_is_named_and_its_code_passed_on(self):
        done = self.ctrun(
            *self.args("127.0.0.2,127.0.0.3", "sh", "-c", "[ $RANK = 1 ] && exit 7; sleep 60")
        )
        self.assertEqual(done.code, 7, done.err)
        self.assertRegex(done.err, r"rank 1 failed on .*exited with code 7")

    def test_machine_that_cannot_be_reached(self):
        done = self.ctrun(*self.args("127.0.0.2,nowhere", "sleep", "60"))
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("agent: no way to nowhere", done.err)
        self.assertRegex(done.err, r"ctrun: nowhere: ctrun could not be started there: .* code 255")

    def test_a_launch_agent_that_gives_a_terminal(self):
        if shutil.which("script") is None:
            self.skipTest("script(1) is not in PATH")
        agent = self.script("tty", '#!/bin/sh\nexec script -qec "$2" /dev/null\n')
        os.chmod(agent, 0o755)
        done = self.ctrun("--hosts", "127.0.0.2:1,127.0.0.3:1", "--launch-agent", agent,
                          "--local-addr", "127.0.0.1", "--no-python", "sleep", "60")  # fmt: skip
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("use --launch-agent 'ssh -T'", done.out + done.err)

    def test_signal_reaches_all(self):
        job = self.start_ctrun(
            *self.args("127.0.0.2,127.0.0.3", "sh", "-c",
                       "trap 'echo rank $RANK heard; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        )  # fmt: skip
        wait_until(lambda: job.out.count("up") == 2, "both workers run")
        job.signal(signal.SIGTERM)
        done = job.wait()
        self.assertEqual(done.code, 123, done.err)  # asked to end, and all ended in order
        self.assertEqual(done.out.count("heard"), 2, done.out)

    def test_ignored_hangup_stays_ignored(self):
        job = self.start_ctrun(
            *self.args("127.0.0.2", "sh", "-c",
                       "echo up; while [ ! -e $0/go ]; do sleep 0.01; done; echo done", self.tmp),
            preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as by nohup(1)
        )  # fmt: skip
        wait_until(lambda: "up" in job.out, "the worker runs")
        job.signal(signal.SIGHUP)
        (self.tmp / "go").touch()
        done = job.wait()
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("done", done.out)

    def test_nothing_is_left_when_it_is_killed(self):
        marker = f"61.{os.getpid()}"
        job = self.start_ctrun(*self.args("127.0.0.2,127.0.0.3", "sleep", marker))
        wait_until(lambda: len(running(marker)) >= 2, "both workers run")
        job.signal(signal.SIGKILL)
        wait_until(lambda: not running(marker), "the workers are gone")

    def test_what_makes_no_sense(self):
        for args, says in (
            (("--hosts", "a,,b"), "'a,,b' names an empty host"),
            (("--hosts", "a:none"), "'none' is not a number of workers"),
            (("--hosts", "a", "--standalone"), "--standalone has no meaning with --hosts"),
            (("--hosts", "a", "--node-rank", "1", "--nnodes", "2"), "--node-rank has no meaning"),
            (("--hosts", "a", "--nnodes", "2"), "--nnodes asks for 2 machines, --hosts names 1"),
            (("--hosts", ""), "--hosts: the value is empty"),
            (("--hosts=",), "--hosts: the value is empty"),
            (("--hosts", "a", "--hostfile", ""), "--hostfile: the value is empty"),
        ):
            with self.subTest(args=args):
                done = self.ctrun(*args, "--no-python", "true")
                self.assertEqual(done.code, 2, done.err)
                self.assertIn(says, done.err)
                self.assert_one_line(done.err)
        done = self.ctrun("--hostfile", "/nowhere/hosts", "--no-python", "true")
        self.assertEqual(done.code, 1)
        self.assertIn("hostfile: cannot open /nowhere/hosts", done.err)
        self.assert_one_line(done.err)


@unittest.skipUnless(shutil.which("sshd", path="/usr/sbin:/sbin"), "there is no sshd here")
class RealSsh(Case):
    """Two machines with names, addresses and an sshd each."""

    def setUp(self):
        super().setUp()
        self.machines = Cluster(self, 2, real_root=True)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.tmp / name], check=True
            )
        server = self.script("sshd_config", f"""
            HostKey {self.tmp}/host
            AuthorizedKeysFile {self.tmp}/user.pub
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin yes
        """)  # fmt: skip
        client = self.script("ssh_config", f"""
            IdentityFile {self.tmp}/user
            IdentitiesOnly yes
            StrictHostKeyChecking no
            UserKnownHostsFile /dev/null
            LogLevel ERROR
        """)  # fmt: skip
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation insists on it
        for node in self.machines.nodes:
            sshd = self.start(*node, "/usr/sbin/sshd", "-D", "-e", "-f", server)
            self.addCleanup(sshd.popen.kill)  # its title stands where its environment was
            sshd.wait_for("listening on")
        self.agent = ("--launch-agent", f"ssh -F {client}")
        self.hosts = ",".join(f"{a}:2" for a in self.machines.addresses)

    def from_first(self, *args):
        return self.start(*self.machines.nodes[0], program("ctrun"), "--hosts", self.hosts,
                          *self.agent, *args)  # fmt: skip

    def test_train_on_two_machines(self):
        done = self.from_first(
            "train", "--data", "synthetic", "--device", "cpu", "--epochs", "1"
        ).wait(120)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("4 workers on cpu", done.out)

    def test_the_other_machine_is_named(self):
        # "$$" is a dollar, as torchrun's templates have it.
        done = self.from_first(
            "--no-python", "sh", "-c", "[ $RANK = 3 ] && kill -9 $$$$; sleep 60"
        ).wait(120)
        self.assertEqual(done.code, 137, done.err)
        self.assertRegex(done.err, r"rank 3 failed on node-2: process \d+ was killed by signal 9")

    def test_nothing_is_left_over_there(self):
        marker = f"62.{os.getpid()}"
        job = self.from_first("--no-python", "sleep", marker)
        wait_until(lambda: len(running(marker)) >= 4, "all workers run")
        job.signal(signal.SIGKILL)
        wait_until(lambda: not running(marker), "the workers are gone")


if __name__ == "__main__":
    main()
