# SPDX-License-Identifier: Apache-2.0
"""`ctrun --warm train`: a worker that was a spare is as one that was started cold, and goes on to the same model.

Rank 0 writes its metrics into a small pipe, so the training stands still until the test reads them."""

import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal

import testlib
from testlib.idx import write_dataset

LIMIT = 120  # a spare gets ready at idle priority on a busy machine
PIPE = 4096  # bytes, which is about 40 lines
STEPS = 300  # of the whole training


class TrainWarm(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = self.tmp / "data"
        self.data.mkdir()
        write_dataset(self.data, packed=False)
        self.rows = b""

    def start_train(self, *options, program="train"):
        path = self.tmp / "metrics"
        os.mkfifo(path)
        self.pipe = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, self.pipe)
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, PIPE)
        path.rename(self.tmp / "now")  # the same name in each job, so that command lines are equal
        job = self.start_ctrun(
            "-n", 2, "--max-restarts", "5", *options, program, "--data", self.data, "--hidden", "24", "--epochs", "10",
            "--batch-size", "20", "--device", "cpu", "--metrics", self.tmp / "now", "--metrics-every", "1",
            env={"LOGLEVEL": "info"},
        )  # fmt: skip
        self.read_to(1)
        return job

    def read_to(self, step):
        """Reads rows up to that step or later, and returns the last one."""
        while True:
            *whole, self.rows = self.rows.split(b"\n")
            for at, line in enumerate(whole):
                row = json.loads(line)
                if row.get("step", STEPS + 1) >= step:
                    self.rows = b"\n".join([*whole[at + 1 :], self.rows])
                    return row
            self.assertTrue(select.select([self.pipe], [], [], LIMIT)[0], "the training stands still")
            self.rows += os.read(self.pipe, PIPE)

    def processes(self, job):
        """Pids by local rank: those of the workers, and those of the spares, if all of these are ready."""
        spares = {int(r): int(p) for r, p in re.findall(r"spare of local rank (\d+) is ready \(pid (\d+)", job.err)}
        workers = {}
        for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            try:
                environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue  # it has ended meanwhile
            rank = re.search(rb"\0LOCAL_RANK=(\d+)\0", environ)
            if rank is not None and int(pid) not in spares.values():
                workers[int(rank.group(1))] = int(pid)
        return workers, spares

    def kill_when_ready(self, job, rank, before=None):
        for each in range(2):
            job.wait_for(f"the spare of local rank {each} is ready", LIMIT)
        workers, spares = self.processes(job)
        self.assertEqual((len(workers), len(spares)), (2, 2))
        if before is not None:
            before(spares)
        os.kill(workers[rank], signal.SIGKILL)
        return spares

    def end(self, job):
        """The hash of the model with which the job ends."""
        last = self.read_to(STEPS + 1)
        result = job.wait(LIMIT)
        self.assertEqual(result.code, 0, result)
        job.wait_no_family(LIMIT)
        return last["param_hash"]

    def undisturbed(self):
        hash_of = self.end(self.start_train())
        (self.tmp / "now").unlink()
        return hash_of

    def test_it_goes_on_to_the_same_model(self):
        expected = self.undisturbed()
        job = self.start_train("--warm")
        self.kill_when_ready(job, 0)
        job.wait_for("generation 1: 2 of 2 workers here were warm", LIMIT)
        job.wait_for("going on from memory after step", LIMIT)
        self.assertEqual(self.end(job), expected)

    def test_kills_of_workers_and_spares_lose_nothing(self):
        expected = self.undisturbed()
        job = self.start_train("--warm")

        def ready(*counts):
            whole = [job.err.count(f"the spare of local rank {rank} is ready") for rank in range(2)]
            return all(have >= wanted for have, wanted in zip(whole, counts))

        for kill in range(3):
            testlib.wait_until(lambda: ready(2 * kill + 1, kill + 1), "the spares", LIMIT)
            os.kill(self.processes(job)[1][0], signal.SIGKILL)
            testlib.wait_until(lambda: ready(2 * kill + 2, kill + 1), "another spare", LIMIT)
            os.kill(self.processes(job)[0][kill % 2], signal.SIGKILL)
            job.wait_for(f"generation {kill + 1}: 2 of 2 workers here were warm", LIMIT)
            self.read_to(80 * (kill + 1))
        self.assertEqual(self.end(job), expected)

    def facts(self, pid):
        """What the kernel tells of a process."""
        proc = pathlib.Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        names = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed", "Mems_allowed", "NoNewPrivs")
        kinds = sorted(os.readlink(fd) for fd in (proc / "fd").iterdir())
        return {
            "status": [status[name].split() for name in names], "limits": (proc / "limits").read_text(),
            "descriptors": [re.sub(r"\d+", "N", kind) for kind in kinds], "cwd": os.readlink(proc / "cwd"),
            "cmdline": (proc / "cmdline").read_bytes(), "comm": (proc / "comm").read_text(),
            "leads": [os.getsid(pid) == pid, os.getpgid(pid) == pid], "nice": os.getpriority(os.PRIO_PROCESS, pid),
            "scheduler": os.sched_getscheduler(pid), "oom": (proc / "oom_score_adj").read_text(),
        }  # fmt: skip

    def generation_1(self, *options):
        job = self.start_train(*options)
        if options:
            pids = self.kill_when_ready(job, 1)
        else:
            os.kill(self.processes(job)[0][1], signal.SIGKILL)
        self.read_to(150)  # far behind where the pipe has stopped generation 0
        seen = [self.facts((pids if options else self.processes(job)[0])[rank]) for rank in range(2)]
        self.end(job)
        (self.tmp / "now").unlink()
        return seen

    def test_a_worker_that_was_a_spare_looks_the_same(self):
        cold, warm = self.generation_1(), self.generation_1("--warm")
        for rank in range(2):
            for what in cold[rank]:
                with self.subTest(rank=rank, what=what):
                    self.assertEqual(warm[rank][what], cold[rank][what])

    def cold(self, before, reason, program="train"):
        """The workers start cold after `before`, and nothing is lost."""
        expected = self.undisturbed()
        job = self.start_train("--warm", program=program)
        self.kill_when_ready(job, 1, before)
        job.wait_for("going on from memory after step", LIMIT)
        self.assertEqual(self.end(job), expected)
        self.assertRegex(job.err, r"(?m)^ctrun: rank \d starts cold: .*" + reason)

    def test_a_data_set_that_was_written_is_read_again(self):
        self.cold(lambda spares: os.utime(self.data / "train-images-idx3-ubyte"), "the data set has changed")

    def test_a_program_that_was_replaced_is_started_anew(self):
        program = self.tmp / "train"
        shutil.copy(testlib.program("train"), program)

        def replace(spares):
            shutil.copy(program, self.tmp / "new")
            os.replace(self.tmp / "new", program)

        self.cold(replace, "train has changed", program)

    def test_a_spare_that_stands_still_is_given_up(self):
        self.cold(lambda spares: os.kill(spares[0], signal.SIGSTOP), "does not answer")

    def test_a_data_set_that_is_gone_makes_no_spares(self):
        job = self.start_train("--warm")
        os.rename(self.data, self.tmp / "away")
        job.wait_for("--warm makes no spares: ", LIMIT)
        os.rename(self.tmp / "away", self.data)
        self.end(job)
        self.assertRegex(job.err, "--warm makes no spares: .*data")


if __name__ == "__main__":
    testlib.main()
