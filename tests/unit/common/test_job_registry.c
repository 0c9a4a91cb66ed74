/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of this user on this machine: who runs is listed, who does not is removed, and nobody
 * else can enter or redirect anything.
 */
#include "tests/lib/ct_test.h"

#include "common/job_registry.h"
#include "tests/lib/tmpdir.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
    char *dir, *folder;
    struct ct_job_entry jobs[CT_JOBS_MAX];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->dir = ct_tmpdir_new();
    p->folder = ct_tmpdir_path(p->dir, "ctrun");
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    free(p->folder);
    ct_tmpdir_free(p->dir);
    free(p);
    return 0;
}

/* Writes the file `name` into the folder. */
static void write_entry(const struct place *p, const char *name, const char *text)
{
    char path[CT_JOB_FOLDER_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", p->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bool is_there(const struct place *p, const char *name)
{
    char path[CT_JOB_FOLDER_MAX + 32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", p->folder, name);
    return lstat(path, &st) == 0;
}

static void the_folder_is_the_users(void **state)
{
    char out[CT_JOB_FOLDER_MAX], long_path[2 * CT_JOB_FOLDER_MAX];
    (void)state;
    ct_job_registry_folder("/run/user/7", 7, out);
    assert_string_equal(out, "/run/user/7/ctrun");
    ct_job_registry_folder(NULL, 7, out);
    assert_string_equal(out, "/tmp/ctrun-7");
    ct_job_registry_folder("relative", 7, out);
    assert_string_equal(out, "/tmp/ctrun-7");
    memset(long_path, '/', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    ct_job_registry_folder(long_path, 7, out);
    assert_string_equal(out, "/tmp/ctrun-7");
}

static void a_job_is_listed_until_it_is_removed(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    struct stat st;
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
    assert_int_equal(ct_job_registry_add(p->folder, "127.0.0.1:29500\x1b", "my\njob",
                                         "train.py --name a\x1b[2J", &err),
                     0);
    assert_int_equal(stat(p->folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 1);
    assert_int_equal(p->jobs[0].pid, getpid());
    assert_string_equal(p->jobs[0].address, "127.0.0.1:29500?");
    assert_string_equal(p->jobs[0].name, "my?job");
    assert_string_equal(p->jobs[0].program, "train.py --name a?[2J");
    assert_in_range(p->jobs[0].age_s, 0, 3600);
    ct_job_registry_remove(p->folder);
    ct_job_registry_remove(p->folder);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
}

static void a_long_id_is_kept_and_a_long_program_is_cut_with_a_mark(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    char name[CT_JOB_NAME_MAX], program[4 * CT_JOB_PROGRAM_MAX], address[CT_JOB_ADDRESS_MAX];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    memset(program, 'p', sizeof(program) - 1);
    program[sizeof(program) - 1] = '\0';
    memset(address, 'a', sizeof(address) - 1);
    address[sizeof(address) - 1] = '\0';
    assert_int_equal(ct_job_registry_add(p->folder, address, name, program, &err), 0);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 1);
    assert_string_equal(p->jobs[0].address, address);
    assert_string_equal(p->jobs[0].name, name);
    assert_int_equal(strlen(p->jobs[0].program), CT_JOB_PROGRAM_MAX - 1);
    assert_string_equal(p->jobs[0].program + CT_JOB_PROGRAM_MAX - 5, "p...");
}

/* As an older ctrun writes it, with the time of this process. */
static void an_entry_without_a_program_is_read(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    char path[CT_JOB_FOLDER_MAX + 32], name[32], text[1024];
    assert_int_equal(ct_job_registry_add(p->folder, "127.0.0.1:1", "id", "program", &err), 0);
    (void)snprintf(name, sizeof(name), "%ld", (long)getpid());
    (void)snprintf(path, sizeof(path), "%s/%s", p->folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof(text) - 1, file);
    assert_int_equal(fclose(file), 0);
    text[len] = '\0';
    char *last = strstr(text, "program\n");
    assert_non_null(last);
    *last = '\0';
    write_entry(p, name, text);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 1);
    assert_string_equal(p->jobs[0].name, "id");
    assert_string_equal(p->jobs[0].program, "");
}

static void the_entry_of_a_process_that_died_is_removed(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    char name[32];
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(ct_job_registry_add(p->folder, "127.0.0.1:1", "gone", "p", NULL) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)snprintf(name, sizeof(name), "%ld", (long)pid);
    assert_true(is_there(p, name));
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
    assert_false(is_there(p, name));
}

/* Starts a process that enters a job, in a network namespace of its own or not, and stops. Returns
 * its id, or 0 if it may not make a namespace. */
static pid_t start_stopped(const struct place *p, bool elsewhere)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (elsewhere && unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
            _exit(1);
        }
        if (ct_job_registry_add(p->folder, "127.0.0.1:1", "job", "p", NULL) != 0) {
            _exit(2);
        }
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (elsewhere && WIFEXITED(status) && WEXITSTATUS(status) == 1) {
        return 0;
    }
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void the_state_of_the_process_is_told(void **state)
{
    struct place *p = *state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        pid_t pid = start_stopped(p, elsewhere != 0);
        if (pid == 0) {
            skip();
        }
        assert_int_equal(ct_job_registry_add(p->folder, "127.0.0.1:2", "own", "p", NULL), 0);
        assert_int_equal(ct_job_registry_list(p->folder, p->jobs, NULL), 2);
        int theirs = p->jobs[0].pid == pid ? 0 : 1;
        assert_int_equal(p->jobs[theirs].pid, pid);
        assert_int_equal(p->jobs[theirs].state, 'T');
        assert_int_equal(p->jobs[theirs].elsewhere, elsewhere);
        assert_int_equal(p->jobs[1 - theirs].state, 'R');
        assert_false(p->jobs[1 - theirs].elsewhere);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

/* The id of this process, but the time of an earlier one; and an id of another namespace. */
static void an_id_that_was_given_again_is_not_the_job(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    char name[32], space[64] = "", text[256];
    assert_true(readlink("/proc/self/ns/pid", space, sizeof(space) - 1) > 0);
    (void)snprintf(name, sizeof(name), "%ld", (long)getpid());
    assert_int_equal(mkdir(p->folder, 0700), 0);
    (void)snprintf(text, sizeof(text), "1\n%s\n127.0.0.1:1\nold\n", space);
    write_entry(p, name, text);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
    assert_false(is_there(p, name));
    write_entry(p, name, "1\npid:[1]\n127.0.0.1:1\nelsewhere\n");
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
    assert_true(is_there(p, name));
}

static void strange_entries_are_skipped(void **state)
{
    static const char *const texts[] = {"", "x", "1\n", "1\n2\n3\n", "\n\n\n\n"};
    struct place *p = *state;
    struct ct_err err;
    char name[32], path[CT_JOB_FOLDER_MAX + 32];
    assert_int_equal(mkdir(p->folder, 0700), 0);
    (void)snprintf(name, sizeof(name), "%ld", (long)getpid());
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_entry(p, name, texts[i]);
        write_entry(p, "name", texts[i]);
        write_entry(p, "99999999999999999999", texts[i]);
        assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
        assert_true(is_there(p, "name"));
    }
    /* A pipe would block, a link would lead elsewhere. */
    (void)snprintf(path, sizeof(path), "%s/1", p->folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)snprintf(path, sizeof(path), "%s/2", p->folder);
    assert_int_equal(symlink("/proc/self/stat", path), 0);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), 0);
}

static void a_folder_that_others_may_use_is_refused(void **state)
{
    struct place *p = *state;
    struct ct_err err;
    assert_int_equal(mkdir(p->folder, 0700), 0);
    assert_int_equal(chmod(p->folder, 0770), 0);
    assert_int_equal(ct_job_registry_add(p->folder, "a:1", "x", "p", &err), CT_EPERM);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), CT_EPERM);
    assert_int_equal(rmdir(p->folder), 0);

    char *real = ct_tmpdir_path(p->dir, "real");
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, p->folder), 0);
    assert_int_equal(ct_job_registry_add(p->folder, "a:1", "x", "p", &err), CT_EPERM);
    assert_int_equal(ct_job_registry_list(p->folder, p->jobs, &err), CT_EPERM);
    free(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_is_the_users),
        cmocka_unit_test_setup_teardown(a_job_is_listed_until_it_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_id_is_kept_and_a_long_program_is_cut_with_a_mark,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_entry_without_a_program_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(the_entry_of_a_process_that_died_is_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_state_of_the_process_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(an_id_that_was_given_again_is_not_the_job, setup, teardown),
        cmocka_unit_test_setup_teardown(strange_entries_are_skipped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_others_may_use_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("job_registry", tests, NULL, NULL);
}
