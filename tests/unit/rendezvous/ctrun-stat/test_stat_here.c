/* SPDX-License-Identifier: Apache-2.0
 *
 * Which store ctrun-stat asks with the jobs of this machine, and what it says if that gives no
 * status.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_here.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_any_job_it_is_said_that_there_is_none, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_only_job_is_asked, setup, teardown),
        cmocka_unit_test(jobs_without_a_runtime_folder_are_looked_for_as_well),
        cmocka_unit_test_setup_teardown(it_is_said_that_variables_name_the_store, setup, teardown),
        cmocka_unit_test_setup_teardown(it_is_said_if_an_id_must_be_whole, setup, teardown),
    };
    return cmocka_run_group_tests_name("stat_here", tests, NULL, NULL);
}
