# SPDX-License-Identifier: Apache-2.0
"""The wheel of tools/wheel in bare roots of Debian 11, 12 and 13: no compiler, no library of ours. Takes minutes
and the network, so only `tools/test --with-packages` runs it."""

import pathlib
import re
import shutil
import zipfile

import testlib
from testlib import SOURCE_ROOT

README = (SOURCE_ROOT / "README.md").read_text()
SCRIPT = """
import ctworker, os
job = ctworker.job()
job.set(f"from-{job.rank}", b"x")
assert job.get(f"from-{1 - job.rank}") == b"x"
job.progress(1, loss=0.5)
print("rank", job.rank, "of", job.world_size)
"""
PROGRAMS = ("ctrun", "ctrdzvd", "ctrun-stat")
# Those of README.md, but for the trainer's.
PAGES = ("ctrun.1", "ctrun-stat.1", "ctrdzvd.8", "ctworker.3", "ctstatus.5", "ctreport.5")


class Wheel(testlib.DebianRoots):
    def check_licences(self, dist, wheel):
        """Ours, those of all libraries that are linked in, and what the LGPL asks for."""
        linked = [line.split("\t")[0] for line in (dist / "wheel-libraries.tsv").read_text().splitlines()]
        self.assertIn("libmicrohttpd", linked)
        with zipfile.ZipFile(wheel) as archive:
            found = {
                name.partition(".dist-info/licenses/")[2]: archive.read(name).decode()
                for name in archive.namelist() if ".dist-info/licenses/" in name
            }  # fmt: skip
        folder = "contrib/licenses/"
        beside = ["LGPL-2.1", "README", "libraries.tsv", *(f"{name}.copyright" for name in linked)]
        self.assertEqual(sorted(found), sorted(["LICENSE", *(folder + name for name in beside)]))
        self.assertIn("GNU LESSER GENERAL PUBLIC LICENSE", found[folder + "LGPL-2.1"])
        self.assertIn("License: LGPL-2.1+", found[folder + "libmicrohttpd.copyright"])

    def try_pytorch(self, root, wheel):
        """README's script with PyPI's PyTorch, which is some gigabytes, begins and ends within 10 s."""
        (script,) = re.findall(r"^```python\n(# train\.py\n.*?)^```$", README, re.M | re.S)
        (root / "tmp" / "train.py").write_text(script)
        # Of this machine, which may be behind a proxy that has its own.
        certificates = pathlib.Path("etc/ssl/certs/ca-certificates.crt")
        if ("/" / certificates).exists():
            (root / certificates).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("/" / certificates, root / certificates)
        out = self.inside(root, f"""
            . /venv/bin/activate
            pip -q install torch
            pip -q install --no-index /tmp/{wheel.name}
            cd /tmp
            begin=$(date +%s%N)
            ctrun -n 2 train.py
            echo $((($(date +%s%N) - begin) / 1000000))""")  # fmt: skip
        *lines, milliseconds = out.splitlines()
        for rank in (0, 1):  # Gloo may print lines of its own
            self.assertIn(f"[{rank}] rank {rank} of 2: {[1.0] * 4}", lines, out)
        print(f"PyTorch with two workers: {milliseconds} ms")
        self.assertLess(int(milliseconds), 10_000)

    def test_it_installs_and_runs_where_there_is_no_compiler(self):
        dist = self.tmp / "dist"
        dist.mkdir()
        (dist / "ctrun-0.0.1-py3-none-any.whl").touch()
        self.command(SOURCE_ROOT / "tools" / "wheel", dist)
        (wheel,) = dist.glob("ctrun-*.whl")  # as README says, so no older one may be left
        version = wheel.name.split("-")[1]
        ask = '. "$0/tools/common.sh" && snapshot_version .dev'
        self.assertEqual(version, self.command("bash", "-c", ask, SOURCE_ROOT).strip())
        (oldest,) = re.findall(r"glibc 2\.(\d+)", README)
        self.assertIn(f"-py3-none-manylinux_2_{oldest}_", wheel.name)
        self.check_licences(dist, wheel)
        for release in ("bullseye", "bookworm", "trixie"):
            with self.subTest(release):
                root = self.bare_root(release, "--include=python3-venv")
                shutil.copy(wheel, root / "tmp")
                (root / "tmp" / "job.py").write_text(SCRIPT)
                pages = [f"/venv/share/man/man{page[-1]}/{page}" for page in PAGES]
                out = self.inside(root, f"""
                    python3 -m venv /venv
                    /venv/bin/pip -q install --no-index /tmp/{wheel.name}
                    /venv/bin/ctrun -n 2 /venv/bin/python /tmp/job.py
                    /venv/bin/python -c 'import ctrun, os; assert ctrun.launch(os.getpgrp, nproc=2)'
                    for program in {' '.join(PROGRAMS)}; do /venv/bin/$program --version; done
                    # The worker's own job, by its environment.
                    /venv/bin/ctrun -n 1 --no-python /venv/bin/ctrun-stat --health
                    ls {' '.join(pages)} >/dev/null

                    export CTRUN_TOKEN=0123456789abcdef
                    etcd() {{
                        code=0
                        /venv/bin/ctrun --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:1 --rdzv-id wheel --nnodes 2 \\
                            --rdzv-conf join_timeout=1 true 2>/tmp/etcd || code=$?
                        echo etcd $code $(cat /tmp/etcd)
                    }}
                    etcd
                    # By the name that the line has.
                    export DEBIAN_FRONTEND=noninteractive
                    apt-get -qq update
                    apt-get -qq -y --no-install-recommends install libcurl4 >/dev/null 2>&1
                    etcd
                    /venv/bin/pip -q uninstall -y ctrun
                    find /venv -name '*ctrun*' -o -name '*ctworker*'""")  # fmt: skip
                lines = out.splitlines()
                self.assertEqual(sorted(lines[:2]), ["[0] rank 0 of 2", "[1] rank 1 of 2"], out)
                self.assertEqual(lines[2:5], [f"{program} {version}" for program in PROGRAMS], out)
                self.assertEqual(lines[5], "healthy", out)
                self.assertRegex(lines[6], r"^etcd 1 ctrun: etcd needs libcurl\.so\.4, which is not here: install the package "
                                           r"libcurl4 \(Debian, Ubuntu\) or libcurl \(Fedora, Red Hat\)$")  # fmt: skip
                self.assertRegex(lines[7], "^etcd 120 ctrun: etcd cannot be used: ", out)
                self.assertEqual(lines[8:], [], "something is left")
                if release == "trixie":
                    self.try_pytorch(root, wheel)
                shutil.rmtree(root)


if __name__ == "__main__":
    testlib.main()
