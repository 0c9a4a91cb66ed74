# SPDX-License-Identifier: Apache-2.0
"""`ctrun --hosts`: one command that starts a job on several machines. A shell stands in for ssh
where the test is not about it; a real sshd on two machines of their own is held against it too."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import urllib.request

import testlib
from testlib import Case, main, program, wait_until
from testlib.netns import SshCase

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

    def test_workers_of_all_hosts_get_their_place_and_environment(self):
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

    def test_hostfile_is_read_like_hosts(self):
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

    def test_the_live_page_stays_after_the_end(self):
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        options = ("--print-url", "--linger", "600", "--max-restarts", "0")
        job = self.start_ctrun(
            *self.args("127.0.0.2,127.0.0.3", "sh", "-c", "sleep 2; [ $RANK = 1 ] && exit 7; sleep 60",
                       options=options)
        )  # fmt: skip
        line = job.wait_for("the live page stays at")
        self.assertEqual(len(re.findall("live page: http://.*#key=", job.err)), 1, job.err)
        port = re.search(r"http://127\.0\.0\.1:(\d+)/#key=", line).group(1)
        page = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/page/data"))
        self.assertEqual(sorted(node[1] for node in page["nodes"]), [0, 1])
        self.assertEqual([f["rank"] for f in page["jobs"][0]["failures"]], [1])
        self.assertEqual([cell[2] for cell in page["cells"]], [5, 6])
        job.signal(2)
        self.assertEqual(job.wait().code, 7)

    def test_machine_that_cannot_be_reached(self):
        done = self.ctrun(*self.args("127.0.0.2,nowhere", "sleep", "60"))
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("agent: no way to nowhere", done.err)
        self.assertRegex(done.err, r"ctrun: nowhere: ctrun could not be started there: .* code 255")
        self.assertIn(f'what to do: "{self.agent} nowhere true" must work without a question', done.err)
        self.assertNotIn("received SIGHUP", done.err)

    def test_launch_agent_that_does_not_exist(self):
        marker = self.tmp / "begun"
        done = self.ctrun("--hosts", "127.0.0.2,localhost", "--launch-agent", "/nowhere/ssh", "--local-addr",
                          "127.0.0.1", "--nnodes", "1:2", "--no-python", "touch", marker)  # fmt: skip
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("the launch agent: /nowhere/ssh: no such file", done.err)
        self.assert_one_line(done.err)
        self.assertFalse(marker.exists())

    def test_program_that_cannot_run_keeps_its_exit_code(self):
        noexec = self.script("noexec", "#!/bin/sh\n")
        os.chmod(noexec, 0o644)
        for program_, code in (("no-such-program", 127), (noexec, 126)):
            for hosts in ("localhost:2", "127.0.0.2"):
                with self.subTest(hosts=hosts, code=code):
                    done = self.ctrun(*self.args(hosts, program_))
                    self.assertEqual(done.code, code, done.err)
                    name = hosts.split(":", maxsplit=1)[0]
                    self.assertEqual(done.err.splitlines()[1:],
                                     [f"ctrun: {name}: ctrun there ended with code {code}"])  # fmt: skip

    def test_machine_without_a_ctrun(self):
        # As env(1) tells it there, with the code of a program that is not found.
        agent = self.script("bare", "#!/bin/sh\necho \"env: 'ctrun': No such file\" >&2; exit 127\n")
        os.chmod(agent, 0o755)
        done = self.ctrun("--hosts", "127.0.0.2", "--launch-agent", agent, "--local-addr", "127.0.0.1",
                          "--no-python", "true")  # fmt: skip
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("could not be started there", done.err)

    def test_launch_agent_that_ends_with_0_before_the_job(self):
        # As one that goes into the background, or that does not pass on the code from there.
        agent = self.script("mute", '#!/bin/sh\ncase $1 in mute) exit 0;; esac\nexec sh -c "$2"\n')
        os.chmod(agent, 0o755)
        for hosts in ("mute", "127.0.0.2,mute"):
            with self.subTest(hosts=hosts):
                done = self.ctrun("--hosts", hosts, "--launch-agent", agent, "--local-addr", "127.0.0.1",
                                  "--no-python", "true")  # fmt: skip
                self.assertEqual(done.code, 1, done.err)
                self.assertIn("ctrun: mute: no ctrun runs there: the launch agent", done.err)
                self.assertIn("what to do: the launch agent must last as long", done.err)

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

    def test_names_that_nobody_knows(self):
        done = self.ctrun("--hosts", "no-such-host.invalid", "--launch-agent", self.agent,
                          "--no-python", "true")  # fmt: skip
        self.assertEqual(done.code, 1, done.err)
        self.assertRegex(done.err, r"cannot resolve host 'no-such-host.invalid': .*--local-addr")
        self.assert_one_line(done.err)

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


# Ends for nothing but SIGKILL, as an ssh does not whose network is gone. With a host that begins with
# "late" only when its ctrun has ended.
STUCK_AGENT = """#!/bin/sh
trap '' HUP INT QUIT TERM
case $1 in late*|127*) env -i PATH="$PATH" sh -c "$2";; esac
case $1 in 127*) exit;; esac
exec sleep MARKER
"""


class StuckAgent(Case):
    """A launch agent that does not end holds nobody up."""

    def setUp(self):
        super().setUp()
        self.marker = f"63.{os.getpid()}"
        self.agent = self.script("stuck", STUCK_AGENT.replace("MARKER", self.marker))
        os.chmod(self.agent, 0o755)

    def start_on(self, hosts, *options, command=("sleep", "600")):
        return self.start_ctrun("--hosts", hosts, "--launch-agent", self.agent, "--local-addr",
                                "127.0.0.1", *options, "--no-python", *command)  # fmt: skip

    def wait_for_agents(self, count):
        wait_until(lambda: len(running(self.marker)) == count, "the launch agents run")

    def assert_ended(self, job, code, *hosts):
        done = job.wait()
        self.assertEqual(done.code, code, done.err)
        self.assertRegex(done.err, rf"killed the launch agents? .* for {', '.join(hosts)}, which")
        self.assertEqual(running(self.marker), [])
        return done

    def test_sigterm_ends_it(self):
        job = self.start_on("stuck-1,stuck-2", "--shutdown-timeout", "2")
        self.wait_for_agents(2)
        job.signal(signal.SIGTERM)
        self.assert_ended(job, 143, r"stuck-\[1-2\]")

    def test_sigterm_ends_it_after_its_workers(self):
        job = self.start_on("late", "--shutdown-timeout", "2", command=("sh", "-c", "echo up; sleep 600"))
        job.wait_for("up")
        job.signal(signal.SIGTERM)
        done = self.assert_ended(job, 143, "late")
        self.assertNotIn("joined", done.err)

    def test_second_sigint_ends_it_at_once(self):
        job = self.start_on("stuck", "--shutdown-timeout", "600")
        self.wait_for_agents(1)
        job.signal(signal.SIGINT)
        wait_until(lambda: "(once more" in job.err, "the first one was taken")
        job.signal(signal.SIGINT)
        self.assert_ended(job, 130, "stuck")

    def test_second_sigint_kills_workers(self):
        job = self.start_on("late", "--shutdown-timeout", "600",
                            command=("sh", "-c", "trap '' TERM INT; echo up; sleep 600"))  # fmt: skip
        job.wait_for("up")
        job.signal(signal.SIGINT)
        wait_until(lambda: "(once more" in job.err, "the first one was taken")
        job.signal(signal.SIGINT)
        self.assert_ended(job, 130, "late")

    def test_join_timeout_ends_it(self):
        job = self.start_on("stuck-1,stuck-2", "--rdzv-conf", "join_timeout=0.5")
        done = self.assert_ended(job, 120, r"stuck-\[1-2\]")
        self.assertRegex(done.err, r"join_timeout \(0.5 s\) is over: no ctrun .* from stuck-\[1-2\]\n")
        self.assertRegex(done.err, r"what to do: see whether `\S+ HOST true` ends by itself")

    def test_join_timeout_names_the_one_that_is_missing(self):
        job = self.start_on("127.0.0.2,stuck", "--rdzv-conf", "join_timeout=3")
        done = self.assert_ended(job, 120, "stuck")
        self.assertRegex(done.err, r"no ctrun has joined from stuck, only from 127.0.0.2\n")

    def test_job_ends_without_a_machine_that_it_did_not_need(self):
        job = self.start_on("127.0.0.2,stuck", "--nnodes", "1:2", "--rdzv-conf",
                            "last_call_timeout=0.1", command=("true",))  # fmt: skip
        self.assert_ended(job, 0, "stuck")


class RealSsh(SshCase):
    def setUp(self):
        super().setUp()
        self.set_up_machines(2)
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

    def test_names_that_only_the_configuration_of_ssh_knows(self):
        config = self.tmp / "ssh_config"
        aliases = "".join(
            f"Host alias-{i}\nHostName {a}\n"
            for i, a in enumerate(("127.0.0.1", self.machines.addresses[1]))
        )
        config.write_text(aliases + "Host *\n" + config.read_text())
        job = self.start(
            *self.machines.nodes[0], program("ctrun"), "--hosts", "alias-0:1,alias-1:1",
            *self.agent, "--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE",
        ).wait(120)  # fmt: skip
        self.assertEqual(job.code, 0, job.err)
        self.assertIn("rank 1 of 2", job.out)

    def test_the_other_machine_is_named(self):
        # "$$" is a dollar, as torchrun's templates have it.
        done = self.from_first(
            "--no-python", "sh", "-c", "[ $RANK = 3 ] && kill -9 $$$$; sleep 60"
        ).wait(120)
        self.assertEqual(done.code, 137, done.err)
        self.assertRegex(done.err, r"rank 3 failed on node-2\S* at [0-9.]+: process \d+ was killed by signal 9")

    def test_nothing_is_left_over_there(self):
        marker = f"62.{os.getpid()}"
        job = self.from_first("--no-python", "sleep", marker)
        wait_until(lambda: len(running(marker)) >= 4, "all workers run")
        job.signal(signal.SIGKILL)
        wait_until(lambda: not running(marker), "the workers are gone")


if __name__ == "__main__":
    main()
