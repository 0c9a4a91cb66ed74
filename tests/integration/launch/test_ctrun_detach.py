# SPDX-License-Identifier: Apache-2.0
"""`ctrun --detach` and `ctrun --attach`: a job goes on without its terminal, and is shown again."""

import errno
import os
import pathlib
import re
import resource
import shutil
import signal
import socket

import testlib
from testlib import main, pid_alive, program, wait_until
from testlib.case import WAITS, DetachedCase


def free_port():
    """Not 29500, at which another test's ctrun may wait for a second machine, and would take ours."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


class Detached(DetachedCase):
    def setUp(self):
        super().setUp()
        (self.state,) = self.states
        self.env = {"XDG_STATE_HOME": self.state, "XDG_RUNTIME_DIR": None, "TZ": "UTC"}

    def detach(self, *args, **kwargs):
        """Returns the id and the process id of a job that runs."""
        done = self.ctrun("--detach", *args, env=self.env, **kwargs)
        self.assertEqual(done.code, 0, done)
        found = re.search(r"\Actrun: job (\S+) runs on \S+ without this terminal, as process (\d+)\n", done.out)
        self.assertTrue(found, done)
        return found.group(1), int(found.group(2))

    def detach_waiting(self, *args):
        return self.detach(*args, "--no-python", "sh", "-c", WAITS, self.go)

    def attach(self, *args):
        return self.ctrun("--attach", *args, env=self.env)

    def start_attach(self, *args):
        return self.start_ctrun("--attach", *args, env=self.env)

    def text_of(self, job):
        return (self.state / "ctrun" / job / "console.log").read_text()


class OneMachine(Detached):
    def test_its_lines_say_what_a_user_needs(self):
        done = self.ctrun("--detach", "-n", "2", "--no-python", "sh", "-c", WAITS, self.go, env=self.env)
        self.assertEqual(done.code, 0, done)
        ((job, record),) = self.records().items()
        folder = self.state / "ctrun" / job
        self.assertEqual(
            done.out.splitlines()[1:],
            [
                f"ctrun: its output: ctrun --attach {job}, or {folder}/console.log",
                f"ctrun: its status: ctrun-stat {record['address']}",
                f"ctrun: to end it: kill {record['pid']}",
            ],
        )
        self.assertTrue(record["run-id"].startswith(job))
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual(folder.parent.stat().st_mode & 0o777, 0o700)
        status = self.run_program(program("ctrun-stat"), record["address"])
        self.assertEqual(status.code, 0, status)
        os.kill(int(record["pid"]), signal.SIGTERM)
        shown = self.attach(job)
        self.assertEqual(shown.code, 143, shown)
        self.assertIn("received SIGTERM", shown.out)

    def test_its_id_is_told_even_if_its_lines_cannot_be_written(self):
        for where, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
            with self.subTest(where=where):
                before = set(self.records())
                argv = (program("ctrun"), "--detach", "--no-python", "sh", "-c", WAITS, self.go)
                done = self.run_program("sh", "-c", f'exec "$@" {where}', "sh", *argv, env=self.env)
                self.assertEqual(done.code, 0, done)  # the job runs
                (job,) = set(self.records()) - before
                lines = [line for line in done.err.splitlines() if line != "rank 0 up"]
                self.assertEqual(
                    lines,
                    [
                        f"ctrun: cannot write to standard output: {why}; job {job} runs all the same, as process "
                        f"{self.records()[job]['pid']}: ctrun --attach {job} shows it"
                    ],
                )

    def test_it_outlives_its_terminal(self):
        shell = f"{program('ctrun')} --detach -n 2 --no-python sh -c '{WAITS}' {self.go}; exec sleep 600"
        env = {k: str(v) for k, v in self.env.items() if v is not None}
        terminal = testlib.Terminal("sh", "-c", shell, env=env, interactive=True)
        text = terminal.read_until("to end it")
        job = re.search(r"job (\S+) runs", text).group(1)
        pid = int(self.records()[job]["pid"])
        os.close(terminal.fd)  # the kernel sends SIGHUP
        terminal.proc.wait(testlib.DEADLINE)
        self.assertTrue(pid_alive(pid))
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self.assertEqual(fields[3], str(pid), "it has a session of its own")
        self.assertEqual(fields[4], "0", "it has no terminal")
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")

        again = testlib.Terminal(program("ctrun"), "--attach", env=env, interactive=True)
        again.read_until("rank 1 up")
        self.end(7)
        text = again.read_all()
        self.assertRegex(text, r"\[[01]\] rank [01] ends")
        self.assertRegex(text, rf"ctrun: job {job} has ended with code 7 at 20\d\d-")
        self.assertEqual(again.proc.wait(testlib.DEADLINE), 7)
        os.close(again.fd)

    def test_a_job_in_another_container_or_on_a_machine_of_the_same_name(self):
        job, _ = self.detach_waiting()
        record = self.state / "ctrun" / job / "job"
        text, host = record.read_text(), os.uname().nodename
        place = re.search(r"^place (\S+)/pid:\[\d+\]$", text, re.M)
        elsewhere = [(text.replace(place.group(0), f"place {place.group(1)}/pid:[1]"),
                      f"job {job} runs on this machine, but in another container (PID namespace), with the host "
                      f"name {host}: run ctrun --attach {job} there")]  # fmt: skip
        if "\nmachine " in text:  # this machine has an id
            other = re.sub("^machine .*$", "machine 0123456789abcdef", text, flags=re.M)
            elsewhere += [(other.replace(place.group(0), "place 0/pid:[1]"),
                           f"job {job} runs on another machine that is called {host}, too: run ctrun --attach "
                           f"{job} there")]  # fmt: skip
        for changed, says in elsewhere:
            record.write_text(changed)
            done = self.attach(job)
            self.assertEqual(done.code, 1, done)
            self.assertEqual(done.err, f"ctrun: {says}\n")
        record.write_text(text)

    def test_ctrl_c_leaves_the_job_alone(self):
        job, pid = self.detach_waiting()
        env = {k: str(v) for k, v in self.env.items() if v is not None}
        terminal = testlib.Terminal(program("ctrun"), "--attach", job[:4], env=env, interactive=True)
        self.addCleanup(terminal.close)
        text = terminal.read_until("rank 0 up")
        address = self.records()[job]["address"]
        self.assertIn(
            f"Ctrl-C leaves it alone, kill {pid} ends it, and its status is ctrun-stat {address}\n", text
        )
        terminal.write("\x03")
        self.assertIn(f"ctrun: the job goes on; ctrun --attach {job} shows it again", terminal.read_all())
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 130)
        self.assertTrue(pid_alive(pid))
        self.end(0)
        done = self.attach(job)
        self.assertEqual(done.code, 0, done)

    def test_two_may_show_it_even_if_its_folder_is_removed(self):
        job, _ = self.detach_waiting()
        watching = [self.start_attach(job), self.start_attach()]
        for one in watching:
            one.wait_for("rank 0 up")
        shutil.rmtree(self.state / "ctrun" / job)  # as the next --detach does long after the end
        self.end(7)
        for one in watching:
            done = one.wait()
            self.assertEqual(done.code, 7, done)
            self.assertIn("rank 0 ends", done.out)
            self.assertIn(f"job {job} has ended with code 7", done.err)

    def test_ctrl_c_leaves_a_job_that_writes_more_than_is_shown(self):
        job, pid = self.detach_waiting()
        env = {k: str(v) for k, v in self.env.items() if v is not None}
        terminal = testlib.Terminal(program("ctrun"), "--attach", env=env, interactive=True)
        self.addCleanup(terminal.close)
        terminal.read_until("rank 0 up")
        much = 4 << 20
        os.truncate(self.state / "ctrun" / job / "console.log", much)
        terminal.read_until_more()
        terminal.write("\x03")
        self.assertTrue(terminal.read_all().endswith(f"ctrun: the job goes on; ctrun --attach {job} shows it again\n"))
        self.assertLess(len(terminal.seen), much // 2)
        self.assertEqual(terminal.proc.wait(testlib.DEADLINE), 130)
        self.assertTrue(pid_alive(pid))

    def test_it_holds_nothing_of_the_shell(self):
        pipe = self.tmp / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        argv = (program("ctrun"), "--detach", "--no-python", "sh", "-c", WAITS, self.go)
        shell = self.run_program("sh", "-c", 'exec 9>"$0"; "$@"', pipe, *argv, env=self.env)
        self.assertEqual(shell.code, 0, shell)
        self.assertEqual(os.read(reader, 1), b"")  # nobody has it open

    def test_after_the_end_the_last_lines_are_shown(self):
        job, pid = self.detach("--no-python", "sh", "-c", "seq 100; exit 5")
        wait_until(lambda: not pid_alive(pid), "the job ends")
        done = self.attach(job)
        self.assertEqual(done.code, 5, done)
        self.assertIn("\n100\n", done.out)
        self.assertNotIn("\n10\n", done.out)
        self.assertIn(f"job {job} ran on {os.uname().nodename} as process {pid}\n", done.err)
        self.assertIn("has ended with code 5", done.err)
        self.assertEqual(self.attach(job).code, 5)
        none = self.attach()
        self.assertEqual(none.code, 2, none)
        self.assertRegex(none.err, r"no detached job of yours runs on \S+; name one of these\n")
        self.assertIn(f"  {job}  ended with 5  sh -c", none.err)

    def test_several_jobs_are_listed(self):
        one, _ = self.detach_waiting("--rdzv-id", "exp/1")
        two, _ = self.detach_waiting("--rdzv-id", "exp/1")
        self.assertRegex(one, "^exp_1-[0-9a-f]{8}$")
        for args in ((), ("exp",), ("exp/1",)):
            done = self.attach(*args)
            self.assertEqual(done.code, 2, done)
            self.assertIn(f"  {one}  runs  sh -c", done.err)
            self.assertIn(f"  {two}  runs  sh -c", done.err)
        address = self.records()[two]["address"]
        watching = self.start_attach(address)
        watching.wait_for(f"job {two} runs on")
        self.end(0)
        self.assertEqual(watching.wait().code, 0)

    def test_a_list_of_long_lines_is_whole(self):
        ids = [self.detach("--no-python", "true", "x" * 240)[0] for _ in range(11)]
        wait_until(lambda: not any(pid_alive(int(r["pid"])) for r in self.records().values()), "the jobs end")
        lines = self.attach().err.splitlines()
        self.assertEqual(len(lines), 12)
        self.assertEqual(lines[-1], "  and 1 more")
        self.assertEqual(sum(any(job in line for job in ids) for line in lines), 10)
        self.assertTrue(all(line.endswith("x" * 240) for line in lines[1:-1]))

    def test_a_job_that_does_not_start(self):
        for args, code, says in (
            (("--no-python", "no-such-program"), 127, "ctrun: no-such-program: not found"),
            (("--no-python", "--log-dir", "/proc/none", "true"), 1, "--log-dir: cannot make the folder"),
            (("--master-addr", "198.51.100.7", "true"), 2, "198.51.100.7"),
        ):
            with self.subTest(args=args):
                done = self.ctrun("--detach", *args, env=self.env)
                self.assertEqual(done.code, code, done)
                self.assertIn(says, done.err)
                self.assert_one_line(done.err)
                self.assertEqual(done.out, "")
                self.assertEqual(self.records(), {})

    def start_one_of_two(self, port):
        return self.start_ctrun(
            "--detach", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--open",
            "--no-python", "true", env=self.env,
        )  # fmt: skip

    def start_that_waits(self):
        """A --detach whose job waits for a machine that does not come."""
        waiting = self.start_one_of_two(free_port())
        waiting.wait_for("waiting for")
        return waiting

    def test_jobs_of_several_machines_have_ids_of_their_own(self):
        port = free_port()
        for one in (self.start_one_of_two(port), self.start_one_of_two(port)):
            self.assertEqual(one.wait().code, 0)
        wait_until(lambda: not any(pid_alive(int(r["pid"])) for r in self.records().values()), "both have ended")
        ids = list(self.records())
        self.assertEqual(len(ids), 2)
        for job in ids:
            self.assertRegex(job, "^[0-9a-f]{8}$")
        done = self.attach("none")  # the run id of both
        self.assertEqual(done.code, 2, done)
        self.assertIn("--attach none: 2 jobs begin with this; name one of these\n", done.err)

    def test_ctrl_c_while_it_starts(self):
        waiting = self.start_that_waits()
        waiting.signal(signal.SIGINT)
        done = waiting.wait()
        self.assertEqual(done.code, 130, done)
        self.assertIn("received SIGINT", done.err)
        self.assertEqual(self.records(), {})

    def test_a_ctrun_that_is_killed_while_it_starts(self):
        waiting = self.start_that_waits()
        ((_, record),) = self.records().items()
        os.kill(int(record["pid"]), signal.SIGKILL)
        done = waiting.wait()
        self.assertEqual(done.code, 137, done)
        self.assertTrue(
            done.err.endswith(
                f"\nctrun: the job's ctrun (process {record['pid']}) was killed by SIGKILL before the workers ran\n"
            ),
            done,
        )
        self.assertEqual(self.records(), {})

    def test_a_ctrun_that_is_killed(self):
        job, pid = self.detach_waiting()
        watching = self.start_attach()
        watching.wait_for("rank 0 up")
        os.kill(pid, signal.SIGKILL)
        done = watching.wait()
        self.assertEqual(done.code, 121, done)
        self.assertIn(f"ctrun: job {job} has ended without an exit code: its ctrun on", done.err)
        self.assertEqual(self.attach(job).code, 121)

    def test_a_console_that_cannot_grow(self):
        limit = 4096
        job, pid = self.detach(
            "-n", "2", "--no-python", "sh", "-c",
            'i=0; while [ $i -lt 200 ]; do echo "$i is a line that fills the file"; i=$((i + 1)); done; exit 3',
            preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip
        wait_until(lambda: not pid_alive(pid), "the job ends")
        self.assertLessEqual(len(self.text_of(job)), limit)
        self.assertEqual(self.attach(job).code, 3)

    def test_one_worker_outlives_a_full_disk(self):
        script = self.script("x.py", "for i in range(2000):\n    print('a line that fills the file')\n")
        job, pid = self.detach(
            script, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        )
        wait_until(lambda: not pid_alive(pid), "the job ends")
        self.assertEqual(self.attach(job).code, 0)

    def test_a_full_disk_is_told_when_attached(self):
        self.state.mkdir()
        writes = (
            'yes "a line" | head -c 300000; while [ ! -e "$0" ]; do sleep 0.05; done; rm "$1"/ballast; echo the end'
        )
        script = """
            mount -t tmpfs -o size=256k,mode=700 tmpfs "$0" && echo mounted || exit
            head -c 100000 /dev/zero >"$0"/ballast
            "$1" --detach --no-python sh -c "$2" "$3" "$0" && exec "$1" --attach
        """
        inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
        job = self.start(*inside, script, self.state, program("ctrun"), writes, self.go, env=self.env)
        wait_until(lambda: "mounted" in job.out or not job.running(), "a disk")
        if "mounted" not in job.out:
            self.skipTest(f"no small disk here: {job.err}")
        job.wait_for(f"the disk of {self.state}/ctrun/")
        self.end(0)
        done = job.wait()
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.err.count("is full: what the job writes now may be lost; the job goes on"), 1)
        self.assertTrue(done.out.endswith("\nctrun: output is missing here, because the disk was full\nthe end\n"))

    def test_folders_that_others_may_use(self):
        job, _ = self.detach_waiting()
        root = self.state / "ctrun"
        root.chmod(0o755)
        for args in (("--attach",), ("--detach", "true")):
            done = self.ctrun(*args, env=self.env)
            self.assertEqual(done.code, 1, done)
            self.assert_one_line(done.err)
            self.assertIn(f"the folder {root} of detached jobs is open to other users", done.err)
        root.chmod(0o700)
        (root / job).rename(self.tmp / "moved")
        (root / job).symlink_to(self.tmp / "moved")
        done = self.attach(job)
        self.assertEqual(done.code, 2, done)  # it is no job
        (root / job).unlink()
        (self.tmp / "moved").rename(root / job)
        (root / job / "console.log").rename(self.tmp / "console")
        (root / job / "console.log").symlink_to(self.tmp / "console")
        done = self.attach(job)
        self.assertEqual(done.code, 1, done)
        self.assertEqual(done.err, f"ctrun: job {job}: cannot open its console.log: {os.strerror(errno.ELOOP)}\n")

    def test_a_state_folder_that_cannot_be_used_names_the_variable(self):
        advice = "; set XDG_STATE_HOME to a folder where you may write\n"
        root = self.state / "ctrun"
        self.state.mkdir()
        for make, says in (
            (lambda: root.symlink_to(self.tmp), "a symbolic link, which ctrun does not follow"),
            (lambda: root.write_text(""), "a file"),
        ):
            make()
            for args in (("--attach",), ("--detach", "true")):
                done = self.ctrun(*args, env=self.env)
                self.assertEqual(done.code, 1, done)
                self.assertEqual(done.err, f"ctrun: the folder {root} of detached jobs is {says}{advice}")
            root.unlink()
        for where in ("/proc/none", "/dev/null/x"):
            done = self.ctrun("--detach", "true", env={**self.env, "XDG_STATE_HOME": where})
            self.assertEqual(done.code, 1, done)
            self.assert_one_line(done.err)
            self.assertIn(f"ctrun: cannot make the folder {where} for detached jobs: ", done.err)
            self.assertTrue(done.err.endswith(advice), done)
        missing = self.tmp / "missing"
        done = self.ctrun("--attach", env={**self.env, "XDG_STATE_HOME": missing})
        self.assertEqual(done.code, 2, done)
        self.assertIn(f"there is no folder {missing}/ctrun (XDG_STATE_HOME): start one with ctrun --detach\n", done.err)
        self.assert_one_line(done.err)

    def test_what_makes_no_sense(self):
        for args, says in (
            (("--attach", "abc", "train.py"), "leave out 'train.py'"),
            (("--attach", "--detach"), "leave out --detach"),
            (("-n", "2", "--attach"), "leave out --nproc-per-node"),
            (("--attach="), "--attach: the value is empty"),
            (("--attach", "none"), "no detached job of yours"),
            (("--detach",), "no program to run is given"),
            (("--detach", "--preflight-only"), "--detach and --preflight-only exclude each other"),
        ):
            with self.subTest(args=args):
                done = self.ctrun(*((args,) if isinstance(args, str) else args), env=self.env)
                self.assertEqual(done.code, 2, done)
                self.assertIn(says, done.err)
                self.assert_one_line(done.err)
        done = self.ctrun("--detach", "true", env={"HOME": None, "XDG_STATE_HOME": None})
        self.assertEqual(done.code, 1, done)
        self.assertIn("set HOME or XDG_STATE_HOME", done.err)
        shim = self.ctrun("--detach", "true", env={**self.env, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
                          "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})  # fmt: skip
        self.assertEqual(shim.code, 2, shim)
        self.assertIn("--detach has no meaning here", shim.err)

    def test_output_that_cannot_be_written(self):
        job, _ = self.detach_waiting()
        wait_until(lambda: "up" in self.text_of(job), "the worker runs")
        argv = (program("ctrun"), "--attach", job)
        done = self.run_program("sh", "-c", 'exec "$@" >/dev/full', "sh", *argv, env=self.env)
        self.assertEqual(done.code, 1, done)
        says = f"No space left on device; ctrun --attach {job} shows the job again\n"
        self.assertTrue(done.err.endswith(says), done)

    def test_a_reader_that_leaves(self):
        job, pid = self.detach_waiting()  # it writes nothing more
        wait_until(lambda: "up" in self.text_of(job), "the worker runs")
        shell = f"{program('ctrun')} --attach {job} | head -n 1; echo ${{PIPESTATUS[0]}}"
        done = self.run_program("bash", "-c", shell, env=self.env)
        self.assertEqual(done.out.splitlines(), ["rank 0 up", "141"], done)
        self.assertTrue(pid_alive(pid))


if __name__ == "__main__":
    main()
