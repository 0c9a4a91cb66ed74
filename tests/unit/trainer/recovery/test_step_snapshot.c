/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks are played one after the other; a rank that dies is one that does not write any more.
 */
#include "tests/lib/ct_test.h"

#include "trainer/recovery/step_snapshot.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define FLOATS 64
#define WORLD 2

static const struct ct_snapshot_shape shape = {.fingerprint = 7, .floats = FLOATS, .arrays = 2};

struct job {
    int fd;
    char path[64];
    float params[FLOATS], momentum[FLOATS];
    float *arrays[2];
};

static void open_job(struct job *job)
{
    *job = (struct job){.fd = memfd_create("test", MFD_CLOEXEC)};
    assert_true(job->fd >= 0);
    (void)snprintf(job->path, sizeof(job->path), "/proc/self/fd/%d", job->fd);
    job->arrays[0] = job->params;
    job->arrays[1] = job->momentum;
}

static void begin(struct job *job, struct ct_step_snapshot ranks[], int world, int generation)
{
    for (int r = 0; r < world; r++) {
        assert_int_equal(
            ct_step_snapshot_open(&ranks[r], job->path, &shape, r, world, generation, NULL), 0);
    }
    assert_int_equal(ct_step_snapshot_prepare(&ranks[0], NULL), 0);
    for (int r = 0; r < world; r++) {
        assert_int_equal(ct_step_snapshot_map(&ranks[r], NULL), 0);
    }
}

static void end(struct ct_step_snapshot ranks[], int world)
{
    for (int r = 0; r < world; r++) {
        ct_step_snapshot_fini(&ranks[r]);
        ct_step_snapshot_fini(&ranks[r]);
    }
}

/* Each rank's share of step `step`, whose numbers are all `step`. */
static void write_share(struct job *job, struct ct_step_snapshot *rank, int64_t step)
{
    size_t each = FLOATS / (size_t)rank->world, first = each * (size_t)rank->rank;
    for (size_t i = first; i < first + each; i++) {
        job->params[i] = (float)step;
        job->momentum[i] = (float)-step;
    }
    const struct ct_snapshot_point point = {
        .step = step, .epoch = 3, .batch = 5, .samples = 40, .loss = 0.5, .hits = 2};
    ct_step_snapshot_write(rank, &point, job->arrays, first, first + each);
}

static void write_step(struct job *job, struct ct_step_snapshot ranks[], int world, int64_t step)
{
    for (int r = 0; r < world; r++) {
        write_share(job, &ranks[r], step);
    }
}

/* Opens as a new generation would, and expects all numbers of `step`; 0 = nothing. */
static void expect(struct job *job, int64_t step)
{
    struct ct_step_snapshot s;
    assert_int_equal(ct_step_snapshot_open(&s, job->path, &shape, 0, 1, 9, NULL), 0);
    assert_int_equal(s.found.step, step);
    if (step > 0) {
        float params[FLOATS], momentum[FLOATS];
        float *const arrays[] = {params, momentum};
        ct_step_snapshot_load(&s, arrays);
        for (size_t i = 0; i < FLOATS; i++) {
            assert_true(params[i] == (float)step && momentum[i] == (float)-step);
        }
        assert_int_equal(s.found.epoch, 3);
        assert_int_equal(s.found.batch, 5);
        assert_int_equal(s.found.samples, 40);
    }
    ct_step_snapshot_fini(&s);
}

/* Shares of a step belong together only when they are of one cut. */
static void shares_of_other_sizes_do_not_mix(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot two[WORLD], one;
    open_job(&job);
    begin(&job, two, WORLD, 0);
    write_step(&job, two, WORLD, 1);
    assert_int_equal(ct_step_snapshot_open(&one, job.path, &shape, 1, 4, 0, NULL), 0);
    write_share(&job, &two[0], 2);
    write_share(&job, &one, 2);
    expect(&job, 1);
    ct_step_snapshot_fini(&one);
    end(two, WORLD);
    (void)close(job.fd);
}

static void newest_whole_step_is_found(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot ranks[WORLD];
    open_job(&job);
    begin(&job, ranks, WORLD, 0);
    expect(&job, 0);
    write_share(&job, &ranks[0], 1);
    expect(&job, 0);
    write_share(&job, &ranks[1], 1);
    for (int64_t step = 2; step < 6; step++) {
        expect(&job, step - 1);
        write_share(&job, &ranks[1], step);
        expect(&job, step - 1);
        write_share(&job, &ranks[0], step);
        expect(&job, step);
    }
    end(ranks, WORLD);
    (void)close(job.fd);
}

static void sums_are_of_all_ranks(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot ranks[WORLD], later;
    open_job(&job);
    begin(&job, ranks, WORLD, 0);
    write_step(&job, ranks, WORLD, 1);
    ct_step_snapshot_tell(&ranks[0], 2);
    assert_int_equal(ct_step_snapshot_open(&later, job.path, &shape, 0, 1, 1, NULL), 0);
    assert_true(later.found.loss == WORLD * 0.5 && later.found.hits == WORLD * 2.0);
    assert_int_equal(later.told, 2);
    end(&later, 1);
    end(ranks, WORLD);
    (void)close(job.fd);
}

static void generations_and_worlds_do_not_mix(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot first[WORLD], second[WORLD], third[1];
    open_job(&job);
    begin(&job, first, WORLD, 0);
    write_step(&job, first, WORLD, 1);
    write_share(&job, &first[0], 2); /* rank 1 has died */
    end(first, WORLD);
    begin(&job, second, WORLD, 1);
    assert_int_equal(second[1].found.step, 1);
    write_share(&job, &second[1], 2);
    expect(&job, 1);
    write_share(&job, &second[0], 2);
    expect(&job, 2);
    end(second, WORLD);
    begin(&job, third, 1, 2);
    assert_int_equal(third[0].found.step, 2);
    write_step(&job, third, 1, 3);
    expect(&job, 3);
    end(third, 1);
    (void)close(job.fd);
}

static void other_jobs_are_not_taken(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot ranks[WORLD], other[1];
    struct ct_snapshot_shape changed = shape;
    open_job(&job);
    begin(&job, ranks, WORLD, 0);
    write_step(&job, ranks, WORLD, 1);
    end(ranks, WORLD);
    changed.fingerprint++;
    assert_int_equal(ct_step_snapshot_open(&other[0], job.path, &changed, 0, 1, 1, NULL), 0);
    assert_int_equal(other[0].found.step, 0);
    assert_int_equal(ct_step_snapshot_prepare(&other[0], NULL), 0);
    expect(&job, 0);
    end(other, 1);
    (void)close(job.fd);
}

/* Whatever lies there: a header that names ranks and sizes beyond the file must not be followed. */
static void garbage_is_not_followed(void **state)
{
    (void)state;
    struct job job;
    struct ct_step_snapshot ranks[WORLD];
    open_job(&job);
    begin(&job, ranks, WORLD, 0);
    write_step(&job, ranks, WORLD, 2);
    end(ranks, WORLD);
    const int32_t worlds[] = {-1, 0, INT32_MAX};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        assert_int_equal(pwrite(job.fd, &worlds[i], sizeof(worlds[i]), 4096 + 8), 4);
        expect(&job, 0);
    }
    assert_int_equal(ftruncate(job.fd, 5000), 0);
    expect(&job, 0);
    (void)close(job.fd);
}

static void without_memory_nothing_is_written(void **state)
{
    (void)state;
    struct job job;
    struct ct_err err = {0};
    struct ct_step_snapshot s = CT_STEP_SNAPSHOT_INIT;
    open_job(&job);
    assert_int_equal(ct_step_snapshot_open(&s, "/proc/self/fd/none", &shape, 0, 1, 0, &err),
                     CT_ENOENT);
    assert_non_null(strstr(err.text, "memory for snapshots"));
    assert_int_equal(ct_step_snapshot_prepare(&s, NULL), 0);
    assert_int_equal(ct_step_snapshot_map(&s, NULL), 0);
    const struct ct_snapshot_point point = {.step = 1};
    ct_step_snapshot_write(&s, &point, job.arrays, 0, FLOATS);
    ct_step_snapshot_tell(&s, 1);
    const struct ct_snapshot_shape huge = {.floats = SIZE_MAX / 8, .arrays = 2};
    assert_int_equal(ct_step_snapshot_open(&s, job.path, &huge, 0, 1, 0, NULL), CT_ELIMIT);
    (void)close(job.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_whole_step_is_found),
        cmocka_unit_test(shares_of_other_sizes_do_not_mix),
        cmocka_unit_test(sums_are_of_all_ranks),
        cmocka_unit_test(generations_and_worlds_do_not_mix),
        cmocka_unit_test(other_jobs_are_not_taken),
        cmocka_unit_test(garbage_is_not_followed),
        cmocka_unit_test(without_memory_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
