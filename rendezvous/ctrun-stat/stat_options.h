/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrun-stat.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_OPTIONS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_OPTIONS_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

enum ct_stat_action {
    CT_STAT_TABLE,
    CT_STAT_JSON,
    CT_STAT_HEALTH,
    CT_STAT_STACKS,
    CT_STAT_VERSION,
    CT_STAT_HELP,
};

struct ct_stat_options {
    enum ct_stat_action action;
    bool watch;
    int timeout_s;
    const char *token_file; /* NULL = none is named */
    struct ct_endpoint where;
    bool where_is_default; /* neither an argument nor a variable named it */
};

/* `master_addr` and `master_port` are the variables of these names, NULL or "" = not set.
 * CT_EINVAL names what is wrong. */
CT_MUST_CHECK int ct_stat_options_parse(int argc, char **argv, const char *master_addr,
                                        const char *master_port, struct ct_stat_options *out,
                                        struct ct_err *err);

extern const char ct_stat_help[];

#endif
