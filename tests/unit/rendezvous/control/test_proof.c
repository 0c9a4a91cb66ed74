/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by which agent and store show each other the token.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/proof.h"

#include <stdlib.h>
#include <string.h>

static const struct ct_token good = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token bad = {.len = 16, .text = "0123456789abcdeX"};

/* Runs the exchange as far as it goes; the code of the side that refused, positive for the agent's.
 */
static int meet(const struct ct_token *agents, const struct ct_token *servers)
{
    struct ct_proof agent = {{0}, {0}}, server = {{0}, {0}};
    struct ct_err err = {0};
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    assert_int_equal(ct_proof_open(&agent, msg), 0);
    assert_int_equal(ct_proof_challenge(&server, servers, msg, &err), 0);
    int rc = -ct_proof_answer(&agent, agents, msg, &err);
    if (rc == 0) {
        rc = ct_proof_check(&server, servers, msg, &err);
    }
    free(msg);
    return rc;
}

static void test_only_the_same_token_is_trusted(void **state)
{
    (void)state;
    assert_int_equal(meet(&good, &good), 0);
    assert_int_equal(meet(NULL, NULL), 0);
    assert_int_equal(meet(NULL, &good), CT_EPERM);
    /* The store shows itself first, and an agent with a token insists on that. */
    assert_int_equal(meet(&bad, &good), -CT_EPERM);
    assert_int_equal(meet(&good, NULL), -CT_EPERM);
}

/* An agent that does not care for the store's proof, and a store that has to see to itself. */
static void test_a_reflected_or_altered_answer_is_refused(void **state)
{
    (void)state;
    struct ct_proof agent = {{0}, {0}}, server = {{0}, {0}};
    struct ct_err err = {0};
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    assert_int_equal(ct_proof_open(&agent, msg), 0);
    assert_int_equal(ct_proof_challenge(&server, &good, msg, &err), 0);
    /* The server's own answer, sent back to it. */
    msg->type = CT_MSG_ANSWER;
    assert_int_equal(ct_proof_check(&server, &good, msg, &err), CT_EPERM);
    assert_string_equal(err.text, "its token is not the job's");
    ct_token_answer(&good, CT_ROLE_AGENT, server.server_nonce, server.agent_nonce, msg->answer);
    assert_int_equal(ct_proof_check(&server, &good, msg, &err), 0);
    msg->answer[CT_ANSWER_LEN - 1] ^= 1;
    assert_int_equal(ct_proof_check(&server, &good, msg, &err), CT_EPERM);
    free(msg);
}

static void test_an_agent_of_another_version_is_refused(void **state)
{
    (void)state;
    struct ct_proof proof = {{0}, {0}};
    struct ct_err err = {0};
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    assert_int_equal(ct_proof_open(&proof, msg), 0);
    msg->version++;
    assert_int_equal(ct_proof_challenge(&proof, NULL, msg, &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "use the same ctrun"));
    free(msg);
}

static void test_each_proof_has_a_nonce_of_its_own(void **state)
{
    (void)state;
    struct ct_proof one = {{0}, {0}}, two = {{0}, {0}};
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    assert_int_equal(ct_proof_open(&one, msg), 0);
    assert_int_equal(ct_proof_open(&two, msg), 0);
    assert_memory_not_equal(one.agent_nonce, two.agent_nonce, CT_NONCE_LEN);
    free(msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_same_token_is_trusted),
        cmocka_unit_test(test_a_reflected_or_altered_answer_is_refused),
        cmocka_unit_test(test_an_agent_of_another_version_is_refused),
        cmocka_unit_test(test_each_proof_has_a_nonce_of_its_own),
    };
    return cmocka_run_group_tests_name("proof", tests, NULL, NULL);
}
