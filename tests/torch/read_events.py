# SPDX-License-Identifier: Apache-2.0
"""What TensorBoard reads from the event files in folder argv[1]: {tag: [[step, value], ...]}."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
print(json.dumps({tag: [[e.step, e.value] for e in found] for tag, found in scalars.items()}))
