/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward and backward passes against gradients by differences, and the layout of parameters.
 */
#include "tests/lib/ct_test.h"
#include "trainer/data/sampler.h"
#include "trainer/formats/rng.h"
#include "trainer/model/model.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES 24
#define FEATURES 13
#define CLASSES 5

struct fixture {
    struct ct_device *dev;
    struct ct_layout layout;
    struct ct_model model;
    struct ct_device_dataset data;
    uint8_t images[SAMPLES * FEATURES], labels[SAMPLES];
    uint32_t index[SAMPLES];
    float *params, *grads;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct ct_hidden hidden = {.count = 2, .size = {17, 6}};
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &f->dev, NULL), 0);
    assert_int_equal(ct_layout_init(&f->layout, FEATURES, &hidden, CLASSES, NULL), 0);
    assert_int_equal(ct_model_init(&f->model, &f->layout, f->dev, SAMPLES, NULL), 0);
    for (size_t i = 0; i < sizeof f->images; i++) {
        f->images[i] = (uint8_t)ct_rng_u64(1, 1, i);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        f->labels[i] = (uint8_t)(ct_rng_u64(1, 2, i) % CLASSES);
        f->index[i] = (uint32_t)((i * 7 + 3) % SAMPLES);
    }
    f->data = (struct ct_device_dataset){f->images, f->labels, 0.4f, 0.3f};
    /* Aligned as the communicator's memory is. */
    size_t bytes = (f->layout.count * sizeof(float) + 63) / 64 * 64;
    f->params = aligned_alloc(64, bytes);
    f->grads = aligned_alloc(64, bytes);
    memset(f->params, 0, bytes);
    memset(f->grads, 0, bytes);
    ct_layout_draw(&f->layout, 3, f->params);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ct_model_fini(&f->model);
    ct_model_fini(&f->model);
    f->dev->ops->close(f->dev);
    free(f->params);
    free(f->grads);
    free(f);
    return 0;
}

/* Mean loss of `rows` samples from `first`; gradients of it when `grads` is given. */
static double run(struct fixture *f, size_t first, size_t rows, float scale, float *grads)
{
    double totals[2] = {0, 0};
    struct ct_err err = {0};
    if (ct_model_run(&f->model, f->params, &f->data, f->index + first, rows, scale, grads, totals,
                     &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(totals[1] >= 0 && totals[1] <= (double)rows);
    return totals[0] / (double)rows;
}

static void test_layout_is_flat_and_aligned(void **state)
{
    (void)state;
    struct ct_layout layout;
    const struct ct_hidden hidden = {.count = 1, .size = {512}};
    assert_int_equal(ct_layout_init(&layout, 784, &hidden, 10, NULL), 0);
    assert_int_equal(layout.layer_count, 2);
    assert_int_equal(layout.parameters, 784 * 512 + 512 + 512 * 10 + 10);
    assert_int_equal(layout.layer[0].weight, 0);
    assert_int_equal(layout.layer[0].bias, 784 * 512);
    assert_int_equal(layout.layer[1].weight, 784 * 512 + 512);
    assert_int_equal(layout.layer[1].bias, 784 * 512 + 512 + 5120);
    assert_int_equal(layout.count, 784 * 512 + 512 + 5120 + 16);
}

/* Of every size, each array begins at a multiple of 16 floats, behind the one before it. */
static void test_arrays_of_a_layout_do_not_overlap(void **state)
{
    (void)state;
    for (size_t out = 1; out <= 33; out++) {
        struct ct_layout layout;
        const struct ct_hidden hidden = {.count = 1, .size = {out}};
        assert_int_equal(ct_layout_init(&layout, 1, &hidden, out, NULL), 0);
        size_t end = 0;
        for (size_t l = 0; l < 2; l++) {
            const struct ct_layer *layer = &layout.layer[l];
            assert_true(layer->weight >= end && layer->weight % 16 == 0);
            assert_true(layer->bias >= layer->weight + layer->in * layer->out);
            assert_true(layer->bias % 16 == 0);
            end = layer->bias + layer->out;
        }
        assert_in_range(layout.count, end, end + 15);
    }
}

/* GPUs need bits of which outputs are above zero; a CPU would only waste memory on them. */
static void test_buffers_of_a_cpu_lie_apart_and_have_no_bits(void **state)
{
    struct fixture *f = *state;
    const struct ct_model *m = &f->model;
    for (size_t l = 0; l <= f->layout.layer_count; l++) {
        size_t width = l == 0 ? f->layout.layer[0].in : f->layout.layer[l - 1].out;
        memset(m->act[l], (int)l + 1, width * SAMPLES * sizeof(float));
        assert_int_equal((uintptr_t)m->act[l] % 64, 0);
    }
    memset(m->delta[0], 8, 17 * SAMPLES * sizeof(float));
    memset(m->delta[1], 9, 17 * SAMPLES * sizeof(float));
    for (size_t l = 0; l <= f->layout.layer_count; l++) {
        size_t width = l == 0 ? f->layout.layer[0].in : f->layout.layer[l - 1].out;
        const unsigned char *bytes = m->act[l];
        for (size_t i = 0; i < width * SAMPLES * sizeof(float); i++) {
            assert_int_equal(bytes[i], l + 1);
        }
    }
    assert_int_equal(*(unsigned char *)m->delta[0], 8);
    for (size_t l = 0; l < f->layout.layer_count; l++) {
        assert_null(m->bits[l]);
    }
}

static void test_huge_layouts_are_refused(void **state)
{
    (void)state;
    struct ct_layout layout = {.count = 77};
    struct ct_err err = {0};
    const struct ct_hidden hidden = {.count = 2, .size = {1048576, 1048576}};
    assert_int_equal(ct_layout_init(&layout, 784, &hidden, 10, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "layer 1 (1048576 to 1048576)"));
    const struct ct_hidden wide = {.count = 1, .size = {SIZE_MAX / 2}};
    assert_int_equal(ct_layout_init(&layout, 784, &wide, 10, &err), CT_ELIMIT);
    assert_int_equal(layout.count, 77);
    struct fixture *f = *state;
    struct ct_model model;
    assert_int_equal(ct_model_init(&model, &f->layout, f->dev, SIZE_MAX / 16, &err), CT_ELIMIT);
}

static void test_initial_values_are_torch_s(void **state)
{
    struct fixture *f = *state;
    const struct ct_layer *layer = &f->layout.layer[0];
    float bound = 1.0f / sqrtf(FEATURES), low = 0, high = 0;
    for (size_t i = 0; i < layer->in * layer->out; i++) {
        float v = f->params[layer->weight + i];
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    assert_true(high <= bound && low >= -bound && high > 0.95f * bound && low < -0.95f * bound);
    /* Biases are drawn too, and the next layer has other numbers. */
    assert_true(f->params[layer->bias] != 0);
    assert_true(f->params[0] / bound != f->params[f->layout.layer[1].weight] * sqrtf(17));
    /* The same seed gives the same bits, another one does not. */
    float *again = calloc(f->layout.count, sizeof *again);
    ct_layout_draw(&f->layout, 3, again);
    assert_memory_equal(again, f->params, f->layout.count * sizeof *again);
    ct_layout_draw(&f->layout, 4, again);
    assert_memory_not_equal(again, f->params, f->layout.count * sizeof *again);
    free(again);
}

static void test_gradient_agrees_with_differences(void **state)
{
    struct fixture *f = *state;
    (void)run(f, 0, SAMPLES, 1.0f / SAMPLES, f->grads);
    size_t checked = 0;
    for (size_t i = 0; i < f->layout.count; i += 1) {
        const float h = 1e-2f;
        float old = f->params[i];
        f->params[i] = old + h;
        double up = run(f, 0, SAMPLES, 0, NULL);
        f->params[i] = old - h;
        double down = run(f, 0, SAMPLES, 0, NULL);
        f->params[i] = old;
        double slope = (up - down) / (2 * h);
        /* The loss is f32 and has kinks at ReLU's corner, so single slopes are only so exact. */
        if (fabs(slope - f->grads[i]) > 2e-3 + 0.05 * fabs(slope)) {
            fail_msg("parameter %zu: gradient %g, slope %g", i, f->grads[i], slope);
        }
        checked += fabsf(f->grads[i]) > 2e-3f;
    }
    /* Most gradients are large enough for the tolerance to mean something. */
    assert_true(checked > f->layout.parameters / 2);
}

static void test_split_batches_sum_to_the_whole(void **state)
{
    struct fixture *f = *state;
    double whole_loss = run(f, 0, SAMPLES, 1.0f / SAMPLES, f->grads);
    float *sum = calloc(f->layout.count, sizeof *sum);
    float *part = aligned_alloc(64, (f->layout.count * sizeof *part + 63) / 64 * 64);
    memset(part, 0, f->layout.count * sizeof *part);
    for (int world = 2; world <= 7; world++) {
        double loss = 0;
        memset(sum, 0, f->layout.count * sizeof *sum);
        for (int rank = 0; rank < world; rank++) {
            size_t begin, end;
            ct_sampler_share(SAMPLES, rank, world, &begin, &end);
            loss += run(f, begin, end - begin, 1.0f / SAMPLES, part) * (double)(end - begin);
            for (size_t i = 0; i < f->layout.count; i++) {
                sum[i] += part[i];
            }
        }
        assert_true(fabs(loss / SAMPLES - whole_loss) < 1e-6 * whole_loss);
        for (size_t i = 0; i < f->layout.count; i++) {
            assert_true(fabsf(sum[i] - f->grads[i]) <= 1e-6f + 1e-5f * fabsf(f->grads[i]));
        }
    }
    free(sum);
    free(part);
}

static void test_evaluation_leaves_gradients_alone(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < f->layout.count; i++) {
        f->grads[i] = 42;
    }
    double with_all = run(f, 0, SAMPLES, 0, NULL);
    assert_true(f->grads[0] == 42);
    double halves =
        (run(f, 0, SAMPLES / 2, 0, NULL) + run(f, SAMPLES / 2, SAMPLES / 2, 0, NULL)) / 2;
    assert_true(fabs(with_all - halves) < 1e-6);
}

struct init_case {
    struct ct_device *dev;
    const struct ct_layout *layout;
};

static int init_body(void *data)
{
    const struct init_case *c = data;
    struct ct_model model;
    int rc = ct_model_init(&model, c->layout, c->dev, 4, NULL);
    if (rc == 0) {
        ct_model_fini(&model);
    }
    return rc;
}

static void test_a_model_survives_lack_of_memory(void **state)
{
    struct fixture *f = *state;
    struct init_case c = {f->dev, &f->layout};
    assert_int_equal(ct_fault_sweep(init_body, &c, 0), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_flat_and_aligned),
        cmocka_unit_test(test_arrays_of_a_layout_do_not_overlap),
        cmocka_unit_test_setup_teardown(test_buffers_of_a_cpu_lie_apart_and_have_no_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_huge_layouts_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_initial_values_are_torch_s, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gradient_agrees_with_differences, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split_batches_sum_to_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_evaluation_leaves_gradients_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_model_survives_lack_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
