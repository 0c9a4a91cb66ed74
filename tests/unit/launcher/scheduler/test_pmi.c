/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the exchange of values over PMI-1 with a launcher whose answers were written beforehand,
 * and that a peer which is silent or makes no sense does no harm.
 */
#include "launcher/scheduler/pmi.h"
#include "tests/lib/ct_test.h"

#include <sys/socket.h>
#include <unistd.h>

/* A launcher whose answers were all written beforehand: PMI-1 is a strict question and answer. */
static int launcher_with(const char *answers, int *other)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(write(fds[1], answers, strlen(answers)), (ssize_t)strlen(answers));
    *other = fds[1];
    return fds[0];
}

static void expect_asked(int other, const char *questions)
{
    char text[4096];
    ssize_t len = recv(other, text, sizeof(text) - 1, MSG_DONTWAIT);
    assert_true(len >= 0);
    text[len] = '\0';
    assert_string_equal(text, questions);
}

static void rank_0_tells_the_others(void **state)
{
    static const char answers[] = "cmd=my_kvsname kvsname=kvs_1\n"
                                  "cmd=put_result rc=0 msg=success\n"
                                  "cmd=barrier_out\n"
                                  "cmd=get_result rc=0 msg=success value=h0\n"
                                  "cmd=finalize_ack\n";
    char space[CT_SCHEDULER_JOB_ID_MAX] = "", host[CT_HOST_MAX] = "h0";
    struct ct_err err = {0};
    int other;
    (void)state;
    int fd = launcher_with(answers, &other);
    assert_int_equal(ct_pmi_ask(NULL, fd, true, true, space, host, &err), 0);
    assert_string_equal(space, "kvs_1");
    assert_string_equal(host, "h0");
    expect_asked(other, "cmd=get_my_kvsname\n"
                        "cmd=put kvsname=kvs_1 key=ctrun-first-host value=h0\n"
                        "cmd=barrier_in\n"
                        "cmd=get kvsname=kvs_1 key=ctrun-first-host\n"
                        "cmd=finalize\n");
    (void)close(fd);
    (void)close(other);
}

static void a_rank_other_than_0_learns_the_host(void **state)
{
    static const char answers[] = "cmd=my_kvsname kvsname=kvs_1\n"
                                  "cmd=barrier_out rc=0\n"
                                  "cmd=get_result rc=0 msg=success value=h0\n"
                                  "cmd=finalize_ack rc=0\n"
                                  "what follows is not ours";
    char space[CT_SCHEDULER_JOB_ID_MAX] = "", host[CT_HOST_MAX] = "mine";
    char rest[64] = "";
    struct ct_err err = {0};
    int other;
    (void)state;
    int fd = launcher_with(answers, &other);
    assert_int_equal(ct_pmi_ask(NULL, fd, true, false, space, host, &err), 0);
    assert_string_equal(host, "h0");
    assert_true(recv(fd, rest, sizeof(rest) - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(rest, "what follows is not ours");
    (void)close(fd);
    (void)close(other);
}

static void one_host_has_nothing_to_share(void **state)
{
    char space[CT_SCHEDULER_JOB_ID_MAX] = "", host[CT_HOST_MAX] = "mine";
    struct ct_err err = {0};
    int other;
    (void)state;
    int fd = launcher_with("cmd=my_kvsname kvsname=kvs_7\ncmd=finalize_ack\n", &other);
    assert_int_equal(ct_pmi_ask(NULL, fd, false, false, space, host, &err), 0);
    assert_string_equal(space, "kvs_7");
    assert_string_equal(host, "mine");
    expect_asked(other, "cmd=get_my_kvsname\ncmd=finalize\n");
    (void)close(fd);
    (void)close(other);
}

static void a_peer_that_does_not_speak_pmi_is_refused(void **state)
{
    static const struct {
        const char *answers;
        int code;
    } rows[] = {
        {"HTTP/1.1 400 Bad Request\r\n", CT_EPROTO},
        {"cmd=my_kvsname\n", CT_EPROTO},
        {"cmd=my_kvsname kvsname=\n", CT_EPROTO},
        {"cmd=my_kvsnames kvsname=k\n", CT_EPROTO},
        {"cmd=my_kvsname rc=1 kvsname=k\n", CT_EPROTO},
        {"cmd=my_kvsname kvsname=k\ncmd=put_result rc=-1 msg=no\n", CT_EPROTO},
        {"cmd=my_kvsname kvsname=k\ncmd=put_result rc=0\ncmd=barrier_out\n"
         "cmd=get_result rc=0 msg=key_not_found\n",
         CT_EPROTO},
        {"cmd=my_kvsname kvsname=k\ncmd=put_res", CT_ECLOSED},
        {"", CT_ECLOSED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char space[CT_SCHEDULER_JOB_ID_MAX] = "", host[CT_HOST_MAX] = "h";
        struct ct_err err = {0};
        int other;
        int fd = launcher_with(rows[i].answers, &other);
        assert_int_equal(shutdown(other, SHUT_WR), 0);
        int rc = ct_pmi_ask(NULL, fd, true, true, space, host, &err);
        if (rc != rows[i].code || strstr(err.text, "PMI_FD") == NULL) {
            fail_msg("row %zu: %d, %s", i, rc, err.text);
        }
        assert_string_equal(space, "");
        (void)close(fd);
        (void)close(other);
    }
}

static void an_endless_line_is_refused(void **state)
{
    char line[CT_PMI_LINE_MAX + 64];
    struct ct_pmi pmi;
    struct ct_err err = {0};
    int other;
    (void)state;
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    int fd = launcher_with(line, &other);
    assert_int_equal(ct_pmi_open(fd, 5000, &pmi, &err), CT_EPROTO);
    (void)close(fd);
    (void)close(other);
}

static void a_silent_peer_times_out(void **state)
{
    struct ct_pmi pmi;
    struct ct_err err = {0};
    int other;
    (void)state;
    int fd = launcher_with("cmd=my_kv", &other);
    assert_int_equal(ct_pmi_open(fd, 20, &pmi, &err), CT_ETIMEDOUT);
    (void)close(fd);
    (void)close(other);
    assert_int_equal(ct_pmi_open(-1, 20, &pmi, &err), CT_ETIMEDOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_tells_the_others),
        cmocka_unit_test(a_rank_other_than_0_learns_the_host),
        cmocka_unit_test(one_host_has_nothing_to_share),
        cmocka_unit_test(a_peer_that_does_not_speak_pmi_is_refused),
        cmocka_unit_test(an_endless_line_is_refused),
        cmocka_unit_test(a_silent_peer_times_out),
    };
    return cmocka_run_group_tests_name("pmi", tests, NULL, NULL);
}
