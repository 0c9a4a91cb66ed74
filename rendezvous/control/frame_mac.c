/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends count frames, but the number is sent as well. It lets the receiver tell a frame that
 * was moved or repeated from one that was altered.
 */
#include "rendezvous/control/frame_mac.h"

#include "rendezvous/control/control.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

_Static_assert(crypto_auth_hmacsha256_KEYBYTES == CT_TOKEN_KEY_LEN, "a key of HMAC-SHA256");

void ct_frame_mac_start(struct ct_frame_mac *mac, const struct ct_token *token,
                        enum ct_token_role role, const unsigned char server_nonce[CT_NONCE_LEN],
                        const unsigned char agent_nonce[CT_NONCE_LEN])
{
    mac->on = true;
    mac->next = 0;
    ct_token_key(token, role, server_nonce, agent_nonce, mac->key);
}

void ct_frame_mac_fini(struct ct_frame_mac *mac)
{
    sodium_memzero(mac, sizeof(*mac));
}

/* Writes the header, which has the length of what follows. */
static void put_header(unsigned char *frame, size_t body)
{
    uint32_t header = htonl((uint32_t)CT_CONTROL_FIRST_BYTE << 24 | (uint32_t)body);
    memcpy(frame, &header, sizeof(header));
}

static void put_number(unsigned char *out, uint64_t number)
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (unsigned char)number;
        number >>= 8;
    }
}

static uint64_t get_number(const unsigned char *in)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) {
        number = number << 8 | in[i];
    }
    return number;
}

int ct_frame_mac_add(struct ct_frame_mac *mac, struct ct_buf *buf, size_t at)
{
    int rc = ct_buf_reserve(buf, CT_FRAME_MAC_LEN);
    if (rc != 0) {
        return rc;
    }
    unsigned char *frame = ct_buf_bytes(buf) + at;
    size_t len = buf->len - at;
    CT_ASSERT(len >= CT_CONTROL_HEADER);
    put_header(frame, len - CT_CONTROL_HEADER + CT_FRAME_MAC_LEN);
    put_number(frame + len, mac->next++);
    (void)crypto_auth_hmacsha256(frame + len + 8, frame, len + 8, mac->key);
    buf->len += CT_FRAME_MAC_LEN;
    return 0;
}

int ct_frame_mac_take(struct ct_frame_mac *mac, unsigned char *frame, size_t *len,
                      struct ct_err *err)
{
    if (*len < CT_CONTROL_HEADER + CT_FRAME_MAC_LEN) {
        return ct_err_set(err, CT_EPERM, "a message came that nobody with the token has sent");
    }
    size_t plain = *len - CT_FRAME_MAC_LEN;
    if (crypto_auth_hmacsha256_verify(frame + plain + 8, frame, plain + 8, mac->key) != 0) {
        return ct_err_set(err, CT_EPERM,
                          "a message was altered on its way, or inserted by somebody without the "
                          "token");
    }
    uint64_t number = get_number(frame + plain);
    if (number != mac->next) {
        return ct_err_set(err, CT_EPERM,
                          "message %" PRIu64 " came where %" PRIu64 " was due: something on the "
                          "way repeats messages or leaves them out",
                          number, mac->next);
    }
    mac->next++;
    put_header(frame, plain - CT_CONTROL_HEADER);
    *len = plain;
    return 0;
}
