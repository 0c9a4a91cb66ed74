# SPDX-License-Identifier: Apache-2.0
"""Leaves one scope in time, and stays in another for longer than its timer allows."""

import os
import time

from torch.distributed.elastic import timer

timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=60, scope="in time"):
    pass
print("rank", os.environ["RANK"], "has left a scope", flush=True)
with timer.expires(after=1, scope="too long") if os.environ["RANK"] == "1" else open(os.devnull):
    time.sleep(600)
