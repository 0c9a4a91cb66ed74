/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the folder of jobs and asks their stores one after the other, which blocks. A store that
 * does not answer in time leaves its job in the table without a state.
 */
#include "rendezvous/ctrun-stat/stat_here.h"

#include "rendezvous/ctrdzvd/daemon_options.h"
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"

#include <unistd.h>

int ct_stat_here_read(struct ct_stat_here *here, const char *runtime_dir, struct ct_err *err)
{
    char folder[CT_JOB_FOLDER_MAX];
    ct_job_registry_folder(runtime_dir, geteuid(), folder);
    int rc = ct_job_registry_list(folder, here->entries, err);
    here->count = rc > 0 ? rc : 0;
    return rc < 0 ? rc : 0;
}

int ct_stat_here_where(const struct ct_stat_here *here, int index, struct ct_endpoint *out,
                       struct ct_err *err)
{
    return ct_endpoint_parse(here->entries[index].address, CT_DEFAULT_STORE_PORT, out, err);
}

int ct_stat_here_list(const struct ct_stat_here *here, int timeout_s, size_t columns,
                      struct ct_buf *out, bool *healthy)
{
    struct ct_stat_job jobs[CT_JOBS_MAX] = {{NULL, NULL}};
    *healthy = true;
    for (int i = 0; i < here->count; i++) {
        struct ct_endpoint where;
        cJSON *status = NULL;
        bool is_healthy = false;
        if (ct_stat_here_where(here, i, &where, NULL) == 0 &&
            ct_stat_ask(&where, timeout_s, &status, NULL) == 0) {
            (void)!ct_stat_verdict(status, &is_healthy); /* was checked */
        }
        *healthy = *healthy && is_healthy;
        jobs[i] = (struct ct_stat_job){&here->entries[i], status};
    }
    int rc = ct_stat_jobs_table(jobs, here->count, columns, out);
    for (int i = 0; i < here->count; i++) {
        cJSON_Delete((cJSON *)jobs[i].status);
    }
    return rc;
}
