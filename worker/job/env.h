/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment contract, from wherever it stands.
 */
#ifndef CT_WORKER_JOB_ENV_H
#define CT_WORKER_JOB_ENV_H

#include "worker/ctworker.h"

/* "NAME=value" texts, each with its NUL, one behind the other. Borrowed. */
struct env_source {
    const char *text;
    size_t bytes; /* the last one is a NUL, or there are none */
};

/* As ctw_env_read(); `from` NULL means the process environment. */
CT_MUST_CHECK int env_read_from(const struct env_source *from, struct ctw_env *out,
                                struct ct_err *err);

#endif
