# SPDX-License-Identifier: Apache-2.0
"""A PyTorch job that goes on warm computes what it computes cold, and its workers are as those of a cold start."""

import json
import pathlib

from testlib import main, pytorch, warm_case

# At idle priority the import takes a multiple of its usual time.
SPARES_LIMIT = 400
# GO OUT: as tests/torch/warm.py, but each rank writes what it sees of itself after its imports.
GOLDEN = (
    "import torch\nimport torch.distributed\nfrom torch.nn.parallel import DistributedDataParallel\n"
    + warm_case.IMPORTS
    + warm_case.SEE
    + """
go, out = sys.argv[1:]
if os.environ["CTRUN_GENERATION"] == "0":
    while not os.path.exists(go):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
with open(f"{out}.{os.environ['RANK']}", "w") as file:
    torchs = [torch.get_num_threads(), torch.get_num_interop_threads()]
    json.dump({**see(), "torch": torchs}, file)
"""
)


class Warm(pytorch.Case):
    python = pytorch.CURRENT

    def restart(self, warm, program=pytorch.PROGRAMS / "warm.py"):
        go, out = self.tmp / "go", self.tmp / "out"
        go.unlink(missing_ok=True)
        job = self.start_ctrun(
            "-n", "2", "--max-restarts", "1", *(["--warm"] if warm else []), program, go, out,
            env={"PYTHON_EXEC": self.python, "LOGLEVEL": "info", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        for rank in range(2 if warm else 0):
            job.wait_for(f"the spare of local rank {rank} is ready", SPARES_LIMIT)
        go.touch()
        result = job.wait(pytorch.LIMIT)
        self.assertEqual(result.code, 0, result)
        self.assertEqual("generation 1: 2 of 2 workers here were warm" in result.err, warm, result)
        return [json.loads(pathlib.Path(f"{out}.{rank}").read_text()) for rank in range(2)]

    def test_it_computes_the_same(self):
        cold, warm = self.restart(False), self.restart(True)
        for rank in range(2):
            more = set(warm[rank].pop("loaded")) - set(cold[rank].pop("loaded"))
            self.assertIn("torch._dynamo", more)
            self.assertEqual(warm[rank], cold[rank])

    def test_its_workers_see_the_same(self):
        program = self.script("golden.py", GOLDEN)
        cold, warm = self.restart(False, program), self.restart(True, program)
        plain = [[warm_case.plain(seen, self.tmp) for seen in ranks] for ranks in (cold, warm)]
        warm_case.assert_alike(self, *plain)


if __name__ == "__main__":
    main()
