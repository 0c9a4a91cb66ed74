/* SPDX-License-Identifier: Apache-2.0
 *
 * Authentication of control frames in a job with a token. After the proof each frame ends with
 * its number in its direction, counted from 0, and a MAC over all of it. So somebody who controls
 * the network between the two ends cannot alter, insert, omit, repeat or reflect a frame. Pure.
 *
 *     4 bytes header | JSON | 8 bytes number, big-endian | 32 bytes HMAC-SHA256 of all before
 *
 * The header's length counts everything after the header. Each direction has a key of its own
 * (ct_token_key()).
 */
#ifndef CT_RENDEZVOUS_CONTROL_FRAME_MAC_H
#define CT_RENDEZVOUS_CONTROL_FRAME_MAC_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that number and MAC add to a frame. */
#define CT_FRAME_MAC_LEN ((size_t)8 + CT_ANSWER_LEN)

/* One direction of a connection. Zeroed memory is off: frames have no MAC. */
struct ct_frame_mac {
    bool on;
    uint64_t next; /* number of the next frame */
    unsigned char key[CT_TOKEN_KEY_LEN];
};

/* Turns it on, with the key for what the side in `role` sends. */
void ct_frame_mac_start(struct ct_frame_mac *mac, const struct ct_token *token,
                        enum ct_token_role role, const unsigned char server_nonce[CT_NONCE_LEN],
                        const unsigned char agent_nonce[CT_NONCE_LEN]);

/* Turns it off and overwrites the key. */
void ct_frame_mac_fini(struct ct_frame_mac *mac);

/* Appends number and MAC to the frame from `at` to the end of the buffer. CT_ENOMEM: unchanged. */
CT_MUST_CHECK int ct_frame_mac_add(struct ct_frame_mac *mac, struct ct_buf *buf, size_t at);

/* Checks a whole frame of *len bytes and removes number and MAC from it; header and *len are then
 * as without them. CT_EPERM says what is wrong. */
CT_MUST_CHECK int ct_frame_mac_take(struct ct_frame_mac *mac, unsigned char *frame, size_t *len,
                                    struct ct_err *err);

#endif
