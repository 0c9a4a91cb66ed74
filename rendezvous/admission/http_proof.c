/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the headers of the proof, and computes its HMACs. The headers come from anybody:
 * what is not written exactly as here is none of ours.
 */
#include "rendezvous/admission/http_proof.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SCHEME "CTRUN-Proof "
#define NONCE "nonce="
#define ANSWER "answer="

/* Every answer covers this text with its NUL, so that it is no answer in another protocol. */
static const unsigned char label[] = "ctrun HTTP proof 1";

_Static_assert(CT_NONCE_LEN == CT_ANSWER_LEN, "both are read and written by the same functions");

#define DIGITS ((size_t)2 * CT_ANSWER_LEN)

_Static_assert(CT_HTTP_PROOF_MAX > sizeof(SCHEME NONCE ", " ANSWER) + 2 * DIGITS,
               "room for the longest header");

/* ---- headers -------------------------------------------------------------------------------- */

/* Returns what follows the word; NULL = another text is there, or `text` is NULL. */
static const char *skip(const char *text, const char *word)
{
    size_t len = strlen(word);
    return text != NULL && strncmp(text, word, len) == 0 ? text + len : NULL;
}

/* The name of a scheme may be written in either case (RFC 9110, 11.1). */
static const char *skip_scheme(const char *text)
{
    size_t len = sizeof(SCHEME) - 1;
    return text != NULL && strncasecmp(text, SCHEME, len) == 0 ? text + len : NULL;
}

/* Returns what follows the digits; NULL = they are not there, or `text` is NULL. */
static const char *read_hex(const char *text, unsigned char out[CT_ANSWER_LEN])
{
    if (text == NULL || strspn(text, "0123456789abcdef") < DIGITS) {
        return NULL;
    }
    size_t len = 0;
    int rc = sodium_hex2bin(out, CT_ANSWER_LEN, text, DIGITS, NULL, &len, NULL);
    return rc == 0 && len == CT_ANSWER_LEN ? text + DIGITS : NULL;
}

static bool ends(const char *text)
{
    return text != NULL && *text == '\0';
}

static void write_hex(const unsigned char bytes[CT_ANSWER_LEN], char out[DIGITS + 1])
{
    (void)sodium_bin2hex(out, DIGITS + 1, bytes, CT_ANSWER_LEN);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void make_answer(const struct ct_http_proof *proof, const struct ct_token *token,
                        const struct ct_http_proof_page *page, enum ct_token_role role,
                        unsigned char out[CT_ANSWER_LEN])
{
    CT_ASSERT(token->len >= CT_TOKEN_MIN && token->len <= CT_TOKEN_MAX);
    const unsigned char who = (unsigned char)role;
    crypto_auth_hmacsha256_state mac;
    (void)crypto_auth_hmacsha256_init(&mac, (const unsigned char *)token->text, token->len);
    (void)crypto_auth_hmacsha256_update(&mac, label, sizeof(label));
    (void)crypto_auth_hmacsha256_update(&mac, &who, 1);
    (void)crypto_auth_hmacsha256_update(&mac, proof->server_nonce, CT_NONCE_LEN);
    (void)crypto_auth_hmacsha256_update(&mac, proof->client_nonce, CT_NONCE_LEN);
    (void)crypto_auth_hmacsha256_update(&mac, (const unsigned char *)page->method,
                                        strlen(page->method));
    (void)crypto_auth_hmacsha256_update(&mac, (const unsigned char *)" ", 1);
    (void)crypto_auth_hmacsha256_update(&mac, (const unsigned char *)page->path,
                                        strlen(page->path));
    (void)crypto_auth_hmacsha256_final(&mac, out);
    sodium_memzero(&mac, sizeof(mac));
}

static bool is_answer(const struct ct_http_proof *proof, const struct ct_token *token,
                      const struct ct_http_proof_page *page, enum ct_token_role role,
                      const unsigned char answer[CT_ANSWER_LEN])
{
    unsigned char right[CT_ANSWER_LEN];
    make_answer(proof, token, page, role, right);
    return ct_answer_is(answer, right);
}

/* ---- the client ----------------------------------------------------------------------------- */

int ct_http_proof_open(struct ct_http_proof *proof, char out[CT_HTTP_PROOF_MAX])
{
    char nonce[DIGITS + 1];
    int rc = ct_nonce_make(proof->client_nonce);
    proof->is_open = rc == 0;
    if (rc != 0) {
        return rc;
    }
    write_hex(proof->client_nonce, nonce);
    (void)snprintf(out, CT_HTTP_PROOF_MAX, SCHEME NONCE "%s", nonce);
    return 0;
}

int ct_http_proof_answer(struct ct_http_proof *proof, const struct ct_token *token,
                         const struct ct_http_proof_page *page, const char *challenge, size_t len,
                         char out[CT_HTTP_PROOF_MAX], struct ct_err *err)
{
    unsigned char answer[CT_ANSWER_LEN];
    char text[CT_HTTP_PROOF_MAX] = "", digits[DIGITS + 1];
    bool is_open = proof->is_open;
    proof->is_open = false;
    if (len < sizeof(text)) {
        memcpy(text, challenge, len);
        text[len] = '\0';
    }
    const char *at = read_hex(skip(skip_scheme(text), NONCE), proof->server_nonce);
    if (!is_open || !ends(read_hex(skip(skip(at, ", "), ANSWER), answer))) {
        return ct_err_set(err, CT_EPROTO,
                          "what answers there asks for the token in another way than a store of "
                          "ctrun; it was not sent");
    }
    if (!is_answer(proof, token, page, CT_ROLE_SERVER, answer)) {
        return ct_err_set(err, CT_EPERM,
                          "the token is not that of the job, or no store of ctrun answers there");
    }
    make_answer(proof, token, page, CT_ROLE_AGENT, answer);
    write_hex(answer, digits);
    (void)snprintf(out, CT_HTTP_PROOF_MAX, SCHEME ANSWER "%s", digits);
    return 0;
}

/* ---- the server ----------------------------------------------------------------------------- */

bool ct_http_proof_challenge(struct ct_http_proof *proof, const struct ct_token *token,
                             const struct ct_http_proof_page *page, const char *authorization,
                             char out[CT_HTTP_PROOF_MAX])
{
    unsigned char answer[CT_ANSWER_LEN], client_nonce[CT_NONCE_LEN];
    char nonce[DIGITS + 1], digits[DIGITS + 1];
    out[0] = '\0';
    if (!ends(read_hex(skip(skip_scheme(authorization), NONCE), client_nonce)) ||
        ct_nonce_make(proof->server_nonce) != 0) {
        return false;
    }
    proof->is_open = true;
    memcpy(proof->client_nonce, client_nonce, sizeof(client_nonce));
    make_answer(proof, token, page, CT_ROLE_SERVER, answer);
    write_hex(proof->server_nonce, nonce);
    write_hex(answer, digits);
    (void)snprintf(out, CT_HTTP_PROOF_MAX, SCHEME NONCE "%s, " ANSWER "%s", nonce, digits);
    return true;
}

bool ct_http_proof_check(struct ct_http_proof *proof, const struct ct_token *token,
                         const struct ct_http_proof_page *page, const char *authorization)
{
    unsigned char answer[CT_ANSWER_LEN];
    const char *text = skip(skip_scheme(authorization), ANSWER);
    if (text == NULL || !proof->is_open) {
        return false;
    }
    proof->is_open = false;
    return ends(read_hex(text, answer)) && is_answer(proof, token, page, CT_ROLE_AGENT, answer);
}
