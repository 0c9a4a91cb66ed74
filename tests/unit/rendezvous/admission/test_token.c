/* SPDX-License-Identifier: Apache-2.0
 *
 * The job's secret: its file, and the proof of having it.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/token.h"
#include "rendezvous/admission/token_acl.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define GOOD "0123456789abcdef"

/* As on a network file system: a read gives at most so many bytes, 0 for as many as are asked for,
 * after a signal has come; or it fails. */
static size_t piece;
static int signals, broken;

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size)
{
    if (broken != 0 || signals-- > 0) {
        errno = broken != 0 ? broken : EINTR;
        return -1;
    }
    return __real_read(fd, to, piece > 0 && piece < size ? piece : size);
}

/* What a fortified build calls. */
ssize_t __wrap___read_chk(int fd, void *to, size_t size, size_t room);
ssize_t __wrap___read_chk(int fd, void *to, size_t size, size_t room)
{
    assert_true(size <= room);
    return __wrap_read(fd, to, size);
}

static int set_up(void **state)
{
    *state = ct_tmpdir_new();
    return 0;
}

static int tear_down(void **state)
{
    ct_tmpdir_free(*state);
    return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Writes the file with this mode and reads it as a token. */
static int read_text(const char *dir, const char *text, size_t len, mode_t mode,
                     struct ct_token *out)
{
    char *path = ct_tmpdir_write(dir, "token", text, len);
    assert_int_equal(chmod(path, mode), 0);
    struct ct_err err = {0};
    int rc = ct_token_read(path, out, &err);
    assert_true((rc == 0) == (err.text[0] == '\0'));
    if (rc != 0) {
        assert_non_null(strstr(err.text, path));
        /* What is no token today may be most of one. */
        assert_true(len < 8 || strstr(err.text, "01234567") == NULL);
    }
    assert_int_equal(unlink(path), 0);
    free(path);
    return rc;
}

static void test_made_token_can_be_written_and_read(void **state)
{
    struct ct_token made = {0}, other = {0}, again = {0};
    assert_int_equal(ct_token_make(&made), 0);
    assert_int_equal(made.len, 64);
    assert_int_equal(ct_token_make(&other), 0);
    assert_memory_not_equal(other.text, made.text, made.len);
    assert_int_equal(read_text(*state, made.text, made.len, 0600, &again), 0);
    assert_int_equal(again.len, made.len);
    assert_memory_equal(again.text, made.text, made.len);
}

/* The file wins; what is empty is not there. */
static void test_a_file_wins_over_the_environment(void **state)
{
    char *path = ct_tmpdir_write(*state, "token", GOOD, 16);
    struct ct_token token = {0};
    struct ct_err err = {0};
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(ct_token_find(path, "not-this-one-0123", &token, &err), 0);
    assert_memory_equal(token.text, GOOD, 16);
    assert_int_equal(ct_token_find(NULL, "fedcba9876543210", &token, &err), 0);
    assert_memory_equal(token.text, "fedcba9876543210", 16);
    assert_int_equal(ct_token_find(NULL, "short", &token, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, CT_TOKEN_ENV));
    assert_int_equal(ct_token_find(NULL, "012 456789abcdef", &token, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "character 4 of the token"));
    assert_int_equal(ct_token_find(NULL, "", &token, &err), 0);
    assert_int_equal(token.len, 0);
    token.len = 7;
    assert_int_equal(ct_token_find(NULL, NULL, &token, &err), 0);
    assert_int_equal(token.len, 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ct_token_find(path, GOOD, &token, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "--token-file: there is no file "));
    assert_non_null(strstr(err.text, "; this makes one: "));
    free(path);
    assert_int_equal(ct_token_find(*state, NULL, &token, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, " is a folder: name a file that holds the token"));
    assert_int_equal(ct_token_find("/dev/null", NULL, &token, &err), CT_EFORMAT);
    assert_string_equal(err.text,
                        "--token-file: /dev/null is no plain file: name a file that holds "
                        "the token");
}

static void test_line_end_is_not_part_of_it(void **state)
{
    struct ct_token token = {0};
    assert_int_equal(read_text(*state, GOOD "\n", 17, 0600, &token), 0);
    assert_int_equal(token.len, 16);
    assert_memory_equal(token.text, GOOD, 16);
    assert_int_equal(read_text(*state, GOOD, 16, 0400, &token), 0);
    assert_int_equal(token.len, 16);
}

static void test_a_file_that_comes_in_pieces_is_read_whole(void **state)
{
    struct ct_token token = {0};
    piece = 5;
    signals = 1;
    int rc = read_text(*state, GOOD "\n", 17, 0600, &token);
    piece = 0;
    assert_int_equal(rc, 0);
    assert_int_equal(token.len, 16);
    assert_memory_equal(token.text, GOOD, 16);
    broken = EIO;
    rc = read_text(*state, GOOD, 16, 0600, &token);
    broken = 0;
    assert_int_equal(rc, CT_EIO);
}

static void test_files_that_others_may_use(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0660, 0601, 0620, 0777};
    struct ct_token token = {0};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(read_text(*state, GOOD, 16, modes[i], &token), CT_EPERM);
    }
    assert_int_equal(token.len, 0);
}

/* A list of the given entries: little-endian, as the kernel takes it. */
static size_t make_list(unsigned char *out, const uint32_t (*entries)[3], size_t count)
{
    unsigned char *p = out;
    for (int shift = 0; shift < 32; shift += 8) {
        *p++ = (unsigned char)(POSIX_ACL_XATTR_VERSION >> shift);
    }
    for (size_t i = 0; i < count; i++) {
        *p++ = (unsigned char)entries[i][0];
        *p++ = 0;
        *p++ = (unsigned char)entries[i][1];
        *p++ = 0;
        for (int shift = 0; shift < 32; shift += 8) {
            *p++ = (unsigned char)(entries[i][2] >> shift);
        }
    }
    return (size_t)(p - out);
}

/* Owner, one more user, the group, the mask, others; with that list, stat() shows mode 0440. */
static size_t make_credential(unsigned char *out, uint32_t user, uint32_t of_group)
{
    const uint32_t entries[][3] = {{ACL_USER_OBJ, 4, UINT32_MAX},
                                   {ACL_USER, 4, user},
                                   {ACL_GROUP_OBJ, of_group, UINT32_MAX},
                                   {ACL_MASK, 4, UINT32_MAX},
                                   {ACL_OTHER, 0, UINT32_MAX}};
    return make_list(out, entries, sizeof(entries) / sizeof(entries[0]));
}

static void test_a_credential_of_systemd_is_accepted(void **state)
{
    unsigned char list[CT_ACL_MAX];
    char *path = ct_tmpdir_write(*state, "token", GOOD, 16);
    struct ct_token token = {0};
    struct ct_err err = {0};
    assert_int_equal(chmod(path, 0400), 0);
    size_t len = make_credential(list, geteuid(), 0);
    if (setxattr(path, CT_ACL_ATTRIBUTE, list, len, 0) != 0) {
        free(path);
        skip(); /* a file system without lists */
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0440);
    assert_int_equal(ct_token_read(path, &token, &err), 0);
    assert_int_equal(token.len, 16);

    len = make_credential(list, geteuid() + 1, 0);
    /* In a user namespace there may be no other user. */
    if (setxattr(path, CT_ACL_ATTRIBUTE, list, len, 0) == 0) {
        assert_int_equal(ct_token_read(path, &token, &err), CT_EPERM);
    }
    free(path);
}

static void test_an_access_list_is_private_to_owner_user_and_root(void **state)
{
    unsigned char list[CT_ACL_MAX];
    (void)state;
    size_t len = make_credential(list, 1000, 0);
    assert_true(ct_acl_is_private(list, len, 1000));
    assert_false(ct_acl_is_private(list, len, 1001));
    for (size_t cut = 0; cut < len; cut++) { /* half a list, half an entry */
        bool whole = cut >= 4 && (cut - 4) % 8 == 0;
        assert_int_equal(ct_acl_is_private(list, cut, 1000), whole);
    }
    list[0] = 3; /* a version of the future */
    assert_false(ct_acl_is_private(list, len, 1000));
    len = make_credential(list, 0, 0);
    assert_true(ct_acl_is_private(list, len, 1000)); /* root may anyway */
    len = make_credential(list, 1000, 4);
    assert_false(ct_acl_is_private(list, len, 1000));

    static const uint32_t a_group[][3] = {{ACL_USER_OBJ, 4, 0}, {ACL_GROUP, 4, 1000}};
    assert_false(ct_acl_is_private(list, make_list(list, a_group, 2), 1000));
    static const uint32_t others[][3] = {{ACL_USER_OBJ, 4, 0}, {ACL_OTHER, 4, 0}};
    assert_false(ct_acl_is_private(list, make_list(list, others, 2), 1000));
}

static void test_a_file_of_another_user_is_refused(void **state)
{
    char *path = ct_tmpdir_write(*state, "token", GOOD, 16);
    assert_int_equal(chmod(path, 0600), 0);
    struct ct_token token = {0};
    struct ct_err err = {0};
    if (chown(path, 65534, (gid_t)-1) == 0) { /* only root can make such a file */
        assert_int_equal(ct_token_read(path, &token, &err), CT_EPERM);
        assert_non_null(strstr(err.text, "belongs to user 65534"));
    }
    free(path);
    assert_int_equal(ct_token_read("/dev/null", &token, &err), CT_EFORMAT);
    assert_int_equal(ct_token_read(*state, &token, &err), CT_EFORMAT);
}

static void test_texts_that_are_no_token(void **state)
{
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {
        {"", 0},
        {"\n", 1},
        {"0123456789abcde", 15},
        {"0123456789abcde\n", 16},
        {"0123456789abcdef\n\n", 18},
        {"01234567 89abcdef", 17},
        {"0123456789abcdef\r\n", 18},
        {"0123456\00089abcdef", 17},
        {"01234567\x80"
         "9abcdef",
         16},
        {"01234567\x7f"
         "9abcdef",
         16},
    };
    struct ct_token token = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (read_text(*state, bad[i].text, bad[i].len, 0600, &token) != CT_EFORMAT) {
            fail_msg("text %zu was accepted", i);
        }
    }
    char most[CT_TOKEN_MAX + 3];
    memset(most, 'x', sizeof(most));
    most[CT_TOKEN_MAX] = '\n';
    assert_int_equal(read_text(*state, most, CT_TOKEN_MAX + 1, 0600, &token), 0);
    assert_int_equal(token.len, CT_TOKEN_MAX);
    most[CT_TOKEN_MAX] = 'x';
    for (size_t len = CT_TOKEN_MAX + 1; len <= sizeof(most); len++) {
        assert_int_equal(read_text(*state, most, len, 0600, &token), CT_EFORMAT);
    }
}

static void test_a_token_of_the_environment_is_checked_and_wiped(void **state)
{
    (void)state;
    struct ct_token token = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_token_parse(GOOD, CT_TOKEN_ENV, &token, &err), 0);
    assert_int_equal(token.len, 16);
    assert_int_equal(ct_token_parse("short", CT_TOKEN_ENV, &token, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, CT_TOKEN_ENV));
    assert_null(strstr(err.text, "short"));
    assert_true(ct_token_equals(&token, GOOD));
    assert_false(ct_token_equals(&token, "0123456789abcdeF"));
    assert_false(ct_token_equals(&token, "0123456789abcde"));
    assert_false(ct_token_equals(&(struct ct_token){0}, ""));
    ct_token_wipe(&token);
    assert_int_equal(token.len, 0);
    assert_int_equal(token.text[0], 0);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void test_answer_is_the_documented_hmac(void **state)
{
    (void)state;
    /* Python: hmac.new(b"0123456789abcdef", b"ctrun agent control 1\0A" + b"\1" * 32 + b"\2" * 32,
     * "sha256") */
    static const unsigned char want[CT_ANSWER_LEN] = {
        0xeb, 0x16, 0x06, 0x37, 0x45, 0x51, 0xb9, 0x25, 0x62, 0xc3, 0x98,
        0x85, 0xda, 0xc6, 0x9b, 0xcd, 0x32, 0x1d, 0x7c, 0xe9, 0xef, 0x01,
        0xfe, 0xd8, 0xb4, 0x5a, 0x7e, 0xb2, 0x2a, 0xa4, 0x44, 0xb5,
    };
    struct ct_token token = {0};
    unsigned char server[CT_NONCE_LEN], agent[CT_NONCE_LEN], answer[CT_ANSWER_LEN];
    assert_int_equal(ct_token_parse(GOOD, "test", &token, NULL), 0);
    memset(server, 1, sizeof(server));
    memset(agent, 2, sizeof(agent));
    ct_token_answer(&token, CT_ROLE_AGENT, server, agent, answer);
    assert_memory_equal(answer, want, sizeof(want));
}

static void test_the_read_key_is_the_documented_hmac(void **state)
{
    (void)state;
    /* printf %s 'ctrun read key 1' | openssl dgst -sha256 -hmac 0123456789abcdef */
    static const char want[] = "fbc6a50b28a06db91b0e7b4fef4db8bd265de561617521ade4e8ebe5c7a2308a";
    struct ct_token token = {0}, key = {0};
    assert_int_equal(ct_token_parse(GOOD, "test", &token, NULL), 0);
    ct_token_read_key(&token, &key);
    assert_true(ct_token_equals(&key, want));
}

static void test_only_the_right_answer_is_right(void **state)
{
    (void)state;
    struct ct_token token = {0}, other = {0};
    unsigned char server[CT_NONCE_LEN] = {0}, agent[CT_NONCE_LEN] = {0}, answer[CT_ANSWER_LEN];
    assert_int_equal(ct_token_parse(GOOD, "test", &token, NULL), 0);
    assert_int_equal(ct_token_parse("0123456789abcdeF", "test", &other, NULL), 0);
    assert_int_equal(ct_nonce_make(server), 0);
    assert_int_equal(ct_nonce_make(agent), 0);
    assert_memory_not_equal(server, agent, sizeof(server));
    ct_token_answer(&token, CT_ROLE_AGENT, server, agent, answer);
    assert_true(ct_token_verify(&token, CT_ROLE_AGENT, server, agent, answer));
    assert_false(ct_token_verify(&other, CT_ROLE_AGENT, server, agent, answer));
    assert_false(ct_token_verify(&token, CT_ROLE_SERVER, server, agent, answer));
    assert_false(ct_token_verify(&token, CT_ROLE_AGENT, agent, server, answer));
    for (size_t bit = 0; bit < 8 * CT_ANSWER_LEN; bit++) {
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(ct_token_verify(&token, CT_ROLE_AGENT, server, agent, answer));
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    server[31] ^= 1;
    assert_false(ct_token_verify(&token, CT_ROLE_AGENT, server, agent, answer));
    server[31] ^= 1;
    agent[0] ^= 1;
    assert_false(ct_token_verify(&token, CT_ROLE_AGENT, server, agent, answer));
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_made_token_can_be_written_and_read),
        WITH_FOLDER(test_a_file_wins_over_the_environment),
        WITH_FOLDER(test_line_end_is_not_part_of_it),
        WITH_FOLDER(test_a_file_that_comes_in_pieces_is_read_whole),
        WITH_FOLDER(test_files_that_others_may_use),
        WITH_FOLDER(test_a_credential_of_systemd_is_accepted),
        cmocka_unit_test(test_an_access_list_is_private_to_owner_user_and_root),
        WITH_FOLDER(test_a_file_of_another_user_is_refused),
        WITH_FOLDER(test_texts_that_are_no_token),
        cmocka_unit_test(test_a_token_of_the_environment_is_checked_and_wiped),
        cmocka_unit_test(test_answer_is_the_documented_hmac),
        cmocka_unit_test(test_the_read_key_is_the_documented_hmac),
        cmocka_unit_test(test_only_the_right_answer_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
