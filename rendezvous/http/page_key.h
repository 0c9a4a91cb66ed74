/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request may read: because of who sends it from where, and, in a job with a token, of its
 * header Authorization. "Bearer KEY" has the token itself, or a key that stands for it: both show
 * also what workers have written. A browser gets such a key for a link that can be used once, so
 * that neither its history nor whoever looks over a shoulder can use it again. ctrun-stat proves
 * that it has the token instead, without sending it (rendezvous/admission/http_proof.h). The read
 * key shows what an admitted address is shown, such as /status. It is for programs like Prometheus,
 * which send it in the clear: who hears it cannot control the job.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_KEY_H
#define CT_RENDEZVOUS_HTTP_PAGE_KEY_H

#include "common/err.h"
#include "rendezvous/admission/http_proof.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>

struct ct_http_answer;

/* Zeroed memory but for `token` is valid. */
struct ct_page_key {
    const struct ct_token *token; /* NULL = the job has none: addresses decide. Borrowed */
    struct ct_token link;         /* what the last link has; empty = none, or it was used */
    struct ct_token session;      /* what a browser gets for it */
};

/* Makes a new link in place of the last one. CT_EIO without a source of random numbers. */
CT_MUST_CHECK int ct_page_key_make_link(struct ct_page_key *key);

/* `authorization` is the header, NULL = missing. True once for each link; then key->session is what
 * the browser gets. */
bool ct_page_key_redeem(struct ct_page_key *key, const char *authorization);

/* The more there is to see, the greater. */
enum ct_page_right {
    CT_PAGE_RIGHT_NONE,
    CT_PAGE_RIGHT_STATUS, /* what an admitted address sees: all but what workers have written */
    CT_PAGE_RIGHT_ALL,
};

/* Who asks, on one connection. */
struct ct_page_asker {
    bool ours;     /* its user is ours */
    bool admitted; /* its address is */
    struct ct_http_proof proof;
};

/* What may this request read? In a job with a token, its header Authorization (NULL = missing)
 * decides, or else the address. In a job without one (`key` may be NULL), the address and the user:
 * other users of this machine see the status only. */
enum ct_page_right ct_page_key_right(const struct ct_page_key *key, struct ct_page_asker *asker,
                                     const struct ct_http_proof_page *page,
                                     const char *authorization);

/* Makes a challenge (WWW-Authenticate) for a request that asks for one, so as to prove the token.
 * False: it does not, there is no token, or there are no random numbers. */
bool ct_page_key_challenge(const struct ct_page_key *key, struct ct_page_asker *asker,
                           const struct ct_http_proof_page *page, const char *authorization,
                           char out[CT_HTTP_PROOF_MAX]);

/* Makes the answer to a browser that wants a key for its link: the only request that changes
 * something, since the link is used up. `key` may be NULL. */
void ct_page_key_open_session(struct ct_page_key *key, const char *authorization,
                              struct ct_http_answer *out);

void ct_page_key_wipe(struct ct_page_key *key);

#endif
