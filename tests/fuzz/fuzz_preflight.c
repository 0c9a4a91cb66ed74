/* SPDX-License-Identifier: Apache-2.0
 *
 * What the machines of a preflight tell each other: a row, then a line with links. What can be read
 * is judged, shown and written again.
 */
#include "tests/fuzz/fuzz.h"

#include "launcher/preflight/preflight_json.h"
#include "launcher/preflight/preflight_outcome.h"
#include "launcher/preflight/preflight_table.h"

#include "common/alloc.h"
#include "rendezvous/wire/json.h"

#include <string.h>

#define MACHINES 4

static void judge(const struct ct_preflight_machine *machines)
{
    const struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    struct ct_preflight_verdict verdict;
    struct ct_buf text = CT_BUF_INIT;
    cJSON *report = NULL;
    if (ct_preflight_judge(machines, MACHINES, &limits, &verdict) != 0) {
        return;
    }
    if (ct_preflight_table(machines, MACHINES, &verdict, &text) == 0 &&
        ct_preflight_report(machines, MACHINES, &verdict, &report) == 0) {
        cJSON_Delete(report);
    }
    ct_preflight_verdict_fini(&verdict);
    ct_buf_fini(&text);
}

static void read_text(const char *text)
{
    struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    struct ct_preflight_machine machines[MACHINES];
    struct ct_preflight_outcome outcome;
    struct ct_buf again = CT_BUF_INIT;
    const char *links = strchr(text, '\n');
    struct ct_err err = {0};
    for (int i = 0; i < MACHINES; i++) {
        ct_preflight_machine_init(&machines[i]);
    }
    if (ct_preflight_outcome_read(text, &outcome, &err) == 0) {
        ct_preflight_outcome_fini(&outcome);
    }
    bool limited = ct_preflight_limits_parse(text, &limits, &err) == 0;
    bool row = ct_preflight_machine_read(text, &machines[0], &err) == 0;
    if (row) {
        CT_ASSERT(ct_preflight_machine_write(&machines[0], &again) == 0);
        CT_ASSERT(ct_preflight_machine_read(ct_buf_cstr(&again), &machines[1], &err) == 0);
    }
    if (links != NULL && ct_preflight_links_read(links, MACHINES, &machines[0], &err) == 0) {
        CT_ASSERT(ct_preflight_links_write(&machines[0], &again) == 0);
    }
    if (row || limited) {
        judge(machines);
    }
    ct_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = ct_malloc(size + 1);
    ct_json_use_our_memory();
    if (text != NULL) {
        memcpy(text, data, size);
        text[size] = '\0';
        read_text(text);
        ct_free(text);
    }
    return 0;
}
