/* SPDX-License-Identifier: Apache-2.0
 *
 * A device fails in the middle of a training: whichever operation it is, the training ends with
 * what the device says, frees what it has, and the other ranks are not left waiting.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/device_faults.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"

#include "trainer/loop/predict.h"
#include "trainer/loop/train.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* A data set of its own, since it is loaded for each operation that fails, and one step, so that
 * few operations come between the first and the last one. */
#define SAMPLES 32
#define PIXELS 6
static char *data_dir;

static struct ct_train_options small = {
    .hidden = {.count = 2, .size = {16, 8}},
    .epochs = 1,
    .batch_size = SAMPLES,
    .lr = 0.01,
    .momentum = 0.9,
    .seed = 1,
    .device = CT_CHOOSE_CPU,
};

static void put(const char *name, const unsigned char *head, size_t head_len, size_t count,
                unsigned char below)
{
    unsigned char bytes[16 + SAMPLES * PIXELS];
    memcpy(bytes, head, head_len);
    for (size_t i = 0; i < count; i++) {
        bytes[head_len + i] = (unsigned char)(i * 37 % below);
    }
    free(ct_tmpdir_write(data_dir, name, bytes, head_len + count));
}

static int setup_data(void **state)
{
    (void)state;
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 2, 0, 0, 0, 3};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    data_dir = ct_tmpdir_new();
    put("train-images-idx3-ubyte", images, sizeof images, SAMPLES * PIXELS, 255);
    put("t10k-images-idx3-ubyte", images, sizeof images, SAMPLES * PIXELS, 251);
    put("train-labels-idx1-ubyte", labels, sizeof labels, SAMPLES, 10);
    put("t10k-labels-idx1-ubyte", labels, sizeof labels, SAMPLES, 10);
    small.data = data_dir;
    return 0;
}

static int remove_data(void **state)
{
    (void)state;
    ct_tmpdir_free(data_dir);
    return 0;
}

/* A whole training, with predictions. Returns the first failure. */
static int train(const struct ct_train_options *options, struct ctw_job *job, struct ct_err *err)
{
    static const struct ct_train_events events;
    struct ct_trainer *trainer;
    struct ct_train_result result;
    int rc = ct_trainer_new(options, job, NULL, NULL, &trainer, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_trainer_run(trainer, &events, &result, err);
    if (rc == 0 && options->predict != NULL) {
        rc = ct_predict(trainer, options->predict, err);
    }
    if (rc != 0) {
        ct_trainer_abort(trainer);
    }
    ct_trainer_free(trainer);
    return rc;
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* Each operation of this training fails once. Returns how many there are. */
static int sweep(const struct ct_train_options *options)
{
    for (int n = 0;; n++) {
        struct ctw_job *job;
        struct ct_err err = {0};
        device_faults_begin(n);
        ct_fault_begin(-1);
        assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
        int rc = train(options, job, &err);
        ctw_job_free(job);
        size_t alive = ct_fault_end();
        if (alive != 0) {
            fail_msg("operation %d failed: %zu blocks leaked", n, alive);
        }
        if (!device_faults_hit()) {
            if (rc != 0) {
                fail_msg("%s", err.text);
            }
            return n;
        }
        if (rc != DEVICE_FAULT_CODE || strstr(err.text, DEVICE_FAULT_TEXT) == NULL) {
            fail_msg("operation %d failed: %d '%s'", n, rc, err.text);
        }
    }
}

static void any_operation_ends_a_training_alone(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "predictions");
    struct ct_train_options options = small;
    options.predict = path;
    assert_true(sweep(&options) > 20);
    options.predict = NULL;
    options.optimizer = CT_OPTIMIZER_ADAMW;
    options.augment.flip = true;
    assert_true(sweep(&options) > 20);
    options.augment.flip = false;
    options.shards = 2;
    assert_true(sweep(&options) > 20);
    free(path);
    ct_tmpdir_free(dir);
}

/* ---- with another rank ----------------------------------------------------------------------- */

static struct outcomes {
    struct {
        int rc;
        char text[sizeof(((struct ct_err *)NULL)->text)];
    } rank[2];
    _Atomic int hit;
} * outcomes;

struct scenario {
    struct ct_train_options options;
    int victim, fail_at;
};

static void train_together(int rank, void *data)
{
    const struct scenario *scenario = data;
    struct ct_err err = {0};
    struct ctw_job *job = rank_open_job();
    device_faults_begin(rank == scenario->victim ? scenario->fail_at : -1);
    outcomes->rank[rank].rc = train(&scenario->options, job, &err);
    memcpy(outcomes->rank[rank].text, err.text, sizeof err.text);
    if (device_faults_hit()) {
        atomic_store(&outcomes->hit, 1);
    }
    ctw_job_free(job);
}

static void expect(int rank, int code, const char *text)
{
    if (outcomes->rank[rank].rc != code || strstr(outcomes->rank[rank].text, text) == NULL) {
        fail_msg("rank %d: %d '%s'", rank, outcomes->rank[rank].rc, outcomes->rank[rank].text);
    }
}

/* Each operation of the victim fails once, but for opening the device: until it has joined, others
 * wait for it. What fails after the last collective does not concern the other rank any more. */
static void sweep_together(struct scenario *scenario)
{
    char text[32];
    int peer = 1 - scenario->victim, heard = 0;
    bool over = false;
    (void)snprintf(text, sizeof text, "rank %d", scenario->victim);
    for (scenario->fail_at = 1;; scenario->fail_at++) {
        ranks_run(2, train_together, scenario);
        if (!atomic_load(&outcomes->hit)) {
            break;
        }
        expect(scenario->victim, DEVICE_FAULT_CODE, DEVICE_FAULT_TEXT);
        over = over || outcomes->rank[peer].rc == 0;
        expect(peer, over ? 0 : CT_EPEER, over ? "" : text);
        heard += !over;
    }
    expect(0, 0, "");
    expect(1, 0, "");
    assert_true(heard > 20);
}

static void the_other_rank_learns_which_one_has_failed(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    for (; scenario.victim < 2; scenario.victim++) {
        sweep_together(&scenario);
    }
}

static void the_other_stage_of_a_pipeline_learns_it_too(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    scenario.options.pipeline_stages = 2;
    scenario.options.micro_batches = 2;
    for (; scenario.victim < 2; scenario.victim++) {
        sweep_together(&scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_operation_ends_a_training_alone),
        RANKS_TEST_SHARING(the_other_rank_learns_which_one_has_failed, outcomes),
        RANKS_TEST_SHARING(the_other_stage_of_a_pipeline_learns_it_too, outcomes),
    };
    return cmocka_run_group_tests(tests, setup_data, remove_data);
}
