/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists jobs by name and address. Pure: entries and status documents that may be anything in, text
 * out. A job whose store does not answer is listed all the same.
 */
#include "rendezvous/ctrun-stat/stat_jobs.h"

#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>

static void put(struct ct_buf *out, const char *name, const char *address, const char *state,
                const char *workers)
{
    char line[1024], shown[1024], cells[3][256];
    /* Padding counts bytes, so only the name, which comes last, may have characters beyond ASCII.
     */
    (void)ct_text_fit(address, 40, cells[0], sizeof(cells[0]));
    (void)ct_text_fit(state, 10, cells[1], sizeof(cells[1]));
    (void)ct_text_fit(workers, 7, cells[2], sizeof(cells[2]));
    (void)snprintf(line, sizeof(line), "%-21s %-10s %7s %s", cells[0], cells[1], cells[2], name);
    (void)ct_text_fit(line, CT_STAT_COLUMNS, shown, sizeof(shown));
    ct_buf_addf(out, "%s\n", shown);
}

int ct_stat_jobs_table(const struct ct_stat_job *jobs, int count, struct ct_buf *out)
{
    put(out, "NAME", "ADDRESS", "STATE", "WORKERS");
    for (int i = 0; i < count; i++) {
        const struct cJSON *job =
            jobs[i].status != NULL ? ct_status_next_job(jobs[i].status, NULL) : NULL;
        char workers[32] = "-";
        if (job != NULL) {
            (void)snprintf(workers, sizeof(workers), "%.0f", ct_json_number(job, "world_size", 0));
        }
        put(out, jobs[i].entry->name, jobs[i].entry->address,
            jobs[i].status == NULL ? "no answer" : ct_json_text(job, "state", "?"), workers);
    }
    return ct_buf_status(out);
}

void ct_stat_jobs_hint(const struct ct_endpoint *where, const struct ct_job_entry *entries,
                       int count, char out[CT_STAT_HINT_MAX])
{
    static const char port[] = "; ctrun chooses a free port, unless --master-port names one";
    char asked[CT_ADDR_JOIN_MAX];
    struct sockaddr_storage addr;
    socklen_t len;
    ct_addr_join(where->host, where->port, asked, sizeof(asked));
    bool here = ct_addr_literal(where->host, where->port, &addr, &len) &&
                ct_addr_is_loopback((const struct sockaddr *)&addr);
    if (count == 1 && strcmp(entries[0].address, asked) != 0) {
        (void)snprintf(out, CT_STAT_HINT_MAX, "; your job on this machine has its store at %s",
                       entries[0].address);
    } else if (count > 1) {
        (void)snprintf(out, CT_STAT_HINT_MAX,
                       "; ctrun-stat without an address lists your %d jobs on this machine", count);
    } else {
        (void)snprintf(out, CT_STAT_HINT_MAX, "%s%s", port,
                       here ? ""
                            : "; a job that has lost the machine of its store has another one, at "
                              "the address that its ctruns have printed");
    }
}
