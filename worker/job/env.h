/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the worker's environment, from the process or from a text.
 */
#ifndef CT_WORKER_JOB_ENV_H
#define CT_WORKER_JOB_ENV_H

#include "worker/ctworker.h"

/* "NAME=value" strings, each with its NUL, one after the other. Borrowed. */
struct env_source {
    const char *text;
    size_t bytes; /* the last byte is a NUL, or bytes is 0 */
};

/* As ctw_env_read(); `from` NULL means the process environment. */
CT_MUST_CHECK int env_read_from(const struct env_source *from, struct ctw_env *out,
                                struct ct_err *err);

#endif
