/* SPDX-License-Identifier: Apache-2.0
 *
 * One request, or two on one connection. Whoever answers there may be anybody: it gets a nonce, and
 * an HMAC only after it has shown that it has the token, too.
 */
#include "rendezvous/ctrun-stat/stat_proof.h"

const char ct_stat_proof_not_wanted[] = "the store does not ask for a proof of the token: the job "
                                        "has none, or its ctrun is older; the token was not sent";

struct proving {
    const struct ct_token *token;
    const struct ct_http_proof_page *page;
    struct ct_http_proof proof;
    char authorization[CT_HTTP_PROOF_MAX];
    bool has_proven;
};

static int on_challenge(void *data, const char *challenge, size_t len, const char **authorization,
                        struct ct_err *err)
{
    struct proving *proving = data;
    int rc = ct_http_proof_answer(&proving->proof, proving->token, proving->page, challenge, len,
                                  proving->authorization, err);
    proving->has_proven = rc == 0;
    *authorization = proving->authorization;
    return rc;
}

int ct_stat_proof_ask(const struct ct_endpoint *where, const struct ct_http_proof_page *page,
                      const struct ct_token *token, int64_t deadline_ns, struct ct_buf *bytes,
                      struct ct_http_reply *out, bool *has_proven, struct ct_err *err)
{
    struct proving proving = {.token = token, .page = page};
    struct ct_http_request request = {.method = page->method, .path = page->path};
    if (token != NULL) {
        if (ct_http_proof_open(&proving.proof, proving.authorization) != 0) {
            return ct_err_set(err, CT_EIO, "there are no random numbers to prove the token with");
        }
        request.authorization = proving.authorization;
        request.on_challenge = on_challenge;
        request.data = &proving;
    }
    int rc = ct_http_ask(where, &request, deadline_ns, bytes, out, err);
    *has_proven = proving.has_proven;
    return rc;
}
