/* SPDX-License-Identifier: Apache-2.0
 *
 * The random bytes are those of a nonce of the token's proof, of which the first ones are enough.
 */
#include "rendezvous/admission/voter_id.h"

#include "rendezvous/admission/token.h"

#include <stddef.h>

/* An id must be exact as a number of JSON. */
#define ID_BITS 53

int ct_voter_id_make(uint64_t *out)
{
    unsigned char random[CT_NONCE_LEN];
    uint64_t id = 0;
    if (ct_nonce_make(random) != 0) {
        return CT_EIO;
    }
    for (size_t i = 0; i < sizeof(id); i++) {
        id = id << 8 | random[i];
    }
    id >>= 64 - ID_BITS;
    *out = id < 2 ? 2 : id >= (UINT64_C(1) << ID_BITS) - 1 ? id - 2 : id;
    return 0;
}
