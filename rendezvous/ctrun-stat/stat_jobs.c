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
