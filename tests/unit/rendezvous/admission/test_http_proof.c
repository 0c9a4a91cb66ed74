/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of the token over HTTP, and what a stranger on either side of it may try.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/http_proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_token good = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token bad = {.len = 16, .text = "0123456789abcdeX"};
static const struct ct_http_proof_page status = {"GET", "/status"};

/* A client and a store that have come as far as the challenge. */
struct pair {
    struct ct_http_proof client, store;
    char open[CT_HTTP_PROOF_MAX], challenge[CT_HTTP_PROOF_MAX], answer[CT_HTTP_PROOF_MAX];
};

static void begin(struct pair *p)
{
    *p = (struct pair){.open = ""};
    assert_int_equal(ct_http_proof_open(&p->client, p->open), 0);
    assert_true(ct_http_proof_challenge(&p->store, &good, &status, p->open, p->challenge));
}

static int answer_with(struct pair *p, const struct ct_token *token, struct ct_err *err)
{
    return ct_http_proof_answer(&p->client, token, &status, p->challenge, strlen(p->challenge),
                                p->answer, err);
}

static void test_who_has_the_token_proves_it_once(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    assert_int_equal(answer_with(&p, &good, NULL), 0);
    for (int i = 0; i < 3; i++) { /* the headers give nothing of the token away */
        const char *const headers[] = {p.open, p.challenge, p.answer};
        assert_null(strstr(headers[i], good.text));
        assert_memory_equal(headers[i], "CTRUN-Proof ", 12);
    }
    assert_true(ct_http_proof_check(&p.store, &good, &status, p.answer));
    assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));
    /* Another challenge on the same connection wants another answer. */
    assert_true(ct_http_proof_challenge(&p.store, &good, &status, p.open, p.challenge));
    assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));
}

static void test_the_answers_are_the_documented_hmacs(void **state)
{
    /* Python: hmac.new(b"0123456789abcdef", b"ctrun HTTP proof 1\0S" + b"\1" * 32 + b"\2" * 32 +
     * b"GET /status", "sha256"), and the same with A. */
    static const char challenge[] =
        "CTRUN-Proof nonce=0101010101010101010101010101010101010101010101010101010101010101, "
        "answer=37c8ee76b55fa1cb15ee6c274e2032df77182abe03c5181fdf19980b287f3a6e";
    static const char answer[] =
        "CTRUN-Proof answer=0164d533454f327c1b1e33fa7bd8d97b528db91b0d3002483d9dde76c7b160a5";
    struct ct_http_proof client = {.is_open = true}, store = {.is_open = true};
    char out[CT_HTTP_PROOF_MAX];
    (void)state;
    memset(client.client_nonce, 2, CT_NONCE_LEN);
    assert_int_equal(
        ct_http_proof_answer(&client, &good, &status, challenge, strlen(challenge), out, NULL), 0);
    assert_string_equal(out, answer);
    memset(store.server_nonce, 1, CT_NONCE_LEN);
    memset(store.client_nonce, 2, CT_NONCE_LEN);
    assert_true(ct_http_proof_check(&store, &good, &status, answer));
}

/* A recorded answer is of no use on another connection, for another page, or to its sender. */
static void test_an_answer_is_good_for_one_request_alone(void **state)
{
    static const struct ct_http_proof_page others[] = {
        {"POST", "/status"}, {"GET", "/statu"}, {"GET", "/status/"}, {"GET ", "/status"}, {"", ""}};
    struct pair p, other;
    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        begin(&p);
        assert_int_equal(answer_with(&p, &good, NULL), 0);
        assert_false(ct_http_proof_check(&p.store, &good, &others[i], p.answer));
        assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer)); /* it was used up */
    }
    begin(&p);
    begin(&other);
    assert_int_equal(answer_with(&p, &good, NULL), 0);
    assert_false(ct_http_proof_check(&other.store, &good, &status, p.answer));
    struct ct_http_proof never = {.is_open = false};
    assert_false(ct_http_proof_check(&never, &good, &status, p.answer));

    begin(&p); /* the store's own answer, sent back to it */
    (void)snprintf(p.answer, sizeof(p.answer), "CTRUN-Proof %s", strstr(p.challenge, "answer="));
    assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));
}

static void test_who_lacks_the_token_learns_and_gets_nothing(void **state)
{
    struct pair p;
    struct ct_err err = {0};
    (void)state;
    begin(&p); /* a client with another token sees that the store is not its job's */
    assert_int_equal(answer_with(&p, &bad, &err), CT_EPERM);
    assert_memory_equal(err.text, "the token is not that of the job, or", 36);
    assert_string_equal(p.answer, "");

    begin(&p); /* and one that does not look is refused */
    assert_true(ct_http_proof_challenge(&p.store, &bad, &status, p.open, p.challenge));
    assert_int_equal(answer_with(&p, &bad, NULL), 0);
    assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));

    begin(&p); /* a stranger's store replays what it has once recorded of the real one */
    struct pair later;
    begin(&later);
    assert_int_equal(ct_http_proof_answer(&later.client, &good, &status, p.challenge,
                                          strlen(p.challenge), later.answer, NULL),
                     CT_EPERM);
    /* A client answers once, so nobody can make it try again and again. */
    assert_int_equal(answer_with(&later, &good, NULL), CT_EPROTO);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_a_challenge_that_is_none_is_not_answered(void **state)
{
    static const char *const texts[] = {
        "",
        "Basic realm=\"ctrun\"",
        "Bearer",
        "Digest realm=\"ctrun\", nonce=\"" HEX64 "\"",
        "CTRUN-Proof ",
        "CTRUN-Proof nonce=" HEX64,
        "CTRUN-Proof nonce=" HEX64 ", answer=",
        "CTRUN-Proof nonce=" HEX64 ",answer=" HEX64,
        "CTRUN-Proof nonce=" HEX64 ", answer=" HEX64 ", Basic",
        "CTRUN-Proof nonce=" HEX64 ", answer=" HEX64 "0",
        "CTRUN-Proof nonce=0" HEX64 ", answer=" HEX64,
        "CTRUN-Proof nonce=g" HEX64 ", answer=" HEX64,
        "CTRUN-Proof answer=" HEX64 ", nonce=" HEX64,
        "Basic CTRUN-Proof nonce=" HEX64 ", answer=" HEX64,
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) + 2; i++) {
        struct pair p;
        struct ct_err err = {0};
        size_t huge = i % 2 == 0 ? CT_HTTP_PROOF_MAX : 1 << 20;
        bool is_huge = i >= sizeof(texts) / sizeof(texts[0]);
        size_t len = is_huge ? huge : strlen(texts[i]);
        /* A copy without a NUL behind it, so that a sanitizer sees a read too far. */
        char *text = malloc(len > 0 ? len : 1);
        assert_non_null(text);
        begin(&p);
        if (is_huge) {
            memset(text, '0', len);
            memcpy(text, p.challenge, strlen(p.challenge));
        } else {
            memcpy(text, texts[i], len);
        }
        int rc = ct_http_proof_answer(&p.client, &good, &status, text, len, p.answer, &err);
        if (rc != CT_EPROTO || p.answer[0] != '\0' || strstr(err.text, "not sent") == NULL) {
            fail_msg("challenge %zu gives %d (%s)", i, rc, err.text);
        }
        free(text);
    }
}

static void test_a_header_that_is_none_gets_no_challenge(void **state)
{
    static const char *const texts[] = {
        NULL,
        "",
        "Bearer " HEX64,
        "CTRUN-Proof",
        "CTRUN-Proof nonce=",
        "CTRUN-Proof nonce=0123",
        "CTRUN-Proof  nonce=" HEX64,
        "CTRUN-Proof nonce=" HEX64 " ",
        "CTRUN-Proof nonce=" HEX64 HEX64,
        "CTRUN-Proof nonce=" HEX64 ", answer=" HEX64,
        "CTRUN-Proof answer=" HEX64,
        "CTRUN-Proof nonce=0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF",
    };
    struct pair p;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        begin(&p);
        assert_false(ct_http_proof_challenge(&p.store, &good, &status, texts[i], p.challenge));
        assert_string_equal(p.challenge, "");
    }
    begin(&p);
    assert_true(
        ct_http_proof_challenge(&p.store, &good, &status, "ctrun-proof nonce=" HEX64, p.challenge));
}

static void test_an_answer_is_right_in_all_its_bits(void **state)
{
    struct pair p;
    (void)state;
    for (size_t i = 0; i < strlen("CTRUN-Proof answer=" HEX64); i++) {
        begin(&p);
        assert_int_equal(answer_with(&p, &good, NULL), 0);
        p.answer[i] = p.answer[i] == '0' ? '1' : '0';
        assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));
    }
    begin(&p);
    assert_int_equal(answer_with(&p, &good, NULL), 0);
    p.answer[strlen(p.answer)] = '0'; /* the rest of it is zero */
    assert_false(ct_http_proof_check(&p.store, &good, &status, p.answer));
    assert_false(ct_http_proof_check(&p.store, &good, &status, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_has_the_token_proves_it_once),
        cmocka_unit_test(test_the_answers_are_the_documented_hmacs),
        cmocka_unit_test(test_an_answer_is_good_for_one_request_alone),
        cmocka_unit_test(test_who_lacks_the_token_learns_and_gets_nothing),
        cmocka_unit_test(test_a_challenge_that_is_none_is_not_answered),
        cmocka_unit_test(test_a_header_that_is_none_gets_no_challenge),
        cmocka_unit_test(test_an_answer_is_right_in_all_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
