/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rank_calls.h"

#include "tests/lib/ranks.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct ctw_job *rank_open_job(void)
{
    struct ctw_job *job = NULL;
    CHECK(ctw_job_open(NULL, &job, NULL) == 0);
    return job;
}

struct ctw_comm *rank_open_comm(struct ctw_job *job, int64_t timeout_ms)
{
    struct ctw_comm_options options = {.timeout_ms = timeout_ms};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    if (ctw_comm_open(job, &options, &comm, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    return comm;
}

struct ctw_link *rank_open_link(struct ctw_comm *comm, int peer, size_t buffer)
{
    struct ctw_link *link = NULL;
    struct ct_err err = {0};
    if (ctw_link_open(comm, peer, buffer, &link, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    return link;
}

int rank_open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

void rank_check_text(const struct ct_err *err, const char *want)
{
    if (strstr(err->text, want) == NULL) {
        (void)fprintf(stderr, "\"%s\" is not in \"%s\"\n", want, err->text);
        CHECK(false);
    }
}

/* After a failure every call fails at once with the same code. */
void rank_check_dead(struct ctw_comm *comm, int code)
{
    struct ct_err err = {0};
    float x = 1;
    void *block;
    size_t begin, end;
    CHECK(ctw_comm_barrier(comm, &err) == code);
    rank_check_text(&err, "has ended");
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == code);
    CHECK(ctw_comm_reduce_scatter(comm, &x, 1, &begin, &end, NULL) == code);
    CHECK(ctw_comm_broadcast(comm, &x, sizeof(x), 0, NULL) == code);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 1, &block, NULL) == code);
    CHECK(ctw_comm_poll(comm, NULL) == code);
    CHECK(ctw_comm_sync(comm, NULL) == code);
    ctw_comm_abort(comm);
}
