/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks a store for its status.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_ASK_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_ASK_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

struct cJSON;
struct ct_token;

/* Gives the document, to be freed by cJSON_Delete(). Waits at most `timeout_s`. Proves the token,
 * NULL = none, to a store that does not admit this machine. CT_EPERM: that is not enough, or there
 * is none. CT_ETIMEDOUT, or CT_EBUSY: the store has no room for the answer now. Call
 * ct_json_use_our_memory() before; then any thread may call it. */
CT_MUST_CHECK int ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token,
                              int timeout_s, struct cJSON **out, struct ct_err *err);

/* Does this failure of ct_stat_ask() mean that the store has gone? A machine that cannot be reached
 * now may have one, and so may one that is silent. */
bool ct_stat_ask_is_gone(const struct ct_err *err);

/* May a store answer there later? It is silent or busy, or its machine cannot be reached now, as
 * one that is not up yet. */
bool ct_stat_ask_may_answer(const struct ct_err *err);

/* Asks `count` stores of this user's jobs here, which admit this machine, at once, so that all
 * answers that come within `timeout_s` are there after it. stores[i] = NULL is not asked. out[i] is
 * as of ct_stat_ask(), NULL = no answer. CT_ENOMEM: nobody was asked, and `out` is not set. */
CT_MUST_CHECK int ct_stat_ask_all(const struct ct_endpoint *const *stores, int count, int timeout_s,
                                  struct cJSON **out);

#endif
