/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the token from a file or the environment, and computes HMACs with it. Memory that held a
 * secret is wiped.
 *
 * Failure modes: a token file that others may read is refused, as is a token that is too short. The
 * text of an error never holds the token.
 */
#include "rendezvous/admission/token.h"

#include "rendezvous/admission/token_acl.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Bytes of randomness in a token that we make. */
#define RANDOM_LEN 32

/* Every answer covers this text. So an HMAC that another protocol makes with the same token is no
 * valid answer here. */
static const unsigned char answer_label[] = "ctrun agent control 1";
/* Every key of a connection covers this text, so that no key equals an answer. */
static const unsigned char key_label[] = "ctrun agent control 1, key of frames";

/* The read key is the HMAC of this text alone, without the NUL, so that other programs can make it
 * too. Nothing else that is made with the token covers just these bytes. */
static const char read_label[] = "ctrun read key 1";

_Static_assert(CT_ANSWER_LEN == crypto_auth_hmacsha256_BYTES, "an answer is an HMAC-SHA256");
_Static_assert(CT_TOKEN_KEY_LEN == crypto_auth_hmacsha256_BYTES, "so is a key");

/* ---- the token ------------------------------------------------------------------------------ */

/* The errors do not quote the text, because it may be most of a good token. */
static int take(const char *text, size_t len, const char *source, struct ct_token *out,
                struct ct_err *err)
{
    if (len < CT_TOKEN_MIN || len > CT_TOKEN_MAX) {
        return ct_err_set(err, CT_EFORMAT, "%s: a token has %zu to %zu characters, not %zu", source,
                          CT_TOKEN_MIN, CT_TOKEN_MAX, len);
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return ct_err_set(err, CT_EFORMAT,
                              "%s: character %zu of the token is a blank or not printable", source,
                              i + 1);
        }
    }
    out->len = len;
    memcpy(out->text, text, len);
    return 0;
}

int ct_token_parse(const char *text, const char *source, struct ct_token *out, struct ct_err *err)
{
    return take(text, strlen(text), source, out, err);
}

void ct_token_wipe(struct ct_token *token)
{
    sodium_memzero(token, sizeof(*token));
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Does the access control list, shown as the mode's group bits, admit nobody else? */
static bool list_is_private(int fd)
{
    unsigned char acl[CT_ACL_MAX];
    ssize_t len = fgetxattr(fd, CT_ACL_ATTRIBUTE, acl, sizeof(acl));
    return len > 0 && ct_acl_is_private(acl, (size_t)len, geteuid());
}

static int check_private(int fd, const char *path, struct ct_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot read %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return ct_err_set(err, CT_EFORMAT, "%s is %s: name a file that holds the token", path,
                          S_ISDIR(st.st_mode) ? "a folder" : "no plain file");
    }
    if (st.st_uid != geteuid() && st.st_uid != 0) {
        return ct_err_set(err, CT_EPERM, "%s belongs to user %u: name a file of user %u or of root",
                          path, (unsigned)st.st_uid, (unsigned)geteuid());
    }
    if ((st.st_mode & S_IRWXO) != 0 || ((st.st_mode & S_IRWXG) != 0 && !list_is_private(fd))) {
        return ct_err_set(err, CT_EPERM,
                          "others may use %s (mode %04o): chmod 600 it, and better make a new one",
                          path, (unsigned)st.st_mode & 07777u);
    }
    return 0;
}

/* Reads up to `size` bytes. Returns their number; negative on failure, with errno. */
static ssize_t read_some(int fd, char *out, size_t size)
{
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, out + got, size - got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return n;
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int ct_token_read(const char *path, struct ct_token *out, struct ct_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT
                   ? ct_err_set(err, CT_ENOENT,
                                "there is no file %s; this makes one: (umask 077 && head -c 32 "
                                "/dev/urandom | base64 >FILE)",
                                path)
                   : ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot open %s", path);
    }
    char text[CT_TOKEN_MAX +
              2]; /* room for a newline, and one byte more to see that the token is too long */
    int rc = check_private(fd, path, err);
    ssize_t n = rc == 0 ? read_some(fd, text, sizeof(text)) : 0;
    if (n < 0) {
        rc = ct_err_sys(err, CT_EIO, errno, "cannot read %s", path);
    }
    (void)close(fd);
    if (rc == 0) {
        size_t len = (size_t)n;
        len -= len > 0 && text[len - 1] == '\n';
        rc = take(text, len, path, out, err);
    }
    sodium_memzero(text, sizeof(text));
    return rc;
}

int ct_token_find(const char *path, const char *text, struct ct_token *out, struct ct_err *err)
{
    if (path != NULL) {
        int rc = ct_token_read(path, out, err);
        return rc == 0 ? 0 : ct_err_wrap(err, "--token-file");
    }
    if (text != NULL && text[0] != '\0') {
        return ct_token_parse(text, CT_TOKEN_ENV, out, err);
    }
    out->len = 0;
    return 0;
}

int ct_token_make(struct ct_token *out)
{
    unsigned char random[RANDOM_LEN];
    _Static_assert(sizeof(out->text) > 2 * RANDOM_LEN, "room for the digits and a NUL");
    if (sodium_init() < 0) {
        return CT_EIO;
    }
    randombytes_buf(random, sizeof(random));
    (void)sodium_bin2hex(out->text, sizeof(out->text), random, sizeof(random));
    out->len = 2 * RANDOM_LEN;
    sodium_memzero(random, sizeof(random));
    return 0;
}

void ct_token_read_key(const struct ct_token *token, struct ct_token *out)
{
    CT_ASSERT(token->len >= CT_TOKEN_MIN && token->len <= CT_TOKEN_MAX);
    unsigned char key[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state mac;
    (void)crypto_auth_hmacsha256_init(&mac, (const unsigned char *)token->text, token->len);
    (void)crypto_auth_hmacsha256_update(&mac, (const unsigned char *)read_label,
                                        sizeof(read_label) - 1);
    (void)crypto_auth_hmacsha256_final(&mac, key);
    (void)sodium_bin2hex(out->text, sizeof(out->text), key, sizeof(key));
    out->len = 2 * sizeof(key);
    sodium_memzero(&mac, sizeof(mac));
    sodium_memzero(key, sizeof(key));
}

/* ---- the proof ------------------------------------------------------------------------------ */

int ct_nonce_make(unsigned char nonce[CT_NONCE_LEN])
{
    if (sodium_init() < 0) {
        return CT_EIO;
    }
    randombytes_buf(nonce, CT_NONCE_LEN);
    return 0;
}

static void derive(const struct ct_token *token, const unsigned char *label, size_t label_len,
                   enum ct_token_role role, const unsigned char server_nonce[CT_NONCE_LEN],
                   const unsigned char agent_nonce[CT_NONCE_LEN],
                   unsigned char out[crypto_auth_hmacsha256_BYTES])
{
    CT_ASSERT(token->len >= CT_TOKEN_MIN && token->len <= CT_TOKEN_MAX);
    const unsigned char who = (unsigned char)role;
    crypto_auth_hmacsha256_state mac;
    (void)crypto_auth_hmacsha256_init(&mac, (const unsigned char *)token->text, token->len);
    (void)crypto_auth_hmacsha256_update(&mac, label, label_len);
    (void)crypto_auth_hmacsha256_update(&mac, &who, 1);
    (void)crypto_auth_hmacsha256_update(&mac, server_nonce, CT_NONCE_LEN);
    (void)crypto_auth_hmacsha256_update(&mac, agent_nonce, CT_NONCE_LEN);
    (void)crypto_auth_hmacsha256_final(&mac, out);
    sodium_memzero(&mac, sizeof(mac));
}

void ct_token_answer(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     unsigned char answer[CT_ANSWER_LEN])
{
    derive(token, answer_label, sizeof(answer_label), role, server_nonce, agent_nonce, answer);
}

void ct_token_key(const struct ct_token *token, enum ct_token_role role,
                  const unsigned char server_nonce[CT_NONCE_LEN],
                  const unsigned char agent_nonce[CT_NONCE_LEN],
                  unsigned char key[CT_TOKEN_KEY_LEN])
{
    derive(token, key_label, sizeof(key_label), role, server_nonce, agent_nonce, key);
}

bool ct_token_equals(const struct ct_token *token, const char *text)
{
    return token->len > 0 && strlen(text) == token->len &&
           sodium_memcmp(text, token->text, token->len) == 0;
}

bool ct_token_verify(const struct ct_token *token, enum ct_token_role role,
                     const unsigned char server_nonce[CT_NONCE_LEN],
                     const unsigned char agent_nonce[CT_NONCE_LEN],
                     const unsigned char answer[CT_ANSWER_LEN])
{
    unsigned char right[CT_ANSWER_LEN];
    ct_token_answer(token, role, server_nonce, agent_nonce, right);
    return ct_answer_is(answer, right);
}

bool ct_answer_is(const unsigned char answer[CT_ANSWER_LEN], unsigned char right[CT_ANSWER_LEN])
{
    bool same = sodium_memcmp(right, answer, CT_ANSWER_LEN) == 0;
    sodium_memzero(right, CT_ANSWER_LEN);
    return same;
}
