#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do programs of PyTorch's frameworks start alike cold and warm? Each program is run with two workers, once under
`ctrun` and once under `ctrun --warm`. When it has done its work, it goes on with more of it; then one of the workers
is killed, and the next generation does the work again. What both generations give must be the same, cold and warm,
and the second one must be of spares. No process of the first one, such as one that loads data, may live when the
second has done its work, and none of the job when that has ended. --seed decides who is killed, and when.

    bench/warm_frameworks.py [--build DIR] [--torch-venv DIR] [--venv DIR] [--only NAME,...] [--hurry] [--seed N]
                             [--limit SECONDS] [--out FILE] [--torch-tests DIR]

The frameworks are installed from PyPI into a virtual environment of their own, unless they are there; it takes
PyTorch from the one of tools/test --with-torch. --hurry (root only) as in bench/restart.py. The times are of one
restart each and tell nothing but that it came to an end; bench/restart.py measures.

With --torch-tests, which names the folder test/distributed/launcher of the sources of the PyTorch that is used, its own
tests of torchrun are run in place of the programs, cold and warm (bench/frameworks/torch_tests.py).

With --limit no program begins after that time, and none takes longer. A program that --out has as good is not run
again. Ends with 1 when anything differs, and with 2 when a program has not been run.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

import restart
from frameworks import torch_tests
from shared import ending

PACKAGES = ("lightning", "accelerate", "transformers", "deepspeed")
DEADLINE = 600  # seconds; imports at idle priority
WORKERS = 2
ENDED = 10  # seconds after the end of a job, when nothing of it may be left

# Every program calls finish() with what it has computed, and with a function that does more of the same. Generation 0
# calls that until its end.
FINISH = """
def digest(tensors):
    parts = [tensor.detach().numpy().tobytes() for tensor in tensors]
    return hashlib.sha256(b"".join(parts)).hexdigest()

def finish(value, more):
    folder, rank, generation = (os.environ[name] for name in ("WARM_FRAMEWORKS", "RANK", "CTRUN_GENERATION"))
    with open(f"{folder}/{generation}.{rank}.new", "w") as out:
        json.dump([os.getpid(), value], out)
    os.replace(f"{folder}/{generation}.{rank}.new", f"{folder}/{generation}.{rank}")
    while generation == "0":
        more()
"""

DATA = """
def data():
    torch.manual_seed(1)
    return torch.randn(64, 4), torch.randn(64, 1)
"""

PROGRAMS = {
    "guard": """
import hashlib, json, os, time
import torch, torch.distributed as dist
{finish}
def main():
    dist.init_process_group("gloo")
    value = torch.full((3,), float(dist.get_rank() + 1))
    dist.all_reduce(value)
    finish(value.tolist(), lambda: dist.all_reduce(torch.ones(3)))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
""",
    "no-guard": """
import hashlib, json, os, time
import torch, torch.distributed as dist
{finish}
dist.init_process_group("gloo")
value = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(value)
finish(value.tolist(), lambda: dist.all_reduce(torch.ones(3)))
dist.destroy_process_group()
""",
    "sys-path": """
import hashlib, json, os, sys, time
import torch
{finish}
sys.path.insert(0, os.environ["WARM_FRAMEWORKS"] + "/extra")
import found_by_path
value = [found_by_path.VALUE, sys.path[0] == os.environ["WARM_FRAMEWORKS"] + "/extra", len(sys.path)]
finish(value, lambda: time.sleep(0.01))
""",
    "ddp": """
import hashlib, json, os, time
import torch, torch.distributed as dist
{finish}{data}
if __name__ == "__main__":
    dist.init_process_group("gloo")
    x, y = data()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    def epoch():
        for begin in range(0, 64, 8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[begin : begin + 8]), y[begin : begin + 8]).backward()
            optimizer.step()
    epoch()
    finish(digest(model.parameters()), epoch)
    dist.destroy_process_group()
""",
    "rpc": """
import hashlib, json, os, time
import torch
import torch.distributed.rpc as rpc
{finish}
if __name__ == "__main__":
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc(f"worker{{rank}}", rank=rank, world_size=size)
    def call():
        return rpc.rpc_sync(f"worker{{(rank + 1) % size}}", torch.add, args=(torch.ones(2), rank))
    finish(call().tolist(), call)
    rpc.shutdown()
""",
    "loader": """
import hashlib, json, os, time
import torch
from torch.utils.data import DataLoader, TensorDataset
{finish}{data}
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    def epoch():
        return [digest(batch) for batch in loader]
    finish(epoch() + epoch(), epoch)
""",
    "loader-spawn": """
import hashlib, json, os, time
import torch
from torch.utils.data import DataLoader, TensorDataset
{finish}{data}
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(*data()), batch_size=8, num_workers=1, multiprocessing_context="spawn")
    def epoch():
        return [digest(batch) for batch in loader]
    finish(epoch(), epoch)
""",
    "multiprocessing": """
import hashlib, json, os, time
import torch
import torch.multiprocessing as mp
{finish}
def work(rank, shared):
    shared[rank] = rank + 10

if __name__ == "__main__":
    shared = torch.zeros(2).share_memory_()
    def spawn():
        mp.spawn(work, args=(shared,), nprocs=2)
    spawn()
    finish(shared.tolist(), spawn)
""",
    "lightning": """
import hashlib, json, os, time
import torch
import lightning
from torch.utils.data import DataLoader, TensorDataset
{finish}{data}
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    lightning.seed_everything(1)
    net = Net()
    def fit():
        trainer = lightning.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(net, DataLoader(TensorDataset(*data()), batch_size=8))
    fit()
    finish(digest(net.parameters()), fit)
""",
    "accelerate": """
import hashlib, json, os, time
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
{finish}{data}
if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(*data()), batch_size=8)
    model = torch.nn.Linear(4, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    def epoch():
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
    epoch()
    finish(digest(model.parameters()), epoch)
""",
    "trainer": """
import hashlib, json, os, time
import torch
from transformers import Trainer, TrainingArguments
{finish}{data}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        out = self.layer(x)
        return {{"loss": torch.nn.functional.mse_loss(out, labels), "out": out}}

if __name__ == "__main__":
    samples = [{{"x": x, "labels": y}} for x, y in zip(*data())]
    net = Net()
    arguments = TrainingArguments(
        output_dir=os.environ["WARM_FRAMEWORKS"] + "/trainer", use_cpu=True, max_steps=4, report_to=[], seed=1,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, per_device_train_batch_size=8)
    def train():
        Trainer(model=net, args=arguments, train_dataset=samples).train()
    train()
    finish(digest(net.parameters()), train)
""",
    # Without its operations: they are compiled where they are first used.
    "deepspeed": """
import hashlib, json, os, time
import torch
import deepspeed
{finish}{data}
if __name__ == "__main__":
    deepspeed.ops.__compatible_ops__ = {{}}
    x, y = data()
    model = torch.nn.Linear(4, 1)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), dist_init_required=True,
        config={{"train_micro_batch_size_per_gpu": 8, "zero_optimization": {{"stage": 1}},
                "zero_allow_untested_optimizer": True}})
    def epoch():
        for begin in range(0, 64, 8):
            engine.backward(torch.nn.functional.mse_loss(engine(x[begin : begin + 8]), y[begin : begin + 8]))
            engine.step()
    epoch()
    finish(digest(model.parameters()), epoch)
    torch.distributed.destroy_process_group()
""",
}


def make_venv(venv, torch_venv, limit, packages=PACKAGES):
    """With these packages, and with those of the other environment behind its own. To install them may take so many
    seconds."""
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([torch_venv / "bin" / "python", "-m", "venv", venv], check=True)
    ask = "import site; print(site.getsitepackages()[0])"
    folders = [
        subprocess.run([each / "bin" / "python", "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
        for each in (venv, torch_venv)
    ]
    pathlib.Path(folders[0], "torch.pth").write_text(folders[1] + "\n")
    has = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {packages!r})))"
    if subprocess.run([python, "-c", has], check=False).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", *packages], check=True, timeout=limit)
    return python


class Run:
    """One job; `said` is what ctrun has written."""

    def __init__(self, args, python, name, folder, warm):
        self.folder, self.warm, self.hurry, self.end = folder, warm, args.hurry, args.end
        self.rng = random.Random(f"{args.seed} {name}")  # alike, cold and warm
        (folder / "extra").mkdir(parents=True)
        (folder / "extra" / "found_by_path.py").write_text("VALUE = 7\n")
        program = folder / "program.py"
        program.write_text(PROGRAMS[name].format(finish=FINISH, data=DATA))
        self.log = folder / "log"
        with open(self.log, "w") as log:
            self.proc = subprocess.Popen(
                [args.build / "ctrun", "-n", str(WORKERS), "--max-restarts", "1", *(["--warm"] if warm else []), program],
                stdout=log, stderr=subprocess.STDOUT, cwd=folder,
                env={**os.environ, "PYTHON_EXEC": str(python), "OMP_NUM_THREADS": "1", "LOGLEVEL": "INFO",
                     "PYTHONWARNINGS": "ignore", "DS_ACCELERATOR": "cpu", "WARM_FRAMEWORKS": str(folder)},
            )  # fmt: skip

    @property
    def said(self):
        return self.log.read_text()

    def results(self, generation):
        paths = [self.folder / f"{generation}.{rank}" for rank in range(WORKERS)]
        return [json.loads(path.read_text()) for path in paths] if all(path.exists() for path in paths) else None

    def seconds(self):
        """How long anything may take from now on."""
        return max(1, min(DEADLINE, self.end - time.monotonic()))

    def wait_for(self, what, condition):
        end = time.monotonic() + self.seconds()
        while not condition():
            if self.proc.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{what} did not come:\n{self.said[-2000:]}")
            if self.hurry:
                restart.hurry(restart.children(self.proc.pid))
            time.sleep(0.1)

    def go(self):
        """What both generations have given, and the seconds from the kill to the end of the second."""
        self.wait_for("the first generation", lambda: self.results(0) is not None)
        if self.warm:
            self.wait_for("the spares", lambda: self.said.count("is ready (pid") >= WORKERS
                          or "--warm makes no spares" in self.said)  # fmt: skip
        first = self.results(0)
        time.sleep(self.rng.random())  # it goes on with its work
        with contextlib.ExitStack() as stack:
            old = self.watch(stack)
            begin = time.monotonic()
            os.kill(self.rng.choice(first)[0], signal.SIGKILL)
            while self.proc.poll() is None and self.results(1) is None and time.monotonic() - begin < self.seconds():
                time.sleep(0.02)
            left = [pid for pid, watched in old.items() if not select.select([watched], [], [], 0)[0]]
        code = self.proc.wait(self.seconds())
        took = time.monotonic() - begin
        if code != 0 or self.results(1) is None:
            raise RuntimeError(f"the job ended with {code}:\n{self.said[-2000:]}")
        if left or self.left():
            raise RuntimeError(f"processes are left of the first generation: {left}, of the job: {self.left()}")
        return [value for _, value in first + self.results(1)], took

    def watch(self, stack):
        """What can be read when it has ended, by pid: of each worker, and of what it has started."""
        watched = {}
        for pid in ending.descendants(self.proc.pid):
            names = {entry.partition(b"=")[0] for entry in ending.environment(pid)}
            with contextlib.suppress(ProcessLookupError):
                if b"RANK" in names and b"CTRUN_WARM" not in names:
                    watched[pid] = os.pidfd_open(pid)
                    stack.callback(os.close, watched[pid])
        return watched

    def left(self):
        """What still lives of the job some time after its end."""
        end = time.monotonic() + ENDED
        while ending.marked(f"WARM_FRAMEWORKS={self.folder}") and time.monotonic() < end:
            time.sleep(0.1)
        return ending.marked(f"WARM_FRAMEWORKS={self.folder}")

    def close(self):
        ending.end(self.proc)


def check(args, python, name, folder):
    """Prints one line; returns whether all is as it must be."""
    values, times, why = [], [], ""
    for warm in (False, True):
        run = Run(args, python, name, folder / f"{name}.{int(warm)}", warm)
        try:
            value, took = run.go()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name:16} {'warm' if warm else 'cold'}: {error}", flush=True)
            return False
        finally:
            run.close()
        values.append(value)
        times.append(took)
        if warm and f"{WORKERS} of {WORKERS} workers here were warm" not in run.said:
            lines = [line for line in run.said.splitlines() if "starts cold" in line or "makes no spares" in line]
            why = "; ".join(lines) or "not warm"
    alike = values[0] == values[1]
    print(f"{name:16} {'the same' if alike else f'{values[0]} and {values[1]}'}; from the kill to the end "
          f"{times[0]:.1f} s cold, {times[1]:.1f} s warm{': ' + why if why else ''}", flush=True)  # fmt: skip
    return alike and not why


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=restart.ROOT / "build")
    parser.add_argument("--torch-venv", type=pathlib.Path, default=restart.CACHE / "ctrun" / "torch-venv")
    parser.add_argument("--venv", type=pathlib.Path, default=restart.CACHE / "ctrun" / "frameworks-venv")
    parser.add_argument("--only", type=lambda text: text.split(","), help="programs or tests; default: all")
    parser.add_argument("--hurry", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--torch-tests", type=pathlib.Path)
    args = parser.parse_args()
    args.build = args.build.resolve()
    ending.on_signals()
    if args.torch_tests is not None:
        args.torch_tests = args.torch_tests.resolve()
        return torch_tests.check(args, make_venv(args.venv.absolute(), args.torch_venv, args.limit, torch_tests.PACKAGES))
    args.only = args.only or list(PROGRAMS)
    args.end = time.monotonic() + args.limit
    results = json.loads(args.out.read_text()) if args.out is not None and args.out.exists() else {}
    python = make_venv(args.venv.absolute(), args.torch_venv, args.limit)
    with tempfile.TemporaryDirectory(prefix="ctrun-frameworks-") as folder:
        for name in args.only:
            if results.get(name) or time.monotonic() > args.end:
                continue
            results[name] = check(args, python, name, pathlib.Path(folder))
            if args.out is not None:
                args.out.write_text(json.dumps(results, indent=1) + "\n")
    missing = [name for name in args.only if name not in results]
    print(f"{sum(results.get(name, False) for name in args.only)} of {len(args.only)} programs are alike"
          + (f"; not run: {', '.join(missing)}" if missing else ""))  # fmt: skip
    return 1 if not all(results.get(name, True) for name in args.only) else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
