/* SPDX-License-Identifier: Apache-2.0
 *
 * Is one worker's process in uninterruptible sleep (state D in ps(1)) for too long? Pure: states
 * and times go in, an answer comes out.
 *
 * This question is not the one of hang.h. It is about one process, not about the whole job. It
 * needs no progress page and no --hang-timeout. The answer is certain, because no signal reaches
 * such a process; so the worker has failed, whatever the other ranks do. As in torchrun 2.15, only
 * the environment variable TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT turns the check on.
 */
#ifndef CT_LAUNCHER_HANG_UNINTERRUPTIBLE_H
#define CT_LAUNCHER_HANG_UNINTERRUPTIBLE_H

#include <stdbool.h>
#include <stdint.h>

/* One worker's process. Zeroed memory means that it was not in state D. */
struct ct_uninterruptible {
    int64_t since_ns; /* the first of the looks in a row that found state D; 0 = none */
};

/* The time that the environment allows. 0 = the check is off; as in torchrun, a value that is not a
 * number means that, too. */
int64_t ct_uninterruptible_timeout_ns(char *const *env);

/* Milliseconds between two looks for such a timeout. */
int64_t ct_uninterruptible_period_ms(int64_t timeout_ns);

/* Takes the state that was found now, as in /proc/PID/stat; any other than 'D' also stands for a
 * state that could not be read. Returns for how long the process has been in state D at every look
 * if that is too long, else -1. */
int64_t ct_uninterruptible_step(struct ct_uninterruptible *process, char state, int64_t timeout_ns,
                                int64_t now_ns);

#endif
