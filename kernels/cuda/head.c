/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer with its loss can be computed in three ways: whole, by one kernel of our own;
 * fused, by such a kernel and a product for the gradient of the weights; or apart, by the same
 * calls as any other layer. Which one is the fastest depends on the sizes and the GPU. So all are
 * timed once for each shape, as recorded work, because this is how they are used.
 */
#include "kernels/cuda/cuda.h"

#include "common/alloc.h"
#include "common/buf.h"

/* How many shapes are remembered. Most of them differ only in the batch size. */
#define MAX_SHAPES 16

/* A timed recording has TIMED_RUNS runs, or fewer if they have more than TIMED_ROWS rows together.
 * It takes about 100 us, of which the start of the recording is a small part. */
#define TIMED_RUNS 10
#define TIMED_ROWS 8192

/* The fused kernel has one lane for each class. Each row reads all weights, so they must stay in
 * the L1 cache of an SM (192 KiB on sm_80), together with the rows. */
#define MAX_CLASSES 32
#define MAX_WEIGHT_BYTES ((size_t)128 << 10)

/* Multiplications of the gradient of the weights, which the whole kernel does with one SM: this
 * many take some 10 us, and a launch less saves 3 us at most. */
#define MAX_WHOLE ((size_t)1 << 20)

struct shape {
    size_t batch, in, classes;
    enum ct_precision precision;
    bool dx;
    enum ct_head_way way;
    float us[CT_HEAD_APART + 1]; /* of each way; 0 = not timed */
};

struct ct_cuda_head {
    struct shape shapes[MAX_SHAPES];
    size_t count, next; /* how many are in use; which one the next new shape replaces */
};

int ct_cuda_head_new(struct ct_cuda_head **out, struct ct_err *err)
{
    *out = ct_calloc(1, sizeof(**out));
    return *out != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "no memory for the last layers' shapes");
}

void ct_cuda_head_free(struct ct_cuda_head *head)
{
    ct_free(head);
}

/* ---- two ways -------------------------------------------------------------------------------- */

static int run_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct ct_head *op = data;
    int rc = ct_cuda_linear(cuda, &op->linear, err);
    if (rc == 0) {
        CT_CUDA_TRY(err, ct_launch_loss(ct_cuda_on(cuda, cuda->stream), cuda->base.precision,
                                        &op->loss, cuda->sums));
        rc = ct_cuda_linear_grad(cuda, &op->grad, err);
    }
    return rc;
}

static int run_fused(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct ct_head *op = data;
    CT_CUDA_TRY(err, ct_launch_head(ct_cuda_on(cuda, cuda->stream), cuda->base.precision, op, false,
                                    cuda->sums));
    struct ct_linear_grad weights = op->grad;
    weights.dx = NULL;
    return ct_cuda_linear_grad(cuda, &weights, err);
}

static int run_whole(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    CT_CUDA_TRY(err, ct_launch_head(ct_cuda_on(cuda, cuda->stream), cuda->base.precision, data,
                                    true, cuda->sums));
    return 0;
}

static const ct_cuda_way_fn runs[] = {
    [CT_HEAD_WHOLE] = run_whole,
    [CT_HEAD_FUSED] = run_fused,
    [CT_HEAD_APART] = run_apart,
};

static bool can_fuse(const struct ct_cuda *cuda, const struct ct_head *op)
{
    size_t number = ct_precision_bytes(cuda->base.precision);
    const struct ct_linear *l = &op->linear;
    return l->out <= MAX_CLASSES && l->in <= MAX_WEIGHT_BYTES / number / l->out &&
           (op->grad.mask == NULL || op->grad.mask == l->x);
}

static bool can_be_whole(const struct ct_cuda *cuda, const struct ct_head *op)
{
    const struct ct_linear *l = &op->linear;
    return can_fuse(cuda, op) && l->batch <= MAX_WHOLE / (l->in * l->out);
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The runs write the same results as the operation that follows. Only the totals would change, so
 * these runs add to totals that nobody reads. */
static int time_way(struct ct_cuda *cuda, ct_cuda_way_fn way, const struct ct_head *op, float *us)
{
    struct ct_head timed = *op;
    size_t most = TIMED_ROWS / op->linear.batch + 1;
    timed.loss.totals = cuda->sums->unasked;
    return ct_cuda_time_recorded(cuda, way, &timed, most < TIMED_RUNS ? most : TIMED_RUNS, us,
                                 NULL);
}

/* What cannot be timed cannot be used either. If none can, the layer is computed apart, and reports
 * the error. */
static enum ct_head_way choose(struct ct_cuda *cuda, const struct ct_head *op)
{
    static const enum ct_head_way ways[] = {CT_HEAD_FUSED, CT_HEAD_APART, CT_HEAD_WHOLE};
    struct ct_cuda_head *head = cuda->head;
    struct shape made = {
        .batch = op->linear.batch,
        .in = op->linear.in,
        .classes = op->linear.out,
        .precision = cuda->base.precision,
        .dx = op->grad.dx != NULL,
        .way = CT_HEAD_APART,
    };
    float best = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        enum ct_head_way way = ways[i];
        bool can = way != CT_HEAD_WHOLE || can_be_whole(cuda, op);
        if (can && time_way(cuda, runs[way], op, &made.us[way]) == 0 &&
            (best == 0 || made.us[way] < best)) {
            best = made.us[way];
            made.way = way;
        }
    }
    head->shapes[head->next] = made;
    head->next = (head->next + 1) % MAX_SHAPES;
    head->count += head->count < MAX_SHAPES;
    return made.way;
}

static enum ct_head_way fastest(struct ct_cuda *cuda, const struct ct_head *op)
{
    const struct ct_linear *l = &op->linear;
    for (size_t i = 0; i < cuda->head->count; i++) {
        const struct shape *s = &cuda->head->shapes[i];
        if (s->batch == l->batch && s->in == l->in && s->classes == l->out &&
            s->precision == cuda->base.precision && s->dx == (op->grad.dx != NULL)) {
            return s->way;
        }
    }
    return cuda->recording ? CT_HEAD_APART : choose(cuda, op);
}

int ct_cuda_head(struct ct_cuda *cuda, const struct ct_head *op, struct ct_err *err)
{
    enum ct_head_way way = cuda->base.head_way;
    if (!can_fuse(cuda, op)) {
        way = CT_HEAD_APART;
    } else if (way == CT_HEAD_FASTEST) {
        way = fastest(cuda, op);
    } else if (way == CT_HEAD_WHOLE && !can_be_whole(cuda, op)) {
        way = CT_HEAD_FUSED;
    }
    return runs[way](cuda, op, err);
}

int ct_cuda_head_explain(const struct ct_cuda_head *head, struct ct_buf *to)
{
    static const char *const names[] = {
        [CT_HEAD_WHOLE] = "whole", [CT_HEAD_FUSED] = "fused", [CT_HEAD_APART] = "apart"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < head->count; i++) {
        const struct shape *s = &head->shapes[i];
        rc = ct_buf_printf(
            to,
            "{\"plan\": \"head\", \"precision\": \"%s\", \"batch\": %zu, \"in\": %zu, "
            "\"out\": %zu, \"dx\": %s, \"way\": \"%s\", \"whole_us\": %.3f, "
            "\"fused_us\": %.3f, \"apart_us\": %.3f}\n",
            ct_precision_name(s->precision), s->batch, s->in, s->classes, s->dx ? "true" : "false",
            names[s->way], (double)s->us[CT_HEAD_WHOLE], (double)s->us[CT_HEAD_FUSED],
            (double)s->us[CT_HEAD_APART]);
    }
    return rc;
}
