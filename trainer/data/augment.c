/* SPDX-License-Identifier: Apache-2.0
 *
 * Augments images on the host. For a GPU a whole batch is prepared in host memory and copied to the
 * device, so a step waits for it. The only failures are lack of memory and a data set without image
 * shape; ct_augment_fini() frees the memory.
 */
#include "trainer/data/augment.h"

#include "common/alloc.h"
#include "trainer/formats/rng.h"

#include <string.h>

/* The largest shift, as a part of the side: 2 of 28 pixels, as is usual for small images. */
#define SHIFT_DIVISOR 14

/* Returns a number within [-limit, limit], made of 16 random bits. */
static long offset_of(uint64_t bits, size_t side)
{
    size_t limit = side / SHIFT_DIVISOR;
    return (long)ct_rng_below(bits << 48, 2 * limit + 1) - (long)limit;
}

static void take_row(const struct ct_image_shape *shape, bool flip, long dx, const uint8_t *in,
                     uint8_t *out)
{
    long width = (long)shape->width;
    size_t depth = shape->depth;
    for (long x = 0; x < width; x++) {
        long from = x - dx;
        bool inside = from >= 0 && from < width;
        from = flip ? width - 1 - from : from;
        for (size_t d = 0; d < depth; d++) {
            out[(size_t)x * depth + d] = inside ? in[(size_t)from * depth + d] : 0;
        }
    }
}

void ct_augment_image(const struct ct_augment_choice *choice, const struct ct_image_shape *shape,
                      uint64_t random, const uint8_t *in, uint8_t *out)
{
    bool flip = choice->flip && (random & 1) != 0;
    long dx = choice->shift ? offset_of(random >> 16, shape->width) : 0;
    long dy = choice->shift ? offset_of(random >> 32, shape->height) : 0;
    size_t row = shape->width * shape->depth;
    for (size_t plane = 0; plane < shape->planes; plane++) {
        const uint8_t *from = in + plane * shape->height * row;
        uint8_t *to = out + plane * shape->height * row;
        for (long y = 0; y < (long)shape->height; y++) {
            long source = y - dy;
            if (source < 0 || source >= (long)shape->height) {
                memset(to + (size_t)y * row, 0, row);
            } else {
                take_row(shape, flip, dx, from + (size_t)source * row, to + (size_t)y * row);
            }
        }
    }
}

int ct_augment_init(struct ct_augment *augment, const struct ct_augment_choice *choice,
                    const struct ct_dataset *set, struct ct_device *dev, size_t max_rows,
                    uint64_t seed, struct ct_err *err)
{
    if (set->shape.height < 2 || set->shape.width < 2) {
        return ct_err_set(err, CT_EINVAL,
                          "--augment: the images of this data set have no height and width");
    }
    struct ct_augment made = {
        .choice = *choice,
        .shape = set->shape,
        .seed = seed,
        .images = set->train.images,
        .labels = set->train.labels,
        .dev = dev,
        .max_rows = max_rows,
    };
    made.rows = ct_calloc(max_rows, set->features + 1);
    made.sequence = ct_calloc(max_rows, sizeof *made.sequence);
    int rc = made.rows != NULL && made.sequence != NULL
                 ? 0
                 : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc == 0 && dev->kind != CT_DEVICE_CPU) {
        rc = dev->ops->alloc(dev, max_rows * (set->features + 1), &made.device_rows, err);
    }
    if (rc != 0) {
        ct_augment_fini(&made);
        return rc;
    }
    for (size_t i = 0; i < max_rows; i++) {
        made.sequence[i] = (uint32_t)i;
    }
    *augment = made;
    return 0;
}

void ct_augment_fini(struct ct_augment *augment)
{
    if (augment != NULL && augment->dev != NULL) {
        if (augment->device_rows != NULL) {
            augment->dev->ops->release(augment->dev, augment->device_rows);
        }
        ct_free(augment->rows);
        ct_free(augment->sequence);
        *augment = (struct ct_augment){0};
    }
}

int ct_augment_gather(const struct ct_augment *augment, const struct ct_gather *op,
                      struct ct_err *err)
{
    const struct ct_image_shape *s = &augment->shape;
    size_t features = s->planes * s->height * s->width * s->depth;
    uint8_t *labels = augment->rows + augment->max_rows * features;
    CT_ASSERT(op->batch <= augment->max_rows);
    for (size_t b = 0; b < op->batch; b++) {
        size_t sample = op->index[b];
        uint64_t random =
            ct_rng_u64(augment->seed, (uint64_t)CT_RNG_AUGMENT + augment->epoch, sample);
        /* Later stages of a pipeline ask for labels only. */
        if (op->features > 0) {
            ct_augment_image(&augment->choice, s, random, augment->images + sample * features,
                             augment->rows + b * features);
        }
        labels[b] = augment->labels[sample];
    }
    struct ct_gather rows = *op;
    uint8_t *base = augment->rows;
    if (augment->device_rows != NULL) {
        base = augment->device_rows;
        int rc = augment->dev->ops->upload(augment->dev, base, augment->rows,
                                           augment->max_rows * (features + 1), err);
        if (rc != 0) {
            return rc;
        }
    }
    rows.images = base;
    rows.labels = base + augment->max_rows * features;
    rows.index = augment->sequence;
    return augment->dev->ops->gather(augment->dev, &rows, err);
}
