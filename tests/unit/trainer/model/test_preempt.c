/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank notices that it has to stop, and how often ranks tell each other.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"

#include "common/clock.h"
#include "trainer/model/preempt.h"

#include <stdlib.h>
#include <unistd.h>

static struct ct_group alone = {.world = 1};

/* What all want after an exchange in which this rank wants `mine`. */
static unsigned exchange(struct ct_preempt *p, unsigned mine)
{
    double sums[CT_PREEMPT_SUMS] = {0.1, -1e300};
    assert_int_equal(ct_preempt_agree(p, &alone, sums, &mine, NULL), 0);
    assert_true(sums[0] == 0.1 && sums[1] == -1e300);
    return mine;
}

static void a_file_or_a_signal_asks_to_stop(void **state)
{
    (void)state;
    atomic_int flagged = 0;
    struct ct_preempt p;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "notice");
    ct_preempt_init(&p, NULL, NULL);
    assert_int_equal(exchange(&p, 0), 0);
    ct_preempt_init(&p, path, &flagged);
    assert_int_equal(exchange(&p, 0), 0);
    assert_int_equal(exchange(&p, CT_PREEMPT_SAVE), CT_PREEMPT_SAVE);
    flagged = 1;
    assert_int_equal(exchange(&p, 0), CT_PREEMPT_STOP);
    assert_int_equal(exchange(&p, CT_PREEMPT_SAVE), CT_PREEMPT_STOP | CT_PREEMPT_SAVE);
    flagged = 0;
    free(ct_tmpdir_write(dir, "notice", "{}", 2));
    assert_int_equal(exchange(&p, 0), CT_PREEMPT_STOP);
    free(path);
    ct_tmpdir_free(dir);
}

/* Only the last rank wants something, and each has a number of its own. */
static void agree(int rank, void *data)
{
    (void)data;
    struct ct_device *dev;
    struct ct_group group;
    struct ct_preempt p;
    struct ctw_job *job = rank_open_job();
    CHECK(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL) == 0);
    CHECK(ct_group_open(job, dev, CTW_ORDER_RANK, &group, NULL) == 0);
    ct_preempt_init(&p, NULL, NULL);
    unsigned wants = rank == 2 ? CT_PREEMPT_SAVE : 0;
    double sums[CT_PREEMPT_SUMS] = {rank + 1, 10 * rank};
    CHECK(ct_preempt_agree(&p, &group, sums, &wants, NULL) == 0);
    CHECK(wants == CT_PREEMPT_SAVE);
    CHECK(sums[0] == 6 && sums[1] == 30);
    ct_group_close(&group);
    dev->ops->close(dev);
    ctw_job_free(job);
}

static void what_one_rank_wants_all_ranks_hear(void **state)
{
    (void)state;
    ranks_run(3, agree, NULL);
}

/* Does `steps` steps that took `ns` altogether, and the exchange after them. Returns how many steps
 * there are until the next one. */
static int64_t steps_until_next(struct ct_preempt *p, int64_t steps, int64_t ns)
{
    for (int64_t s = 1; s <= steps; s++) {
        bool due = ct_preempt_due(p);
        assert_int_equal(due, p->steps >= p->next);
    }
    p->last_ns = ct_clock_now(NULL) - ns;
    (void)exchange(p, 0);
    return p->next - p->steps;
}

static void exchanges_come_about_20_times_a_second(void **state)
{
    (void)state;
    struct ct_preempt p;
    ct_preempt_init(&p, NULL, NULL);
    assert_true(ct_preempt_due(&p)); /* after the first step */
    assert_int_equal(p.next, 1);
    /* Steps of 10 ms: after every fourth or fifth. */
    assert_in_range(steps_until_next(&p, 999, 10000 * CT_NS_PER_MS), 4, 5);
    assert_in_range(steps_until_next(&p, 1000, 10000 * CT_NS_PER_MS), 4, 5);
    /* Slow ones: after each. */
    assert_int_equal(steps_until_next(&p, 2, 10000 * CT_NS_PER_MS), 1);
    assert_int_equal(steps_until_next(&p, 1, 10000 * CT_NS_PER_MS), 1);
}

static void a_few_fast_steps_do_not_put_the_next_exchange_far_away(void **state)
{
    (void)state;
    struct ct_preempt p;
    ct_preempt_init(&p, NULL, NULL);
    /* No time at all: the clock's resolution and this machine's hiccups only make it less. */
    assert_in_range(steps_until_next(&p, 1, 0), 1, 8);
    assert_in_range(steps_until_next(&p, 8, 0), 1, 64);
}

static int body(void *data)
{
    (void)data;
    struct ct_preempt p;
    double sums[CT_PREEMPT_SUMS] = {0};
    unsigned wants = 0;
    ct_preempt_init(&p, NULL, NULL);
    return ct_preempt_agree(&p, &alone, sums, &wants, NULL);
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(body, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_or_a_signal_asks_to_stop),
        RANKS_TEST(what_one_rank_wants_all_ranks_hear),
        cmocka_unit_test(exchanges_come_about_20_times_a_second),
        cmocka_unit_test(a_few_fast_steps_do_not_put_the_next_exchange_far_away),
        cmocka_unit_test(survives_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
