/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sees on the live page what workers have written. An address is enough for the rest, as for
 * /status. Where the job has a token, a request must bring it, or a key that stands for it, in the
 * header Authorization: "Bearer KEY". A browser gets its key for a link that can be used once, so
 * that neither its history nor whoever looks over a shoulder can use it again.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_KEY_H
#define CT_RENDEZVOUS_HTTP_PAGE_KEY_H

#include "common/err.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>

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

/* May whoever sends this header see what workers have written? */
bool ct_page_key_admits(const struct ct_page_key *key, const char *authorization);

void ct_page_key_wipe(struct ct_page_key *key);

#endif
