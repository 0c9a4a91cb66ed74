/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a checkpoint into the model: every array comes back, into memory that the host can write
 * and, through a copy, into memory that only the device can.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/session/trainer.h"

#include <stdlib.h>

#define ARRAYS 3 /* parameters and both states of adamw */

static struct ct_layout layout;
static struct ct_trainer trainer;
static float *arrays[ARRAYS];
static char *dir, *path;

/* Number `i` of an array in the file, which leaves the gaps between layers out. */
static float saved(size_t array, size_t i)
{
    for (size_t l = 0; l < layout.layer_count; l++) {
        const struct ct_layer *layer = &layout.layer[l];
        if ((i >= layer->weight && i < layer->weight + layer->in * layer->out) ||
            (i >= layer->bias && i < layer->bias + layer->out)) {
            return (float)(1000 * (array + 1) + i);
        }
    }
    return 0;
}

static void set_arrays(float *params, float *first, float *second)
{
    trainer.memory.params = params;
    trainer.optimizer.state[0] = first;
    trainer.optimizer.state[1] = second;
}

/* Saves a checkpoint, and makes a trainer with zeroed memory for it. */
static int setup(void **state)
{
    (void)state;
    const struct ct_hidden sizes = {.count = 1, .size = {4}};
    dir = ct_tmpdir_new();
    path = ct_tmpdir_path(dir, "c.safetensors");
    assert_int_equal(ct_layout_init(&layout, 5, &sizes, 3, NULL), 0);
    for (size_t a = 0; a < ARRAYS; a++) {
        arrays[a] = calloc(layout.count, sizeof(float));
        assert_non_null(arrays[a]);
        for (size_t i = 0; i < layout.count; i++) {
            arrays[a][i] = saved(a, i);
        }
    }
    const struct ct_state_view view = {.layout = &layout,
                                       .optimizer = CT_OPTIMIZER_ADAMW,
                                       .params = arrays[0],
                                       .state = {arrays[1], arrays[2]}};
    const struct ct_progress_point point = {.step = 1};
    assert_int_equal(ct_checkpoint_save(path, &view, &point, NULL), 0);
    for (size_t a = 0; a < ARRAYS; a++) {
        memset(arrays[a], 0, layout.count * sizeof(float));
    }
    trainer = (struct ct_trainer){.options = {.resume = path},
                                  .layout = layout,
                                  .optimizer = {.kind = CT_OPTIMIZER_ADAMW},
                                  .memory = {.held = {.count = layout.count}}};
    set_arrays(arrays[0], arrays[1], arrays[2]);
    return ct_device_open(CT_DEVICE_CPU, 0, &trainer.dev, NULL);
}

static int teardown(void **state)
{
    (void)state;
    trainer.dev->ops->close(trainer.dev);
    for (size_t a = 0; a < ARRAYS; a++) {
        free(arrays[a]);
    }
    free(path);
    ct_tmpdir_free(dir);
    return 0;
}

static int restore(struct ct_err *err)
{
    struct ct_safetensors file;
    struct ct_progress_point point;
    assert_int_equal(ct_checkpoint_open(path, &layout, CT_OPTIMIZER_ADAMW, &file, &point, err), 0);
    int rc = ct_trainer_restore(&trainer, &file, err);
    ct_safetensors_fini(&file);
    return rc;
}

static void test_every_array_is_restored(void **state)
{
    (void)state;
    assert_int_equal(restore(NULL), 0);
    for (size_t a = 0; a < ARRAYS; a++) {
        for (size_t i = 0; i < layout.count; i++) {
            assert_true(arrays[a][i] == saved(a, i));
        }
    }
}

/* As on a GPU that has the model from its second number on, up to the first bias of layer 1. */
static void test_a_device_gets_the_part_that_it_holds(void **state)
{
    (void)state;
    trainer.memory.host_copy = calloc(ARRAYS * layout.count, sizeof(float));
    assert_non_null(trainer.memory.host_copy);
    const size_t held = layout.layer[1].bias;
    trainer.memory.held = (struct ct_span){.first = 1, .count = held};
    assert_int_equal(restore(NULL), 0);
    for (size_t a = 0; a < ARRAYS; a++) {
        for (size_t i = 0; i < held; i++) {
            assert_true(arrays[a][i] == saved(a, i + 1));
        }
        assert_true(saved(a, held + 1) > 0 && arrays[a][held] == 0);
    }
    free(trainer.memory.host_copy);
}

static void test_arrays_are_the_parameters_and_what_the_optimizer_keeps(void **state)
{
    (void)state;
    struct ct_arrays all = ct_trainer_arrays(arrays[0], &trainer.optimizer);
    assert_int_equal(all.count, ARRAYS);
    for (size_t a = 0; a < ARRAYS; a++) {
        assert_ptr_equal(all.at[a], arrays[a]);
    }
    trainer.optimizer.kind = CT_OPTIMIZER_SGD;
    assert_int_equal(ct_trainer_arrays(arrays[0], &trainer.optimizer).count, 2);
}

/* The file was checked when it was opened, and can still become shorter. */
static void test_a_file_that_shrinks_meanwhile_is_named(void **state)
{
    (void)state;
    struct ct_err err = {0};
    struct ct_safetensors file;
    struct ct_progress_point point;
    assert_int_equal(ct_checkpoint_open(path, &layout, CT_OPTIMIZER_ADAMW, &file, &point, &err), 0);
    free(ct_tmpdir_write(dir, "c.safetensors", "", 0));
    assert_int_not_equal(ct_trainer_restore(&trainer, &file, &err), 0);
    assert_non_null(strstr(err.text, path));
    ct_safetensors_fini(&file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_array_is_restored),
        TEST(test_a_device_gets_the_part_that_it_holds),
        TEST(test_arrays_are_the_parameters_and_what_the_optimizer_keeps),
        TEST(test_a_file_that_shrinks_meanwhile_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
