/* SPDX-License-Identifier: Apache-2.0
 *
 * 64 bits that tell parameters apart, bit by bit: for metrics, and to find a rank whose copy has
 * gone its own way. Not for adversaries.
 */
#ifndef CT_TRAINER_LOOP_PARAM_HASH_H
#define CT_TRAINER_LOOP_PARAM_HASH_H

#include "trainer/session/trainer.h"

#include <stddef.h>
#include <stdint.h>

/* A sum of terms that each depend on place and value, so that no term waits for another, and each
 * rank adds the terms of the parameters that it has. params[0] is number `first` of them all;
 * `first` and `count` are even. ct_param_hash_of() makes the hash of the sum over all parts. */
uint64_t ct_param_hash_part(const float *params, size_t first, size_t count);
uint64_t ct_param_hash_of(uint64_t sum);

/* Collective. Hashes the model. Ranks that have the same part of it must see the same: CT_EPEER
 * names one that does not. The result does not depend on the number of ranks. */
CT_MUST_CHECK int ct_trainer_hash(struct ct_trainer *trainer, uint64_t *out, struct ct_err *err);

#endif
