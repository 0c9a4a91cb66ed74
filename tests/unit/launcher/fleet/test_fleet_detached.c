/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a detached job on several machines. A shell script stands for the launch agent and
 * for the ctrun there: it gets the host and the command, and its parent is the test process.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"
#include "launcher/fleet/fleet_detached.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX 32768
#define WORDS 16
#define RUNS "echo \"$1: process 7, its output is in /x there\"\n"
/* Ends with its standard input, after the token. */
#define WAITS "while read line; do :; done\n"

/* 127.0.0.2 runs. Another machine goes on when the test process has heard of that: until then the
 * launch agent is in /proc. */
#define AFTER_THE_FIRST                                                                 \
    "case $1 in *.2)\n" RUNS "echo $$ >$DIR/new; mv $DIR/new $DIR/pid; exit 0;; esac\n" \
    "while ! test -e $DIR/pid; do sleep 0.01; done\n"                                   \
    "while test -e /proc/$(cat $DIR/pid); do sleep 0.01; done\n"

struct scene {
    char *dir, *agent;
    char state[512], path[512];
    char *env[3];
    struct ct_hosts hosts;
    struct ct_options options;
    struct ct_machine machine;
    char *argv[WORDS + 1];
    struct ct_fleet_job job;
    int out, err; /* files */
    int exit_code;
    char said[TEXT_MAX], told[TEXT_MAX]; /* on out and err */
};

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    (void)signal(SIGPIPE, SIG_IGN); /* as in main() */
    s->dir = ct_tmpdir_new();
    s->agent = ct_tmpdir_path(s->dir, "agent");
    (void)snprintf(s->state, sizeof(s->state), "XDG_STATE_HOME=%s/state", s->dir);
    (void)snprintf(s->path, sizeof(s->path), "PATH=%s:/bin:/usr/bin", s->dir);
    s->env[0] = s->state;
    s->env[1] = s->path;
    (void)snprintf(s->machine.host, sizeof(s->machine.host), "here");
    s->job = (struct ct_fleet_job){.options = &s->options,
                                   .hosts = &s->hosts,
                                   .machine = &s->machine,
                                   .argv = s->argv,
                                   .env = s->env,
                                   .run_id = "12345678-1234"};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &s->job.nofile), 0);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    ct_hosts_fini(&s->hosts);
    free(s->agent);
    ct_tmpdir_free(s->dir);
    free(s);
    return 0;
}

static void write_script(const struct scene *s, const char *name, const char *script)
{
    char text[4096];
    (void)snprintf(text, sizeof(text), "#!/bin/sh\nDIR=%s\n%s", s->dir, script);
    char *path = ct_tmpdir_path(s->dir, name);
    (void)unlink(path);
    free(path);
    path = ct_tmpdir_write(s->dir, name, text, strlen(text));
    assert_int_equal(chmod(path, 0700), 0);
    free(path);
}

/* Makes the job: `hosts` and more options, which are separated by blanks. */
static void prepare(struct scene *s, const char *hosts, const char *options, const char *script)
{
    static char words[512];
    int count = 0;
    struct ct_err err = {0};
    (void)snprintf(words, sizeof(words), "ctrun --detach --launch-agent %s --hosts %s %s train",
                   s->agent, hosts, options);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < WORDS);
        s->argv[count++] = word;
    }
    s->argv[count] = NULL;
    if (ct_options_parse(s->argv, s->env, &s->options, &err) != 0) {
        fail_msg("%s", err.text);
    }
    ct_hosts_fini(&s->hosts);
    assert_int_equal(ct_hosts_parse(&s->hosts, hosts, &err), 0);
    write_script(s, "agent", script);
}

static void read_back(int fd, char text[TEXT_MAX])
{
    ssize_t n = pread(fd, text, TEXT_MAX - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    (void)close(fd);
}

static int open_new(const struct scene *s, const char *name)
{
    char *path = ct_tmpdir_path(s->dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    free(path);
    return fd;
}

/* Starts the job that was prepared. Returns what ct_fleet_detached_start() does. */
static int start(struct scene *s, struct ct_err *err)
{
    s->out = open_new(s, "out");
    s->err = open_new(s, "err");
    s->exit_code = -1;
    int rc = ct_fleet_detached_start(&s->job, s->out, s->err, &s->exit_code, err);
    read_back(s->out, s->said);
    read_back(s->err, s->told);
    return rc;
}

/* Starts a job that gets an exit code, which is returned. */
static int start_on(struct scene *s, const char *hosts, const char *options, const char *script)
{
    struct ct_err err = {0};
    prepare(s, hosts, options, script);
    if (start(s, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return s->exit_code;
}

/* Finds the only job that was noted here; false if there is none. */
static bool find_note(const struct scene *s, struct ct_detached_job *out)
{
    char *path = ct_tmpdir_path(s->dir, "state/ctrun");
    int root = ct_state_folder_open(path, false, NULL);
    struct ct_detached_entry *list = NULL;
    free(path);
    if (root < 0) {
        return false;
    }
    assert_int_equal(ct_detached_list_read(root, NULL, "here", &list, NULL), 1);
    assert_int_equal(list[0].state, CT_DETACHED_VIA);
    *out = list[0].job;
    ct_free(list);
    (void)close(root);
    return true;
}

static char *read_file(const struct scene *s, const char *name)
{
    static char text[4096];
    char *path = ct_tmpdir_path(s->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
    free(path);
    return text;
}

/* ---- a job that runs ------------------------------------------------------------------------- */

static void all_machines_get_their_part_and_the_token(void **state)
{
    struct scene *s = *state;
    char token[4096];
    assert_int_equal(start_on(s, "127.0.0.2,127.0.0.3", "--master-port 4321",
                              "echo \"$2\" >$DIR/$1.command\n"
                              "read token && echo \"$token\" >$DIR/$1.token\n" RUNS),
                     0);
    (void)snprintf(token, sizeof(token), "%s", read_file(s, "127.0.0.2.token"));
    assert_true(strlen(token) > 16);
    assert_string_equal(read_file(s, "127.0.0.3.token"), token);
    const char *command = read_file(s, "127.0.0.3.command");
    assert_non_null(strstr(command, " --node-rank=1 "));
    assert_non_null(strstr(command, "=is_host=0 --rdzv-endpoint='127.0.0.2:4321' "));
    assert_non_null(strstr(command, " --agent-job=12345678-1 --nnodes=2 "));
    assert_non_null(strstr(read_file(s, "127.0.0.2.command"), "=is_host=1 "));
}

static void the_program_stays_apart_from_the_options(void **state)
{
    static const char *const ways[] = {"", "--"};
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        assert_int_equal(start_on(s, "127.0.0.2", ways[i], "echo \"$2\" >$DIR/command\n" RUNS), 0);
        const char *command = read_file(s, "command");
        assert_non_null(strstr(command, " '--hosts' '127.0.0.2' --agent-stdin "));
        assert_non_null(strstr(command, " --rdzv-id='12345678-1234' -- 'train'\n"));
    }
}

static void the_user_is_told_where_the_job_is(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job note;
    assert_int_equal(start_on(s, "me@127.0.0.2,127.0.0.3", "--master-port 4321", RUNS), 0);
    assert_string_equal(
        s->said,
        "ctrun: job 12345678 runs on 2 machines without this one: 127.0.0.3, me@127.0.0.2\n"
        "ctrun: its output: ctrun --attach 12345678 shows that of me@127.0.0.2, and on each "
        "machine what is there\n"
        "ctrun: its status: ctrun-stat 127.0.0.2:4321 there, while the store is at that address\n"
        "ctrun: to end it: kill the process that is named above, on one of them\n");
    assert_non_null(strstr(s->told, "me@127.0.0.2: process 7, its output is in /x there\n"));
    assert_non_null(strstr(s->told, "127.0.0.3: process 7, its output is in /x there\n"));
    assert_true(find_note(s, &note));
    assert_string_equal(note.id, "12345678");
    assert_string_equal(note.run_id, "12345678-1234");
    assert_string_equal(note.via, "me@127.0.0.2");
    assert_string_equal(note.agent, s->agent);
    assert_string_equal(note.ctrun, "ctrun");
    assert_string_equal(note.address, "127.0.0.2:4321");
    assert_string_equal(note.program, "train");
}

static void a_job_on_this_machine_needs_no_agent(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job note;
    write_script(s, "ctrun", "echo \"ctrun: $1: process 8, its output is in /y there\"\n");
    (void)snprintf(s->machine.own_dir, sizeof(s->machine.own_dir), "%s", s->dir);
    assert_int_equal(start_on(s, "localhost", "--rdzv-id exp/1", "exit 9\n"), 0);
    assert_memory_equal(s->said, "ctrun: job exp_1-", 17);
    assert_non_null(strstr(s->said, " runs on 1 machine without this one: localhost\n"));
    assert_string_equal(s->told, "ctrun: --detach: process 8, its output is in /y there\n");
    assert_true(find_note(s, &note));
    assert_string_equal(strrchr(note.ctrun, '/'), "/ctrun");
    assert_memory_equal(note.ctrun, s->dir, strlen(s->dir));
}

static void its_id_is_told_even_if_its_lines_cannot_be_written(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    prepare(s, "127.0.0.2", "", RUNS);
    int out = open_new(s, "err");
    assert_int_equal(ct_fleet_detached_start(&s->job, -1, out, &s->exit_code, &err), 0);
    read_back(out, s->told);
    assert_int_equal(s->exit_code, 0);
    assert_non_null(strstr(s->told, "ctrun: cannot write to standard output: Bad file descriptor; "
                                    "job 12345678 runs all the same: ctrun --attach 12345678 shows "
                                    "it\n"));
}

static void a_job_that_cannot_be_noted_runs_all_the_same(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job note;
    char agent[CT_DETACHED_AGENT_MAX + 64];
    s->env[0] = (char *)"HOME=";
    assert_int_equal(start_on(s, "127.0.0.2", "", RUNS), 0);
    assert_non_null(strstr(s->told, "ctrun: --attach finds the job on its machines only: there is "
                                    "no folder for detached jobs: set HOME"));
    s->env[0] = s->state;
    prepare(s, "127.0.0.2", "", RUNS);
    int len = snprintf(agent, sizeof(agent), "%s", s->agent);
    memset(agent + len, ' ', sizeof(agent) - (size_t)len);
    agent[sizeof(agent) - 1] = '\0';
    s->options.launch_agent = agent;
    struct ct_err err = {0};
    assert_int_equal(start(s, &err), 0);
    assert_int_equal(s->exit_code, 0);
    assert_non_null(strstr(s->told, "machines only: the launch agent is too long to be kept\n"));
    assert_false(find_note(s, &note));
}

/* ---- what the machines say ------------------------------------------------------------------- */

static void lines_without_an_end_are_shown(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2", "", RUNS "printf 'no end'\n"), 0);
    assert_string_equal(s->told, "127.0.0.2: process 7, its output is in /x there\nno end");
    s->job.run_id = "abcdefgh-1234";
    assert_int_equal(start_on(s, "127.0.0.2", "", "printf '%09000d\\n' 7\n" RUNS), 0);
    assert_int_equal(strspn(s->told, "0"), 8999);
    assert_string_equal(s->told + 8999, "7\n127.0.0.2: process 7, its output is in /x there\n");
}

static void what_an_agent_leaves_behind_keeps_nobody(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2", "", RUNS "yes &\nexit 0\n"), 0);
    assert_non_null(strstr(s->said, "runs on 1 machine"));
}

/* ---- a job that does not start --------------------------------------------------------------- */

static void a_machine_that_cannot_be_reached_ends_the_start(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job note;
    char want[TEXT_MAX];
    /* The other one ends with its standard input, and with what it says then. */
    assert_int_equal(start_on(s, "127.0.0.2,127.0.0.3", "",
                              "case $1 in *.2) echo no way >&2; exit 255;; esac\n" WAITS
                              "echo ended; exit 3\n"),
                     CT_EXIT_SETUP);
    (void)snprintf(want, sizeof(want),
                   "no way\n"
                   "ctrun: 127.0.0.2: ctrun could not be started there: the launch agent (%s) "
                   "exited with code 255\n"
                   "ctrun: what to do: \"%s 127.0.0.2 true\" must work without a question\n"
                   "ended\n",
                   s->agent, s->agent);
    assert_string_equal(s->told, want);
    assert_string_equal(s->said, "");
    assert_false(find_note(s, &note));
}

static void what_ctrun_there_has_said_is_enough(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2", "", "echo 'ctrun: it is bad'; exit 120\n"), 120);
    assert_string_equal(s->told,
                        "ctrun: it is bad\nctrun: 127.0.0.2: ctrun there ended with code 120\n");
    assert_int_equal(start_on(s, "127.0.0.2", "", "echo 'sh: ctrun not found'; exit 127\n"),
                     CT_EXIT_SETUP);
    assert_non_null(
        strstr(s->told, "127.0.0.2: ctrun could not be started there: the launch agent"));
    assert_null(strstr(s->told, "what to do"));
    assert_int_equal(start_on(s, "127.0.0.2", "", "kill -KILL $$\n"), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, ") exited with code 137\n"));
}

static void an_agent_without_a_ctrun_is_none(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2,127.0.0.3", "", "case $1 in *.2) exit 0;; esac\n" RUNS),
                     CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, "ctrun: 127.0.0.2: no ctrun runs there: the launch agent ("));
    assert_non_null(strstr(s->told, "what to do: the launch agent must last as long as the ctrun"));
    assert_string_equal(s->said, "");
}

static void join_timeout_names_the_machines_that_are_missing(void **state)
{
    struct scene *s = *state;
    assert_int_equal(
        start_on(s, "127.0.0.2,127.0.0.3", "--rdzv-conf join_timeout=0.1", WAITS "exit 5\n"),
        CT_EXIT_RDZV_TIMEOUT);
    assert_non_null(strstr(s->told, "ctrun: join_timeout (0.1 s) is over: the job does not run on "
                                    "127.0.0.[2-3]; see whether `"));
    assert_string_equal(s->said, "");
}

/* It does not read its standard input, so it has to be killed. */
static void a_machine_that_is_stuck_is_not_awaited_for_ever(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.3", "--shutdown-timeout 1 --rdzv-conf join_timeout=0.1",
                              "exec sleep 600\n"),
                     CT_EXIT_RDZV_TIMEOUT);
    assert_non_null(strstr(s->told, "the job does not run on 127.0.0.3"));
}

static void an_elastic_job_runs_without_a_machine_that_fails_late(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2,127.0.0.3", "--nnodes 1:2",
                              AFTER_THE_FIRST "echo no way; exit 255\n"),
                     0);
    assert_non_null(strstr(s->told, "ctrun: 127.0.0.3: ctrun could not be started there: "));
    assert_non_null(strstr(s->said, "runs on 1 machine without this one: 127.0.0.2\n"));
}

static void a_store_that_nobody_finds_is_told(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    prepare(s, "no..where", "", RUNS);
    assert_true(start(s, &err) < 0);
    assert_memory_equal(err.text, "the store of a detached job is on its first machine: ", 53);
    assert_int_equal(s->exit_code, -1);
    /* Only ssh knows the name. */
    free(s->agent);
    s->agent = ct_tmpdir_path(s->dir, "ssh");
    prepare(s, "no..where", "--master-port 4321", RUNS);
    write_script(s, "ssh", "case $2 in -G) echo hostname 127.0.0.9;; *) " RUNS " esac\n");
    assert_int_equal(start(s, &err), 0);
    assert_non_null(strstr(s->said, "ctrun-stat 127.0.0.9:4321 there"));
}

static void an_agent_that_is_missing_is_named(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    write_script(s, "ctrun", "touch $DIR/begun\n");
    prepare(s, "localhost,127.0.0.3", "", "");
    s->options.launch_agent = "/nowhere/ssh -p 22";
    assert_true(start(s, &err) < 0);
    assert_memory_equal(err.text, "the launch agent: ", 18);
    assert_non_null(strstr(err.text, "/nowhere/ssh"));
    char *path = ct_tmpdir_path(s->dir, "begun");
    assert_int_not_equal(access(path, F_OK), 0); /* also the first machine is not started */
    free(path);
    prepare(s, "127.0.0.2,127.0.0.3", "", "");
    write_script(s, "agent", "");
    s->options.launch_agent = " ";
    assert_int_equal(start(s, &err), CT_EINVAL);
    free(ct_tmpdir_write(s->dir, "empty", "", 0));
    path = ct_tmpdir_path(s->dir, "empty");
    assert_int_equal(chmod(path, 0700), 0);
    s->options.launch_agent = path;
    assert_true(start(s, &err) < 0); /* it cannot be executed */
    assert_memory_equal(err.text, "127.0.0.2: ", 11);
    free(path);
}

/* ---- signals --------------------------------------------------------------------------------- */

static void a_signal_is_passed_on(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2", "",
                              "read token; kill -TERM $PPID; read line; echo \"got $line\"\n"
                              "exit 143\n"),
                     143);
    assert_string_equal(s->told,
                        "ctrun: received SIGTERM: ending the job that starts\ngot signal 15\n");
    assert_string_equal(s->said, "");
}

static void the_code_tells_of_the_signal_even_if_the_agent_keeps_it(void **state)
{
    struct scene *s = *state;
    assert_int_equal(
        start_on(s, "127.0.0.2", "", "read token; kill -INT $PPID; read line; exit 0\n"), 130);
    assert_string_equal(s->told, "ctrun: received SIGINT: ending the job that starts\n");
}

static void the_second_signal_ends_it_at_once(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2", "",
                              "read token; kill -TERM $PPID; read line; kill -INT $PPID\n"
                              "exec sleep 600\n"),
                     130);
    assert_string_equal(s->told, "ctrun: received SIGTERM: ending the job that starts\n"
                                 "ctrun: received SIGINT: ending at once\n");
}

static void a_signal_ends_the_wait_for_machines_that_are_not_needed(void **state)
{
    struct scene *s = *state;
    assert_int_equal(start_on(s, "127.0.0.2,127.0.0.3", "--nnodes 1:2",
                              AFTER_THE_FIRST "read token; kill -INT $PPID; read line; exit 130\n"),
                     0);
    assert_non_null(
        strstr(s->told, "received SIGINT: not waiting for the machines that are left\n"));
    assert_non_null(strstr(s->said, "runs on 1 machine without this one: 127.0.0.2\n"));
}

/* ---- resources that run out ------------------------------------------------------------------ */

static int start_once(void *data)
{
    struct scene *s = data;
    struct ct_err err = {0};
    int rc = start(s, &err);
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    return rc;
}

static int count_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Fewer descriptors than it needs, then one more, and so on. */
static void descriptors_may_run_out(void **state)
{
    struct scene *s = *state;
    struct rlimit limit = s->job.nofile;
    int failed = 0, rc = -1;
    prepare(s, "127.0.0.2,127.0.0.3", "", RUNS);
    const int open_before = count_open_files();
    for (int fds = 3; fds < 100 && rc != 0; fds++) {
        const struct rlimit low = {(rlim_t)fds, limit.rlim_max};
        struct ct_err err = {0};
        int out = open_new(s, "out"), told = open_new(s, "err");
        s->exit_code = -1;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        rc = ct_fleet_detached_start(&s->job, out, told, &s->exit_code, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        (void)close(out);
        (void)close(told);
        failed += rc != 0;
        assert_true(rc == 0 || err.text[0] != '\0');
        assert_int_equal(s->exit_code, rc == 0 ? 0 : -1);
        assert_int_equal(count_open_files(), open_before);
    }
    assert_int_equal(rc, 0);
    assert_true(failed > 5);
}

static void memory_may_run_out(void **state)
{
    struct scene *s = *state;
    prepare(s, "127.0.0.2,127.0.0.3", "", RUNS);
    assert_true(ct_fault_sweep(start_once, s, 1) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_machines_get_their_part_and_the_token, setup, teardown),
        cmocka_unit_test_setup_teardown(the_program_stays_apart_from_the_options, setup, teardown),
        cmocka_unit_test_setup_teardown(the_user_is_told_where_the_job_is, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_on_this_machine_needs_no_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(its_id_is_told_even_if_its_lines_cannot_be_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_cannot_be_noted_runs_all_the_same, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(lines_without_an_end_are_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(what_an_agent_leaves_behind_keeps_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(a_machine_that_cannot_be_reached_ends_the_start, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_ctrun_there_has_said_is_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_without_a_ctrun_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(join_timeout_names_the_machines_that_are_missing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_machine_that_is_stuck_is_not_awaited_for_ever, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_elastic_job_runs_without_a_machine_that_fails_late,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_that_nobody_finds_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_is_missing_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signal_is_passed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(the_code_tells_of_the_signal_even_if_the_agent_keeps_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_second_signal_ends_it_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signal_ends_the_wait_for_machines_that_are_not_needed,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(descriptors_may_run_out, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_may_run_out, setup, teardown),
    };
    return cmocka_run_group_tests_name("fleet_detached", tests, NULL, NULL);
}
