/* SPDX-License-Identifier: Apache-2.0
 *
 * The exit codes that ctrun itself chooses. It also passes on the code of a worker, and 128 + the
 * number of the signal that killed one.
 *
 * timeout(1) and env(1) use 124 and 125, shells use 126 and above. The codes for a whole job are
 * none of these, and programs rarely return them.
 */
#ifndef CT_COMMON_EXIT_CODE_H
#define CT_COMMON_EXIT_CODE_H

enum ct_exit_code {
    CT_EXIT_OK = 0,
    CT_EXIT_SETUP = 1, /* could not set up: port in use, folder not writable, out of memory */
    CT_EXIT_USAGE = 2,
    CT_EXIT_UNFIT = 118,        /* a machine failed its health check */
    CT_EXIT_NO_REQUEUE = 119,   /* another start would fail, too: do not start the job again */
    CT_EXIT_RDZV_TIMEOUT = 120, /* the world did not form in time */
    CT_EXIT_NODE_LOST = 121,    /* a node was lost and not replaced */
    CT_EXIT_HUNG = 122,         /* a worker hung (--hang-timeout) */
    CT_EXIT_PREEMPTED = 123,    /* asked to end, and all workers ended in order */
    CT_EXIT_NOT_EXECUTABLE = 126,
    CT_EXIT_NOT_FOUND = 127,
    CT_EXIT_SIGNAL_BASE = 128,
};

#endif
