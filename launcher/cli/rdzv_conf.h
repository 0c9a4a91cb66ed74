/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --rdzv-conf: "KEY=VALUE,KEY=VALUE", by torchrun's grammar.
 */
#ifndef CT_LAUNCHER_CLI_RDZV_CONF_H
#define CT_LAUNCHER_CLI_RDZV_CONF_H

#include "common/err.h"

#include <stdint.h>

struct ct_rdzv_conf {
    int is_host;          /* 1 = host the store here, 0 = do not, -1 = find out */
    int64_t join_ms;      /* join_timeout: how long a world may take to form */
    int64_t settle_ms;    /* last_call_timeout: with MIN:MAX, how long to wait for more than MIN */
    int64_t heartbeat_ms; /* heartbeat_timeout: silence of a node that counts as its death */
};

/* torchrun waits as long for a world; the others are ours: nobody should wait half a minute for
 * nodes that may never come, and a dead host is told within seconds. */
#define CT_RDZV_CONF_INIT                                                          \
    {                                                                              \
        .is_host = -1, .join_ms = 600000, .settle_ms = 3000, .heartbeat_ms = 3000, \
    }

/* Blanks around items, keys and values do not count, nor does one pair of quotes around the whole
 * (scripts quote twice). Changes of *out what is named: join_timeout, or timeout where the former
 * is not there, last_call_timeout, heartbeat_timeout (seconds) and is_host. Other keys are accepted
 * and mean nothing, as in torchrun. CT_EFORMAT for an item that is not KEY=VALUE, CT_EINVAL for a
 * bad value or a key that is nearly one of those, CT_EUNSUPPORTED for another kind of store; *out
 * is untouched. */
CT_MUST_CHECK int ct_rdzv_conf_parse(const char *text, struct ct_rdzv_conf *out,
                                     struct ct_err *err);

#endif
