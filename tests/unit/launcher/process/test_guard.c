/* SPDX-License-Identifier: Apache-2.0
 *
 * The cookie, the process tree, and the guard with real processes: a fork plays ctrun.
 */
#include "launcher/process/guard.h"

#include "launcher/process/proctree.h"
#include "launcher/process/spawn.h"
#include "tests/lib/ct_test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 20000

/* ---- cookie --------------------------------------------------------------------------------- */

static void test_cookies_are_random_hex(void **state)
{
    (void)state;
    struct ct_cookie a;
    struct ct_cookie b;
    assert_int_equal(ct_cookie_new(&a, NULL), 0);
    assert_int_equal(ct_cookie_new(&b, NULL), 0);
    assert_string_not_equal(a.env, b.env);
    assert_int_equal(strlen(a.env), strlen(CT_COOKIE_NAME) + 1 + CT_COOKIE_HEX);
    assert_int_equal(strspn(strchr(a.env, '=') + 1, "0123456789abcdef"), CT_COOKIE_HEX);
}

static bool matches(const struct ct_cookie *cookie, const char *block, size_t len, size_t step)
{
    struct ct_cookie_match match;
    ct_cookie_match_init(&match, cookie);
    for (size_t at = 0; at < len; at += step) {
        (void)ct_cookie_match_feed(&match, block + at, len - at < step ? len - at : step);
    }
    return match.found;
}

static void test_cookie_is_found_as_a_whole_entry_only(void **state)
{
    (void)state;
    struct ct_cookie cookie;
    assert_int_equal(ct_cookie_new(&cookie, NULL), 0);
    const char *env = ct_cookie_env(&cookie);
    char block[512];
    /* format of the block with one %s for the cookie, '|' for NUL; is it there? */
    static const struct {
        const char *format;
        bool found;
    } cases[] = {
        {"%s|", true},    {"A=1|%s|B=2|", true},  {"A=1|B=2|%s|", true}, {"|%s|", true},
        {"A=%s|", false}, {"%sx|", false},        {"x%s|", false},       {"A=1|", false},
        {"", false},      {"CTRUN_%s|%s|", true}, {"%s", false}, /* a block that ends inside is
                                                                    still being written */
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        size_t len = 0;
        for (const char *p = cases[c].format; *p != '\0'; p++) {
            if (*p == '%') {
                len += (size_t)snprintf(block + len, sizeof(block) - len, "%s", env);
                p++;
            } else {
                block[len++] = *p == '|' ? '\0' : *p;
            }
        }
        for (size_t step = 1; step <= len + 1; step++) {
            if (matches(&cookie, block, len, step) != cases[c].found) {
                fail_msg("case %zu in steps of %zu", c, step);
            }
        }
    }
}

/* ---- process tree --------------------------------------------------------------------------- */

static void test_hostile_stat_lines_are_refused(void **state)
{
    (void)state;
    struct ct_proctree_entry e;
    const char good[] = "12 (a) b (c) d) S 3 4 5 0 -1 64 1 2 3 4 5 6 7 8 20 0 1 0 987654321 1 42 3";
    assert_true(ct_proctree_parse(good, strlen(good), &e));
    assert_int_equal(e.pid, 12);
    assert_int_equal(e.state, 'S');
    assert_int_equal(e.ppid, 3);
    assert_int_equal(e.pgrp, 4);
    assert_int_equal(e.session, 5);
    assert_int_equal(e.start, 987654321);
    assert_int_equal(e.rss_pages, 42);
    assert_false(e.exiting);
    const char exits[] = "12 (a) R 3 4 5 0 -1 68 1 2 3 4 5 6 7 8 20 0 1 0 987654321 1 42 3";
    assert_true(ct_proctree_parse(exits, strlen(exits), &e));
    assert_true(e.exiting);
    size_t enough = (size_t)(strstr(good, "42 3") - good) + 1;
    for (size_t len = 0; len < enough; len++) {
        assert_false(ct_proctree_parse(good, len, &e));
    }
    assert_false(ct_proctree_parse("x (y) S 1", 9, &e));
    static char huge[100000];
    memset(huge, '(', sizeof(huge));
    assert_false(ct_proctree_parse(huge, sizeof(huge), &e));
}

static void test_descendants_of_a_drawn_tree(void **state)
{
    (void)state;
    /* 1 - 10 - 20 - 5 (pids have wrapped), 10 - 30 (guard) - 31, 10 - 40 (zombie) - 41, 1 - 50 */
    struct ct_proctree_entry entries[] = {
        {.pid = 1, .state = 'S'},
        {.pid = 5, .ppid = 20, .state = 'S'},
        {.pid = 10, .ppid = 1, .state = 'S'},
        {.pid = 20, .ppid = 10, .state = 'S'},
        {.pid = 30, .ppid = 10, .state = 'S'},
        {.pid = 31, .ppid = 30, .state = 'S'},
        {.pid = 40, .ppid = 10, .state = 'Z'},
        {.pid = 41, .ppid = 40, .state = 'S'},
        {.pid = 50, .ppid = 1, .state = 'S'},
    };
    struct ct_proctree tree = {.entries = entries, .count = sizeof(entries) / sizeof(entries[0])};
    assert_int_equal(ct_proctree_mark_descendants(&tree, 10, 30), 3);
    static const pid_t want[] = {5, 20, 41};
    size_t at = 0;
    for (size_t i = 0; i < tree.count; i++) {
        if (entries[i].marked) {
            assert_true(at < 3 && entries[i].pid == want[at]);
            at++;
        }
    }
    assert_int_equal(ct_proctree_mark_descendants(&tree, 999, -1), 0);
}

static void test_a_reused_pid_is_not_hit(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    struct ct_proctree_entry entry;
    assert_true(ct_proctree_read_pid(pid, &entry));
    assert_int_equal(entry.ppid, getpid());
    struct ct_proctree_entry other = entry;
    other.start--;
    assert_false(ct_proctree_signal(&other, SIGKILL));
    assert_false(ct_proctree_signal(&(struct ct_proctree_entry){.pid = 1}, 0));
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_true(ct_proctree_signal(&entry, SIGKILL));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_false(ct_proctree_read_pid(pid, &entry));
}

static pid_t fork_sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

static bool is_pid(const void *data, pid_t child)
{
    return child == *(const pid_t *)data;
}

static bool has_only_child(pid_t pid)
{
    return ct_proctree_has_only(is_pid, &pid);
}

static void test_an_only_child_is_told_from_others(void **state)
{
    (void)state;
    assert_true(has_only_child(-1));
    pid_t first = fork_sleeper();
    assert_true(has_only_child(first));
    assert_false(has_only_child(-1));
    pid_t second = fork_sleeper();
    assert_false(has_only_child(first));
    assert_false(has_only_child(second));
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(waitpid(second, NULL, 0), second);
    assert_true(has_only_child(first));
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(waitpid(first, NULL, 0), first);
    assert_true(has_only_child(first));
}

static int read_tree(void *data)
{
    (void)data;
    struct ct_proctree tree = {0};
    struct ct_err err;
    int rc = ct_proctree_read(&tree, &err);
    if (rc == 0) {
        assert_non_null(ct_proctree_find(&tree, getpid()));
        assert_null(ct_proctree_find(&tree, 0));
    }
    ct_proctree_fini(&tree);
    return rc;
}

static void test_reading_the_tree_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(read_tree, NULL, 0) >= 1);
}

/* ---- guard ---------------------------------------------------------------------------------- */

/* What the processes of the played job hold open; it ends when none of them is left. */
static int life[2];

static void start_sh(const struct ct_cookie *cookie, const char *script, struct ct_guard *guard)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    char *envp[] = {(char *)ct_cookie_env(cookie), (char *)"PATH=/usr/bin:/bin", NULL};
    struct ct_child child;
    if (ct_spawn(
            &(struct ct_spawn_options){
                .path = "/bin/sh", .argv = argv, .envp = envp, .stdio = {-1, life[1], -1}},
            &child, NULL) != 0) {
        _exit(1);
    }
    ct_guard_watch(guard, child.pid);
}

/* Plays ctrun: starts guard and workers, says so, and waits for its end. */
static _Noreturn void play_ctrun(const char *script, int told)
{
    struct ct_cookie cookie;
    struct ct_guard *guard = NULL;
    if (ct_cookie_new(&cookie, NULL) != 0 || ct_guard_start(&cookie, NULL, &guard, NULL) != 0) {
        _exit(1);
    }
    start_sh(&cookie, script, guard);
    close(life[1]);
    pid_t pid = ct_guard_pid(guard);
    (void)!write(told, &pid, sizeof(pid));
    for (;;) {
        pause();
    }
}

static bool wait_end(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    char byte;
    while (poll(&end, 1, DEADLINE_MS) == 1) {
        if (read(fd, &byte, 1) <= 0) {
            return true;
        }
    }
    return false;
}

/* The script's grandchildren each write one byte when they are ready. */
static void expect_cleaned_up(const char *script, int ready)
{
    int told[2];
    assert_int_equal(pipe2(life, O_CLOEXEC), 0);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    /* A stranger that looks much like a member. */
    pid_t stranger = fork();
    if (stranger == 0) {
        setsid();
        close(life[0]);
        close(life[1]);
        pause();
        _exit(0);
    }
    pid_t ctrun = fork();
    if (ctrun == 0) {
        play_ctrun(script, told[1]);
    }
    close(life[1]);
    pid_t guard;
    assert_int_equal(read(told[0], &guard, sizeof(guard)), sizeof(guard));
    int guard_fd = (int)syscall(SYS_pidfd_open, guard, 0);
    assert_true(guard_fd >= 0);
    for (int i = 0; i < ready; i++) {
        char byte;
        assert_int_equal(read(life[0], &byte, 1), 1);
    }
    kill(ctrun, SIGKILL);
    waitpid(ctrun, NULL, 0);
    assert_true(wait_end(life[0]));
    struct pollfd gone = {.fd = guard_fd, .events = POLLIN};
    assert_int_equal(poll(&gone, 1, DEADLINE_MS), 1); /* the guard does not outlive its work */
    assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    close(guard_fd);
    close(life[0]);
    close(told[0]);
    close(told[1]);
}

static void test_guard_ends_grandchildren_with_their_own_session(void **state)
{
    (void)state;
    /* The first one's parent is gone already: only the cookie tells where it belongs. */
    expect_cleaned_up("trap '' TERM INT HUP;"
                      "(setsid sh -c 'echo -n x; exec sleep 300' &);"
                      "sh -c 'echo -n x; sleep 300' & wait",
                      2);
}

static void test_guard_ends_a_session_without_the_cookie(void **state)
{
    (void)state;
    /* Its parent is gone as well, which would lead from a process with the cookie to it. */
    expect_cleaned_up("(env -i sh -c 'echo -n x; exec sleep 300' &); sleep 300", 1);
}

static void test_guard_ends_children_of_members(void **state)
{
    (void)state;
    /* Neither cookie nor session, but the child of one that has the cookie. */
    expect_cleaned_up("setsid sh -c \"env -i setsid sh -c 'echo -n x; exec sleep 300' & sleep 300\""
                      " & wait",
                      1);
}

static void test_dismissed_guard_kills_nobody(void **state)
{
    (void)state;
    struct ct_cookie cookie;
    struct ct_guard *guard = NULL;
    assert_int_equal(ct_cookie_new(&cookie, NULL), 0);
    int next_fd = dup(STDERR_FILENO);
    close(next_fd);
    assert_int_equal(ct_guard_start(&cookie, NULL, &guard, NULL), 0);
    pid_t pid = ct_guard_pid(guard);
    assert_true(pid > 1);

    char *argv[] = {(char *)"sleep", (char *)"300", NULL};
    char *envp[] = {(char *)ct_cookie_env(&cookie), NULL};
    struct ct_child child;
    assert_int_equal(ct_spawn(&(struct ct_spawn_options){.path = "/bin/sleep",
                                                         .argv = argv,
                                                         .envp = envp,
                                                         .stdio = {-1, -1, -1}},
                              &child, NULL),
                     0);
    /* ct_spawn() returns in the middle of exec, shortly before the new environment can be read. */
    for (int i = 0; i < DEADLINE_MS && !ct_cookie_in_process(&cookie, child.pid); i++) {
        poll(NULL, 0, 1);
    }
    assert_true(ct_cookie_in_process(&cookie, child.pid));
    assert_false(ct_cookie_in_process(&cookie, getpid()));
    ct_guard_watch(guard, child.pid);
    ct_guard_unwatch(guard, 12345);
    kill(pid, SIGTERM); /* which it does not heed */
    kill(pid, SIGINT);
    kill(pid, SIGHUP);
    ct_guard_free(guard);
    assert_true(kill(pid, 0) != 0 && errno == ESRCH); /* gone and reaped */
    assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0);
    kill(child.pid, SIGKILL);
    waitpid(child.pid, NULL, 0);
    close(child.pidfd);
    assert_int_equal(dup(STDERR_FILENO), next_fd); /* nothing is left open */
    close(next_fd);
    ct_guard_free(NULL);
    ct_guard_watch(NULL, 1);
    assert_int_equal(ct_guard_pid(NULL), -1);
}

static int start_guard(void *data)
{
    struct ct_guard *guard = NULL;
    int rc = ct_guard_start(data, NULL, &guard, NULL);
    if (rc == 0) {
        ct_guard_free(guard);
    }
    return rc;
}

static void test_starting_a_guard_survives_lack_of_memory(void **state)
{
    (void)state;
    struct ct_cookie cookie;
    assert_int_equal(ct_cookie_new(&cookie, NULL), 0);
    assert_true(ct_fault_sweep(start_guard, &cookie, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cookies_are_random_hex),
        cmocka_unit_test(test_cookie_is_found_as_a_whole_entry_only),
        cmocka_unit_test(test_hostile_stat_lines_are_refused),
        cmocka_unit_test(test_descendants_of_a_drawn_tree),
        cmocka_unit_test(test_a_reused_pid_is_not_hit),
        cmocka_unit_test(test_an_only_child_is_told_from_others),
        cmocka_unit_test(test_reading_the_tree_survives_lack_of_memory),
        cmocka_unit_test(test_guard_ends_grandchildren_with_their_own_session),
        cmocka_unit_test(test_guard_ends_a_session_without_the_cookie),
        cmocka_unit_test(test_guard_ends_children_of_members),
        cmocka_unit_test(test_dismissed_guard_kills_nobody),
        cmocka_unit_test(test_starting_a_guard_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
