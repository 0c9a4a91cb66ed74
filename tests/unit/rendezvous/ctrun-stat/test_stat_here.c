/* SPDX-License-Identifier: Apache-2.0
 *
 * Which store ctrun-stat asks with the jobs of this machine, and what it says if that gives no
 * status.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_here.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/listen.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct scene {
    char *dir, *folder;
    struct ct_stat_vars vars;
    struct ct_stat_here here;
    struct ct_stat_options options;
    char text[CT_STAT_COMPLAINT_MAX];
};

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->dir = ct_tmpdir_new();
    s->folder = ct_tmpdir_path(s->dir, "ctrun");
    s->vars.runtime_dir = s->dir;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    free(s->folder);
    ct_tmpdir_free(s->dir);
    free(s);
    return 0;
}

/* This process is the ctrun of the job. */
static void add_job(const struct scene *s, const char *address, const char *name)
{
    assert_int_equal(ct_job_registry_add(s->folder, address, name, "train.py", NULL), 0);
}

static enum ct_stat_choice choose(struct scene *s, const char *argument, struct ct_err *err)
{
    s->options = (struct ct_stat_options){.argument = argument};
    *err = (struct ct_err){0};
    return ct_stat_here_choose(&s->here, &s->vars, &s->options, err);
}

/* What is said if the store that `argument` means refuses the connection. */
static const char *refused(struct scene *s, const char *argument)
{
    struct ct_err err;
    assert_int_equal(choose(s, argument, &err), CT_STAT_CHOICE_STORE);
    (void)ct_err_sys(&err, CT_ECLOSED, ECONNREFUSED, "connect");
    ct_stat_here_complaint(&s->here, &s->vars, &s->options, &err, s->text);
    return s->text;
}

static void assert_begins(const char *text, const char *with)
{
    assert_memory_equal(text, with, strlen(with));
}

/* An address that nobody had named was refused, with advice about ports. */
static void without_any_job_it_is_said_that_there_is_none(void **state)
{
    struct scene *s = *state;
    assert_string_equal(refused(s, NULL),
                        "no job of yours has its store on this machine, and 127.0.0.1:29500 gives "
                        "no status (connect: Connection refused): name the store of another job as "
                        "HOST:PORT");
    assert_string_equal(refused(s, "node7"),
                        "node7:29500: connect: Connection refused; ctrun chooses a free port, "
                        "unless --master-port names one; a job that has lost the machine of its "
                        "store has another one, at the address that its ctruns have printed");
}

static void the_only_job_is_asked(void **state)
{
    struct scene *s = *state;
    add_job(s, "127.0.0.1:31000", "night");
    assert_string_equal(refused(s, NULL), "127.0.0.1:31000: connect: Connection refused; ctrun "
                                          "chooses a free port, unless --master-port names one");
    assert_begins(refused(s, "ni"), "127.0.0.1:31000: ");
}

/* In a shell with these variables the user has named no address. */
static void it_is_said_that_variables_name_the_store(void **state)
{
    struct scene *s = *state;
    add_job(s, "127.0.0.1:31000", "night");
    s->vars.master_port = "4000";
    assert_string_equal(refused(s, NULL),
                        "127.0.0.1:4000 (from MASTER_PORT): connect: Connection refused; your job "
                        "on this machine has its store at 127.0.0.1:31000");
    s->vars.master_addr = "10.0.0.1";
    assert_begins(refused(s, NULL), "10.0.0.1:4000 (from MASTER_ADDR and MASTER_PORT): ");
    assert_begins(refused(s, "10.0.0.2:1"), "10.0.0.2:1: connect");
}

/* Says what is wrong with `argument`, or why its host is not known. */
static const char *not_found(struct scene *s, const char *argument)
{
    struct ct_err err;
    if (choose(s, argument, &err) == CT_STAT_CHOICE_WRONG) {
        (void)snprintf(s->text, sizeof(s->text), "%s", err.text);
        return s->text;
    }
    (void)ct_err_set(&err, CT_ENOENT, "cannot resolve host");
    ct_stat_here_complaint(&s->here, &s->vars, &s->options, &err, s->text);
    return s->text;
}

/* The beginning of such an id was taken for an address, without a word about ids. */
static void it_is_said_if_an_id_must_be_whole(void **state)
{
    static const struct {
        const char *word, *text;
    } cases[] = {
        {"exp/lr:0",
         "a job of yours here has an id that begins so: write it whole, or end it with '...'"},
        {"exp/lr:0.1", "a job of yours here has an id that begins so"},
        {"exp/", "a job of yours here has an id that begins so"},
        {"exq/lr", "no job of yours here has this id, which must be whole if it has a colon or sl"},
        {"lr:0.1", "port '0.1' is not a number from 0 to 65535; no job of yours here has this id"},
        {"my job", "another character that no address has; no job of yours here has an id that"},
        {"node7", "cannot resolve host; no job of yours here has an id that begins so"},
    };
    static const char *const addresses[] = {"http://node7:1/", "1.2.3:99999", "https://node7:1/"};
    struct scene *s = *state;
    struct ct_err err;
    add_job(s, "127.0.0.1:31000", "exp/lr:0.1 a");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strstr(not_found(s, cases[i].word), cases[i].text) == NULL) {
            fail_msg("'%s': '%s'", cases[i].word, s->text);
        }
    }
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        assert_null(strstr(not_found(s, addresses[i]), "job"));
    }
    assert_int_equal(choose(s, "exp/lr:...", &err), CT_STAT_CHOICE_STORE);
    assert_int_equal(s->options.where.port, 31000);
    assert_int_equal(choose(s, "exp/lr:0.1 a", &err), CT_STAT_CHOICE_STORE);
    assert_int_equal(s->options.where.port, 31000);
    add_job(s, "127.0.0.1:31000", "1000");
    assert_non_null(strstr(refused(s, "100"), "127.0.0.1:100: connect: Connection refused; no job "
                                              "of yours here has the process id 100; your job on"));
    add_job(s, "127.0.0.1:31000", "exp/lr:0.1 a");
    /* A host of that name may be there. */
    assert_non_null(strstr(refused(s, "exp/"), "exp:29500: connect: Connection refused; a job of "
                                               "yours here has an id that begins so"));
}

/* The jobs of a service were not found from a shell, nor those of a shell by a service. */
static void jobs_without_a_runtime_folder_are_looked_for_as_well(void **state)
{
    char out[CT_JOB_FOLDER_MAX];
    (void)state;
    assert_true(ct_stat_here_other_folder(NULL, 7, out));
    assert_string_equal(out, "/run/user/7/ctrun");
    assert_true(ct_stat_here_other_folder("", 7, out));
    assert_string_equal(out, "/run/user/7/ctrun");
    assert_true(ct_stat_here_other_folder("/run/user/7", 7, out));
    assert_string_equal(out, "/tmp/ctrun-7");
    assert_false(ct_stat_here_other_folder("/run/user/8", 7, out));
    assert_false(ct_stat_here_other_folder("/tmp/x", 7, out));
}

/* ---- several jobs -----------------------------------------------------------------------------
 */

/* A process that is the ctrun of a job, in a network of its own with `apart`, until it is ended. */
static pid_t start_job(const struct scene *s, const char *address, const char *name, bool apart)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool good = (!apart || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
                    ct_job_registry_add(s->folder, address, name, "train.py", NULL) == 0;
        byte = good ? 'y' : 'n';
        (void)!write(ready[1], &byte, 1);
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    if (byte != 'y') {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        assert_true(apart);
        return -1;
    }
    return pid;
}

static void end_job(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static enum ct_stat_choice choose_for(struct scene *s, enum ct_stat_action action, bool watch)
{
    struct ct_err err = {0};
    s->options = (struct ct_stat_options){.action = action, .watch = watch};
    return ct_stat_here_choose(&s->here, &s->vars, &s->options, &err);
}

static void of_several_jobs_one_must_be_named_or_all_are_listed(void **state)
{
    struct scene *s = *state;
    struct ct_err err;
    add_job(s, "127.0.0.1:31000", "night-1");
    pid_t other = start_job(s, "127.0.0.1:31001", "night-2", false);
    assert_int_equal(choose_for(s, CT_STAT_TABLE, false), CT_STAT_CHOICE_LIST);
    assert_int_equal(s->here.count, 2);
    assert_int_equal(choose_for(s, CT_STAT_TABLE, true), CT_STAT_CHOICE_ONE_OF);
    assert_int_equal(choose_for(s, CT_STAT_HEALTH, false), CT_STAT_CHOICE_ONE_OF);
    assert_int_equal(choose(s, "night", &err), CT_STAT_CHOICE_WRONG);
    assert_begins(err.text, "the ids of 2 jobs here begin with 'night': write more of it");
    assert_int_equal(choose(s, "night-2", &err), CT_STAT_CHOICE_STORE);
    assert_int_equal(s->options.where.port, 31001);
    end_job(other);
    assert_int_equal(choose_for(s, CT_STAT_TABLE, true), CT_STAT_CHOICE_STORE);
    assert_int_equal(s->options.where.port, 31000);
}

static void a_job_in_another_network_is_not_asked(void **state)
{
    struct scene *s = *state;
    struct ct_err err;
    char want[512];
    pid_t other = start_job(s, "127.0.0.1:31001", "apart", true);
    if (other < 0) {
        return; /* no namespaces for this user, nor beside the thread of a sanitizer */
    }
    (void)snprintf(want, sizeof(want),
                   "127.0.0.1:31001: the job 'apart' is not reachable from here (another network "
                   "namespace); nsenter -n -t %ld",
                   (long)other);
    assert_int_equal(choose(s, NULL, &err), CT_STAT_CHOICE_UNREACHABLE);
    assert_string_equal(err.text, want);
    end_job(other);
}

static void a_job_without_an_address_is_wrong(void **state)
{
    struct scene *s = *state;
    struct ct_err err;
    add_job(s, "127.0.0.1:x", "broken");
    assert_int_equal(choose(s, "broken", &err), CT_STAT_CHOICE_WRONG);
    assert_begins(err.text, "address '127.0.0.1:x': port 'x'");
}

/* Whoever can write there could send us to a store of his. */
static void a_folder_that_others_may_use_is_not_read(void **state)
{
    struct scene *s = *state;
    struct ct_err err;
    char want[512];
    add_job(s, "127.0.0.1:31000", "night");
    assert_int_equal(chmod(s->folder, 0777), 0);
    (void)snprintf(want, sizeof(want),
                   "the folder of jobs %s is not this user's alone; name the job's store as "
                   "HOST:PORT",
                   s->folder);
    assert_int_equal(choose(s, NULL, &err), CT_STAT_CHOICE_UNREACHABLE);
    assert_string_equal(err.text, want);
    assert_int_equal(choose(s, "127.0.0.1:1", &err), CT_STAT_CHOICE_STORE);
}

/* A port at which somebody listens, so that whoever asks there can be seen. */
static void listen_for(struct ct_listeners *listeners, struct ct_job_entry *entry)
{
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, listeners, NULL), 0);
    (void)snprintf(entry->address, sizeof(entry->address), "127.0.0.1:%u",
                   (unsigned)listeners->port);
}

/* Gives one answer. */
struct store {
    struct ct_listeners listeners;
    const char *health;
    pthread_t thread;
};

static void *serve(void *data)
{
    struct store *store = data;
    char request[512], body[128], answer[256];
    int peer = accept(store->listeners.fds[0], NULL, NULL);
    int size = snprintf(body, sizeof(body),
                        "{\"health\":\"%s\",\"job\":{\"state\":\"running\",\"world_size\":4}}",
                        store->health);
    (void)!recv(peer, request, sizeof(request), 0);
    size = snprintf(answer, sizeof(answer), "HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s", size,
                    body);
    (void)send(peer, answer, (size_t)size, MSG_NOSIGNAL);
    (void)close(peer);
    return NULL;
}

static void start_store(struct store *store, const char *health, struct ct_job_entry *entry)
{
    store->health = health;
    listen_for(&store->listeners, entry);
    (void)fcntl(store->listeners.fds[0], F_SETFL, 0);
    assert_int_equal(pthread_create(&store->thread, NULL, serve, store), 0);
}

static void end_store(struct store *store)
{
    assert_int_equal(pthread_join(store->thread, NULL), 0);
    ct_listeners_fini(&store->listeners);
}

/* What the list is judged as, with one job whose store says `health`, and `more` others, of which
 * the first one is elsewhere and the next one has a store that has gone. */
static struct ct_stat_here_sum listed(struct scene *s, const char *health, int more)
{
    struct store store;
    struct ct_listeners apart, gone;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_stat_here_sum sum;
    struct ct_job_entry *entries = s->here.entries;
    s->here.count = more + (health != NULL);
    entries[0] = (struct ct_job_entry){.pid = 5, .name = "apart", .elsewhere = true};
    entries[1] = (struct ct_job_entry){.pid = 6, .name = "gone"};
    listen_for(&apart, &entries[0]);
    listen_for(&gone, &entries[1]);
    ct_listeners_fini(&gone);
    if (health != NULL) {
        entries[more] = (struct ct_job_entry){.pid = 7, .name = "day", .program = "a.py"};
        start_store(&store, health, &entries[more]);
    }
    ct_fault_begin(-1);
    assert_int_equal(ct_stat_here_list(&s->here, 20, 80, &out, &sum), 0);
    (void)snprintf(s->text, sizeof(s->text), "%s", ct_buf_cstr(&out));
    ct_buf_fini(&out);
    assert_int_equal(ct_fault_end(), 0);
    if (health != NULL) {
        end_store(&store);
    }
    /* Somebody else's store may be at its address here. */
    assert_int_equal(accept(apart.fds[0], NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    ct_listeners_fini(&apart);
    return sum;
}

static void the_list_is_as_healthy_as_its_jobs(void **state)
{
    struct scene *s = *state;
    ct_json_use_our_memory();
    struct ct_stat_here_sum sum = listed(s, "healthy", 0);
    assert_true(sum.any && sum.healthy);
    assert_non_null(strstr(s->text, "\nday running "));
    sum = listed(s, "degraded", 0);
    assert_true(sum.any && !sum.healthy);
    assert_non_null(strstr(s->text, "\nday degraded "));
    /* Nothing is known of the one elsewhere, so it makes no difference. */
    sum = listed(s, "healthy", 1);
    assert_true(sum.any && sum.healthy);
    assert_non_null(strstr(s->text, "\napart elsewhere "));
    sum = listed(s, NULL, 1);
    assert_false(sum.any);
    sum = listed(s, "healthy", 2);
    assert_true(sum.any && !sum.healthy);
    assert_non_null(strstr(s->text, "\ngone  no answer "));
}

static int sweep_list(void *data)
{
    struct scene *s = data;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_stat_here_sum sum;
    s->here.count = 1;
    s->here.entries[0] = (struct ct_job_entry){.address = "127.0.0.1:1", .elsewhere = true};
    int rc = ct_stat_here_list(&s->here, 60, 80, &out, &sum);
    ct_buf_fini(&out);
    return rc;
}

static void a_list_without_memory_is_an_error(void **state)
{
    assert_true(ct_fault_sweep(sweep_list, *state, 0) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_any_job_it_is_said_that_there_is_none, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_only_job_is_asked, setup, teardown),
        cmocka_unit_test(jobs_without_a_runtime_folder_are_looked_for_as_well),
        cmocka_unit_test_setup_teardown(it_is_said_that_variables_name_the_store, setup, teardown),
        cmocka_unit_test_setup_teardown(it_is_said_if_an_id_must_be_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(of_several_jobs_one_must_be_named_or_all_are_listed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_in_another_network_is_not_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_without_an_address_is_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_others_may_use_is_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(the_list_is_as_healthy_as_its_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_list_without_memory_is_an_error, setup, teardown),
    };
    return cmocka_run_group_tests_name("stat_here", tests, NULL, NULL);
}
