# SPDX-License-Identifier: Apache-2.0
"""The wheel of tools/wheel in bare roots of Debian 11, 12 and 13: no compiler, no library of ours. Takes minutes
and the network, so only `tools/test --with-packages` runs it."""

import shutil

import testlib
from testlib import SOURCE_ROOT

SCRIPT = """
import ctworker, os
job = ctworker.job()
job.set(f"from-{job.rank}", b"x")
assert job.get(f"from-{1 - job.rank}") == b"x"
job.progress(1, loss=0.5)
print("rank", job.rank, "of", job.world_size)
"""


class Wheel(testlib.DebianRoots):
    def test_it_installs_and_runs_where_there_is_no_compiler(self):
        self.command(SOURCE_ROOT / "tools" / "wheel", self.tmp / "dist")
        (wheel,) = (self.tmp / "dist").glob("ctrun-*-py3-none-manylinux_2_*.whl")
        for release in ("bullseye", "bookworm", "trixie"):
            with self.subTest(release):
                root = self.bare_root(release, "--include=python3-venv")
                shutil.copy(wheel, root / "tmp")
                (root / "tmp" / "job.py").write_text(SCRIPT)
                out = self.inside(root, f"""
                    python3 -m venv /venv
                    /venv/bin/pip -q install --no-index /tmp/{wheel.name}
                    /venv/bin/ctrun -n 2 /venv/bin/python /tmp/job.py
                    /venv/bin/python -c 'import ctrun, os; assert ctrun.launch(os.getpgrp, nproc=2)'
                    /venv/bin/ctrdzvd --version && /venv/bin/ctrun-stat --version
                    CTRUN_TOKEN=0123456789abcdef /venv/bin/ctrun --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:1 \\
                        --rdzv-id wheel --nnodes 2 true 2>&1 | grep "^ctrun: etcd needs libcurl.so.4, which is not here"
                    test -e /venv/share/man/man1/ctrun.1
                    /venv/bin/pip -q uninstall -y ctrun
                    find /venv -name '*ctrun*' -o -name '*ctworker*'""")  # fmt: skip
                self.assertEqual(
                    sorted(out.splitlines()[:2]), ["[0] rank 0 of 2", "[1] rank 1 of 2"], out)
                self.assertNotIn("/venv", out, "something is left")
                shutil.rmtree(root)


if __name__ == "__main__":
    testlib.main()
