/* SPDX-License-Identifier: Apache-2.0
 *
 * The secret of a job, and how two ends prove to each other that they have it without saying it.
 *
 * Both send a fresh random nonce. Each then sends an answer: HMAC-SHA256, keyed by the token, over
 * a label, its own role and both nonces. The role keeps an answer from being sent back to who made
 * it; the other's nonce keeps it from being used twice. Whoever listens learns nothing that helps
 * later. What is sent after the proof is authenticated with keys made from the same
 * (rendezvous/control/frame_mac.h). It is not encrypted: who listens reads it.
 *
 * The token never goes into argv, a log, or the text of an error.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_TOKEN_H
#define CT_RENDEZVOUS_ADMISSION_TOKEN_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Characters. Fewer than 16 could be guessed offline from one recorded answer; 64 hex digits are
 * what ct_token_make() makes. */
#define CT_TOKEN_MIN ((size_t)16)
#define CT_TOKEN_MAX ((size_t)256)

#define CT_NONCE_LEN 32
#define CT_ANSWER_LEN 32

/* Of a key made from the token for one connection. */
#define CT_TOKEN_KEY_LEN 32

/* Where a launcher leaves the token for those it starts. */
#define CT_TOKEN_ENV "CTRUN_TOKEN"

struct ct_token {
    size_t len; /* 0 = none */
    char text[CT_TOKEN_MAX];
};

enum ct_token_role { CT_ROLE_SERVER = 'S', CT_ROLE_AGENT = 'A' };

/* Takes a token as an environment variable holds it. `source` names that in errors. */
CT_MUST_CHECK int ct_token_parse(const char *text, const char *source, struct ct_token *out,
                                 struct ct_err *err);

/* Reads one line. The file must be a regular one of this user (or root's), which nobody else may
 * read or write. CT_ENOENT, CT_EPERM (owner, mode), CT_EFORMAT, CT_EIO. */
CT_MUST_CHECK int ct_token_read(const char *path, struct ct_token *out, struct ct_err *err);

/* From the file, else from `text`, the value of CT_TOKEN_ENV; out->len is 0 when neither is there:
 * each may be NULL, and the text "". Errors of the two above. */
CT_MUST_CHECK int ct_token_find(const char *path, const char *text, struct ct_token *out,
                                struct ct_err *err);

/* Makes a random token. CT_EIO without a source of random numbers. */
CT_MUST_CHECK int ct_token_make(struct ct_token *out);

/* Overwrites it so that the compiler cannot leave that out. */
void ct_token_wipe(struct ct_token *token);

/* Fills `nonce` from the kernel's random source. */
CT_MUST_CHECK int ct_nonce_make(unsigned char nonce[CT_NONCE_LEN]);

/* What the side in `role` answers. */
void ct_token_answer(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     unsigned char answer[CT_ANSWER_LEN]);

/* Makes the key with which the side in `role` authenticates what it sends on this connection. */
void ct_token_key(const struct ct_token *token, enum ct_token_role role,
                  const unsigned char server_nonce[CT_NONCE_LEN],
                  const unsigned char agent_nonce[CT_NONCE_LEN],
                  unsigned char key[CT_TOKEN_KEY_LEN]);

/* Is this what the side in `role` must answer? Takes the same time whatever is wrong with it. */
bool ct_token_verify(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     const unsigned char answer[CT_ANSWER_LEN]);

#endif
