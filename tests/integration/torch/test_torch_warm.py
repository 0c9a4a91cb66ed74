# SPDX-License-Identifier: Apache-2.0
"""A PyTorch job that goes on warm computes what it computes cold."""

import json
import pathlib

from testlib import main, pytorch

# At idle priority the import takes a multiple of its usual time.
SPARES_LIMIT = 400


class Warm(pytorch.Case):
    python = pytorch.CURRENT

    def restart(self, warm):
        go, out = self.tmp / f"go.{warm}", self.tmp / f"out.{warm}"
        job = self.start_ctrun(
            "-n", "2", "--max-restarts", "1", *(["--warm"] if warm else []), pytorch.PROGRAMS / "warm.py", go, out,
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


if __name__ == "__main__":
    main()
