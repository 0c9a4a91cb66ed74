/* SPDX-License-Identifier: Apache-2.0
 *
 * Times ctw_comm_all_reduce() between the workers of one machine, with and without copies:
 *
 *     ctrun --nproc-per-node 2 bench-allreduce
 *
 * bench/allreduce.py runs it against Open MPI.
 */
#include "bench/programs/allreduce.h"

#include "common/err.h"
#include "worker/ctworker.h"

struct way {
    const char *name;
    float *send, *recv;
};

static int time_way(struct ctw_comm *comm, const struct way *way, const struct size_case *item,
                    struct ct_err *err)
{
    double times[BLOCKS];
    for (size_t i = 0; i < item->count; i++) {
        way->send[i] = 1;
    }
    for (int block = -1; block < BLOCKS; block++) { /* the first warms up */
        int rc = ctw_comm_barrier(comm, err);
        double begin = now_us();
        for (int call = 0; call < item->calls && rc == 0; call++) {
            rc = ctw_comm_all_reduce(comm, way->send, way->recv, item->count, err);
        }
        if (rc != 0) {
            return rc;
        }
        if (block >= 0) {
            times[block] = (now_us() - begin) / item->calls;
        }
    }
    if (way->recv[item->count - 1] != (float)ctw_comm_size(comm)) {
        return ct_err_set(err, CT_EIO, "wrong sum");
    }
    if (ctw_comm_rank(comm) == 0) {
        report(item->count, way->name, times);
    }
    return 0;
}

static int run(struct ctw_comm *comm, struct ct_err *err)
{
    const size_t bytes = COUNT_MAX * sizeof(float);
    void *own = NULL, *shared = NULL;
    int rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, bytes, &own, err);
    if (rc == 0) {
        rc = ctw_comm_alloc(comm, CTW_MEMORY_SHARED, bytes, &shared, err);
    }
    float *send = malloc(bytes), *recv = malloc(bytes);
    if (rc == 0 && (send == NULL || recv == NULL)) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    const struct way ways[] = {{"zero-copy", own, shared}, {"copying", send, recv}};
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        for (size_t p = 0; p < CASES && rc == 0; p++) {
            rc = time_way(comm, &ways[w], &cases[p], err);
        }
    }
    free(send);
    free(recv);
    return rc;
}

int main(void)
{
    struct ct_err err = {0};
    struct ctw_job *job = NULL;
    struct ctw_comm *comm = NULL;
    int rc = ctw_job_open(NULL, &job, &err);
    if (rc == 0) {
        rc = ctw_comm_open(job, NULL, &comm, &err);
    }
    if (rc == 0) {
        rc = run(comm, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "bench-allreduce: %s\n", err.text);
        (void)ctw_job_report_error(job, err.text, NULL);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
    return rc != 0;
}
