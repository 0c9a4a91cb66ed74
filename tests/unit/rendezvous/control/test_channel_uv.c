/* SPDX-License-Identifier: Apache-2.0
 *
 * A channel over a socket pair whose other end is the test's. Frames and their MACs have tests of
 * their own (test_control.c, test_frame_mac.c).
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "rendezvous/control/channel_uv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ct_channel channel;
static uv_loop_t loop;
static bool closed;

static void on_msg(struct ct_channel *of, struct ct_msg *msg)
{
    (void)of;
    (void)msg;
    fail();
}

static void on_end(struct ct_channel *of, const struct ct_err *err)
{
    (void)of;
    (void)err;
    fail();
}

static void on_closed(struct ct_channel *of)
{
    (void)of;
    closed = true;
}

/* It waits until its peer reads, and the peer only writes. */
static void test_what_comes_while_it_finishes_is_not_kept(void **state)
{
    static const char bytes[65536];
    int fds[2];
    (void)state;
    ct_loop_begin(&loop);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    channel = (struct ct_channel){.on_msg = on_msg, .on_end = on_end, .on_closed = on_closed};
    ct_channel_init_fd(&channel, &loop, fds[0]);
    assert_int_equal(ct_channel_start(&channel, CT_CONTROL_MAX_FRAME), 0);
    for (int i = 0; i < 100000 && ct_channel_backlog(&channel) == 0; i++) {
        ct_channel_send_text(&channel, CT_MSG_WAITING, 0, "a text that nobody reads");
    }
    assert_true(ct_channel_backlog(&channel) > 0);
    ct_channel_finish(&channel);
    for (size_t written = 0; written < 4 * CT_CONTROL_MAX_FRAME;) {
        ssize_t n = write(fds[1], bytes, sizeof(bytes));
        assert_true(n > 0 || errno == EAGAIN);
        written += n > 0 ? (size_t)n : 0;
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        assert_false(closed);
        assert_true(channel.in.len == 0 && channel.in.cap <= 65536);
    }
    (void)close(fds[1]);
    ct_loop_run_until(&loop, &closed);
    ct_loop_end(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_comes_while_it_finishes_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
