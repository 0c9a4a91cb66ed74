/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of detached jobs: it is this user's alone, nothing is followed out of it, and only
 * jobs that ended long ago are removed.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "launcher/detach/detach.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"
#include "launcher/process/proctree.h"
#include "tests/lib/tmpdir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOW_S INT64_C(2000000000)

struct place {
    char *dir, *path;
    int root;
    pid_t ctrun; /* a process that stands for the ctrun of jobs that run */
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->dir = ct_tmpdir_new();
    p->path = ct_tmpdir_path(p->dir, "new/ctrun");
    p->root = ct_state_folder_open(p->path, true, NULL);
    assert_true(p->root >= 0);
    p->ctrun = fork();
    if (p->ctrun == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)pause();
        _exit(0);
    }
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    (void)kill(p->ctrun, SIGKILL);
    (void)waitpid(p->ctrun, NULL, 0);
    (void)close(p->root);
    free(p->path);
    ct_tmpdir_free(p->dir);
    free(p);
    return 0;
}

static void it_is_below_the_state_or_home_folder(void **state)
{
    char *const both[] = {(char *)"HOME=/h", (char *)"XDG_STATE_HOME=/s", NULL};
    char *const relative[] = {(char *)"HOME=/h", (char *)"XDG_STATE_HOME=s", NULL};
    char *const none[] = {(char *)"HOME=", NULL};
    char variable[2 * CT_STATE_FOLDER_MAX] = "HOME=/", out[CT_STATE_FOLDER_MAX];
    char *const too_long[] = {variable, NULL};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_state_folder_path(both, out, &err), 0);
    assert_string_equal(out, "/s/ctrun");
    assert_int_equal(ct_state_folder_path(relative, out, &err), 0);
    assert_string_equal(out, "/h/.local/state/ctrun");
    assert_int_equal(ct_state_folder_path(none, out, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "set HOME or XDG_STATE_HOME"));
    memset(variable + 6, 'x', sizeof(variable) - 7);
    assert_int_equal(ct_state_folder_path(too_long, out, &err), CT_ELIMIT);
}

static void folders_are_this_users_alone(void **state)
{
    struct place *p = *state;
    struct ct_err err = {0};
    struct stat st;
    assert_int_equal(fstat(p->root, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    int job = ct_state_folder_make_job(p->root, "a", &err);
    assert_true(job >= 0);
    assert_int_equal(fstat(job, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    (void)close(job);
    assert_int_equal(ct_state_folder_make_job(p->root, "a", &err), CT_EBUSY);

    assert_int_equal(fchmodat(p->root, "a", 0750, 0), 0);
    assert_int_equal(ct_state_folder_open_job(p->root, "a", &err), CT_EPERM);
    assert_non_null(strstr(err.text, "open to other users: chmod 700"));
    assert_int_equal(symlinkat("/tmp", p->root, "b"), 0);
    assert_int_equal(ct_state_folder_open_job(p->root, "b", &err), CT_EPERM);
    assert_int_equal(ct_state_folder_open_job(p->root, "c", &err), CT_ENOENT);
    assert_int_equal(fchmodat(p->root, "a", 0700, 0), 0);
    if (fchownat(p->root, "a", 12345, 12345, 0) == 0) { /* root may, but not everywhere */
        assert_int_equal(ct_state_folder_open_job(p->root, "a", &err), CT_EPERM);
        assert_non_null(strstr(err.text, "belongs to another user"));
    }
    assert_int_equal(chmod(p->path, 0755), 0);
    assert_int_equal(ct_state_folder_open(p->path, true, &err), CT_EPERM);
}

static void only_own_files_are_opened(void **state)
{
    struct place *p = *state;
    struct ct_err err = {0};
    char text[16];
    int job = ct_state_folder_make_job(p->root, "a", &err);
    assert_int_equal(ct_state_folder_write(job, CT_STATE_JOB, "hello", 5, &err), 0);
    assert_int_equal(ct_state_folder_write(job, CT_STATE_JOB, "again", 5, &err), 0);
    assert_true(ct_state_folder_read(job, CT_STATE_JOB, text, sizeof(text)));
    assert_string_equal(text, "again");
    assert_true(ct_state_folder_read(job, CT_STATE_JOB, text, 3));
    assert_string_equal(text, "ag");
    assert_int_equal(ct_state_folder_write(job, "empty", "", 0, &err), 0);
    assert_true(ct_state_folder_read(job, "empty", text, sizeof(text)));
    assert_string_equal(text, "");
    assert_false(ct_state_folder_read(job, CT_STATE_EXIT, text, sizeof(text)));
    assert_int_equal(symlinkat(CT_STATE_JOB, job, CT_STATE_CONSOLE), 0);
    assert_int_equal(ct_state_folder_open_file(job, CT_STATE_CONSOLE, O_RDONLY, &err), CT_EPERM);
    assert_int_equal(mkfifoat(job, CT_STATE_EXIT, 0600), 0); /* must not wait for a writer */
    assert_int_equal(ct_state_folder_open_file(job, CT_STATE_EXIT, O_RDONLY, &err), CT_EPERM);
    (void)close(job);
}

/* Makes a job; `pid` 0 is a process that runs. An `exit_code` below 0 means that it has not ended.
 */
static void make(struct place *p, const char *id, const char *host, pid_t pid, int exit_code,
                 int64_t ended_s)
{
    struct ct_proctree_entry process;
    struct ct_detached_here here;
    struct ct_detached_job job = {.begun_s = 1700000000};
    struct ct_buf text = CT_BUF_INIT;
    char end[CT_DETACHED_EXIT_SIZE + 1];
    int fd = ct_state_folder_make_job(p->root, id, NULL);
    assert_true(fd >= 0);
    assert_true(ct_proctree_read_pid(p->ctrun, &process));
    job.pid = pid != 0 ? pid : p->ctrun;
    job.start = process.start;
    (void)snprintf(job.host, sizeof(job.host), "%s", host);
    ct_detached_list_here(host, &here);
    (void)snprintf(job.place, sizeof(job.place), "%s", here.place);
    assert_int_equal(ct_detached_job_print(&job, &text), 0);
    assert_int_equal(ct_state_folder_write(fd, CT_STATE_JOB, ct_buf_cstr(&text), text.len, NULL),
                     0);
    ct_detached_job_exit_text(exit_code, ended_s, end);
    assert_int_equal(ct_state_folder_write(fd, CT_STATE_EXIT, end, strlen(end), NULL), 0);
    ct_buf_fini(&text);
    (void)close(fd);
}

static void jobs_are_listed_with_what_became_of_them(void **state)
{
    struct place *p = *state;
    struct ct_detached_entry *list;
    make(p, "runs", "here", 0, -1, 0);
    make(p, "ended", "here", 0, 7, NOW_S);
    make(p, "lost", "here", 1 << 22, -1, 0); /* more than the kernel's largest number */
    make(p, "elsewhere", "there", 0, -1, 0);
    (void)close(ct_state_folder_make_job(p->root, "empty", NULL));
    assert_int_equal(symlinkat("runs", p->root, "link"), 0);
    assert_int_equal(ct_detached_list_read(p->root, NULL, "here", &list, NULL), 4);
    assert_string_equal(list[0].job.id, "elsewhere");
    assert_int_equal(list[0].state, CT_DETACHED_ELSEWHERE);
    assert_string_equal(list[1].job.id, "ended");
    assert_int_equal(list[1].state, CT_DETACHED_ENDED);
    assert_int_equal(list[1].exit_code, 7);
    assert_int_equal(list[1].ended_s, NOW_S);
    assert_string_equal(list[2].job.id, "lost");
    assert_int_equal(list[2].state, CT_DETACHED_LOST);
    assert_string_equal(list[3].job.id, "runs");
    assert_int_equal(list[3].state, CT_DETACHED_RUNS);
    ct_free(list);
}

static bool is_listed(const struct ct_detached_entry *list, int count, const char *id)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].job.id, id) == 0) {
            return true;
        }
    }
    return false;
}

static void the_job_that_is_meant_is_found_among_many(void **state)
{
    struct place *p = *state;
    struct ct_detached_entry *list;
    char id[16];
    make(p, "first", "here", 0, -1, 0);
    for (int i = 0; i < 2 * CT_DETACHED_JOBS_MAX; i++) {
        (void)snprintf(id, sizeof(id), "old-%d", i);
        make(p, id, "here", 0, 7, NOW_S);
    }
    make(p, "last", "here", 0, -1, 0);
    int count = ct_detached_list_read(p->root, NULL, "here", &list, NULL);
    assert_int_equal(count, CT_DETACHED_JOBS_MAX);
    assert_true(is_listed(list, count, "first"));
    assert_true(is_listed(list, count, "last"));
    ct_free(list);
    static const char *const ids[] = {"old-0", "old-1024", "old-2047"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        count = ct_detached_list_read(p->root, ids[i], "here", &list, NULL);
        assert_true(is_listed(list, count, ids[i]));
        ct_free(list);
    }
}

static bool is_there(const struct place *p, const char *id)
{
    struct stat st;
    return fstatat(p->root, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void a_job_that_was_started_from_here_is_noted(void **state)
{
    struct place *p = *state;
    struct ct_detached_entry *list;
    char variable[CT_STATE_FOLDER_MAX];
    char *const env[] = {variable, NULL};
    struct ct_detached_job job = {.id = "a", .via = "gpu-1", .agent = "ssh", .ctrun = "ctrun"};
    (void)snprintf(variable, sizeof(variable), "XDG_STATE_HOME=%s/new", p->dir);
    assert_int_equal(ct_detach_note(env, "here", &job, NULL), 0);
    assert_int_equal(ct_detach_note(env, "here", &job, NULL), CT_EBUSY);
    assert_int_equal(ct_detached_list_read(p->root, NULL, "here", &list, NULL), 1);
    assert_int_equal(list[0].state, CT_DETACHED_VIA);
    assert_string_equal(list[0].job.via, "gpu-1");
    ct_free(list);
    ct_detached_list_prune(p->root, "here", job.begun_s + CT_DETACHED_KEEP_S + 60);
    assert_true(is_there(p, "a"));
    ct_detached_list_prune(p->root, "here", job.begun_s + CT_DETACHED_KEEP_VIA_S + 60);
    assert_false(is_there(p, "a"));
}

static void jobs_that_ended_long_ago_are_removed(void **state)
{
    struct place *p = *state;
    const int64_t old_s = NOW_S - CT_DETACHED_KEEP_S - 1;
    const struct timespec old[2] = {{.tv_sec = old_s}, {.tv_sec = old_s}};
    make(p, "runs", "here", 0, -1, 0);
    make(p, "old", "here", 0, 7, old_s);
    make(p, "new", "here", 0, 7, old_s + 2);
    make(p, "lost", "here", 1 << 22, -1, 0);
    make(p, "elsewhere", "there", 0, -1, 0);
    make(p, "more", "here", 0, 7, old_s);
    (void)close(ct_state_folder_make_job(p->root, "empty", NULL));
    static const char *const ids[] = {"runs", "lost", "elsewhere", "empty"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        assert_int_equal(utimensat(p->root, ids[i], old, 0), 0);
    }
    int more = ct_state_folder_open_job(p->root, "more", NULL);
    assert_int_equal(mkdirat(more, "of the user", 0700), 0);
    (void)close(more);
    ct_detached_list_prune(p->root, "here", NOW_S);
    assert_true(is_there(p, "runs"));
    assert_false(is_there(p, "old"));
    assert_true(is_there(p, "new"));
    assert_false(is_there(p, "lost"));
    assert_true(is_there(p, "elsewhere"));
    assert_true(is_there(p, "more"));
    assert_false(is_there(p, "empty"));
}

static int list_once(void *data)
{
    struct place *p = data;
    struct ct_detached_entry *list = NULL;
    int rc = ct_detached_list_read(p->root, NULL, "here", &list, NULL);
    ct_free(list);
    return rc < 0 ? rc : 0;
}

static void memory_may_run_out(void **state)
{
    assert_true(ct_fault_sweep(list_once, *state, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_below_the_state_or_home_folder),
        cmocka_unit_test_setup_teardown(folders_are_this_users_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(only_own_files_are_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(jobs_are_listed_with_what_became_of_them, setup, teardown),
        cmocka_unit_test_setup_teardown(the_job_that_is_meant_is_found_among_many, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_was_started_from_here_is_noted, setup, teardown),
        cmocka_unit_test_setup_teardown(jobs_that_ended_long_ago_are_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_may_run_out, setup, teardown),
    };
    return cmocka_run_group_tests_name("state_folder", tests, NULL, NULL);
}
