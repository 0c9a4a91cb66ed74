/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun and a spare say to each other: packets, their end, and a peer that does not read.
 */
#include "launcher/warm/spare.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ct_spare_message message; /* too large for a stack */

static void say(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, 0), len);
}

static void test_each_message_gives_its_word_and_text(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        enum ct_spare_word word;
        const char *text;
    } cases[] = {
        {"ready\0"
         "12",
         8, CT_SPARE_READY, "12"},
        {"ping", 4, CT_SPARE_UNKNOWN, ""},
        {"set", 3, CT_SPARE_SET, ""},
        {"plan\0i os\ni sys", 15, CT_SPARE_PLAN, "i os\ni sys"},
        {"no\0x\ny\033[2J", 10, CT_SPARE_NO, "x y [2J"},
        {"no", 2, CT_SPARE_NO, ""},
        {"nothing", 7, CT_SPARE_UNKNOWN, ""},
        {"\0set", 4, CT_SPARE_UNKNOWN, ""},
    };
    (void)state;
    int ends[2];
    assert_int_equal(ct_spare_pair(ends, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        say(ends[1], cases[i].bytes, cases[i].len);
        ct_spare_receive(ends[0], &message);
        assert_int_equal(message.word, cases[i].word);
        assert_string_equal(message.text, cases[i].text);
    }
    close(ends[0]);
    close(ends[1]);
}

static void test_a_packet_that_is_too_long_is_unknown(void **state)
{
    (void)state;
    int ends[2];
    size_t len = CT_SPARE_MESSAGE_MAX + 1;
    char *bytes = malloc(len);
    assert_non_null(bytes);
    memset(bytes, 'x', len);
    memcpy(bytes, "plan", 5);
    assert_int_equal(ct_spare_pair(ends, NULL), 0);
    say(ends[1], bytes, len);
    ct_spare_receive(ends[0], &message);
    assert_int_equal(message.word, CT_SPARE_UNKNOWN);
    say(ends[1], bytes, len - 1);
    ct_spare_receive(ends[0], &message);
    assert_int_equal(message.word, CT_SPARE_PLAN);
    assert_int_equal(message.len, len - 1 - 5);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
}

static void test_silence_and_the_end_are_told_apart(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(ct_spare_pair(ends, NULL), 0);
    ct_spare_receive(ends[0], &message);
    assert_int_equal(message.word, CT_SPARE_NOTHING);
    close(ends[1]);
    ct_spare_receive(ends[0], &message);
    assert_int_equal(message.word, CT_SPARE_GONE);
    static const char *const start[] = {"start", NULL};
    assert_int_equal(ct_spare_send(ends[0], start, NULL, 0), CT_EIO);
    close(ends[0]);
}

/* Takes a packet with one descriptor, as a spare does. */
static int take_descriptor(int fd, char *bytes, size_t size, ssize_t *len)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 4)];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    int out = -1;
    *len = recvmsg(fd, &header, 0);
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    if (first != NULL) {
        assert_int_equal(first->cmsg_len, CMSG_LEN(sizeof(int)));
        memcpy(&out, CMSG_DATA(first), sizeof(out));
    }
    return out;
}

static void test_an_environment_goes_over_as_a_file(void **state)
{
    (void)state;
    char *env[] = {(char *)"A=1", (char *)"EMPTY=", (char *)"B=two words", NULL};
    static const char *const fields[] = {"import", "i os", NULL};
    char bytes[64];
    ssize_t len;
    int ends[2], file;
    assert_int_equal(ct_spare_pair(ends, NULL), 0);
    assert_int_equal(ct_spare_environment(env, &file, NULL), 0);
    assert_int_equal(ct_spare_send(ends[0], fields, &file, 1), 0);
    close(file);
    int got = take_descriptor(ends[1], bytes, sizeof(bytes), &len);
    assert_int_equal(len, 11);
    assert_memory_equal(bytes, "import\0i os", 11);
    assert_int_equal(read(got, bytes, sizeof(bytes)), 23);
    assert_memory_equal(bytes, "A=1\0EMPTY=\0B=two words", 23);
    close(got);
    close(ends[0]);
    close(ends[1]);
}

static void test_a_spare_that_does_not_read_makes_nobody_wait(void **state)
{
    (void)state;
    char *text = malloc(60000);
    assert_non_null(text);
    memset(text, 'x', 59999);
    text[59999] = '\0';
    const char *fields[] = {"import", text, NULL};
    int ends[2], rc = 0;
    assert_int_equal(ct_spare_pair(ends, NULL), 0);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = ct_spare_send(ends[0], fields, NULL, 0);
    }
    assert_int_equal(rc, CT_EIO);
    free(text);
    close(ends[0]);
    close(ends[1]);
}

static int pass_environment(void *data)
{
    char *env[] = {(char *)"A=1", NULL};
    int fd = -1;
    int rc = ct_spare_environment(env, &fd, NULL);
    if (rc == 0) {
        close(fd);
    }
    (void)data;
    return rc;
}

static void test_passing_an_environment_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(pass_environment, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_message_gives_its_word_and_text),
        cmocka_unit_test(test_a_packet_that_is_too_long_is_unknown),
        cmocka_unit_test(test_silence_and_the_end_are_told_apart),
        cmocka_unit_test(test_an_environment_goes_over_as_a_file),
        cmocka_unit_test(test_a_spare_that_does_not_read_makes_nobody_wait),
        cmocka_unit_test(test_passing_an_environment_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
