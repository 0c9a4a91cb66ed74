/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of agent control, one after the other, as a connection brings them. What is accepted can
 * be said again: it is encoded and decoded once more, to the same bytes.
 */
#include "tests/fuzz/fuzz.h"

#include "common/alloc.h"
#include "rendezvous/control/control.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* Whatever is let through can be shown: one row for each worker, of ranks that follow each other.
 */
static void check_rows(const struct ct_msg *msg)
{
    CT_ASSERT(msg->num_rows >= 0 && msg->num_rows <= CT_MAX_NODE_WORKERS);
    struct ct_status_rows shown = {.print = true};
    const struct ct_row_span span = {.count = msg->num_rows, .rows = msg->rows};
    struct ct_buf text = CT_BUF_INIT;
    for (int i = 0; i < msg->num_rows; i++) {
        const struct ct_worker_row *row = &msg->rows[i];
        CT_ASSERT(row->local_rank == i && row->rank == msg->rows[0].rank + i);
        CT_ASSERT(isnan(row->loss) || isfinite(row->loss));
    }
    CT_ASSERT(ct_buf_append(&text, "[", 1) == 0);
    CT_ASSERT(ct_status_rows_add(&shown, &span, "\"host\"", &text) == 0);
    CT_ASSERT(ct_buf_append(&text, "]", 1) == 0);
    cJSON *read = cJSON_Parse(ct_buf_cstr(&text));
    CT_ASSERT(cJSON_GetArraySize(read) == msg->num_rows);
    cJSON_Delete(read);
    ct_buf_fini(&text);
}

static void say_again(const struct ct_msg *msg)
{
    struct ct_buf first = CT_BUF_INIT, second = CT_BUF_INIT;
    struct ct_msg *copy = ct_calloc(1, sizeof(*copy));
    size_t used = 0;
    CT_ASSERT(copy != NULL);
    /* Texts whose bytes are no UTF-8, and numbers, can be longer when written again. */
    int rc = ct_msg_encode(msg, &first);
    CT_ASSERT(rc == 0 || rc == CT_ELIMIT);
    check_rows(msg);
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
