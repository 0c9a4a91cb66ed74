/* SPDX-License-Identifier: Apache-2.0
 *
 * A 64-bit hash of the bits of the parameters: for metrics, and to find a rank whose copy has
 * diverged. It is not cryptographic.
 */
#ifndef CT_TRAINER_LOOP_PARAM_HASH_H
#define CT_TRAINER_LOOP_PARAM_HASH_H

#include "trainer/session/trainer.h"

#include <stddef.h>
#include <stdint.h>

/* The hash is made from a sum of terms, each of which depends on index and value. So terms can be
 * computed in any order, and each rank adds those of its parameters. params[0] is parameter `first`
 * of the model; `first` and `count` are even. ct_param_hash_of() makes the hash from the total. */
uint64_t ct_param_hash_part(const float *params, size_t first, size_t count);
uint64_t ct_param_hash_of(uint64_t sum);

/* Collective. Hashes the model. Ranks that hold the same part must get the same sum; otherwise
 * CT_EPEER names one that does not. The result does not depend on the number of ranks. */
CT_MUST_CHECK int ct_trainer_hash(struct ct_trainer *trainer, uint64_t *out, struct ct_err *err);

#endif
