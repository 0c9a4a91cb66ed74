/* SPDX-License-Identifier: Apache-2.0
 *
 * How a client of the HTTP pages shows that it has the job's token, without sending it. Pure.
 *
 *     GET /status    Authorization: CTRUN-Proof nonce=NONCE
 *     401            WWW-Authenticate: CTRUN-Proof nonce=NONCE, answer=ANSWER
 *     GET /status    Authorization: CTRUN-Proof answer=ANSWER
 *     200
 *
 * All of it goes over one connection. As for an agent (token.h), the store shows first that it has
 * the token, and an answer covers a role and both nonces; here it covers method and path, too. The
 * store keeps the nonces with the connection, for one answer. So nobody can use an answer again, on
 * another connection or for another page. The page itself is not encrypted.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_HTTP_PROOF_H
#define CT_RENDEZVOUS_ADMISSION_HTTP_PROOF_H

#include "common/err.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>
#include <stddef.h>

/* One side's part of it. Zeroed memory is valid. */
struct ct_http_proof {
    bool is_open; /* the other side's next word is expected */
    unsigned char server_nonce[CT_NONCE_LEN], client_nonce[CT_NONCE_LEN];
};

/* What is asked for. */
struct ct_http_proof_page {
    const char *method, *path;
};

/* Room for each of the three headers, with a NUL. The longest has 156 characters. */
#define CT_HTTP_PROOF_MAX 192

/* Client: makes the first Authorization. CT_EIO without random numbers. */
CT_MUST_CHECK int ct_http_proof_open(struct ct_http_proof *proof, char out[CT_HTTP_PROOF_MAX]);

/* Client: makes the second Authorization from the `len` bytes of WWW-Authenticate, once. CT_EPROTO:
 * that is no challenge of a store. CT_EPERM: whoever sent it does not have the token. */
CT_MUST_CHECK int ct_http_proof_answer(struct ct_http_proof *proof, const struct ct_token *token,
                                       const struct ct_http_proof_page *page, const char *challenge,
                                       size_t len, char out[CT_HTTP_PROOF_MAX], struct ct_err *err);

/* Server: makes WWW-Authenticate, in place of an earlier challenge, if the header Authorization
 * (NULL = missing) asks for it. False, and "" in `out`: it does not, or there are no random
 * numbers. */
bool ct_http_proof_challenge(struct ct_http_proof *proof, const struct ct_token *token,
                             const struct ct_http_proof_page *page, const char *authorization,
                             char out[CT_HTTP_PROOF_MAX]);

/* Server: does the header Authorization (NULL = missing) have the right answer to the challenge?
 * An answer, right or wrong, ends the challenge. */
bool ct_http_proof_check(struct ct_http_proof *proof, const struct ct_token *token,
                         const struct ct_http_proof_page *page, const char *authorization);

#endif
