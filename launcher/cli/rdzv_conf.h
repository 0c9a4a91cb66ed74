/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --rdzv-conf: "KEY=VALUE,KEY=VALUE", by torchrun's grammar.
 */
#ifndef CT_LAUNCHER_CLI_RDZV_CONF_H
#define CT_LAUNCHER_CLI_RDZV_CONF_H

#include "common/err.h"

#include <stdint.h>

struct ct_rdzv_conf {
    int is_host;     /* 1 = host the store here, 0 = do not, -1 = host it if its address is ours */
    int failover;    /* 1 = the job outlives the host of its store, 0 = it does not, -1 = it does if
                        there is no reason against it */
    int64_t join_ms; /* join_timeout: how long a world may take to form */
    int64_t settle_ms;    /* last_call_timeout: with MIN:MAX, how long to wait for more than MIN */
    int64_t heartbeat_ms; /* heartbeat_timeout: silence of a node that counts as its death */
};

/* join_ms is torchrun's. The others are shorter than torchrun's, so that nobody waits half a minute
 * for nodes that may never come, and a dead host is noticed within seconds. */
#define CT_RDZV_CONF_INIT                                                                          \
    {                                                                                              \
        .is_host = -1, .failover = -1, .join_ms = 600000, .settle_ms = 3000, .heartbeat_ms = 3000, \
    }

/* Sets those fields of *out that the text names: join_timeout (without it, timeout),
 * last_call_timeout and heartbeat_timeout, all in seconds, is_host and failover. Other keys are
 * accepted and have no effect, as in torchrun. Blanks around items, keys and values are passed
 * over, and so is one pair of quotes around the whole text, because scripts quote twice.
 *
 * CT_EFORMAT: an item is not KEY=VALUE. CT_EINVAL: a bad value, or a key that looks like one of
 * these mistyped. CT_EUNSUPPORTED: another kind of store. *out is unchanged then. */
CT_MUST_CHECK int ct_rdzv_conf_parse(const char *text, struct ct_rdzv_conf *out,
                                     struct ct_err *err);

#endif
