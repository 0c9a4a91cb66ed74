/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits the connections of peers that have proved nothing yet, and says which one has to end when
 * there are too many. An address that holds more than half of them loses one of its own and cannot
 * push out others. It only counts; the caller owns the connections. Pure.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_SOURCE_QUOTA_H
#define CT_RENDEZVOUS_ADMISSION_SOURCE_QUOTA_H

#include "common/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Addresses are sorted into this many classes by a hash, so that a connection stores one byte. */
#define CT_SOURCES 256

struct ct_source_quota {
    struct ct_hash_key key;
    size_t max, count;
    size_t held[CT_SOURCES]; /* connections by the hash of their address */
};

void ct_source_quota_init(struct ct_source_quota *quota, size_t max);

/* Counts a connection from `peer`. Returns its source, for ct_source_quota_remove(). All IPv6
 * addresses of a /64 network are one source, because one machine may use all of them. */
uint8_t ct_source_quota_add(struct ct_source_quota *quota, const struct sockaddr *peer);

void ct_source_quota_remove(struct ct_source_quota *quota, uint8_t source);

/* Must a connection end? Then the caller ends the oldest one of *source, which holds more than half
 * of all; -1 = the oldest of all. */
bool ct_source_quota_is_over(const struct ct_source_quota *quota, int *source);

#endif
