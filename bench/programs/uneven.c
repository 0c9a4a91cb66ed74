/* SPDX-License-Identifier: Apache-2.0
 *
 * A healthy program in C whose steps are uneven, for bench/explain_hangs.py --healthy:
 *
 *     ctrun --nproc-per-node 8 --hang-timeout 5 bench-uneven SECONDS LONGEST
 *
 * In each step every rank computes and sleeps for times of its own, and now and then one rank keeps
 * all others waiting for longer: it sleeps for up to LONGEST seconds, or it computes for up to
 * three times as long. Long work is told as the manual says: by the phases "data" and "checkpoint",
 * or by a stamp now and then.
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/num.h"
#include "worker/ctworker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIZE 96
#define WAYS 12 /* how a step may be long; most of them are not */

/* A stamp while a rank computes for long. */
#define STAMP_S 1.0

struct run {
    struct ctw_job *job;
    int64_t step;
    unsigned own, shared; /* seeds: of this rank, of all ranks */
    double longest_s;
};

static double draw(unsigned *seed)
{
    return (rand_r(seed) + 1.0) / (RAND_MAX + 2.0);
}

/* Times as of a queue: mostly short, sometimes long. */
static double draw_time(unsigned *seed, double mean_s, double most_s)
{
    double s = -mean_s * log(draw(seed));
    return s < most_s ? s : most_s;
}

static double now_s(void)
{
    return (double)ct_clock_now(NULL) / (double)CT_NS_PER_S;
}

static void pause_for(double s)
{
    struct timespec time = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - floor(s)) * 1e9)};
    while (nanosleep(&time, &time) != 0) {
    }
}

static void compute(double s)
{
    static float a[SIZE][SIZE], b[SIZE][SIZE];
    for (double end = now_s() + s; now_s() < end;) {
        for (int i = 0; i < SIZE; i++) {
            for (int j = 0; j < SIZE; j++) {
                a[i][j] = b[j][i] * 0.5F + (float)(i ^ j);
            }
            for (int j = 0; j < SIZE; j++) {
                b[i][j] = a[i][j] / SIZE;
            }
        }
    }
}

/* Computes without a stamp, which only these phases allow. */
static void work_alone(struct run *run, enum ctw_phase phase, double s)
{
    ctw_progress(run->job, phase, run->step);
    compute(s);
    ctw_progress(run->job, CTW_PHASE_COMPUTE, run->step);
}

static void be_late(struct run *run, int way)
{
    double s = (0.5 + 2.5 * draw(&run->own)) * run->longest_s;
    if (way == 0) {
        pause_for((0.3 + 0.7 * draw(&run->own)) * run->longest_s);
    } else if (way == 1) {
        work_alone(run, CTW_PHASE_DATA, s);
    } else if (way == 2) {
        work_alone(run, CTW_PHASE_CHECKPOINT, s);
    } else if (way == 3) {
        for (; s > 0; s -= STAMP_S) {
            compute(STAMP_S);
            ctw_progress(run->job, CTW_PHASE_COMPUTE, run->step);
        }
    }
}

static int train(struct run *run, struct ctw_comm *comm, double seconds, struct ct_err *err)
{
    int ranks = ctw_comm_size(comm), rank = ctw_comm_rank(comm), rc = 0;
    double end = now_s() + seconds;
    for (float go_on = 1; go_on > 0 && rc == 0; run->step++) {
        ctw_progress(run->job, CTW_PHASE_DATA, run->step);
        pause_for(draw_time(&run->own, 0.25, run->longest_s));
        ctw_progress(run->job, CTW_PHASE_COMPUTE, run->step);
        compute(draw_time(&run->own, 0.25, run->longest_s));
        int late = (int)(draw(&run->shared) * ranks), way = (int)(draw(&run->shared) * WAYS);
        if (rank == late) {
            be_late(run, way);
        }
        go_on = rank > 0 || now_s() < end ? 1 : (float)-ranks;
        rc = ctw_comm_all_reduce(comm, &go_on, &go_on, 1, err);
    }
    ctw_progress(run->job, CTW_PHASE_DONE, run->step);
    if (rank == 0 && rc == 0) {
        (void)printf("%lld steps\n", (long long)run->step);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct ct_err err = {0};
    struct run run = {.shared = 1};
    struct ctw_comm *comm = NULL;
    double seconds = 0;
    if (argc != 3 || ct_parse_double(argv[1], 0, 1e6, &seconds) != 0 ||
        ct_parse_double(argv[2], 0, 1e3, &run.longest_s) != 0) {
        (void)fprintf(stderr, "usage: bench-uneven SECONDS LONGEST\n");
        return 2;
    }
    int rc = ctw_job_open(NULL, &run.job, &err);
    if (rc == 0) {
        run.own = (unsigned)ctw_job_env(run.job)->rank + 2;
        rc = ctw_comm_open(run.job, NULL, &comm, &err);
    }
    if (rc == 0) {
        rc = train(&run, comm, seconds, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "bench-uneven: %s\n", err.text);
        (void)ctw_job_report_error(run.job, err.text, NULL);
    }
    ctw_comm_free(comm);
    ctw_job_free(run.job);
    return rc != 0;
}
