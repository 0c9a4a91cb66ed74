# SPDX-License-Identifier: Apache-2.0
"""What a Python worker needs that was started by ctrun or torchrun.

    import ctworker

    for step, batch in enumerate(batches):
        loss = train(batch)
        ctworker.progress(step + 1, loss=loss, samples_per_s=rate, total=len(batches))
        if ctworker.stop_together():
            break
    save()

`progress()` gives the job its curves, the time left, and verdicts on hangs that name a step.
`stop_together()` ends all ranks after the same step if the job is asked to end. The rest is in the
classes Job and Communicator. It is libctworker, see ctworker(3).
"""

from ._comm import Communicator, stop_together
from ._job import (
    Error,
    Job,
    PeerError,
    Phase,
    Preemption,
    TimeoutError,  # pylint: disable=redefined-builtin
    job,
    phase,
    preemption,
    progress,
    record,
    report_error,
)

__all__ = [
    "Communicator",
    "Error",
    "Job",
    "PeerError",
    "Phase",
    "Preemption",
    "TimeoutError",
    "job",
    "phase",
    "preemption",
    "progress",
    "record",
    "report_error",
    "stop_together",
]
