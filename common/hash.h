/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash-1-3 (Aumasson and Bernstein): a keyed hash for tables whose keys come from strangers.
 * Rust's and Python's tables use the same number of rounds. The key must be random in each process,
 * so that nobody can choose keys that collide.
 */
#ifndef CT_COMMON_HASH_H
#define CT_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

struct ct_hash_key {
    uint64_t k0, k1;
};

uint64_t ct_hash(const struct ct_hash_key *key, const void *bytes, size_t len);

/* Fills `key` from the kernel's random source. */
void ct_hash_key_random(struct ct_hash_key *key);

#endif
