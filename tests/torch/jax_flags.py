# SPDX-License-Identifier: Apache-2.0
"""A JAX program that takes its place in the job as options, if there are any, and adds over all processes."""

import argparse

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

parser = argparse.ArgumentParser()
parser.add_argument("--coordinator")
parser.add_argument("--processes", type=int)
parser.add_argument("--process", type=int)
given = parser.parse_args()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(given.coordinator, given.processes, given.process)
values = multihost_utils.process_allgather(jnp.ones(2) * (jax.process_index() + 1))
print("process", jax.process_index(), "of", jax.process_count(), "sum", float(values.sum()))
