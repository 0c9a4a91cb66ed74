/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the folder of jobs and asks their stores, all at once, which blocks. A store that does not
 * answer in time leaves its job in the table without a state.
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
    struct ct_endpoint stores[CT_JOBS_MAX];
    const struct ct_endpoint *asked[CT_JOBS_MAX];
    struct cJSON *answers[CT_JOBS_MAX];
    struct ct_stat_job jobs[CT_JOBS_MAX] = {{NULL, NULL}};
    for (int i = 0; i < here->count; i++) {
        asked[i] = ct_stat_here_where(here, i, &stores[i], NULL) == 0 ? &stores[i] : NULL;
    }
    int rc = ct_stat_ask_all(asked, here->count, timeout_s, answers);
    if (rc != 0) {
        return rc;
    }
    *healthy = true;
    for (int i = 0; i < here->count; i++) {
        bool is_healthy = answers[i] != NULL;
        if (is_healthy) {
            (void)!ct_stat_verdict(answers[i], &is_healthy); /* was checked */
        }
        *healthy = *healthy && is_healthy;
        jobs[i] = (struct ct_stat_job){&here->entries[i], answers[i]};
    }
    rc = ct_stat_jobs_table(jobs, here->count, columns, out);
    for (int i = 0; i < here->count; i++) {
        cJSON_Delete(answers[i]);
    }
    return rc;
}
