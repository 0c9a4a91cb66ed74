/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits the connections of peers that have proved nothing yet, and says which one ends when there
 * is one too many: an address that holds more than half of them must not push out others. It only
 * counts; the connections are the caller's. Pure.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_SOURCE_QUOTA_H
#define CT_RENDEZVOUS_ADMISSION_SOURCE_QUOTA_H

#include "common/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Addresses are told apart by so many hashes, so that a connection keeps one byte of its own. */
#define CT_SOURCES 256

struct ct_source_quota {
    struct ct_hash_key key;
    size_t max, count;
    size_t held[CT_SOURCES]; /* connections by the hash of their address */
};

void ct_source_quota_init(struct ct_source_quota *quota, size_t max);

/* Counts a connection from `peer`; gives what ct_source_quota_remove() takes. IPv6 addresses of one
 * /64 are one source, since one machine has as many of them as it likes. */
uint8_t ct_source_quota_add(struct ct_source_quota *quota, const struct sockaddr *peer);

void ct_source_quota_remove(struct ct_source_quota *quota, uint8_t source);

/* Has one connection to go? Then *source says of whom the oldest goes: that which holds more than
 * half of all; -1 = of anybody. */
bool ct_source_quota_is_over(const struct ct_source_quota *quota, int *source);

#endif
