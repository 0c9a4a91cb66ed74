/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of operations for every kind of device. The CPU table is linked in; the CUDA one is a
 * plug-in that ct_device_open() loads when it is asked for, so a program without a GPU never maps a
 * CUDA library.
 *
 * Matrices are row major, float32 but for what a precision other than CT_PRECISION_F32 changes (see
 * there: `void *`). Pointers are device pointers (plain memory on the CPU). Calls
 * are queued on the device's stream in order and may return before they are done; what is returned
 * to the host (`download`, `sync`) waits. On the CPU every call is done when it returns, on the
 * calling thread.
 */
#ifndef CT_KERNELS_DEVICE_DEVICE_H
#define CT_KERNELS_DEVICE_DEVICE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_device;

enum ct_device_kind { CT_DEVICE_CPU, CT_DEVICE_CUDA };

/* What a device keeps activations and their gradients in, and multiplies: those are the `void *` of
 * the operations below, and the weights there are a copy that ct_sgd and ct_adamw keep (`narrow`).
 * Sums, biases, logits, gradients of parameters and the parameters themselves are always float32.
 * bfloat16 has float32's exponent, so gradients neither vanish nor overflow: no loss scaling. */
enum ct_precision {
    CT_PRECISION_F32,
    CT_PRECISION_BF16,
    CT_PRECISION_TF32, /* float32 arrays; products round their factors to 10 bits of fraction */
    /* bfloat16 arrays; products are of e4m3 numbers, and of e5m2 ones for gradients of results,
     * each where that is faster than bfloat16. */
    CT_PRECISION_FP8,
};

/* "f32", "bf16", "tf32", "fp8". */
const char *ct_precision_name(enum ct_precision precision);

/* Are the `void *` arrays bfloat16? */
static inline bool ct_precision_narrow(enum ct_precision precision)
{
    return precision == CT_PRECISION_BF16 || precision == CT_PRECISION_FP8;
}

/* Bytes of a number in the `void *` arrays. */
static inline size_t ct_precision_bytes(enum ct_precision precision)
{
    return ct_precision_narrow(precision) ? sizeof(uint16_t) : sizeof(float);
}

/* What an update needs to know of its step. */
struct ct_update_scalars {
    float lr;
    float keep, step_size, denom_scale; /* of AdamW; kernels/device/update_scalars.h makes them */
};

/* Where a step finds what changes from one to the next: in device memory, so that the host need not
 * know which step it is. Only where the device can record. */
struct ct_step_cursor {
    const uint64_t *now;   /* batches of the epoch that are done, as ct_device_ops.advance counts */
    size_t ahead;          /* this step is number *now + ahead */
    const uint32_t *order; /* the epoch's samples, in order */
    size_t batch, begin;   /* samples of a whole batch; this rank's first place in it */
    const struct ct_update_scalars *scalars; /* one for each batch of the epoch */
    /* NULL, or what the step's loss adds `steps` to: `now` itself, after whose change the rest of
     * the step counts `ahead` from there. */
    uint64_t *counter;
    uint64_t steps;
};

/* How a batch is computed when the bits must not depend on how many of its rows are here: in parts
 * of `rows` rows (the last one may have less), each as if it were alone, and what is summed over
 * the batch as a balanced binary tree over `parts`, a power of two; parts beyond the batch count as
 * zeros. rows == 0: as it is fastest. On the CPU only with one thread.
 *
 * GPUs compute all parts in full: every [batch, ...] array has room for parts * rows rows. gather
 * and loss leave zeros behind the batch, and the other operations work on them, too. They compute a
 * part in the same way whatever `parts` is, but perhaps in another one for another `of`. */
struct ct_partition {
    size_t rows, parts;
    size_t of; /* parts of the whole batch, wherever they are: a power of two, at most 1024 */
};

/* x[b, :] = (images[index[b], :] / 255 - mean) / stddev; y[b] = labels[index[b]]. `index` is host
 * memory and may be reused when the call returns; the rest is device memory. */
struct ct_gather {
    const uint8_t *images; /* [samples, features] */
    const uint8_t *labels; /* [samples] */
    const uint32_t *index; /* [batch], each < samples: checked by the caller; or by cursor */
    size_t batch, features;
    float mean, stddev;
    void *x;                             /* [batch, features] */
    uint8_t *y;                          /* [batch] */
    const struct ct_step_cursor *cursor; /* NULL, or what says which samples in place of index */
    struct ct_partition partition;
};

/* y = act(x * w^T + b), act = max(0, .) when relu. */
struct ct_linear {
    size_t batch, in, out;
    const void *x;  /* [batch, in] */
    const void *w;  /* [out, in], as torch.nn.Linear stores it */
    const float *b; /* [out] */
    void *y;        /* [batch, out] */
    bool relu;
    bool wide; /* y is float32 in any precision: the logits */
    struct ct_partition partition;
    /* Of the GPU; each may be NULL. */
    const uint16_t *b16; /* [out], b in bfloat16: what is added to a y of bfloat16 if it is there */
    /* [ct_relu_bits_bytes()]: which of y are above zero, for linear_grad. cuBLASLt writes them, and
     * counts a sum of exactly zero as above, which it is in bfloat16 once in thousands. A mask of y
     * does not. Both are a derivative of ReLU there. */
    void *bits;
};

/* A row of bits per sample, padded to the 128 bits that cuBLASLt wants. */
static inline size_t ct_relu_bits_bytes(size_t batch, size_t out)
{
    return batch * ((out + 127) / 128) * 16;
}

/* Given dy (gradient of the loss by this layer's output *before* the activation):
 * dw = dy^T * x, db = sum over batch of dy, and, unless dx is NULL,
 * dx = dy * w, zeroed where mask <= 0 (mask = x when x came out of a ReLU; NULL = no mask), which
 * is the next lower layer's dy. */
struct ct_linear_grad {
    size_t batch, in, out;
    const void *x, *w, *dy;
    const void *mask; /* [batch, in] or NULL */
    float *dw, *db;   /* overwritten */
    void *dx;         /* [batch, in] or NULL */
    struct ct_partition partition;
    const void *bits; /* what linear() wrote to the bits of the layer that made x, or NULL */
};

/* Softmax cross-entropy. dlogits = (softmax - onehot) * scale (skipped when NULL). Adds the summed
 * loss to totals[0] and the number of rows whose largest logit is the label (first one on a tie) to
 * totals[1]. totals is device memory of two doubles. CT_EINVAL unless 1 <= classes <= 256. */
struct ct_loss {
    size_t batch, classes;
    const float *logits;
    const uint8_t *labels; /* each < classes: checked when the data set is loaded */
    float scale;
    void *dlogits;
    double *totals;
    struct ct_partition partition;       /* the totals are of no such order */
    const struct ct_step_cursor *cursor; /* NULL, or what counts the step */
};

/* The last layer of a model with the loss of what it gives, forward and backward: what linear(),
 * loss() and linear_grad() do one after the other. Without a partition. */
struct ct_head {
    struct ct_linear linear;    /* wide, without a ReLU */
    struct ct_loss loss;        /* of linear.y, with dlogits */
    struct ct_linear_grad grad; /* by loss.dlogits */
};

/* How head() computes that: by one kernel that is made for few classes (whole), or by such a kernel
 * for all but the gradient of the weights (fused), or by the kernels of any layer (apart). The
 * fastest is found by timing all, once per shape. A way that cannot be is replaced by the next. */
enum ct_head_way { CT_HEAD_FASTEST, CT_HEAD_WHOLE, CT_HEAD_FUSED, CT_HEAD_APART };

/* torch.optim.SGD: g += weight_decay * p; v = momentum * v + g; p -= lr * v. momentum_buf may be
 * NULL when momentum is 0. */
struct ct_sgd {
    size_t count;
    float *param, *momentum_buf;
    const float *grad;
    float lr, momentum, weight_decay;
    uint16_t *narrow;                    /* NULL, or [count]: the new parameters in bfloat16 */
    const struct ct_step_cursor *cursor; /* NULL, or what says the lr */
    bool beside;                         /* of a GPU: queued where fork_updates() says */
};

/* torch.optim.AdamW; `step` counts from 1. */
struct ct_adamw {
    size_t count;
    float *param, *m, *v;
    const float *grad;
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step;
    uint16_t *narrow;                    /* as above */
    const struct ct_step_cursor *cursor; /* NULL, or what lr and step would give */
    bool beside;                         /* as above */
};

/* to[i] = the sum over k of from[k * step + i] for i < count, k < n, as a balanced binary tree:
 * (0 + 1) + (2 + 3) for n = 4, a power of two up to 1024. `to` may be one of these arrays. */
struct ct_tree_sum {
    size_t n, count, step;
    const float *from;
    float *to;
};

/* Work that was queued once and can be done again. */
struct ct_recording;
struct ct_buf;

struct ct_device_ops {
    void (*close)(struct ct_device *dev);
    int (*alloc)(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err); /* zeroed */
    void (*release)(struct ct_device *dev, void *ptr); /* NULL is allowed */
    int (*upload)(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                  struct ct_err *err);
    int (*download)(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                    struct ct_err *err);
    int (*clear)(struct ct_device *dev, void *dst, size_t bytes, struct ct_err *err);
    /* Within the device. */
    int (*copy)(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                struct ct_err *err);
    int (*sync)(struct ct_device *dev, struct ct_err *err);
    int (*gather)(struct ct_device *dev, const struct ct_gather *op, struct ct_err *err);
    int (*linear)(struct ct_device *dev, const struct ct_linear *op, struct ct_err *err);
    int (*linear_grad)(struct ct_device *dev, const struct ct_linear_grad *op, struct ct_err *err);
    int (*loss)(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err);
    /* May leave linear.y as it was. */
    int (*head)(struct ct_device *dev, const struct ct_head *op, struct ct_err *err);
    int (*sgd)(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err);
    int (*adamw)(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err);
    /* As ct_device_set_precision(), to another one. */
    int (*set_precision)(struct ct_device *dev, enum ct_precision precision, struct ct_err *err);
    /* to[i] = from[i], rounded to the nearest bfloat16, ties to even. */
    int (*narrow)(struct ct_device *dev, size_t count, const float *from, uint16_t *to,
                  struct ct_err *err);

    /* The rest is NULL where work cannot be recorded (the CPU).
     *
     * From record() to record_end(), what is queued on both streams is kept and not done. Nothing
     * may wait then, nor may memory be allocated or released, and gather needs a cursor. What is
     * recorded must have run once before: that chooses kernels and makes room. Every failure in
     * between must still be followed by record_end(), with `out` NULL to drop what was kept;
     * afterwards the device is as it was before record(). Work with a communicator in it is gone
     * with it: forget it before the communicator.
     *
     * Before the first recording, prepare_record() finds by timing how kernels follow each other
     * fastest. It waits for the device. */
    int (*prepare_record)(struct ct_device *dev, struct ct_err *err);
    int (*record)(struct ct_device *dev, struct ct_err *err);
    int (*record_end)(struct ct_device *dev, struct ct_recording **out, struct ct_err *err);
    int (*replay)(struct ct_device *dev, struct ct_recording *recording, struct ct_err *err);
    void (*forget)(struct ct_device *dev, struct ct_recording *recording); /* NULL is allowed */
    /* Memory of the host, from which upload_later() only queues the copy: it must stay as it is
     * until the device has come so far. */
    int (*alloc_host)(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err);
    void (*release_host)(struct ct_device *dev, void *ptr); /* NULL is allowed */
    int (*upload_later)(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                        struct ct_err *err);
    /* *now += steps. */
    int (*advance)(struct ct_device *dev, uint64_t *now, uint64_t steps, struct ct_err *err);
    /* What is queued on `side` after fork() waits for what is on `stream` so far; after join() the
     * other way round. */
    int (*fork)(struct ct_device *dev, struct ct_err *err);
    int (*join)(struct ct_device *dev, struct ct_err *err);
    /* Updates with `beside` are queued on a stream of their own, which gets what the others leave
     * of the device. What is queued there after fork_updates() waits for what is on `stream` so
     * far, or on `side`; what is queued on `stream` after join_updates() waits for the updates. */
    int (*fork_updates)(struct ct_device *dev, bool of_side, struct ct_err *err);
    int (*join_updates)(struct ct_device *dev, struct ct_err *err);
    /* Queued on `side`: what a communicator adds with. */
    int (*tree_sum)(struct ct_device *dev, const struct ct_tree_sum *op, struct ct_err *err);
    /* Appends a line of JSON for each choice that was made so far: the kernel of each product, the
     * way to compute each layer (fused or apart, in fp8 or in bf16 and why) and each last layer,
     * the nodes of the last recording. For those who look into the speed; tools/gpu-check brings it
     * home. */
    int (*explain)(struct ct_device *dev, struct ct_buf *to, struct ct_err *err);
};

/* Batches whose indices a device has room for: the host may queue as many before it has to wait for
 * the first one to be done. Two would do; more let the host run further ahead. */
#define CT_DEVICE_BATCHES_AHEAD 4

/* Each device type embeds this first. */
struct ct_device {
    const struct ct_device_ops *ops;
    enum ct_device_kind kind;
    enum ct_precision precision; /* F32 until ct_device_set_precision() */
    enum ct_head_way head_way;   /* may be set at any time but while recording */
    bool fp8_always;             /* fp8 wherever it can be, not where it is faster: for tests */
    int index;                   /* CUDA device index, 0 on the CPU */
    void *stream;                /* cudaStream_t; NULL on the CPU */
    void *side;                  /* another one, for collectives beside the computing */
    const char *name; /* "cpu (oneDNN 2.6.3)", "cuda:0 (NVIDIA H200)"; owned by the device */
};

/* Opens the CPU, or CUDA device `index` by the plug-in ctrun-cuda.so (see common/plugin.h).
 * CT_EUNSUPPORTED with the reason when this build or machine has none. A device is used on the
 * thread that opened it; the CPU computes with one thread unless OMP_NUM_THREADS says otherwise.
 * Gives *out; end it with out->ops->close(). */
CT_MUST_CHECK int ct_device_open(enum ct_device_kind kind, int index, struct ct_device **out,
                                 struct ct_err *err);

/* For all operations that follow. CT_EUNSUPPORTED with the reason when this device or build cannot
 * compute in it at its instructions' speed; nothing has changed then. */
CT_MUST_CHECK int ct_device_set_precision(struct ct_device *dev, enum ct_precision precision,
                                          struct ct_err *err);

/* Number of usable CUDA devices, 0 when there is no driver, plug-in or device. Loads the CUDA
 * plug-in only when /dev/nvidiactl exists or CTRUN_PLUGIN_DIR is set. */
int ct_device_cuda_count(void);

/* Could that be more than 0? Loads nothing and touches no device. */
bool ct_device_cuda_possible(void);

#endif
