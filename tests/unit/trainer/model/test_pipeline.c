/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a pipeline's stages; the training itself is compared end to end.
 */
#include "kernels/device/device.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/rank_faults.h"
#include "trainer/model/pipeline.h"

/* Two stages on two ranks. *most gets how many rows a stage has room for. */
static int open_with(int rank, struct ct_pipeline_options o, size_t *most, struct ct_err *err)
{
    struct ctw_job *job = NULL;
    struct ct_group group = {0};
    struct ct_device *dev = NULL;
    struct ct_pipeline *pipe = NULL;
    struct ct_layout layout;
    const struct ct_hidden hidden = {.count = 2, .size = {24, 16}};
    int rc = ct_layout_init(&layout, 36, &hidden, 10, err);
    o.stages = o.world = 2;
    o.layers = 3;
    o.rank = rank;
    if (rc == 0) {
        rc = ctw_job_open(NULL, &job, err);
    }
    if (rc == 0) {
        rc = ct_device_open(CT_DEVICE_CPU, 0, &dev, err);
    }
    if (rc == 0) {
        rc = ct_group_open(job, dev, CTW_ORDER_RANK, &group, err);
    }
    if (rc == 0) {
        rc = ct_pipeline_open(&o, &group, dev, &layout, NULL, &pipe, err);
    }
    *most = rc == 0 ? pipe->rows : 0;
    ct_pipeline_free(pipe);
    ct_group_close(&group);
    if (dev != NULL) {
        dev->ops->close(dev);
    }
    ctw_job_free(job);
    return rc;
}

static int open_stage(int rank, struct ct_err *err)
{
    size_t most;
    return open_with(rank, (struct ct_pipeline_options){.rows = 32, .test_rows = 64}, &most, err);
}

struct room {
    size_t test_rows, want;
};

static void look_at_room(int rank, void *data)
{
    const struct room *room = data;
    const struct ct_pipeline_options o = {.rows = 100, .micros = 3, .test_rows = room->test_rows};
    size_t most;
    CHECK(open_with(rank, o, &most, NULL) == 0);
    CHECK(most == room->want);
}

/* 100 rows in 3 micro-batches: the largest has 34. An evaluation may have more. */
static void a_stage_has_room_for_the_largest_micro_batch(void **state)
{
    (void)state;
    struct room rooms[] = {{16, 34}, {64, 64}};
    ranks_run(2, look_at_room, &rooms[0]);
    ranks_run(2, look_at_room, &rooms[1]);
}

static void sweep(int victim)
{
    ranks_begin();
    assert_in_range(rank_fault_sweep(victim, open_stage), 10, 200);
    ranks_end();
}

static void first_stage_without_memory(void **state)
{
    (void)state;
    sweep(0);
}

static void last_stage_without_memory(void **state)
{
    (void)state;
    sweep(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(a_stage_has_room_for_the_largest_micro_batch),
        cmocka_unit_test(first_stage_without_memory),
        cmocka_unit_test(last_stage_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
