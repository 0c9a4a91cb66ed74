# SPDX-License-Identifier: Apache-2.0
"""bench/failover.py: what it concludes from logs and metrics, on texts, and how it runs an etcd. It strikes no job here,
which takes minutes."""

import random
import subprocess
import sys

import testlib

BENCH = testlib.SOURCE_ROOT / "bench"
sys.path.insert(0, str(BENCH))
from strikes import etcd, verdict  # noqa: E402 the path comes first

SPARE = f"ctrun: {verdict.SPARE}\n"


def place(generation, node, count=4):
    return f"ctrun: generation {generation}: node {node} of {count}, rank {node} of {count}\n"


def epoch(number, parameters):
    return f'{{"event":"epoch","epoch":{number},"param_hash":"{parameters}"}}\n'


def end(parameters):
    return f'{{"event":"done","param_hash":"{parameters}"}}\n'


class Logs(testlib.Case):
    def test_places_and_spares_are_read(self):
        log = "ctrun: waiting for 1 of 4 nodes\n" + SPARE
        self.assertTrue(verdict.is_spare(log))
        log += place(3, 2) + "0: epoch 1/9: generation 5: node 1 of 4, rank 1 of 4\n"
        self.assertEqual(verdict.places(log), [(3, 2, 4, 2)])
        self.assertFalse(verdict.is_spare(log))
        self.assertTrue(verdict.is_spare(log + SPARE))

    def test_the_host_is_the_one_named_last(self):
        self.assertIsNone(verdict.host(place(0, 0)))
        log = "ctrun: node-2 hosts the job's store now, at 10.9.1.2 port 29500\n"
        self.assertEqual(verdict.host(log), ("node-2", 29500))
        log += "ctrun: this machine hosts the job's store now, at 10.9.1.1 port 7\n"
        self.assertEqual(verdict.host(log), ("this machine", 7))

    def test_one_world_at_a_time(self):
        logs = {"a": place(0, 0) + place(1, 0), "b": place(0, 1) + place(1, 1), "c": place(1, 2)}
        self.assertEqual(verdict.two_worlds(logs), [])

    def test_two_worlds_at_a_time_are_noticed(self):
        for logs, text in (
            ({"a": place(2, 0), "b": place(2, 0)}, "generation 2 has node 0 twice: a, b"),
            ({"a": place(2, 0, 1), "b": place(2, 1, 2)}, "generation 2 has the sizes [1, 2]"),
            ({"a": place(2, 0) + place(2, 0)}, "a went back: its generations are [2, 2]"),
            ({"a": place(2, 4)}, "generation 2: a is node 4 of 4"),
        ):
            self.assertIn(text, verdict.two_worlds(logs))

    def test_who_waits_for_etcd(self):
        trouble = "ctrun: etcd cannot be used: etcd at http://10.9.1.3:2379: Failed to connect; "
        self.assertTrue(verdict.waits_for_etcd(f"{trouble}this machine waits for it\n"))
        self.assertFalse(verdict.waits_for_etcd(f"{trouble}the job goes on, but if a machine falls silent, it waits for etcd\n"))


class Parameters(testlib.Case):
    calm = epoch(1, "aa") + epoch(2, "bb") + end("bb")

    def test_epochs_may_be_done_again(self):
        again = epoch(1, "aa") + '{"event":"step","step":3}\n' + epoch(1, "aa") + epoch(2, "bb") + end("bb")
        self.assertEqual(verdict.other_parameters(again, self.calm), [])
        self.assertEqual(verdict.end_hash(again), "bb")

    def test_other_parameters_are_noticed(self):
        for metrics, text in (
            (epoch(1, "ab") + epoch(2, "bb") + end("bb"), "after epoch 1 the hash is ab, not aa"),
            (epoch(3, "cc") + end("bb"), "after epoch 3 the hash is cc, not None"),
            (epoch(1, "aa") + end("aa"), "at the end the hash is aa, not bb"),
            (epoch(1, "aa"), "the training did not come to its end"),
            ('{"event":"epo\n' + end("bb"), 'after epoch {"event":"epo the hash is None, not None'),
        ):
            self.assertIn(text, verdict.other_parameters(metrics, self.calm))


class Sums(testlib.Case):
    def test_the_share_of_silences_is_exact(self):
        plan = verdict.in_parts(50, 0.25, random.Random(1))
        self.assertEqual((len(plan), sum(plan)), (50, 12))
        self.assertNotEqual(plan, sorted(plan, reverse=True))

    def test_parts_add_up_and_tell_what_was_wrong(self):
        part = {"counts": {"deaths": 3, "silences": 1, "jobs": 1}, "times": {"death": [0.2, 0.7]}, "hashes": ["aa"]}
        total = verdict.Tally(**part)
        total.add(verdict.Tally(**part))
        self.assertEqual(verdict.Tally(**total.fields()).fields(), total.fields())
        self.assertIn("8 strikes (6 deaths, 2 silences; 0 of them while a generation formed) in 2 jobs: 0 lost, hash aa, ", total.line())
        self.assertIn("next step after a death: 0.450 s (median of 4; 0.200 to 0.700)", total.line())
        self.assertEqual(total.slow(), ["missed: 2 of 4 took 0.5 s or more after a death"])
        self.assertFalse(total.broken())
        lost = verdict.Tally(counts={"nobody": 2, "death": 1}, hashes=["aa"])
        self.assertIn("), 3 outages of etcd (2 with nobody lost, 1 with a death) in 0 jobs: ", lost.line())
        for wrong in ({"counts": {"lost": 1}}, {"counts": {"worlds": 1}}, {"counts": {"parameters": 1}}, {"hashes": ["bb"]}):
            other = verdict.Tally(**part)
            other.add(verdict.Tally(**wrong))
            self.assertTrue(other.broken(), wrong)


class Etcds(testlib.Case):
    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def test_one_of_this_system(self):
        path = self.program(self.tmp / "etcd", "echo 'etcd Version: 3.4.23'; echo 'Git SHA: 1'")
        found = etcd.Binary(path)
        self.assertEqual((found.version, found.command), ("3.4.23", [path]))

    def test_one_in_the_root_of_another_system(self):
        path = self.program(self.tmp / "usr" / "bin" / "etcd", "exit 127")
        libraries = self.tmp / "usr" / "lib" / "x86_64-linux-gnu"
        self.program(libraries / "ld-linux-x86-64.so.2", 'echo "etcd Version: $1 $2 $3 $4"')
        found = etcd.Binary(path)
        self.assertEqual(found.version, f"--library-path {libraries} {path} --version")

    def test_what_does_not_run_is_named(self):
        path = self.tmp / "usr" / "bin" / "etcd"
        with self.assertRaisesRegex(etcd.NoEtcd, f"{path} is not there"):
            etcd.Binary(path)
        self.program(path, "echo no such option >&2; exit 2")
        with self.assertRaisesRegex(etcd.NoEtcd, f"{path} does not run: no such option"):
            etcd.Binary(path)


class CommandLine(testlib.Case):
    def test_bad_input_is_told_in_one_line(self):
        for argv, text in (
            (("--etcd-outage",), "--etcd-outage needs --etcd PATH"),
            (("--etcd", self.tmp / "no"), f"{self.tmp / 'no'} is not there"),
            (("--strikes", "0"), "--strikes, --each and --epochs are at least 1"),
        ):
            done = subprocess.run([sys.executable, BENCH / "failover.py", *argv], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr.splitlines()[-1])
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    testlib.main()
