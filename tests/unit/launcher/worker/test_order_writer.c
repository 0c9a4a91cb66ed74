/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends of the hand-over: the launcher gives orders and contracts, the worker library obeys.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "launcher/worker/order_writer.h"
#include "launcher/worker/progress_reader.h"
#include "tests/lib/fault.h"
#include "worker/ctworker.h"
#include "worker/job/order_reader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS 3
#define RANK 1

struct scene {
    struct ct_order_writer launcher;
    struct order_reader worker;
};

static void begin(struct scene *scene)
{
    char place[128];
    ct_order_writer_open(&scene->launcher, SLOTS, NULL);
    assert_true(scene->launcher.fd >= 0);
    for (int i = 0; i < SLOTS; i++) {
        const void *slot = scene->launcher.map + i * CT_HANDOVER_SLOT;
        assert_int_equal(((const struct ct_handover_slot *)slot)->version, CT_HANDOVER_VERSION);
    }
    (void)snprintf(place, sizeof(place), "%s:%d", scene->launcher.path, RANK * CT_HANDOVER_SLOT);
    order_reader_open(&scene->worker, place, 5);
    assert_non_null(scene->worker.slot);
    scene->worker.able = true;
}

static void end(struct scene *scene)
{
    order_reader_close(&scene->worker);
    order_reader_close(&scene->worker);
    ct_order_writer_fini(&scene->launcher);
    ct_order_writer_fini(&scene->launcher);
}

static int go(struct scene *scene, int generation, const char *const *vars, size_t count)
{
    struct ct_strlist list = {0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ct_strlist_borrow(&list, vars[i]), 0);
    }
    assert_int_equal(ct_strlist_close(&list), 0);
    int rc = ct_order_writer_go(&scene->launcher, RANK, generation, &list);
    ct_strlist_fini(&list);
    return rc;
}

/* The slot as the launcher sees it, to write nonsense into. */
static struct ct_handover_slot *slot_of(const struct scene *scene)
{
    return (struct ct_handover_slot *)(void *)(scene->launcher.map + RANK * CT_HANDOVER_SLOT);
}

static void orders_are_about_a_generation(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    assert_false(order_reader_ended(NULL));
    assert_false(order_reader_ended(&s.worker));
    ct_order_writer_order(&s.launcher, RANK, 4, CT_ORDER_PARK);
    assert_false(order_reader_ended(&s.worker));
    assert_int_equal(order_reader_await_end(&s.worker, 1, NULL), CT_ETIMEDOUT);
    ct_order_writer_order(&s.launcher, RANK - 1, 5, CT_ORDER_PARK);
    ct_order_writer_order(&s.launcher, RANK + 1, 5, CT_ORDER_END);
    assert_false(order_reader_ended(&s.worker));
    ct_order_writer_order(&s.launcher, RANK, 5, CT_ORDER_PARK);
    assert_true(order_reader_ended(&s.worker));
    assert_int_equal(order_reader_check(&s.worker, NULL), CT_EPEER);
    assert_int_equal(order_reader_await_end(&s.worker, 1, NULL), 0);
    s.worker.able = false;
    assert_false(order_reader_ended(&s.worker));
    s.worker.able = true;
    ct_order_writer_order(&s.launcher, RANK, 5, CT_ORDER_END);
    assert_true(order_reader_ended(&s.worker));
    assert_int_equal(order_reader_await_end(&s.worker, 1, NULL), CT_EABORTED);
    end(&s);
}

static void a_contract_arrives_whole(void **state)
{
    (void)state;
    struct scene s;
    static const char *const vars[] = {"RANK=1", "WORLD_SIZE=2", "EMPTY="};
    char *text;
    size_t bytes;
    uint32_t generation;
    begin(&s);
    assert_int_equal(go(&s, 6, vars, 3), 0);
    assert_int_equal(order_reader_await_next(&s.worker, &text, &bytes, &generation, NULL), 0);
    assert_int_equal(generation, 6);
    assert_int_equal(bytes, 7 + 13 + 7);
    assert_memory_equal(text, "RANK=1\0WORLD_SIZE=2\0EMPTY=", bytes);
    ct_free(text);
    /* It is over before this process has seen it. */
    ct_order_writer_order(&s.launcher, RANK, 6, CT_ORDER_PARK);
    assert_int_equal(order_reader_await_next(&s.worker, &text, &bytes, &generation, NULL), 0);
    assert_int_equal(generation, 6);
    ct_free(text);
    s.worker.generation = 6;
    assert_true(order_reader_ended(&s.worker));
    end(&s);
}

static void a_contract_that_is_too_long_is_not_given(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const size_t room = sizeof(slot_of(&s)->text);
    char *large = ct_malloc(room + 1);
    memset(large, 'x', room);
    large[room - 1] = '\0';
    const char *vars[] = {large, ""};
    assert_int_equal(go(&s, 6, vars, 1), 0);
    assert_int_equal(go(&s, 7, vars, 2), CT_ELIMIT);
    large[room - 1] = 'x';
    large[room] = '\0';
    assert_int_equal(go(&s, 7, vars, 1), CT_ELIMIT);
    assert_int_equal(slot_of(&s)->order >> 2, 6);
    ct_free(large);
    end(&s);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct scene s;
    char *text;
    size_t bytes;
    uint32_t generation;
    static const char *const vars[] = {"RANK=1"};
    begin(&s);
    assert_int_equal(go(&s, 6, vars, 1), 0);
    const uint32_t lengths[] = {0, sizeof(slot_of(&s)->text) + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        slot_of(&s)->bytes = lengths[i];
        assert_int_equal(order_reader_await_next(&s.worker, &text, &bytes, &generation, NULL),
                         CT_EPROTO);
    }
    slot_of(&s)->bytes = 3; /* in the middle of a name */
    assert_int_equal(order_reader_await_next(&s.worker, &text, &bytes, &generation, NULL),
                     CT_EPROTO);
    end(&s);
}

static void places_that_are_none_are_left_alone(void **state)
{
    (void)state;
    struct scene s;
    char place[160];
    begin(&s);
    static const char *const tails[] = {":1", ":128", ":49152", ":-16384",
                                        ":",  "",     "/x:0",   ":999999999999999999999"};
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        struct order_reader h;
        (void)snprintf(place, sizeof(place), "%s%s", s.launcher.path, tails[i]);
        order_reader_open(&h, place, 0);
        assert_null(h.slot);
        assert_false(order_reader_ended(&h));
    }
    struct order_reader h;
    order_reader_open(&h, NULL, 0);
    assert_null(h.slot);
    slot_of(&s)->version ^= 1;
    (void)snprintf(place, sizeof(place), "%s:%d", s.launcher.path, RANK * CT_HANDOVER_SLOT);
    order_reader_open(&h, place, 0);
    assert_null(h.slot);
    end(&s);
}

static void workers_cannot_give_orders(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    FILE *file = fopen(s.launcher.path, "r+");
    if (file != NULL) { /* the file opens; what is in it is for one to write */
        void *map =
            mmap(NULL, CT_HANDOVER_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        assert_ptr_equal(map, MAP_FAILED);
        assert_int_equal(ftruncate(fileno(file), 0), -1);
        (void)fclose(file);
    }
    end(&s);
}

/* ---- a job ----------------------------------------------------------------------------------- */

static struct ctw_job *open_job(const struct scene *s, const struct ct_progress_reader *pages)
{
    char place[128];
    struct ctw_job *job = NULL;
    (void)snprintf(place, sizeof(place), "%s:%d", s->launcher.path, RANK * CT_HANDOVER_SLOT);
    assert_int_equal(setenv(CT_HANDOVER_ENV, place, 1), 0);
    (void)snprintf(place, sizeof(place), "%s:%d", pages->path, RANK * CT_PROGRESS_SLOT);
    assert_int_equal(setenv(CT_PROGRESS_ENV, place, 1), 0);
    assert_int_equal(setenv("CTRUN_GENERATION", "5", 1), 0);
    assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
    return job;
}

static void only_who_says_so_stays(void **state)
{
    (void)state;
    struct scene s;
    struct ct_progress_reader pages;
    struct ct_err err = {0};
    begin(&s);
    ct_progress_reader_open(&pages, SLOTS, NULL);
    struct ctw_job *job = open_job(&s, &pages);
    ct_order_writer_order(&s.launcher, RANK, 5, CT_ORDER_PARK);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK, 5), CT_STAY_NOT);
    assert_false(ctw_job_ended(job));
    assert_int_equal(ctw_job_next(job, 1, &err), CT_EUNSUPPORTED);
    assert_int_equal(ctw_job_stay(job, true, &err), 0);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK, 5), CT_STAY_ABLE);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK + 1, 5), CT_STAY_NOT);
    assert_true(ctw_job_ended(job));
    assert_int_equal(ctw_job_stay(job, false, &err), 0);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK, 5), CT_STAY_NOT);
    assert_int_equal(ctw_job_stay(job, true, &err), 0);
    ct_progress_reader_reset(&pages, RANK, true);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK, 5), CT_STAY_ABLE);
    ct_progress_reader_reset(&pages, RANK, false);
    assert_int_equal(ct_progress_reader_stay(&pages, RANK, 5), CT_STAY_NOT);
    assert_int_equal(ctw_job_stay(NULL, true, &err), CT_EINVAL);
    assert_int_equal(ctw_job_next(NULL, 1, &err), CT_EINVAL);
    assert_int_equal(ctw_job_next(job, -1, &err), CT_EINVAL);
    assert_false(ctw_job_ended(NULL));
    ctw_job_free(job);
    ct_progress_reader_fini(&pages);
    end(&s);
}

/* Waits until the worker has parked, then lets it go on with a contract. */
struct relay {
    struct scene *scene;
    const struct ct_progress_reader *pages;
    const char *const *vars;
    size_t count;
    bool parked;
};

static void *hand_over(void *data)
{
    struct relay *relay = data;
    for (int i = 0; i < 10000 && !relay->parked; i++) {
        relay->parked = ct_progress_reader_stay(relay->pages, RANK, 5) == CT_STAY_PARKED;
        (void)usleep(1000);
    }
    (void)go(relay->scene, 6, relay->vars, relay->count);
    return NULL;
}

static void contracts_that_make_no_sense_end_the_job(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"CTRUN_GENERATION=6", "NOT=1", "OF=2", "A=3"},                            /* of no job */
        {"CTRUN_GENERATION=7", "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1"}, /* no port */
        {"CTRUN_GENERATION=6", "RANK=2", "WORLD_SIZE=2", "MASTER_PORT=1"},         /* no rank */
        {"CTRUN_GENERATION=x", "RANK=", "WORLD_SIZE=\n", "MASTER_PORT=1"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct scene s;
        struct ct_progress_reader pages;
        struct ct_err err = {0};
        pthread_t thread;
        begin(&s);
        ct_progress_reader_open(&pages, SLOTS, NULL);
        struct ctw_job *job = open_job(&s, &pages);
        struct relay relay = {&s, &pages, bad[i], 4, false};
        assert_int_equal(ctw_job_stay(job, true, NULL), 0);
        ct_order_writer_order(&s.launcher, RANK, 5, CT_ORDER_PARK);
        assert_int_equal(pthread_create(&thread, NULL, hand_over, &relay), 0);
        assert_true(ctw_job_next(job, 10000, &err) < 0);
        assert_non_null(strstr(err.text, "the next generation's environment"));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(relay.parked);
        ctw_job_free(job);
        ct_progress_reader_fini(&pages);
        end(&s);
    }
}

static int sweep_body(void *data)
{
    struct scene *s = data;
    char *text;
    size_t bytes;
    uint32_t generation;
    int rc = order_reader_await_next(&s->worker, &text, &bytes, &generation, NULL);
    if (rc == 0) {
        ct_free(text);
    }
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct scene s;
    static const char *const vars[] = {"RANK=1"};
    begin(&s);
    assert_int_equal(go(&s, 6, vars, 1), 0);
    assert_int_equal(ct_fault_sweep(sweep_body, &s, 0), 1);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_about_a_generation),
        cmocka_unit_test(a_contract_arrives_whole),
        cmocka_unit_test(a_contract_that_is_too_long_is_not_given),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(places_that_are_none_are_left_alone),
        cmocka_unit_test(workers_cannot_give_orders),
        cmocka_unit_test(only_who_says_so_stays),
        cmocka_unit_test(contracts_that_make_no_sense_end_the_job),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
