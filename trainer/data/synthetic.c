/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the synthetic set. The pattern of a class interpolates between random values at the knots
 * of a coarse grid, and each sample adds noise. Each random number depends only on its place, so no
 * order of computation matters.
 */
#include "trainer/data/synthetic.h"

#include "trainer/formats/rng.h"

#define SIDE CT_SYNTHETIC_SIDE
#define FEATURES ((size_t)SIDE * SIDE)

/* The set does not depend on --seed, so that runs with different seeds solve the same task. */
#define SET_SEED 20240229

/* Patterns are bilinear between GRID x GRID random knots, so they are smooth like images. */
#define GRID 5
#define PATTERN_WEIGHT 0.25f
#define NOISE_WEIGHT (1.0f - PATTERN_WEIGHT)

enum stream { PATTERN = CT_RNG_SYNTHETIC, NOISE, LABEL };

static float knot(size_t class, size_t y, size_t x)
{
    return ct_rng_unit(SET_SEED, PATTERN, (class * GRID + y) * GRID + x);
}

static float pattern_at(size_t class, size_t y, size_t x)
{
    float fy = (float)y * (GRID - 1) / SIDE, fx = (float)x * (GRID - 1) / SIDE;
    size_t iy = (size_t)fy, ix = (size_t)fx;
    float wy = fy - (float)iy, wx = fx - (float)ix;
    float top = knot(class, iy, ix) * (1 - wx) + knot(class, iy, ix + 1) * wx;
    float low = knot(class, iy + 1, ix) * (1 - wx) + knot(class, iy + 1, ix + 1) * wx;
    return top * (1 - wy) + low * wy;
}

static int make_split(struct ct_split *split, size_t count, size_t first,
                      const float patterns[][FEATURES], struct ct_err *err)
{
    if (ct_buf_reserve(&split->image_bytes, count * FEATURES) != 0 ||
        ct_buf_reserve(&split->label_bytes, count) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the synthetic data set");
    }
    uint8_t *images = ct_buf_tail(&split->image_bytes);
    uint8_t *labels = ct_buf_tail(&split->label_bytes);
    for (size_t s = 0; s < count; s++) {
        size_t label =
            (size_t)ct_rng_below(ct_rng_u64(SET_SEED, LABEL, first + s), CT_SYNTHETIC_CLASSES);
        labels[s] = (uint8_t)label;
        for (size_t i = 0; i < FEATURES; i++) {
            float noise = ct_rng_unit(SET_SEED, NOISE, (first + s) * FEATURES + i);
            float value = PATTERN_WEIGHT * patterns[label][i] + NOISE_WEIGHT * noise;
            images[s * FEATURES + i] = (uint8_t)(value * 255.0f);
        }
    }
    split->image_bytes.len = count * FEATURES;
    split->label_bytes.len = count;
    split->images = images;
    split->labels = labels;
    split->count = count;
    return 0;
}

int ct_synthetic_make(struct ct_dataset *out, struct ct_err *err)
{
    float patterns[CT_SYNTHETIC_CLASSES][FEATURES];
    for (size_t class = 0; class < CT_SYNTHETIC_CLASSES; class ++) {
        for (size_t i = 0; i < FEATURES; i++) {
            patterns[class][i] = pattern_at(class, i / SIDE, i % SIDE);
        }
    }
    int rc = make_split(&out->train, CT_SYNTHETIC_TRAIN, 0, patterns, err);
    if (rc == 0) {
        rc = make_split(&out->test, CT_SYNTHETIC_TEST, CT_SYNTHETIC_TRAIN, patterns, err);
    }
    if (rc == 0) {
        out->shape = (struct ct_image_shape){1, SIDE, SIDE, 1};
    }
    return rc;
}
