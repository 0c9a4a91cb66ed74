/* SPDX-License-Identifier: Apache-2.0
 *
 * Mirrored and moved images, pixel by pixel, and images that cannot be augmented.
 */
#include "tests/lib/ct_test.h"
#include "trainer/data/augment.h"
#include "trainer/formats/rng.h"

static const struct ct_augment_choice flip = {.flip = true}, shift = {.shift = true};

static void test_flip_mirrors_pixels_not_their_bytes(void **state)
{
    (void)state;
    /* Two rows of three pixels, of two bytes each. */
    const struct ct_image_shape shape = {1, 2, 3, 2};
    const uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint8_t mirrored[] = {5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8};
    uint8_t out[sizeof in];
    ct_augment_image(&flip, &shape, 1, in, out);
    assert_memory_equal(out, mirrored, sizeof in);
    ct_augment_image(&flip, &shape, 2, in, out);
    assert_memory_equal(out, in, sizeof in);
}

/* Every move up to 2 of 28 pixels each way comes about, and nothing else. */
static void test_shift_moves_within_its_bounds(void **state)
{
    (void)state;
    enum { SIDE = 28, PLANES = 2 };
    const struct ct_image_shape shape = {PLANES, SIDE, SIDE, 1};
    static uint8_t in[PLANES * SIDE * SIDE], out[PLANES * SIDE * SIDE];
    in[14 * SIDE + 14] = 200; /* one dot in each plane */
    in[SIDE * SIDE + 14 * SIDE + 14] = 100;
    bool seen[5][5] = {{false}};
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t random = i * UINT64_C(0x9e3779b97f4a7c15);
        ct_augment_image(&shift, &shape, random, in, out);
        size_t dots = 0, at = 0;
        for (size_t p = 0; p < SIDE * SIDE; p++) {
            if (out[p] != 0) {
                assert_int_equal(out[p], 200);
                assert_int_equal(out[SIDE * SIDE + p], 100);
                at = p;
                dots++;
            }
        }
        assert_int_equal(dots, 1);
        size_t y = at / SIDE, x = at % SIDE;
        assert_in_range(y, 12, 16);
        assert_in_range(x, 12, 16);
        seen[y - 12][x - 12] = true;
    }
    for (size_t i = 0; i < 25; i++) {
        assert_true(seen[i / 5][i % 5]);
    }
}

static void test_what_moves_in_is_black(void **state)
{
    (void)state;
    enum { SIDE = 14 };
    const struct ct_image_shape shape = {1, SIDE, SIDE, 1};
    uint8_t in[SIDE * SIDE], out[SIDE * SIDE];
    memset(in, 9, sizeof in);
    for (uint64_t i = 0; i < 100; i++) {
        ct_augment_image(&shift, &shape, i * UINT64_C(0x9e3779b97f4a7c15), in, out);
        size_t zeros = 0;
        for (size_t p = 0; p < sizeof out; p++) {
            assert_true(out[p] == 9 || out[p] == 0);
            zeros += out[p] == 0;
        }
        assert_true(zeros == 0 || zeros == SIDE || zeros == 2 * SIDE - 1);
    }
}

static void test_flat_images_are_refused(void **state)
{
    (void)state;
    struct ct_augment augment;
    struct ct_err err = {0};
    const struct ct_dataset set = {.features = 9, .shape = {1, 1, 1, 9}};
    assert_int_equal(ct_augment_init(&augment, &flip, &set, NULL, 1, 1, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "no height and width"));
    ct_augment_fini(NULL);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { SAMPLES = 20, SIDE = 14, FEATURES = SIDE * SIDE, ROWS = 8 };

struct samples {
    uint8_t images[SAMPLES * FEATURES], labels[SAMPLES];
    struct ct_dataset set;
};

static void fill(struct samples *s)
{
    *s = (struct samples){
        .set = {.train = {.count = SAMPLES}, .features = FEATURES, .shape = {1, SIDE, SIDE, 1}}};
    for (size_t i = 0; i < sizeof s->images; i++) {
        s->images[i] = (uint8_t)ct_rng_u64(1, 2, i);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        s->labels[i] = (uint8_t)(i * 3);
    }
    s->set.train.images = s->images;
    s->set.train.labels = s->labels;
}

/* What the batch must be: each sample's image, by the random bits of seed, epoch and sample. */
static void by_hand(const struct samples *s, uint64_t seed, unsigned epoch, const uint32_t *index,
                    uint8_t *rows)
{
    for (size_t b = 0; b < ROWS; b++) {
        uint64_t random = ct_rng_u64(seed, (uint64_t)CT_RNG_AUGMENT + epoch, index[b]);
        ct_augment_image(&shift, &s->set.shape, random, s->images + index[b] * FEATURES,
                         rows + b * FEATURES);
    }
}

static void test_a_batch_is_its_samples_augmented(void **state)
{
    (void)state;
    static struct samples s;
    static uint8_t rows[ROWS * FEATURES];
    static float want[ROWS * FEATURES], got[ROWS * FEATURES];
    static const uint32_t index[ROWS] = {3, 19, 0, 7, 7, 1, 12, 5};
    static const uint32_t in_line[ROWS] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint8_t labels[ROWS];
    struct ct_device *dev;
    struct ct_augment augment;
    fill(&s);
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    ct_fault_begin(-1);
    assert_int_equal(ct_augment_init(&augment, &shift, &s.set, dev, ROWS, 42, NULL), 0);
    for (unsigned epoch = 0; epoch < 3; epoch++) {
        augment.epoch = epoch;
        by_hand(&s, 42, epoch, index, rows);
        const struct ct_gather plain = {rows, s.labels, in_line, ROWS, FEATURES, 0.3f,
                                        0.4f, want,     labels,  NULL, {0}};
        assert_int_equal(dev->ops->gather(dev, &plain, NULL), 0);
        const struct ct_gather op = {s.images, s.labels, index,  ROWS, FEATURES, 0.3f,
                                     0.4f,     got,      labels, NULL, {0}};
        assert_int_equal(ct_augment_gather(&augment, &op, NULL), 0);
        assert_memory_equal(got, want, sizeof want);
        for (size_t b = 0; b < ROWS; b++) {
            assert_int_equal(labels[b], s.labels[index[b]]);
        }
    }
    ct_augment_fini(&augment);
    ct_augment_fini(&augment);
    assert_int_equal(ct_fault_end(), 0);
    dev->ops->close(dev);
}

/* A device with memory of its own, which takes notes. */
static struct {
    uint8_t memory[ROWS * (FEATURES + 1)];
    size_t allocated, uploaded;
    int released;
    struct ct_gather op;
} gpu;

static int gpu_alloc(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err)
{
    (void)dev;
    (void)err;
    gpu.allocated += bytes;
    *out = gpu.memory;
    return 0;
}

static void gpu_release(struct ct_device *dev, void *memory)
{
    (void)dev;
    assert_ptr_equal(memory, gpu.memory);
    gpu.released++;
}

static int gpu_upload(struct ct_device *dev, void *to, const void *from, size_t bytes,
                      struct ct_err *err)
{
    (void)dev;
    (void)err;
    assert_ptr_equal(to, gpu.memory);
    assert_true(bytes <= sizeof gpu.memory);
    memcpy(to, from, bytes);
    gpu.uploaded += bytes;
    return 0;
}

static int gpu_gather(struct ct_device *dev, const struct ct_gather *op, struct ct_err *err)
{
    (void)dev;
    (void)err;
    gpu.op = *op;
    return 0;
}

static void test_a_gpu_gets_the_whole_batch_in_one_copy(void **state)
{
    (void)state;
    static struct samples s;
    static uint8_t rows[ROWS * FEATURES];
    static const uint32_t index[ROWS] = {3, 19, 0, 7, 7, 1, 12, 5};
    static const struct ct_device_ops ops = {
        .alloc = gpu_alloc, .release = gpu_release, .upload = gpu_upload, .gather = gpu_gather};
    struct ct_device dev = {.ops = &ops, .kind = CT_DEVICE_CUDA};
    struct ct_augment augment;
    fill(&s);
    assert_int_equal(ct_augment_init(&augment, &shift, &s.set, &dev, ROWS, 42, NULL), 0);
    assert_int_equal(gpu.allocated, sizeof gpu.memory);
    const struct ct_gather op = {.index = index, .batch = ROWS, .features = FEATURES};
    assert_int_equal(ct_augment_gather(&augment, &op, NULL), 0);
    assert_int_equal(gpu.uploaded, sizeof gpu.memory);
    by_hand(&s, 42, 0, index, rows);
    assert_memory_equal(gpu.op.images, rows, sizeof rows);
    assert_ptr_equal(gpu.op.images, gpu.memory);
    assert_ptr_equal(gpu.op.labels, gpu.memory + sizeof rows);
    for (size_t b = 0; b < ROWS; b++) {
        assert_int_equal(gpu.op.labels[b], s.labels[index[b]]);
        assert_int_equal(gpu.op.index[b], b);
    }
    ct_augment_fini(&augment);
    assert_int_equal(gpu.released, 1);
}

static int init_body(void *data)
{
    struct ct_device dev = {.kind = CT_DEVICE_CPU};
    struct ct_augment augment;
    int rc = ct_augment_init(&augment, &flip, data, &dev, ROWS, 1, NULL);
    if (rc == 0) {
        ct_augment_fini(&augment);
    }
    return rc;
}

static void test_init_survives_lack_of_memory(void **state)
{
    (void)state;
    static struct samples s;
    fill(&s);
    assert_int_equal(ct_fault_sweep(init_body, &s.set, 0), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flip_mirrors_pixels_not_their_bytes),
        cmocka_unit_test(test_shift_moves_within_its_bounds),
        cmocka_unit_test(test_what_moves_in_is_black),
        cmocka_unit_test(test_flat_images_are_refused),
        cmocka_unit_test(test_a_batch_is_its_samples_augmented),
        cmocka_unit_test(test_a_gpu_gets_the_whole_batch_in_one_copy),
        cmocka_unit_test(test_init_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("augment", tests, NULL, NULL);
}
