/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun-stat does with whatever answers: the reply is read, and a body is shown as a table.
 */
#include "tests/fuzz/fuzz.h"

#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/json.h"

#include <string.h>

static void show(const char *body, size_t len)
{
    ct_json_use_our_memory();
    cJSON *json = cJSON_ParseWithLength(body, len);
    struct ct_buf out = CT_BUF_INIT;
    bool healthy;
    if (ct_stat_verdict(json, &healthy) == 0) {
        CT_ASSERT(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out) == 0);
        CT_ASSERT(ct_stat_health(json, CT_STAT_COLUMNS, &out) == 0);
        const char *line = ct_buf_cstr(&out);
        while (*line != '\0') {
            size_t width = strcspn(line, "\n");
            CT_ASSERT(width <= CT_STAT_COLUMNS && line[width] == '\n');
            line += width + 1;
        }
    }
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct ct_http_reply whole, part;
    int rc = ct_http_reply_parse(bytes, size, true, &whole, NULL);
    CT_ASSERT(rc != CT_HTTP_E_MORE);
    if (rc == 0) {
        CT_ASSERT(whole.body <= size && whole.len <= size - whole.body);
        CT_ASSERT(whole.challenge <= whole.body &&
                  whole.challenge_len <= whole.body - whole.challenge);
        show(bytes + whole.body, whole.len);
    }
    /* What is complete early stays what it is when more comes. */
    for (size_t len = 0; len < size && size < 512; len++) {
        if (ct_http_reply_parse(bytes, len, false, &part, NULL) == 0) {
            CT_ASSERT(rc == 0 && whole.code == part.code && whole.body == part.body);
            CT_ASSERT(whole.len == part.len);
        }
    }
    show(bytes, size);
    return 0;
}
