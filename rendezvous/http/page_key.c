/* SPDX-License-Identifier: Apache-2.0
 *
 * All browsers share one key, which lives as long as the store. A wrong key costs as much time as a
 * right one.
 */
#include "rendezvous/http/page_key.h"

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

bool ct_page_key_admits(const struct ct_page_key *key, const char *authorization)
{
    const char *text = bearer(authorization);
    if (key == NULL || key->token == NULL) {
        return true;
    }
    return text != NULL &&
           (ct_token_equals(key->token, text) || ct_token_equals(&key->session, text));
}

void ct_page_key_wipe(struct ct_page_key *key)
{
    ct_token_wipe(&key->link);
    ct_token_wipe(&key->session);
}
