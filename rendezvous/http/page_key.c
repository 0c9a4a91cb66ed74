/* SPDX-License-Identifier: Apache-2.0
 *
 * All browsers share one key, which lives as long as the store. A wrong key costs as much time as a
 * right one.
 */
#include "rendezvous/http/page_key.h"

#include "rendezvous/http/http_answer.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

int ct_page_key_make_link(struct ct_page_key *key)
{
    int rc = key->session.len == 0 ? ct_token_make(&key->session) : 0;
    return rc == 0 ? ct_token_make(&key->link) : rc;
}

/* Returns the bearer token of an Authorization header; NULL = there is none. */
static const char *bearer(const char *authorization)
{
    static const char scheme[] = "Bearer ";
    size_t len = sizeof(scheme) - 1;
    bool has = authorization != NULL && strncasecmp(authorization, scheme, len) == 0;
    return has ? authorization + len : NULL;
}

bool ct_page_key_redeem(struct ct_page_key *key, const char *authorization)
{
    const char *text = bearer(authorization);
    if (text == NULL || !ct_token_equals(&key->link, text)) {
        return false;
    }
    ct_token_wipe(&key->link);
    return true;
}

/* What the header shows. */
static enum ct_page_right by_header(const struct ct_page_key *key, struct ct_http_proof *proof,
                                    const struct ct_http_proof_page *page,
                                    const char *authorization)
{
    const char *text = bearer(authorization);
    if (text == NULL) {
        return ct_http_proof_check(proof, key->token, page, authorization) ? CT_PAGE_RIGHT_ALL
                                                                           : CT_PAGE_RIGHT_NONE;
    }
    if (ct_token_equals(key->token, text) || ct_token_equals(&key->session, text)) {
        return CT_PAGE_RIGHT_ALL;
    }
    struct ct_token read_key;
    ct_token_read_key(key->token, &read_key);
    bool may_read = ct_token_equals(&read_key, text);
    ct_token_wipe(&read_key);
    return may_read ? CT_PAGE_RIGHT_STATUS : CT_PAGE_RIGHT_NONE;
}

enum ct_page_right ct_page_key_right(const struct ct_page_key *key, struct ct_page_asker *asker,
                                     const struct ct_http_proof_page *page,
                                     const char *authorization)
{
    if (key == NULL || key->token == NULL) {
        return !asker->admitted ? CT_PAGE_RIGHT_NONE
               : asker->ours    ? CT_PAGE_RIGHT_ALL
                                : CT_PAGE_RIGHT_STATUS;
    }
    enum ct_page_right right = by_header(key, &asker->proof, page, authorization);
    return right == CT_PAGE_RIGHT_NONE && asker->admitted ? CT_PAGE_RIGHT_STATUS : right;
}

bool ct_page_key_challenge(const struct ct_page_key *key, struct ct_page_asker *asker,
                           const struct ct_http_proof_page *page, const char *authorization,
                           char out[CT_HTTP_PROOF_MAX])
{
    return key != NULL && key->token != NULL &&
           ct_http_proof_challenge(&asker->proof, key->token, page, authorization, out);
}

void ct_page_key_open_session(struct ct_page_key *key, const char *authorization,
                              struct ct_http_answer *out)
{
    if (key == NULL || !ct_page_key_redeem(key, authorization)) {
        ct_http_answer_error(out, 403, "this link was used before, or is wrong");
        return;
    }
    *out = (struct ct_http_answer){.code = 200, .type = "application/json"};
    ct_buf_addf(&out->body, "{\"bearer\":\"%.*s\"}\n", (int)key->session.len, key->session.text);
    if (ct_buf_status(&out->body) != 0) {
        ct_http_answer_error(out, 500, "no memory");
    }
}

void ct_page_key_wipe(struct ct_page_key *key)
{
    ct_token_wipe(&key->link);
    ct_token_wipe(&key->session);
}
