/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrun-stat.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_OPTIONS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_OPTIONS_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

struct ct_token;

enum ct_stat_action {
    CT_STAT_TABLE,
    CT_STAT_JSON,
    CT_STAT_HEALTH,
    CT_STAT_STACKS,
    CT_STAT_READ_KEY,
    CT_STAT_VERSION,
    CT_STAT_HELP,
};

struct ct_stat_options {
    enum ct_stat_action action;
    bool watch;
    int timeout_s;
    const char *token_file;       /* NULL = none is named */
    const struct ct_token *token; /* that it has, for the caller to set; NULL = none */
    const char *argument;         /* an address or the id of a job; NULL = none is named */
    struct ct_endpoint where;     /* the store that these mean, for the caller to set */
    bool is_default;              /* nothing has named it, and no job is known */
};

/* CT_EINVAL names what is wrong. */
CT_MUST_CHECK int ct_stat_options_parse(int argc, char **argv, struct ct_stat_options *out,
                                        struct ct_err *err);

/* The store that an address means; `argument` may be NULL. `master_addr` and `master_port` are the
 * variables of these names, NULL or "" = not set. *is_default: neither the argument nor a variable
 * has named it. CT_EINVAL or CT_ELIMIT names what is wrong. */
CT_MUST_CHECK int ct_stat_options_where(const char *argument, const char *master_addr,
                                        const char *master_port, struct ct_endpoint *out,
                                        bool *is_default, struct ct_err *err);

extern const char ct_stat_help[];

#endif
