/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for NCCL and the CUDA runtime, linked in their place: no GPU, one process, any number
 * of imaginary peers that send what this rank sends. It keeps NCCL's rules of order and counts who
 * breaks them; a script says how long things take and what goes wrong.
 */
#ifndef CT_TESTS_LIB_FAKE_NCCL_H
#define CT_TESTS_LIB_FAKE_NCCL_H

#include <stdbool.h>

#define FAKE_NEVER (-1)

struct fake_nccl {
    /* The script; zero means "at once" and "nothing goes wrong". */
    int init_turns;     /* polls until initialisation is done, or FAKE_NEVER */
    int call_turns;     /* the same for each collective call */
    int stream_turns;   /* queries until the stream is done, or FAKE_NEVER */
    int finalize_turns; /* polls until finalisation is done, or FAKE_NEVER */
    int fail_after;     /* polls or queries until the asynchronous error below; 0 = no error */
    int async_error;    /* an ncclResult_t */
    int init_error;     /* returned at once by ncclCommInitRankConfig() */
    int call_error;     /* returned at once by collectives */
    int stream_error;   /* a cudaError_t from cudaStreamQuery() */
    int set_device_error;
    bool no_mem_alloc;  /* ncclMemAlloc() fails */
    bool no_register;   /* ncclCommRegister() fails */
    int refusing_peers; /* peers that vote 0 where this rank votes 1 */

    /* What happened. */
    int violations; /* of NCCL's rules */
    const char *first_violation;
    int comms, memory, registrations; /* alive */
    int aborts, destroys;
    int device; /* as set; -1 at first */
};

extern struct fake_nccl fake;

/* Forgets everything; `script` may be NULL. */
void fake_nccl_begin(const struct fake_nccl *script);

#endif
