/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash-1-3: one round for each word of input, three at the end. The output is the same on
 * machines of either byte order.
 */
#include "common/hash.h"

#include "common/clock.h"

#include <endian.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static inline uint64_t rotl(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

uint64_t ct_hash(const struct ct_hash_key *key, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t v[4] = {
        key->k0 ^ 0x736f6d6570736575ULL,
        key->k1 ^ 0x646f72616e646f6dULL,
        key->k0 ^ 0x6c7967656e657261ULL,
        key->k1 ^ 0x7465646279746573ULL,
    };
    size_t left = len;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word = le64toh(word);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)p[i] << (8 * i);
    }
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void ct_hash_key_random(struct ct_hash_key *key)
{
    if (getrandom(key, sizeof(*key), 0) == (ssize_t)sizeof(*key)) {
        return;
    }
    /* There is no getrandom(2) before Linux 3.17 or behind a seccomp filter. This key is weaker,
     * but it is another one in each process. */
    key->k0 = (uint64_t)ct_clock_now(NULL);
    key->k1 = ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)key;
}
