/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for the CUDA runtime, cuBLASLt and NCCL, linked in their place: no GPU,
 * host memory. A communicator made alone has any number of imaginary peers that send what this rank
 * sends, or other processes as peers; those of ncclCommInitAll() are each other's, and their ranks
 * may be threads. It keeps the libraries' rules of order and counts who breaks them; a script says
 * how long things take and what goes wrong.
 *
 * Work is done only when something waits for it, and then in any order that streams, events and
 * graphs allow, drawn from `seed`: what a missing event would leave to chance on a GPU goes wrong
 * here for some seed.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_H

#include <stdbool.h>

#define FAKE_NEVER (-1)

struct fake_gpu {
    /* The script; zero means "at once" and "nothing goes wrong". */
    unsigned seed;
    int init_turns;     /* polls until initialisation is done, or FAKE_NEVER */
    int call_turns;     /* the same for each collective call */
    int stream_turns;   /* queries until a stream with work is done, or FAKE_NEVER */
    int finalize_turns; /* polls until finalisation is done, or FAKE_NEVER */
    int fail_after;     /* polls or queries until the asynchronous error below; 0 = no error */
    int async_error;    /* an ncclResult_t */
    int init_error;     /* returned at once by ncclCommInitRankConfig() */
    int call_error;     /* returned at once by collectives */
    int stream_error;   /* a cudaError_t from cudaStreamQuery() */
    int set_device_error;
    bool processes;     /* peers of a communicator made alone are processes that have come, too */
    bool no_mem_alloc;  /* ncclMemAlloc() fails */
    bool no_register;   /* ncclCommRegister() fails */
    int refusing_peers; /* peers that vote 0 where this rank votes 1 */
    int fail_cuda_call; /* the n-th of the calls that can fail does; 0 = none */
    bool any_wins;      /* of the products that are timed; else the first */
    int capability;     /* of the device, 0 = 90; there are no kernels for those below 75 */
    int driver;       /* the driver is too old and says this version (13000 = 13.0); 0 = it is not,
                         FAKE_NEVER = there is none */
    int no_epilogues; /* cuBLASLt has no kernel for the epilogues whose bits are set here */
    unsigned chip; /* another one: for which shapes cuBLASLt refuses which epilogues, and in which
                      order its kernels add; 0 = it refuses none */
    bool nccl_threads; /* NCCL queues a collective from a thread of its own, some time after the
                          call has returned; not of a blocking communicator */

    /* What happened. */
    int violations; /* of the rules */
    const char *first_violation;
    int comms, memory, registrations; /* alive */
    int streams, events, graphs, execs, descriptors;
    int holding;   /* graphs with collectives in them */
    int cliques;   /* groups of communicators with real peers */
    int capturing; /* captures in progress */
    int aborts, destroys;
    int device;                         /* as set; -1 at first */
    int calls;                          /* that can fail */
    int waits;                          /* of the host for the device */
    int queued, collectives;            /* outside of graphs */
    int captured, captured_collectives; /* into graphs */
    int graph_launches, timed;
    int e4m3;   /* products of such numbers */
    int widest; /* most nodes of a graph that could have run at one time */
};

extern struct fake_gpu fake;

/* Forgets everything; `script` may be NULL. */
void fake_gpu_begin(const struct fake_gpu *script);

#endif
