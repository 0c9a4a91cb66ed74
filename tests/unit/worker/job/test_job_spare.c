/* SPDX-License-Identifier: Apache-2.0
 *
 * A program in C as a spare of `ctrun --warm`. The test has the launcher's end of the socket; the
 * spare is a child process, because it takes over other standard streams. Its exit status says how
 * its wait ended.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "worker/ctworker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENV(text) text, sizeof(text) - 1

/* What the child exits with when the wait fails with this code. */
#define ENDED_WITH(code) (-(code))

static const char before[] = "RANK=1\0GROUP_RANK=0\0OTHER=x\0TORCHELASTIC_ERROR_FILE=/a";

struct spare {
    pid_t pid;
    int channel;
    int out; /* what it writes as a worker */
    int out_writes;
};

/* A file that the next spare maps like a library, and that is replaced then; NULL = none. */
static const char *library;

/* May the next spare open only one more file from then on? */
static bool is_full;

/* Exactly one number below the limit is free then. */
static void leave_one_descriptor(void)
{
    int next = dup(STDIN_FILENO);
    struct rlimit limit;
    if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        _exit(104);
    }
    limit.rlim_cur = (rlim_t)next + 1;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        _exit(104);
    }
}

static void map_library(void)
{
    int fd = open(library, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || mmap(NULL, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED ||
        unlink(library) != 0) {
        _exit(103);
    }
    (void)close(fd);
}

static const char *refuse(void *data)
{
    return data;
}

/* The spare. As a worker it writes its variables. */
static void run_spare(int channel, const char *reason)
{
    char variable[32], line[256];
    struct ctw_spare *spare;
    struct ct_err err = {0};
    (void)snprintf(variable, sizeof(variable), "1:%d:spare", channel);
    (void)setenv("CTRUN_WARM", variable, 1);
    (void)setenv("RANK", "1", 1);
    (void)setenv("GROUP_RANK", "0", 1);
    (void)setenv("OTHER", "x", 1);
    int rc = ctw_spare_open(&spare, &err);
    if (rc != 0 || spare == NULL || getenv("CTRUN_WARM") != NULL) {
        _exit(rc != 0 ? ENDED_WITH(rc) : 100);
    }
    if (library != NULL) {
        map_library();
    }
    if (is_full) {
        leave_one_descriptor();
    }
    rc = ctw_spare_wait(spare, reason != NULL ? refuse : NULL, (void *)(uintptr_t)reason, &err);
    if (rc != 0) {
        _exit(err.code == rc && err.text[0] != '\0' ? ENDED_WITH(rc) : 101);
    }
    const char *group = getenv("GROUP_RANK");
    int len = snprintf(line, sizeof(line), "rank %s, group %s, other %s", getenv("RANK"),
                       group != NULL ? group : "none", getenv("OTHER"));
    _exit(write(STDOUT_FILENO, line, (size_t)len) == len ? 0 : 102);
}

static void start(struct spare *s, const char *reason)
{
    int ends[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe(out), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        (void)close(ends[0]);
        (void)alarm(60);
        run_spare(ends[1], reason);
    }
    (void)close(ends[1]);
    *s = (struct spare){s->pid, ends[0], out[0], out[1]};
}

static void send_fds(const struct spare *s, const char *bytes, size_t len, const int *fds,
                     size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 5)];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * count);
    }
    assert_int_equal(sendmsg(s->channel, &message, MSG_NOSIGNAL), len);
}

/* Sends a message with a file that has this content. */
static void send_block(const struct spare *s, const char *message, size_t len, const char *block,
                       size_t block_len)
{
    int fd = memfd_create("block", MFD_CLOEXEC);
    assert_int_equal(write(fd, block, block_len), block_len);
    send_fds(s, message, len, &fd, 1);
    (void)close(fd);
}

static void send_import(const struct spare *s)
{
    send_block(s, ENV("import\0"), before, sizeof(before));
}

/* Receives a message of the spare, whose zero byte becomes a blank; "" = it has closed. */
static const char *receive(const struct spare *s)
{
    static char text[1024];
    ssize_t len = recv(s->channel, text, sizeof(text) - 1, 0);
    for (ssize_t i = 0; i < len; i++) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
    text[len > 0 ? len : 0] = '\0';
    return text;
}

static int end(struct spare *s)
{
    int status;
    (void)close(s->channel);
    (void)close(s->out);
    (void)close(s->out_writes);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void becomes_a_worker_of_its_new_environment_and_streams(void **state)
{
    struct spare s;
    char text[256] = "";
    (void)state;
    start(&s, NULL);
    send_import(&s);
    assert_string_equal(receive(&s), "ready ");
    send_block(&s, ENV("go\0file\0train"), ENV("OTHER=x\0RANK=3\0WORLD_SIZE=4\0"));
    assert_string_equal(receive(&s), "set");
    const int fds[] = {s.out_writes, s.out_writes, s.out_writes};
    send_fds(&s, ENV("start"), fds, 3);
    assert_true(read(s.out, text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "rank 3, group none, other x");
    assert_int_equal(end(&s), 0);
}

static void refuses_what_it_may_have_used(void **state)
{
    static const struct {
        const char *block;
        size_t len;
        const char *answer;
    } cases[] = {
        {ENV("OTHER=y\0RANK=1\0"), "no OTHER is another one now"},
        {ENV("RANK=1\0"), "no OTHER is another one now"},
        {ENV("OTHER=x\0RANK=1\0NEW=\0"), "no NEW is another one now"},
        {ENV("OTHER=x\0RANK=1"), "no the environment of a worker is malformed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct spare s;
        start(&s, NULL);
        send_import(&s);
        assert_string_equal(receive(&s), "ready ");
        send_block(&s, ENV("go\0file\0train"), cases[i].block, cases[i].len);
        assert_string_equal(receive(&s), cases[i].answer);
        assert_string_equal(receive(&s), "");
        assert_int_equal(end(&s), ENDED_WITH(i == 3 ? CT_EPROTO : CT_EABORTED));
    }
}

static void refuses_when_its_program_says_so(void **state)
{
    struct spare s;
    (void)state;
    start(&s, "the data set has changed");
    send_import(&s);
    assert_string_equal(receive(&s), "ready ");
    send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
    assert_string_equal(receive(&s), "no the data set has changed");
    assert_int_equal(end(&s), ENDED_WITH(CT_EABORTED));
}

static void refuses_when_a_library_was_replaced(void **state)
{
    struct spare s;
    char expected[512];
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "library.so", "x", 1);
    library = path;
    start(&s, NULL);
    library = NULL;
    send_import(&s);
    assert_string_equal(receive(&s), "ready ");
    send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
    (void)snprintf(expected, sizeof(expected), "no %s has changed", path);
    assert_string_equal(receive(&s), expected);
    assert_int_equal(end(&s), ENDED_WITH(CT_EABORTED));
    free(path);
    ct_tmpdir_free(dir);
}

static void refuses_when_it_may_open_no_more_files(void **state)
{
    struct spare s;
    (void)state;
    is_full = true;
    start(&s, NULL);
    is_full = false;
    send_import(&s);
    assert_string_equal(receive(&s), "ready ");
    send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
    assert_string_equal(receive(&s), "no it cannot take over its streams: Too many open files");
    assert_int_equal(end(&s), ENDED_WITH(CT_EABORTED));
}

/* To compare each with each would take minutes; start() gives the spare one. */
static void takes_very_many_variables(void **state)
{
    enum { MANY = 200000, LEN = sizeof("V000000=x") };
    static const char last[] = "RANK=1";
    struct spare s;
    (void)state;
    char *block = malloc(MANY * LEN + sizeof(last));
    assert_non_null(block);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(block + (size_t)i * LEN, LEN, "V%06d=x", i);
    }
    size_t len = MANY * LEN + sizeof(last);
    memcpy(block + MANY * LEN, last, sizeof(last));
    start(&s, NULL);
    send_block(&s, ENV("import\0"), block, len);
    assert_string_equal(receive(&s), "ready ");
    block[len - 2] = '2';
    send_block(&s, ENV("go\0file\0train"), block, len);
    assert_string_equal(receive(&s), "set");
    assert_int_equal(end(&s), ENDED_WITH(CT_ECLOSED));
    free(block);
}

static void ends_when_the_launcher_has_no_use_for_it(void **state)
{
    (void)state;
    for (int messages = 0; messages < 3; messages++) {
        struct spare s;
        start(&s, NULL);
        if (messages > 0) {
            send_import(&s);
            assert_string_equal(receive(&s), "ready ");
        }
        if (messages > 1) {
            send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
            assert_string_equal(receive(&s), "set");
        }
        assert_int_equal(end(&s), ENDED_WITH(CT_ECLOSED));
    }
}

/* Opens a spare in this process, to which ctrun has sent a wrong message with `count` descriptors.
 * It must be refused, and leave no descriptor open. */
static void refuse_message(const char *bytes, size_t len, size_t count)
{
    enum { MOST = 256 };
    static const int fds[] = {0, 1, 2, 0, 1};
    bool was_open[MOST];
    struct ctw_spare *spare;
    struct ct_err err = {0};
    char variable[32];
    int ends[2];
    for (int fd = 0; fd < MOST; fd++) {
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct spare s = {.channel = ends[0]};
    send_fds(&s, bytes, len, fds, count);
    (void)snprintf(variable, sizeof(variable), "1:%d:spare", ends[1]);
    assert_int_equal(setenv("CTRUN_WARM", variable, 1), 0);
    assert_int_equal(ctw_spare_open(&spare, &err), CT_EPROTO);
    assert_string_equal(err.text, "a spare got a wrong message in place of \"import\"");
    assert_null(spare);
    (void)close(ends[0]);
    for (int fd = 0; fd < MOST; fd++) {
        assert_int_equal(was_open[fd], fcntl(fd, F_GETFD) >= 0);
    }
}

static void a_wrong_message_is_refused_and_its_descriptors_are_closed(void **state)
{
    static char long_message[70000] = "import";
    (void)state;
    refuse_message(ENV("import"), 0); /* without its file */
    refuse_message(ENV("go"), 1);
    refuse_message(ENV("import"), 2);
    refuse_message(ENV("import"), 3);
    refuse_message(ENV("import"), 4); /* more than it has room for */
    refuse_message(ENV("import"), 5); /* the kernel itself leaves some out */
    refuse_message(long_message, sizeof(long_message), 1);
}

/* A spare must not become a worker with streams of which one is left over. */
static void wrong_streams_end_it(void **state)
{
    (void)state;
    for (size_t count = 0; count <= 5; count++) {
        struct spare s;
        if (count == 3) {
            continue; /* as it should be */
        }
        start(&s, NULL);
        send_import(&s);
        assert_string_equal(receive(&s), "ready ");
        send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
        assert_string_equal(receive(&s), "set");
        const int fds[] = {s.out_writes, s.out_writes, s.out_writes, s.out_writes, s.out_writes};
        send_fds(&s, ENV("start"), fds, count);
        assert_int_equal(end(&s), ENDED_WITH(CT_EPROTO));
    }
}

static void a_worker_is_no_spare(void **state)
{
    struct ctw_spare *spare = (struct ctw_spare *)state;
    assert_int_equal(unsetenv("CTRUN_WARM"), 0);
    assert_int_equal(ctw_spare_open(&spare, NULL), 0);
    assert_null(spare);
    ctw_spare_refuse(NULL, NULL);
}

static void another_version_is_refused(void **state)
{
    static const char *const values[] = {"",           "1",
                                         "2:3:spare",  "1:3:plan",
                                         "1::spare",   "1:x:spare",
                                         "1:-1:spare", "1:99999999999999999999:spare",
                                         "1:2:spare",  "1:1000:spare",
                                         "1:3:spare "};
    struct ctw_spare *spare;
    struct ct_err err;
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_int_equal(setenv("CTRUN_WARM", values[i], 1), 0);
        assert_int_equal(ctw_spare_open(&spare, &err), CT_EFORMAT);
        assert_null(spare);
    }
    assert_int_equal(unsetenv("CTRUN_WARM"), 0);
}

/* The launcher's part lies in the socket before. */
static int whole_life(void *data)
{
    char variable[32];
    struct ctw_spare *spare;
    (void)data;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct spare s = {.channel = ends[0]};
    (void)snprintf(variable, sizeof(variable), "1:%d:spare", ends[1]);
    assert_int_equal(setenv("CTRUN_WARM", variable, 1), 0);
    const int fds[] = {0, 1, 2};
    send_import(&s);
    send_block(&s, ENV("go\0file\0train"), before, sizeof(before));
    send_fds(&s, ENV("start"), fds, 3);
    int rc = ctw_spare_open(&spare, NULL);
    if (rc == 0) {
        rc = ctw_spare_wait(spare, NULL, NULL, NULL);
    } else if (getenv("CTRUN_WARM") != NULL) {
        (void)close(ends[1]);
    }
    (void)close(ends[0]);
    return rc;
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(whole_life, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(becomes_a_worker_of_its_new_environment_and_streams),
        cmocka_unit_test(refuses_what_it_may_have_used),
        cmocka_unit_test(refuses_when_its_program_says_so),
        cmocka_unit_test(refuses_when_a_library_was_replaced),
        cmocka_unit_test(refuses_when_it_may_open_no_more_files),
        cmocka_unit_test(takes_very_many_variables),
        cmocka_unit_test(ends_when_the_launcher_has_no_use_for_it),
        cmocka_unit_test(a_wrong_message_is_refused_and_its_descriptors_are_closed),
        cmocka_unit_test(wrong_streams_end_it),
        cmocka_unit_test(a_worker_is_no_spare),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(survives_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
