# SPDX-License-Identifier: Apache-2.0
"""What a worker is told, and what it inherits."""

import json
import os
import re
import socket
import sys

import testlib

DUMP = """
import json, os, sys
folder = sys.argv[1]
facts = {"env": dict(os.environ), "argv": sys.argv[1:], "stdin": os.readlink("/proc/self/fd/0"),
         "fds": sorted(int(f) for f in os.listdir("/proc/self/fd")), "pgid": os.getpgid(0),
         "pid": os.getpid(), "flags": sys.flags.interactive, "orig": sys.orig_argv}
with open(os.path.join(folder, os.environ["RANK"] + ".json"), "w") as f:
    json.dump(facts, f)
"""


class Environment(testlib.Case):
    def facts(self, workers, *args, arguments=(), env=None):
        script = self.script("dump.py", DUMP)
        result = self.ctrun("-n", workers, *args, script, self.tmp, *arguments, env=env)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err, "", result)
        return [json.loads((self.tmp / f"{rank}.json").read_text()) for rank in range(workers)]

    def test_workers_get_torchruns_variables(self):
        facts = self.facts(3, "--max-restarts", "2", "--role", "trainer", "--rdzv-id", "job7")
        ports = {f["env"]["MASTER_PORT"] for f in facts}
        self.assertEqual(len(ports), 1)
        self.assertGreater(int(ports.pop()), 0)
        for rank, fact in enumerate(facts):
            env = fact["env"]
            expected = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "trainer", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_RUN_ID": "job7",
                "TORCHELASTIC_USE_AGENT_STORE": "True", "CTRUN_GENERATION": "0",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            }  # fmt: skip
            self.assertEqual({k: env.get(k) for k in expected}, expected)
            self.assertTrue(env["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))
            cpus = len(os.sched_getaffinity(0))
            self.assertEqual(int(env["OMP_NUM_THREADS"]), max(1, cpus // 3))

    def test_nobody_inherits_the_token(self):
        secret = "correct-horse-battery-staple"
        look = "import os\nfor pid in ('self', os.getppid()):\n" \
            "    print(b'%s' in open(f'/proc/{pid}/environ', 'rb').read())" % secret  # fmt: skip
        # The guard is a process of its own.
        look += (
            "\nfor pid in open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split():"
            "\n    print(b'%s' in open(f'/proc/{pid}/environ', 'rb').read())" % secret
        )
        result = self.ctrun(self.script("look.py", look), env={"CTRUN_TOKEN": secret})
        self.assertEqual(result.code, 0, result)
        self.assertIn("False", result.out)
        self.assertNotIn("True", result.out)

    def test_memory_that_outlives_the_workers(self):
        script = self.script(
            "keep.py",
            "import os, sys\n"
            "with open(os.environ['CTRUN_SNAPSHOT'], 'r+b') as kept:\n"
            "    if os.environ['CTRUN_GENERATION'] == '0':\n"
            "        kept.write(b'step 7')\n"
            "        sys.exit(3)\n"
            "    print(kept.read())\n",
        )
        result = self.ctrun("-n", "1", "--max-restarts", "1", "--monitor-interval", "0.1", script)
        self.assertEqual(result.code, 0, result)
        self.assertIn("b'step 7'", result.out)

    def test_own_session_and_no_stray_descriptors(self):
        for fact in self.facts(2):
            self.assertEqual(fact["pgid"], fact["pid"])
            # The fourth is the listing's own.
            self.assertEqual(fact["fds"], [0, 1, 2, 3])
            self.assertEqual(fact["orig"][1], "-u")

    def test_users_choice_wins(self):
        env = {"OMP_NUM_THREADS": "5", "RANK": "9", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
        first = self.facts(1, env=env)[0]["env"]
        self.assertEqual(first["OMP_NUM_THREADS"], "5")
        self.assertEqual(first["RANK"], "0")
        self.assertNotEqual(first["MASTER_PORT"], "1")
        self.assertRegex(first["TORCHELASTIC_RUN_ID"], r"^[0-9a-f]{8}-")

    def test_arguments_are_passed_on(self):
        facts = self.facts(2, arguments=["--", "--nproc-per-node", "${local_rank}", "$$x", "a b"])
        for rank, fact in enumerate(facts):
            self.assertEqual(
                fact["argv"][1:], ["--", "--nproc-per-node", str(rank), "$x", "a b"]
            )

    def test_arguments_have_the_workers_values(self):
        facts = self.facts(2, arguments=[
            "${rank}/${world_size}", "${local_rank}/${local_world_size}", "${node_rank}/${nnodes}",
            "${master_addr}:${master_port}", "$rank ${HOME}", "$${rank}"])  # fmt: skip
        for rank, fact in enumerate(facts):
            master = f"{fact['env']['MASTER_ADDR']}:{fact['env']['MASTER_PORT']}"
            self.assertEqual(
                fact["argv"][1:], [f"{rank}/2", f"{rank}/2", "0/1", master, "$rank ${HOME}", "${rank}"])

    def test_a_mistyped_name_in_an_argument_is_refused_once(self):
        result = self.ctrun("-n", "2", "true", "--size=${word_size}")
        self.assertEqual(result.code, 2, result)
        self.assertEqual(
            result.err,
            "ctrun: argument '--size=${word_size}': ${word_size} is no value of a worker; did you mean "
            "${world_size}? For this very text write two dollar signs\n")

    def test_a_misspelt_variable_of_an_option_is_named_once(self):
        env = {"PET_MAX_RESTART": "3", "LOGLEVEL": "WARNING"}
        result = self.ctrun("-n", "2", "--no-python", "true", env=env)
        self.assertEqual(result.code, 0, result)
        said = "the variable PET_MAX_RESTART has no effect; did you mean PET_MAX_RESTARTS?"
        self.assertEqual(result.err.count(said), 1, result)
        self.assertIn(said, self.ctrun("--print-config", "true", env=env).out)

    # Rank 0 listens in each generation, as a program does that sets no option for it.
    LISTEN = """
import os, socket, sys
port = int(sys.argv[1])
assert os.environ["CTRUN_PORT_PEER"] == sys.argv[1] and sys.argv[2] == sys.argv[1] + "!"
if os.environ["RANK"] == "0":
    with socket.socket() as s:
        s.bind(("", port))
        s.listen()
        s.accept()[0].sendall(b"hello")
else:
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], port)) as s:
                assert s.recv(5) == b"hello"
            break
        except ConnectionRefusedError:
            pass
    print("port", port)
    sys.exit(os.environ["CTRUN_GENERATION"] == "0")
"""

    def test_a_program_listens_at_a_port_of_the_job(self):
        script = self.script("listen.py", self.LISTEN)
        result = self.ctrun(
            "-n", "2", "--max-restarts", "1", script, "${port:peer}", "${port:peer}!")
        self.assertEqual(result.code, 0, result)
        self.assertEqual(len(re.findall(r"port \d+", result.out)), 2, result)

    def test_master_address_is_told(self):
        first = self.facts(1, "--master-addr", "localhost", "--master-port", "0")[0]["env"]
        self.assertEqual(first["MASTER_ADDR"], "localhost")
        first = self.facts(1, "--master-addr", "[::1]", "--standalone")[0]["env"]
        self.assertEqual(first["MASTER_ADDR"], "127.0.0.1")

    def test_rendezvous_options_name_the_store(self):
        c10d = ("--rdzv-backend", "c10d", "--rdzv-endpoint")
        first = self.facts(1, *c10d, "localhost")[0]["env"]
        self.assertEqual(first["MASTER_ADDR"], "localhost")
        first = self.facts(1, *c10d, "localhost:0", "--local-addr", "127.0.0.2")[0]["env"]
        self.assertEqual(first["MASTER_ADDR"], "127.0.0.2")
        with socket.create_server(("127.0.0.3", 0)) as taken:
            port = taken.getsockname()[1]
        first = self.facts(1, "--rdzv-endpoint", f"127.0.0.3:{port}")[0]["env"]
        self.assertEqual((first["MASTER_ADDR"], first["MASTER_PORT"]), ("127.0.0.3", str(port)))

    def test_a_virtual_local_rank_sees_one_gpu(self):
        env = {"CUDA_VISIBLE_DEVICES": "7, GPU-x"}
        facts = self.facts(2, "--virtual-local-rank", arguments=["${local_rank}"], env=env)
        self.assertEqual([f["env"]["CUDA_VISIBLE_DEVICES"] for f in facts], ["7", "GPU-x"])
        self.assertEqual([f["env"]["LOCAL_RANK"] for f in facts], ["0", "0"])
        self.assertEqual([f["argv"][1] for f in facts], ["0", "1"])
        result = self.ctrun("-n", "3", "--virtual-local-rank", "true", env=env)
        self.assertEqual(result.code, 1, result)
        self.assertIn("3 workers, but 2 GPUs are visible here: CUDA_VISIBLE_DEVICES=7, GPU-x", result.err)

    def test_pet_variables_set_options(self):
        script = self.script("dump.py", DUMP)
        result = self.ctrun(script, self.tmp, env={"PET_NPROC_PER_NODE": "2"})
        self.assertEqual(result.code, 0, result)
        self.assertTrue((self.tmp / "1.json").exists())

    def test_nested_launchers_are_two_jobs(self):
        script = self.script("dump.py", DUMP)
        inner = [testlib.program("ctrun"), "-n", "2", script, str(self.tmp)]
        outer = self.script(
            "outer.py",
            f"import os, subprocess, sys\nprint('outer', os.environ['MASTER_PORT'])\n"
            f"sys.exit(subprocess.run({inner!r}).returncode)\n",
        )
        result = self.ctrun("-n", "1", outer)
        self.assertEqual(result.code, 0, result)
        outer_port = re.search(r"outer (\d+)", result.out).group(1)
        inner_env = json.loads((self.tmp / "1.json").read_text())["env"]
        self.assertNotEqual(inner_env["MASTER_PORT"], outer_port)
        self.assertEqual(inner_env["WORLD_SIZE"], "2")

    def test_only_the_first_worker_reads_stdin(self):
        script = self.script("stdin.py", "import sys\nprint(repr(sys.stdin.read()))\n")
        (self.tmp / "input").write_text("hello")
        with open(self.tmp / "input", "rb") as stdin:
            result = self.ctrun("-n", "2", script, stdin=stdin)
        self.assertEqual(sorted(result.out.splitlines()), ["[0] 'hello'", "[1] ''"], result)


class CommandLine(testlib.Case):
    def test_program_beside_ctrun_comes_after_those_in_path(self):
        (self.tmp / "bin").mkdir()
        ctrun = self.tmp / "bin" / "ctrun"
        ctrun.write_bytes((testlib.BUILD_ROOT / "ctrun").read_bytes())
        ctrun.chmod(0o755)
        for name in ("mine", "echo"):
            tool = self.tmp / "bin" / name
            tool.write_text("#!/bin/sh\necho mine\n")
            tool.chmod(0o755)
        result = self.run_program(ctrun, "mine")
        self.assertEqual((result.code, result.out), (0, "mine\n"), result)
        result = self.run_program(ctrun, "echo", "from", "PATH")
        self.assertEqual(result.out, "from PATH\n", result)

    def test_module_and_python_exec(self):
        (self.tmp / "mod.py").write_text("import sys\nprint(sys.argv[1:], sys.executable)\n")
        env = {"PYTHONPATH": self.tmp, "PYTHON_EXEC": sys.executable}
        result = self.ctrun("-m", "mod", "a", env=env)
        self.assertEqual(result.out, f"['a'] {sys.executable}\n", result)

    def test_no_python_executes_the_file(self):
        script = self.tmp / "x.py"
        script.write_text("#!/bin/sh\necho shell\n")
        script.chmod(0o755)
        self.assertEqual(self.ctrun("--no-python", script).out, "shell\n")

    def test_help_and_version_are_printed(self):
        result = self.ctrun("--help")
        self.assertEqual((result.code, result.err), (0, ""))
        self.assertIn("--nproc-per-node", result.out)
        self.assertIn("--token-file FILE", self.ctrun("--help", "nodes").out)
        self.assertIn("  --hang-timeout SECONDS", self.ctrun("--help", "timeout").out)
        self.assertIn("  122        a worker hung", self.ctrun("--help", "exit").out)
        noodles = self.ctrun("--help", "noodles")
        self.assertEqual(noodles.code, 2)
        self.assert_one_line(noodles.err)
        self.assertRegex(self.ctrun("--version").out, r"\Actrun \d+\.\d+\.\d+\n\Z")

    def test_usage_errors_are_one_line_and_2(self):
        cases = [
            (["--bogus", "true"], "--bogus"),
            (["--nproc-per-node", "0", "true"], "--nproc-per-node"),
            (["--nnodes", "2", "--rdzv-backend", "c10d", "true"], "needs --rdzv-endpoint"),
            (["--nnodes", "2", "--rdzv-endpoint", "h:0", "true"], "other machines cannot know"),
            (["--nnodes", "2", "--node-rank", "2", "true"], "--node-rank 2"),
            (["--rdzv-backend", "zk", "true"], "--rdzv-backend zk is not supported"),
            (["--rdzv-backend", "etcd", "true"], "--rdzv-backend etcd needs --rdzv-endpoint"),
            (["--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "h:x", "true"],
             "--rdzv-endpoint: etcd: address 'h:x'"),
            (["--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "h", "--rdzv-id", "job", "true"],
             "a job that meets through etcd needs a token: give all machines the same --token-file or CTRUN_TOKEN"),
            (["--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "h", "--token-file", "t", "true"],
             "a job that meets through etcd needs an id: give all machines the same --rdzv-id, which no other job in "
             "that etcd has"),
            (["--rdzv-endpoint", "192.0.2.1:0", "true"], "192.0.2.1 is not an address of this"),
            (["-r", "9", "true"], "-r"),
            (["-m", "--no-python", "x"], "--no-python"),
            ([], "no program"),
        ]  # fmt: skip
        for args, text in cases:
            with self.subTest(args=args):
                result = self.ctrun(*args)
                self.assertEqual((result.code, result.out), (2, ""), result)
                self.assertIn(text, result.err)
                self.assert_one_line(result.err)

    def test_an_etcd_that_is_not_there_is_told_and_waited_for(self):
        token = self.tmp / "token"
        token.write_text("the-secret-of-this-test-of-32-bytes\n")
        token.chmod(0o600)
        # A name that cannot be resolved may be known later, alone and among others.
        for endpoints in ("a..b", "127.0.0.1:1", "a..b,127.0.0.1:1"):
            result = self.ctrun(
                "--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoints,
                "--rdzv-id", "job", "--token-file", token, "--rdzv-conf", "join_timeout=1", "true",
            )  # fmt: skip
            if "built without etcd" in result.err or "needs libcurl" in result.err:
                self.skipTest(result.err)
            with self.subTest(endpoints):
                self.assertEqual(result.code, 120, result)
                lines = result.err.splitlines()
                self.assertEqual(len(lines), 2, result)
                self.assertRegex(lines[0], r"\Actrun: etcd cannot be used: etcd.*; this machine waits for it\Z")
                self.assertIn("ctrun: no host of the job was found in 1 s: etcd", lines[1])
                self.assertEqual("a..b" in lines[0], "a..b" in endpoints)


if __name__ == "__main__":
    testlib.main()
