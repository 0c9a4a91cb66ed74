/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrdzvd.
 */
#ifndef CT_RENDEZVOUS_CTRDZVD_DAEMON_OPTIONS_H
#define CT_RENDEZVOUS_CTRDZVD_DAEMON_OPTIONS_H

#include "common/err.h"
#include "rendezvous/admission/access.h"
#include "rendezvous/wire/listen.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PyTorch's default port of a store. */
#define CT_DEFAULT_STORE_PORT 29500

enum ct_daemon_action { CT_DAEMON_SERVE, CT_DAEMON_HELP, CT_DAEMON_VERSION };

struct ct_daemon_options {
    enum ct_daemon_action action;
    const char *hosts[CT_MAX_LISTENERS]; /* borrowed from argv */
    size_t num_hosts;
    uint16_t port;
    size_t max_memory, max_connections; /* 0 = no limit */
    bool http_keys;
    int ready_fd; /* -1 = none; else open for writing */
    struct ct_access access;
    const char *token_file; /* borrowed from argv; NULL = none */
    const char *journal;    /* borrowed from argv; NULL = none */
    bool journal_sync;
};

/* Reads argv[1...]. CT_EINVAL, or an error of ct_access_allow(), names the wrong option. */
CT_MUST_CHECK int ct_daemon_options_parse(char *const *argv, struct ct_daemon_options *out,
                                          struct ct_err *err);

extern const char ct_daemon_help[];

#endif
