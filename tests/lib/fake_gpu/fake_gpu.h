/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake GPU: fake versions of the CUDA runtime, cuBLASLt and NCCL, which are linked instead of
 * the real ones. They need no GPU; device memory is memory of the host. The fake GPU checks the
 * rules of the libraries and counts violations. A script, struct fake_gpu, says how long things
 * take and what goes wrong.
 *
 * Peers of a communicator are other processes or threads, or imaginary ones that send whatever this
 * rank sends.
 *
 * Queued work runs only when something waits for it, and then in any order that streams, events and
 * graphs allow. The order is drawn from `seed`. So a missing event, which may or may not do harm on
 * a GPU, does harm here for some seed. FAKE_GPU_SEED_OFFSET in the environment is added to each
 * seed, so that running a test program again can try other orders.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_H

#include <stdbool.h>

#define FAKE_NEVER (-1)

enum fake_kernels {
    FAKE_OF_BATCHES = 1,         /* for several matrices at once */
    FAKE_OF_SMALLER_BATCHES = 2, /* that can also do fewer matrices than they were chosen for */
    FAKE_WITHOUT_WORKSPACE = 4,
    FAKE_WITHOUT_SPLITS = 8, /* that compute each dot product in one sequence */
    FAKE_RUNNABLE = 16,      /* that can be run after all */
    FAKE_AT_ALL = 32,
};

struct fake_gpu {
    /* The script; zero means "at once" and "nothing goes wrong". */
    unsigned seed;
    int init_turns;     /* polls until initialisation is done, or FAKE_NEVER */
    int call_turns;     /* the same for each collective call */
    int stream_turns;   /* queries until a stream with work is done, or FAKE_NEVER */
    int finalize_turns; /* polls until finalisation is done, or FAKE_NEVER */
    int fail_after;     /* polls or queries until the asynchronous error below; 0 = no error */
    int async_error;    /* an ncclResult_t */
    int nccl_version;   /* 0 = that of the header */
    int init_error;     /* returned at once by ncclCommInitRankConfig() */
    int call_error;     /* returned at once by collectives */
    int stream_error;   /* a cudaError_t from cudaStreamQuery() */
    int set_device_error;
    bool processes;     /* peers are processes, or threads that stand for such; not imaginary */
    bool crews;         /* threads do not stand for processes: they are a crew */
    bool no_mem_alloc;  /* ncclMemAlloc() fails */
    bool no_register;   /* ncclCommRegister() fails */
    int refusing_peers; /* imaginary peers that vote 0 where this rank votes 1 */
    int fail_cuda_call; /* which of the calls that can fail does, counted from 1; 0 = none */
    bool any_wins;      /* any of the products that are timed may be fastest; otherwise the first */
    int devices;        /* how many there are, 0 = 8 */
    int capability;     /* of each device, 0 = 90; there are no kernels for those below 75 */
    int driver;         /* the version of a driver that is too old (13000 = 13.0); 0 = it is new
                           enough, FAKE_NEVER = no driver is installed */
    int no_epilogues;   /* cuBLASLt has no kernel for the epilogues whose bits are set here */
    int no_kernels;     /* cuBLASLt has none of these: bits of enum fake_kernels */
    bool no_early;      /* no kernel can be launched before the one in front of it has ended */
    bool no_early_root; /* the same for a kernel that a recording begins with */
    bool other_refusal; /* the driver has another error for a device without kernels */
    unsigned chip;      /* number of a GPU model. It decides for which shapes cuBLASLt refuses which
                           epilogues, and in which order its kernels add. 0 refuses none */
    bool nccl_threads;  /* NCCL queues a collective from a thread of its own, some time after the
                           call has returned */

    /* What happened: counts. */
    int violations; /* of the rules */
    const char *first_violation;
    int comms, memory, registrations; /* that exist now, and so the next line */
    int streams, events, graphs, execs, descriptors;
    int holding;   /* graphs with collectives in them */
    int cliques;   /* groups of communicators with real peers */
    int capturing; /* captures in progress */
    int aborts, destroys;
    int device;                         /* the current one; -1 at first */
    int calls;                          /* calls that can fail */
    int waits;                          /* waits of the host for the device */
    int early;                          /* kernels that were launched so */
    int queued, collectives;            /* outside of graphs */
    int captured, captured_collectives; /* into graphs */
    int graph_launches, timed;
    int e4m3;   /* products of such numbers */
    int e5m2;   /* products of e4m3 and e5m2 numbers */
    int widest; /* most nodes of a graph that could have run at one time */
};

extern struct fake_gpu fake;

/* Forgets everything and begins with this script. NULL means a script of zeros. */
void fake_gpu_begin(const struct fake_gpu *script);

#endif
