/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks tell each other besides gradients: numbers of 64 bits over sums of floats.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "trainer/formats/rng.h"
#include "trainer/model/group.h"

#define WORLD 3

struct member {
    struct ctw_job *job;
    struct ct_device *dev;
    struct ct_group group;
};

static struct member join_group(void)
{
    struct member m = {.job = rank_open_job()};
    CHECK(ct_device_open(CT_DEVICE_CPU, 0, &m.dev, NULL) == 0);
    CHECK(ct_group_open(m.job, m.dev, CTW_ORDER_RANK, &m.group, NULL) == 0);
    return m;
}

static void leave_group(struct member *m)
{
    ct_group_close(&m->group);
    ct_group_close(&m->group);
    ct_group_close(NULL);
    m->dev->ops->close(m->dev);
    ctw_job_free(m->job);
}

/* Any pattern of bits: among them are numbers of every size, and some that are none. */
static double pattern(int round, int rank, size_t i)
{
    static const uint64_t odd[] = {0, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(0x7ff0000000000001)};
    uint64_t bits = round < 4 ? odd[((size_t)round + (size_t)rank + i) % 4]
                              : ct_rng_u64((uint64_t)round, (uint64_t)rank, i);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void gather_patterns(int rank, void *data)
{
    (void)data;
    struct member m = join_group();
    for (int round = 0; round < 40; round++) {
        size_t n = (size_t)round % CT_GROUP_VALUES_MAX + 1;
        double mine[CT_GROUP_VALUES_MAX], all[WORLD * CT_GROUP_VALUES_MAX + 1];
        for (size_t i = 0; i < n; i++) {
            mine[i] = pattern(round, rank, i);
        }
        all[WORLD * n] = 42;
        CHECK(ct_group_all_gather(&m.group, mine, n, all, NULL) == 0);
        for (int r = 0; r < WORLD; r++) {
            for (size_t i = 0; i < n; i++) {
                double want = pattern(round, r, i);
                CHECK(memcmp(&all[(size_t)r * n + i], &want, sizeof want) == 0);
            }
        }
        CHECK(all[WORLD * n] == 42);
    }
    leave_group(&m);
}

static void every_bit_of_every_value_arrives(void **state)
{
    (void)state;
    ranks_run(WORLD, gather_patterns, NULL);
}

static void sum_up(int rank, void *data)
{
    (void)data;
    struct member m = join_group();
    /* 1e300 goes away before 0.1 comes, in this order only. */
    static const double terms[WORLD] = {1e300, -1e300, 0.1};
    double values[2] = {terms[rank], (double)rank};
    CHECK(ct_group_sum(&m.group, values, 2, NULL) == 0);
    CHECK(values[0] == 0.1);
    CHECK(values[1] == 3);
    leave_group(&m);
}

static void sums_are_added_in_the_order_of_ranks(void **state)
{
    (void)state;
    ranks_run(WORLD, sum_up, NULL);
}

static void share_a_model(int rank, void *data)
{
    (void)data;
    struct member m = join_group();
    float *model, *gradients, copy[5];
    size_t begin, end;
    CHECK(ct_group_alloc_model(&m.group, 100, &model, NULL) == 0);
    CHECK(ct_group_alloc_gradients(&m.group, 100, &gradients, NULL) == 0);
    for (size_t i = 0; i < 100; i++) {
        CHECK(gradients[i] == 0);
        gradients[i] = (float)((size_t)rank + i);
    }
    CHECK(ct_group_reduce_scatter(&m.group, gradients, 100, &begin, &end, NULL) == 0);
    for (size_t i = begin; i < end; i++) {
        CHECK(gradients[i] == (float)(3 + 3 * i));
        model[i] = gradients[i]; /* each rank its share */
    }
    CHECK(ct_group_barrier(&m.group, NULL) == 0);
    for (size_t i = 0; i < 100; i++) {
        CHECK(model[i] == (float)(3 + 3 * i)); /* all of them */
    }
    CHECK(ct_group_download(&m.group, copy, model + 95, sizeof copy, NULL) == 0);
    CHECK(memcmp(copy, model + 95, sizeof copy) == 0);
    CHECK(ct_group_broadcast(&m.group, model, 100 * sizeof *model, NULL) == 0);
    CHECK(ct_group_sync(&m.group, NULL) == 0);
    leave_group(&m);
}

static void each_rank_updates_its_share_of_one_model(void **state)
{
    (void)state;
    ranks_run(WORLD, share_a_model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(every_bit_of_every_value_arrives),
        RANKS_TEST(sums_are_added_in_the_order_of_ranks),
        RANKS_TEST(each_rank_updates_its_share_of_one_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
