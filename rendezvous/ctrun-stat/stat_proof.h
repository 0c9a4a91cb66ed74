/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks for a page of a store, and proves there that the user has the job's token, without sending
 * it.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_PROOF_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_PROOF_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/admission/http_proof.h"
#include "rendezvous/wire/http_client.h"

#include <stdbool.h>
#include <stdint.h>

/* Asks as ct_http_ask() does. With a token, not NULL, it offers the proof, and gives it if the
 * store asks for it; *has_proven says whether it has. Errors also as of ct_http_proof_answer(). */
CT_MUST_CHECK int ct_stat_proof_ask(const struct ct_endpoint *where,
                                    const struct ct_http_proof_page *page,
                                    const struct ct_token *token, int64_t deadline_ns,
                                    struct ct_buf *bytes, struct ct_http_reply *out,
                                    bool *has_proven, struct ct_err *err);

/* Why a store that answers with 403 does so although the user has a token, if it was not proved. */
extern const char ct_stat_proof_not_wanted[];

#endif
