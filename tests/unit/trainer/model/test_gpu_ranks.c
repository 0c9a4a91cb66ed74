/* SPDX-License-Identifier: Apache-2.0
 *
 * --gpus: a thread for each rank, and which of their failures is told. The ranks do nothing here,
 * so that no GPU is needed.
 */
#include "tests/lib/ct_test.h"
#include "trainer/model/gpu_ranks.h"

#include "kernels/device/device.h"
#include "worker/job/job.h"

#include <pthread.h>

#define GPUS 4

/* How many GPUs there are; 0 = as many as there really are. */
static int pretended;

int __real_ct_device_cuda_count(void);
int __wrap_ct_device_cuda_count(void);
int __wrap_ct_device_cuda_count(void)
{
    return pretended > 0 ? pretended : __real_ct_device_cuda_count();
}

/* Where there are GPUs, but fewer than the test wants ranks, the ranks are refused. */
static int setup(void **state)
{
    (void)state;
    int count = ct_device_cuda_count();
    if (count > 0 && count < GPUS) {
        skip();
    }
    return 0;
}

struct scenario {
    int code[GPUS]; /* what each rank returns */
    pthread_t thread[GPUS];
    int calls[GPUS];
};

static int do_as_planned(struct ctw_job *job, void *data, struct ct_err *err)
{
    struct scenario *scenario = data;
    int rank = ctw_job_env(job)->rank;
    scenario->thread[rank] = pthread_self();
    scenario->calls[rank]++;
    return scenario->code[rank] != 0
               ? ct_err_set(err, scenario->code[rank], "the story of %d", rank)
               : 0;
}

static void every_rank_has_a_thread_and_rank_0_the_callers(void **state)
{
    (void)state;
    struct scenario scenario = {0};
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    assert_int_equal(ct_gpu_ranks_run(GPUS, &job, do_as_planned, &scenario, NULL), 0);
    for (int i = 0; i < GPUS; i++) {
        assert_int_equal(scenario.calls[i], 1);
        assert_int_equal(pthread_equal(scenario.thread[i], pthread_self()) != 0, i == 0);
    }
}

static void the_failure_that_caused_the_others_is_told(void **state)
{
    (void)state;
    static const struct {
        int code[GPUS], want;
        const char *text;
    } cases[] = {
        {{CT_EPEER, CT_EPEER, CT_EIO, CT_EPEER}, CT_EIO, "GPU 2: the story of 2"},
        {{0, CT_EPEER, 0, 0}, CT_EPEER, "GPU 1: the story of 1"},
        {{CT_ENOMEM, 0, CT_EIO, 0}, CT_ENOMEM, "GPU 0: the story of 0"},
        {{0, 0, 0, CT_EINVAL}, CT_EINVAL, "GPU 3: the story of 3"},
    };
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scenario scenario = {0};
        struct ct_err err = {0};
        memcpy(scenario.code, cases[i].code, sizeof scenario.code);
        assert_int_equal(ct_gpu_ranks_run(GPUS, &job, do_as_planned, &scenario, &err),
                         cases[i].want);
        assert_string_equal(err.text, cases[i].text);
    }
}

/* A restart does not mend the options, but another machine may have the GPU that was lost. */
static void a_gpu_that_is_missing_later_has_been_lost(void **state)
{
    (void)state;
    struct scenario scenario = {0};
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    pretended = GPUS - 1;
    for (int generation = 0; generation < 2; generation++) {
        struct ct_err err = {0};
        job.env.generation = generation;
        assert_int_equal(ct_gpu_ranks_run(GPUS, &job, do_as_planned, &scenario, &err),
                         generation > 0 ? CT_EIO : CT_EUNSUPPORTED);
        assert_string_equal(err.text, "--gpus 4: there are only 3 CUDA devices here");
    }
    pretended = 0;
    assert_int_equal(scenario.calls[0], 0);
}

static void one_of_several_workers_has_a_gpu_already(void **state)
{
    (void)state;
    struct scenario scenario = {0};
    struct ct_err err = {0};
    struct ctw_job job = {.env = {.world_size = 2}};
    assert_int_equal(ct_gpu_ranks_run(GPUS, &job, do_as_planned, &scenario, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "--gpus 4: this is one of 2 workers"));
    assert_int_equal(scenario.calls[0], 0);
}

static int body(void *data)
{
    struct scenario scenario = {0};
    return ct_gpu_ranks_run(2, data, do_as_planned, &scenario, NULL);
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    assert_int_equal(ct_fault_sweep(body, &job, 0), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_rank_has_a_thread_and_rank_0_the_callers, setup),
        cmocka_unit_test_setup(the_failure_that_caused_the_others_is_told, setup),
        cmocka_unit_test(a_gpu_that_is_missing_later_has_been_lost),
        cmocka_unit_test(one_of_several_workers_has_a_gpu_already),
        cmocka_unit_test_setup(survives_allocation_failures, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
