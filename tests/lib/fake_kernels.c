/* SPDX-License-Identifier: Apache-2.0
 *
 * The plug-in's own kernels as loops on the host: kernels/cuda/launch.h without nvcc.
 */
#include "kernels/cuda/launch.h"

#include "tests/lib/fake_gpu_engine.h"
#include "tests/lib/fake_number.h"

static float get(const void *p, bool narrow, size_t i)
{
    return narrow ? from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void put(void *p, bool narrow, size_t i, float v)
{
    if (narrow) {
        ((uint16_t *)p)[i] = to_bf16(v);
    } else {
        ((float *)p)[i] = v;
    }
}

/* As a launch: the arguments are copied now, the loop runs later. */
#define LAUNCH(run, ...)                               \
    do {                                               \
        FAKE_ALONE;                                    \
        if (fake_fails()) {                            \
            return cudaErrorLaunchFailure;             \
        }                                              \
        const struct run##_args args_ = __VA_ARGS__;   \
        fake_queue(stream, run, &args_, sizeof args_); \
        return cudaSuccess;                            \
    } while (0)

/* What is behind op's pointer to the course is the host's: it may be gone when the kernel runs. */
static struct ct_course course_of(const struct ct_course *course)
{
    return course != NULL ? *course : (struct ct_course){0};
}

cudaError_t ct_launch_check(void)
{
    return fake.capability != 0 && fake.capability < 75 ? cudaErrorNoKernelImageForDevice
           : fake_fails()                               ? cudaErrorUnknown
                                                        : cudaSuccess;
}

struct gather_args {
    struct ct_gather op;
    struct ct_course course;
    const uint32_t *index;
    bool narrow;
};

static void gather(const void *data)
{
    const struct gather_args *a = data;
    const struct ct_course *c = &a->course;
    const uint32_t *index =
        a->index != NULL ? a->index : c->order + (*c->now + c->ahead) * c->batch + c->begin;
    for (size_t b = 0; b < a->op.batch; b++) {
        for (size_t i = 0; i < a->op.features; i++) {
            float pixel = (float)a->op.images[index[b] * a->op.features + i] / 255.0f;
            put(a->op.x, a->narrow, b * a->op.features + i, (pixel - a->op.mean) / a->op.stddev);
        }
        a->op.y[b] = a->op.labels[index[b]];
    }
}

cudaError_t ct_launch_gather(cudaStream_t stream, enum ct_precision p, const struct ct_gather *op,
                             const uint32_t *index)
{
    LAUNCH(gather, {*op, course_of(op->course), index, ct_precision_narrow(p)});
}

struct column_sum_args {
    size_t rows, cols;
    const void *m;
    float *sum;
    bool narrow;
};

static void column_sum(const void *data)
{
    const struct column_sum_args *a = data;
    for (size_t c = 0; c < a->cols; c++) {
        double sum = 0;
        for (size_t r = 0; r < a->rows; r++) {
            sum += (double)get(a->m, a->narrow, r * a->cols + c);
        }
        a->sum[c] = (float)sum;
    }
}

cudaError_t ct_launch_column_sum(cudaStream_t stream, enum ct_precision p, size_t rows, size_t cols,
                                 const void *m, float *sum)
{
    LAUNCH(column_sum, {rows, cols, m, sum, ct_precision_narrow(p)});
}

struct add_bias_args {
    struct ct_linear op;
    bool narrow;
};

static void add_bias(const void *data)
{
    const struct add_bias_args *a = data;
    for (size_t i = 0; i < a->op.batch * a->op.out; i++) {
        float v = get(a->op.y, a->narrow, i) + a->op.b[i % a->op.out];
        put(a->op.y, a->narrow, i, a->op.relu && v < 0 ? 0 : v);
    }
}

cudaError_t ct_launch_add_bias(cudaStream_t stream, enum ct_precision p, const struct ct_linear *op)
{
    LAUNCH(add_bias, {*op, ct_precision_narrow(p) && !op->wide});
}

struct mask_args {
    size_t count;
    void *x;
    const void *mask;
    bool narrow;
};

static void mask(const void *data)
{
    const struct mask_args *a = data;
    for (size_t i = 0; i < a->count; i++) {
        if (!(get(a->mask, a->narrow, i) > 0)) {
            put(a->x, a->narrow, i, 0);
        }
    }
}

cudaError_t ct_launch_mask(cudaStream_t stream, enum ct_precision p, size_t count, void *x,
                           const void *by)
{
    LAUNCH(mask, {count, x, by, ct_precision_narrow(p)});
}

struct loss_args {
    struct ct_loss op;
    bool narrow;
};

static void loss(const void *data)
{
    const struct loss_args *a = data;
    const struct ct_loss *op = &a->op;
    for (size_t b = 0; b < op->batch; b++) {
        const float *row = op->logits + b * op->classes;
        size_t label = op->labels[b];
        float max = -INFINITY;
        double sum = 0;
        bool right = true;
        for (size_t c = 0; c < op->classes; c++) {
            max = fmaxf(max, row[c]);
            right = right && (c < label ? row[c] < row[label] : row[c] <= row[label]);
        }
        for (size_t c = 0; c < op->classes; c++) {
            sum += exp((double)row[c] - (double)max);
        }
        for (size_t c = 0; op->dlogits != NULL && c < op->classes; c++) {
            double p = exp((double)row[c] - (double)max) / sum - (c == label ? 1 : 0);
            put(op->dlogits, a->narrow, b * op->classes + c, (float)(p * (double)op->scale));
        }
        op->totals[0] += log(sum) - ((double)row[label] - (double)max);
        op->totals[1] += right ? 1 : 0;
    }
}

cudaError_t ct_launch_loss(cudaStream_t stream, enum ct_precision p, const struct ct_loss *op)
{
    LAUNCH(loss, {*op, ct_precision_narrow(p)});
}

static struct ct_pace pace_of(const struct ct_course *course, struct ct_pace pace)
{
    return course->now != NULL ? course->paces[*course->now + course->ahead] : pace;
}

struct sgd_args {
    struct ct_sgd op;
    struct ct_course course;
    struct ct_pace pace;
};

static void sgd(const void *data)
{
    const struct sgd_args *a = data;
    const struct ct_sgd *op = &a->op;
    float lr = pace_of(&a->course, a->pace).lr;
    for (size_t i = 0; i < op->count; i++) {
        float v = op->grad[i] + op->weight_decay * op->param[i];
        if (op->momentum_buf != NULL) {
            v += op->momentum * op->momentum_buf[i];
            op->momentum_buf[i] = v;
        }
        op->param[i] -= lr * v;
        if (op->narrow != NULL) {
            op->narrow[i] = to_bf16(op->param[i]);
        }
    }
}

cudaError_t ct_launch_sgd(cudaStream_t stream, const struct ct_sgd *op, struct ct_pace pace)
{
    LAUNCH(sgd, {*op, course_of(op->course), pace});
}

struct adamw_args {
    struct ct_adamw op;
    struct ct_course course;
    struct ct_pace pace;
};

static void adamw(const void *data)
{
    const struct adamw_args *a = data;
    const struct ct_adamw *op = &a->op;
    struct ct_pace pace = pace_of(&a->course, a->pace);
    float rest1 = (float)(1.0 - (double)op->beta1), rest2 = (float)(1.0 - (double)op->beta2);
    for (size_t i = 0; i < op->count; i++) {
        float g = op->grad[i];
        op->m[i] = op->beta1 * op->m[i] + rest1 * g;
        op->v[i] = op->beta2 * op->v[i] + rest2 * (g * g);
        float change = pace.step_size * (op->m[i] / (sqrtf(op->v[i]) * pace.denom_scale + op->eps));
        op->param[i] = pace.keep * op->param[i] - change;
        if (op->narrow != NULL) {
            op->narrow[i] = to_bf16(op->param[i]);
        }
    }
}

cudaError_t ct_launch_adamw(cudaStream_t stream, const struct ct_adamw *op, struct ct_pace pace)
{
    LAUNCH(adamw, {*op, course_of(op->course), pace});
}

struct narrow_args {
    size_t count;
    const float *from;
    uint16_t *to;
};

static void narrow(const void *data)
{
    const struct narrow_args *a = data;
    for (size_t i = 0; i < a->count; i++) {
        a->to[i] = to_bf16(a->from[i]);
    }
}

cudaError_t ct_launch_narrow(cudaStream_t stream, size_t count, const float *from, uint16_t *to)
{
    LAUNCH(narrow, {count, from, to});
}

struct advance_args {
    uint64_t *now, steps;
};

static void advance(const void *data)
{
    const struct advance_args *a = data;
    *a->now += a->steps;
}

cudaError_t ct_launch_advance(cudaStream_t stream, uint64_t *now, uint64_t steps)
{
    LAUNCH(advance, {now, steps});
}

struct fp8_args {
    size_t count;
    const uint16_t *from;
    uint8_t *to;
    float *scale;
};

static void fp8(const void *data)
{
    const struct fp8_args *a = data;
    float most = 0;
    for (size_t i = 0; i < a->count; i++) {
        most = fmaxf(most, fabsf(from_bf16(a->from[i])));
    }
    *a->scale = most == 0 ? 1 : most / 448.0f;
    for (size_t i = 0; i < a->count; i++) {
        a->to[i] = to_e4m3(from_bf16(a->from[i]) / *a->scale);
    }
}

cudaError_t ct_launch_fp8(cudaStream_t stream, size_t count, const uint16_t *from, uint8_t *to,
                          float *scale)
{
    LAUNCH(fp8, {count, from, to, scale});
}
