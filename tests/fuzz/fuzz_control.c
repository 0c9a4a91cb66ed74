/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of agent control, one after the other, as a connection brings them. What is accepted can
 * be said again: it is encoded and decoded once more, to the same bytes.
 */
#include "tests/fuzz/fuzz.h"

#include "common/alloc.h"
#include "rendezvous/control.h"

#include <string.h>

static void say_again(const struct ct_msg *msg)
{
    struct ct_buf first = CT_BUF_INIT, second = CT_BUF_INIT;
    struct ct_msg *copy = ct_calloc(1, sizeof(*copy));
    size_t used = 0;
    CT_ASSERT(copy != NULL);
    /* Workers are passed on as they are, and any JSON can be longer when written again. */
    int rc = ct_msg_encode(msg, &first);
    CT_ASSERT(rc == 0 || (rc == CT_ELIMIT && msg->workers != NULL));
    if (rc == 0) {
        CT_ASSERT(first.len <= CT_CONTROL_MAX_FRAME);
        CT_ASSERT(ct_msg_decode(ct_buf_bytes(&first), first.len, CT_CONTROL_MAX_FRAME, copy, &used,
                                NULL) == 0);
        CT_ASSERT(used == first.len && copy->type == msg->type);
        CT_ASSERT(ct_msg_encode(copy, &second) == 0 && second.len == first.len);
        CT_ASSERT(memcmp(ct_buf_bytes(&first), ct_buf_bytes(&second), first.len) == 0);
    }
    ct_msg_fini(copy);
    ct_free(copy);
    ct_buf_fini(&first);
    ct_buf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    CT_ASSERT(msg != NULL);
    for (int rc = 0; rc == 0;) {
        struct ct_err err = {0};
        size_t used = 0;
        rc = ct_msg_decode(data, size, CT_CONTROL_MAX_FRAME, msg, &used, &err);
        CT_ASSERT((rc < 0) == (err.text[0] != '\0'));
        if (rc == 0) {
            CT_ASSERT(used > CT_CONTROL_HEADER && used <= size);
            data += used;
            size -= used;
            say_again(msg);
            ct_msg_fini(msg);
        }
        /* Zero again on failure, so this is what the next one starts with. */
        memset(msg, 0, rc == 0 ? sizeof(*msg) : 0);
    }
    ct_free(msg);
    return 0;
}
