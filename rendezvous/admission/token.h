/* SPDX-License-Identifier: Apache-2.0
 *
 * The secret of a job, and how agent and server prove to each other that they have it without
 * sending it.
 *
 * Both send a fresh random nonce. Each then sends an answer: HMAC-SHA256, keyed by the token, over
 * a label, its own role and both nonces. Because of the role an answer cannot be reflected to its
 * sender. Because of the other side's nonce it cannot be replayed. Frames that follow the proof are
 * authenticated with keys made from the token and the nonces (rendezvous/control/frame_mac.h). They
 * are not encrypted, so everybody on the network between can read them.
 *
 * The token never goes into argv, a log, or the text of an error.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_TOKEN_H
#define CT_RENDEZVOUS_ADMISSION_TOKEN_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Lengths in characters. A token of fewer than 16 could be guessed offline from one recorded
 * answer. ct_token_make() makes 64 hexadecimal digits. */
#define CT_TOKEN_MIN ((size_t)16)
#define CT_TOKEN_MAX ((size_t)256)

#define CT_NONCE_LEN 32
#define CT_ANSWER_LEN 32

/* Length of a key that is made from the token for one connection. */
#define CT_TOKEN_KEY_LEN 32

/* The environment variable in which a launcher passes the token on. */
#define CT_TOKEN_ENV "CTRUN_TOKEN"

struct ct_token {
    size_t len; /* 0 = none */
    char text[CT_TOKEN_MAX];
};

enum ct_token_role { CT_ROLE_SERVER = 'S', CT_ROLE_AGENT = 'A' };

/* Takes a token from a text. `source` says in errors where the text comes from. */
CT_MUST_CHECK int ct_token_parse(const char *text, const char *source, struct ct_token *out,
                                 struct ct_err *err);

/* Reads one line. The file must be a regular one of this user (or root's), which nobody else may
 * read or write. CT_ENOENT, CT_EPERM (owner, mode), CT_EFORMAT, CT_EIO. */
CT_MUST_CHECK int ct_token_read(const char *path, struct ct_token *out, struct ct_err *err);

/* Reads the token from the file at `path`, or else from `text`, the value of CT_TOKEN_ENV. Without
 * either (NULL, or a text that is "") out->len becomes 0. Errors as of the two above. */
CT_MUST_CHECK int ct_token_find(const char *path, const char *text, struct ct_token *out,
                                struct ct_err *err);

/* Makes a random token. CT_EIO without a source of random numbers. */
CT_MUST_CHECK int ct_token_make(struct ct_token *out);

/* Makes the read key of the job: who has it may read the job's pages over HTTP, and nothing else.
 * Like a token that we make, it is 64 hexadecimal digits. */
void ct_token_read_key(const struct ct_token *token, struct ct_token *out);

/* Overwrites the token in a way that the compiler cannot optimise away. */
void ct_token_wipe(struct ct_token *token);

/* Is `text` this token? An empty token equals nothing. Takes the same time whatever is wrong with a
 * text of the same length. */
bool ct_token_equals(const struct ct_token *token, const char *text);

/* Fills `nonce` from the kernel's random source. */
CT_MUST_CHECK int ct_nonce_make(unsigned char nonce[CT_NONCE_LEN]);

/* Computes the answer of the side in `role`. */
void ct_token_answer(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     unsigned char answer[CT_ANSWER_LEN]);

/* Makes the key with which the side in `role` authenticates what it sends on this connection. */
void ct_token_key(const struct ct_token *token, enum ct_token_role role,
                  const unsigned char server_nonce[CT_NONCE_LEN],
                  const unsigned char agent_nonce[CT_NONCE_LEN],
                  unsigned char key[CT_TOKEN_KEY_LEN]);

/* Is this what the side in `role` must answer? As ct_answer_is(). */
bool ct_token_verify(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     const unsigned char answer[CT_ANSWER_LEN]);

/* Is `answer` the right one, which is wiped? Takes the same time for every wrong answer, so that
 * the time reveals nothing. */
bool ct_answer_is(const unsigned char answer[CT_ANSWER_LEN], unsigned char right[CT_ANSWER_LEN]);

#endif
