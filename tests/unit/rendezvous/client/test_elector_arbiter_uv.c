/* SPDX-License-Identifier: Apache-2.0
 *
 * An elector of a job with an arbiter: what it asks the arbiter, and what the user is told of the
 * answers.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "rendezvous/client/elector_uv.h"
#include "rendezvous/etcd/arbiter_uv.h"

#include <stdio.h>
#include <string.h>

struct fixture {
    uv_loop_t loop;
    struct ct_log log;
    char warned[CT_LOG_LINE_MAX]; /* the last warning */
    int warnings;
    bool is_warned;
};

static void on_line(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    f->warnings += level == CT_LOG_WARNING;
    f->is_warned = f->warnings > 0;
    (void)snprintf(f->warned, sizeof(f->warned), "%s", line);
}

static void on_todo(void *data, const struct ct_election_todo *todo)
{
    (void)data;
    (void)todo;
}

/* The linker puts these in place of the arbiter in etcd. */
static struct {
    struct ct_etcd_arbiter_options options;
    bool asked, closed;
} arbiter;

int __wrap_ct_etcd_arbiter_open(uv_loop_t *loop, const struct ct_etcd_arbiter_options *options,
                                struct ct_etcd_arbiter **out, struct ct_err *err);
void __wrap_ct_etcd_arbiter_ask(struct ct_etcd_arbiter *it, const struct ct_vote_ask *ask);
void __wrap_ct_etcd_arbiter_serve(struct ct_etcd_arbiter *it, const struct ct_voter *self,
                                  const struct ct_job_record *record);
void __wrap_ct_etcd_arbiter_close(struct ct_etcd_arbiter *it);

int __wrap_ct_etcd_arbiter_open(uv_loop_t *loop, const struct ct_etcd_arbiter_options *options,
                                struct ct_etcd_arbiter **out, struct ct_err *err)
{
    (void)loop;
    (void)err;
    arbiter.options = *options;
    arbiter.asked = arbiter.closed = false;
    *out = (struct ct_etcd_arbiter *)&arbiter;
    return 0;
}

void __wrap_ct_etcd_arbiter_ask(struct ct_etcd_arbiter *it, const struct ct_vote_ask *ask)
{
    (void)it;
    arbiter.asked = ask != NULL;
}

void __wrap_ct_etcd_arbiter_serve(struct ct_etcd_arbiter *it, const struct ct_voter *self,
                                  const struct ct_job_record *record)
{
    (void)it;
    (void)self;
    (void)record;
}

void __wrap_ct_etcd_arbiter_close(struct ct_etcd_arbiter *it)
{
    arbiter.closed = it != NULL;
}

static struct ct_elector *seek(struct fixture *f, int64_t lease_ms)
{
    static const struct ct_etcd_settings settings;
    struct ct_err err = {0};
    struct ct_elector *elector = NULL;
    const struct ct_elector_options options = {.log = &f->log,
                                               .id = 1,
                                               .lease_ms = lease_ms,
                                               .give_up_ms = 60000,
                                               .run_id = "run7",
                                               .etcd = &settings,
                                               .on_todo = on_todo};
    assert_int_equal(ct_elector_open(&f->loop, &options, &elector, &err), 0);
    ct_elector_seek(elector, 60000);
    ct_loop_run_until(&f->loop, &arbiter.asked);
    return elector;
}

static void test_who_follows_takes_its_question_back(void **state)
{
    const struct ct_voter host = {.id = 2, .address = "127.0.0.1", .port = 1};
    struct fixture f = {.warnings = 0};
    (void)state;
    ct_loop_begin(&f.loop);
    struct ct_elector *elector = seek(&f, 3000);
    assert_true(ct_elector_followed(elector, &host, CT_TERM_FIRST));
    assert_false(arbiter.asked);
    ct_elector_close(elector);
    assert_true(arbiter.closed);
    ct_loop_end(&f.loop);
}

static void test_a_far_term_in_etcd_is_warned_of(void **state)
{
    struct fixture f = {.warnings = 0};
    struct ct_job_record record;
    (void)state;
    f.log = (struct ct_log){on_line, &f, CT_LOG_WARNING};
    ct_loop_begin(&f.loop);
    struct ct_elector *elector = seek(&f, 3000);
    ct_job_record_init(&record);
    record.term = CT_TERM_MAX;
    record.version = 1;
    const struct ct_vote_answer first = {.id = CT_ARBITER_ID, .seen = CT_TERM_FIRST};
    const struct ct_vote_answer answer = {
        .id = CT_ARBITER_ID, .seen = CT_TERM_MAX, .record = &record};
    arbiter.options.on_answer(arbiter.options.data, &first); /* a newcomer believes it */
    arbiter.options.on_answer(arbiter.options.data, &answer);
    assert_int_equal(f.warnings, 1);
    assert_non_null(strstr(f.warned, "the job's value in etcd names a term that no election"));
    ct_elector_close(elector);
    ct_loop_end(&f.loop);
}

static void test_a_job_of_which_nobody_answers_is_warned_of_once(void **state)
{
    (void)state;
    for (int certain = 0; certain < 2; certain++) {
        struct fixture f = {.warnings = 0};
        struct ct_job_record record;
        f.log = (struct ct_log){on_line, &f, CT_LOG_WARNING};
        ct_loop_begin(&f.loop);
        struct ct_elector *elector = seek(&f, 20);
        ct_job_record_init(&record);
        record.term = CT_TERM_FIRST;
        record.version = 1;
        *(certain ? &record.formed : &record.planned) =
            (struct ct_world_voters){.generation = 0, .count = 1, .list = {{9, "127.0.0.1", 1}}};
        const struct ct_vote_answer answer = {
            .id = CT_ARBITER_ID, .seen = CT_TERM_FIRST, .record = &record};
        arbiter.options.on_answer(arbiter.options.data, &answer);
        ct_loop_run_until(&f.loop, &f.is_warned);
        assert_non_null(strstr(f.warned,
                               "etcd knows a job 'run7', but none of its machines answers, "
                               "such as that at 127.0.0.1; "));
        arbiter.asked = false;
        ct_loop_run_until(&f.loop, &arbiter.asked);
        assert_int_equal(f.warnings, 1);
        ct_elector_close(elector);
        ct_loop_end(&f.loop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_follows_takes_its_question_back),
        cmocka_unit_test(test_a_far_term_in_etcd_is_warned_of),
        cmocka_unit_test(test_a_job_of_which_nobody_answers_is_warned_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
