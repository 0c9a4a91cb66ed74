/* SPDX-License-Identifier: Apache-2.0
 *
 * The same measurement with MPI_Allreduce(); bench/allreduce.py runs it with mpirun.
 */
#include "bench/programs/allreduce.h"

#include <mpi.h>

static int time_plan(float *send, float *recv, const struct size_plan *plan, int rank, int size)
{
    double times[BLOCKS];
    for (size_t i = 0; i < plan->count; i++) {
        send[i] = 1;
    }
    for (int block = -1; block < BLOCKS; block++) { /* the first warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_us();
        for (int call = 0; call < plan->calls; call++) {
            MPI_Allreduce(send, recv, (int)plan->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (block >= 0) {
            times[block] = (now_us() - begin) / plan->calls;
        }
    }
    if (recv[plan->count - 1] != (float)size) {
        (void)fprintf(stderr, "wrong sum\n");
        return 1;
    }
    if (rank == 0) {
        report(plan->count, "mpi", times);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int rank, size, bad = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *send = malloc(COUNT_MAX * sizeof(float)), *recv = malloc(COUNT_MAX * sizeof(float));
    bad = send == NULL || recv == NULL;
    for (size_t p = 0; p < PLANS && !bad; p++) {
        bad = time_plan(send, recv, &plans[p], rank, size);
    }
    free(send);
    free(recv);
    MPI_Finalize();
    return bad;
}
