/* SPDX-License-Identifier: Apache-2.0
 *
 * The same measurement with MPI_Allreduce(); bench/allreduce.py runs it with mpirun.
 */
#include "bench/programs/allreduce.h"

#include <mpi.h>

static int time_case(float *send, float *recv, const struct size_case *item, int rank, int size)
{
    double times[BLOCKS];
    for (size_t i = 0; i < item->count; i++) {
        send[i] = 1;
    }
    for (int block = -1; block < BLOCKS; block++) { /* the first warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now_us();
        for (int call = 0; call < item->calls; call++) {
            MPI_Allreduce(send, recv, (int)item->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (block >= 0) {
            times[block] = (now_us() - begin) / item->calls;
        }
    }
    if (recv[item->count - 1] != (float)size) {
        (void)fprintf(stderr, "wrong sum\n");
        return 1;
    }
    if (rank == 0) {
        report(item->count, "mpi", times);
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
    for (size_t p = 0; p < CASES && !bad; p++) {
        bad = time_case(send, recv, &cases[p], rank, size);
    }
    free(send);
    free(recv);
    MPI_Finalize();
    return bad;
}
