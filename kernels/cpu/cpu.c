/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's device table. Matrix products go to cpu_gemm.h, everything else to the loops that
 * cpu_loops_pick.c has chosen. Every call computes at once, so there is nothing to wait for and
 * nothing to record. Scratch memory grows to the largest size that was needed; close() frees it. A
 * product without scratch memory fails with CT_ENOMEM.
 */
#include "kernels/cpu/cpu.h"

#include "common/alloc.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_head16.h"
#include "kernels/cpu/cpu_loops.h"
#include "kernels/cpu/cpu_memory.h"

#include <stdio.h>
#include <string.h>

/* So many parameters are updated and then narrowed, while they are still in the L1 cache. */
#define NARROW_BLOCK 2048

/* Bytes of dx per matrix product if a mask follows: so few that they are still in L2 then, and
 * enough for the product to run at full speed. */
#define MASK_BYTES ((size_t)256 * 1024)

struct cpu {
    struct ct_device base; /* first, because the table's functions get a pointer to it */
    const struct ct_cpu_loops *loops;
    struct ct_gemm *gemm;
    float *scratch; /* for the largest divided gradient or last layer so far */
    size_t scratch_count;
    char name[96];
};

static struct cpu *cpu_of(struct ct_device *dev)
{
    return (struct cpu *)dev;
}

static bool is_bf16(const struct ct_device *dev)
{
    return dev->precision == CT_PRECISION_BF16;
}

static void cpu_close(struct ct_device *dev)
{
    if (dev != NULL) {
        ct_gemm_free(cpu_of(dev)->gemm);
        ct_free(cpu_of(dev)->scratch);
        ct_free(dev);
    }
}

static int cpu_alloc(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err)
{
    (void)dev;
    void *memory = ct_cpu_memory_new(bytes);
    if (memory == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for %zu bytes", bytes);
    }
    memset(memory, 0, bytes);
    *out = memory;
    return 0;
}

static void cpu_release(struct ct_device *dev, void *ptr)
{
    (void)dev;
    ct_cpu_memory_free(ptr);
}

static int cpu_copy(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                    struct ct_err *err)
{
    (void)dev;
    (void)err;
    if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
    return 0;
}

static int cpu_clear(struct ct_device *dev, void *dst, size_t bytes, struct ct_err *err)
{
    (void)dev;
    (void)err;
    if (bytes > 0) {
        memset(dst, 0, bytes);
    }
    return 0;
}

static int cpu_sync(struct ct_device *dev, struct ct_err *err)
{
    (void)dev;
    (void)err;
    return 0;
}

static int cpu_gather(struct ct_device *dev, const struct ct_gather *op, struct ct_err *err)
{
    (void)err;
    const struct ct_cpu_loops *loops = cpu_of(dev)->loops;
    if (is_bf16(dev)) {
        loops->gather16(op);
    } else {
        loops->gather(op);
    }
    return 0;
}

/* Returns the rows of the part of a batch that begins at `row`. */
static size_t part_rows(const struct ct_partition *partition, size_t batch, size_t row)
{
    return partition->rows > 0 && partition->rows < batch - row ? partition->rows : batch - row;
}

static int cpu_linear(struct ct_device *dev, const struct ct_linear *op, struct ct_err *err)
{
    size_t number = ct_precision_bytes(dev->precision);
    size_t result = op->wide ? sizeof(float) : number;
    int rc = 0;
    for (size_t row = 0; rc == 0 && row < op->batch;) {
        struct ct_linear part = *op;
        part.batch = part_rows(&op->partition, op->batch, row);
        part.x = (const char *)op->x + row * op->in * number;
        part.y = (char *)op->y + row * op->out * result;
        rc = ct_gemm_linear(cpu_of(dev)->gemm, &part, err);
        row += part.batch;
    }
    return rc;
}

static int masked_dx(struct cpu *cpu, const struct ct_linear_grad *op, struct ct_err *err)
{
    size_t number = ct_precision_bytes(cpu->base.precision);
    size_t step = MASK_BYTES / (op->in * number);
    step = step < 32 ? 32 : step;
    for (size_t row = 0; row < op->batch; row += step) {
        struct ct_linear_grad part = *op;
        part.batch = op->batch - row < step ? op->batch - row : step;
        part.dy = (const char *)op->dy + row * op->out * number;
        part.dx = (char *)op->dx + row * op->in * number;
        const void *mask = (const char *)op->mask + row * op->in * number;
        int rc = ct_gemm_dx(cpu->gemm, &part, err);
        if (rc != 0) {
            return rc;
        }
        if (is_bf16(&cpu->base)) {
            cpu->loops->mask16(part.batch * op->in, part.dx, mask);
        } else {
            cpu->loops->mask(part.batch * op->in, part.dx, mask);
        }
    }
    return 0;
}

static int dx(struct cpu *cpu, const struct ct_linear_grad *op, struct ct_err *err)
{
    if (op->dx == NULL) {
        return 0;
    }
    return op->mask != NULL ? masked_dx(cpu, op, err) : ct_gemm_dx(cpu->gemm, op, err);
}

static int need_scratch(struct cpu *cpu, size_t floats, const struct ct_linear_grad *op,
                        struct ct_err *err)
{
    if (floats > cpu->scratch_count) {
        float *grown = ct_malloc(floats * sizeof(*grown));
        if (grown == NULL) {
            return ct_err_set(err, CT_ENOMEM, "no memory for the gradient of %zu samples",
                              op->batch);
        }
        ct_free(cpu->scratch);
        cpu->scratch = grown;
        cpu->scratch_count = floats;
    }
    return 0;
}

static int cut_grad(struct cpu *cpu, const struct ct_linear_grad *op, struct ct_err *err)
{
    int rc = need_scratch(cpu, ct_tree_scratch(op->batch, op->out), op, err);
    if (rc != 0) {
        return rc;
    }
    cpu->loops->tree(&(struct ct_tree){
        .batch = op->batch,
        .in = op->in,
        .out = op->out,
        .partition = op->partition,
        .bf16 = is_bf16(&cpu->base),
        .x = op->x,
        .dy = op->dy,
        .dw = op->dw,
        .db = op->db,
        .scratch = cpu->scratch,
    });
    size_t number = ct_precision_bytes(cpu->base.precision);
    for (size_t row = 0; rc == 0 && op->dx != NULL && row < op->batch;) {
        struct ct_linear_grad part = *op;
        part.batch = part_rows(&op->partition, op->batch, row);
        part.dy = (const char *)op->dy + row * op->out * number;
        part.dx = (char *)op->dx + row * op->in * number;
        part.mask = op->mask != NULL ? (const char *)op->mask + row * op->in * number : NULL;
        rc = dx(cpu, &part, err);
        row += part.batch;
    }
    return rc;
}

static int cpu_linear_grad(struct ct_device *dev, const struct ct_linear_grad *op,
                           struct ct_err *err)
{
    struct cpu *cpu = cpu_of(dev);
    if (op->partition.rows > 0) {
        return cut_grad(cpu, op, err);
    }
    if (is_bf16(dev)) {
        cpu->loops->column_sum16(op->batch, op->out, op->dy, op->db);
    } else {
        cpu->loops->column_sum(op->batch, op->out, op->dy, op->db);
    }
    if (op->batch == 0) {
        memset(op->dw, 0, op->out * op->in * sizeof(float));
        return 0;
    }
    int rc = ct_gemm_dw(cpu->gemm, op, err);
    return rc == 0 ? dx(cpu, op, err) : rc;
}

/* Computes the gradient in float32, a few rows at a time, and then rounds it. */
static void loss_to_bf16(const struct ct_cpu_loops *loops, const struct ct_loss *op)
{
    float wide[4 * CT_MAX_CLASSES];
    size_t step = sizeof(wide) / sizeof(wide[0]) / op->classes;
    for (size_t row = 0; row < op->batch; row += step) {
        struct ct_loss part = *op;
        part.batch = op->batch - row < step ? op->batch - row : step;
        part.logits = op->logits + row * op->classes;
        part.labels = op->labels + row;
        part.dlogits = wide;
        loops->loss(&part);
        loops->narrow(part.batch * op->classes, wide, (uint16_t *)op->dlogits + row * op->classes);
    }
}

static int cpu_loss(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err)
{
    if (op->classes == 0 || op->classes > CT_MAX_CLASSES) {
        return ct_err_set(err, CT_EINVAL, "%zu classes: must be 1 to %d", op->classes,
                          CT_MAX_CLASSES);
    }
    bool narrow = is_bf16(dev) && op->dlogits != NULL;
    for (size_t row = 0; row < op->batch;) {
        struct ct_loss part = *op;
        part.batch = part_rows(&op->partition, op->batch, row);
        part.logits += row * op->classes;
        part.labels += row;
        if (op->dlogits != NULL) {
            part.dlogits =
                (char *)op->dlogits + row * op->classes * ct_precision_bytes(dev->precision);
        }
        if (narrow) {
            loss_to_bf16(cpu_of(dev)->loops, &part);
        } else {
            cpu_of(dev)->loops->loss(&part);
        }
        row += part.batch;
    }
    return 0;
}

/* One thread is faster with the fused loops; several are with the products that they share. */
static bool at_once(struct cpu *cpu, const struct ct_head *op)
{
    enum ct_head_way way = cpu->base.head_way;
    bool wanted = way == CT_HEAD_FASTEST ? ct_gemm_single(cpu->gemm) : way != CT_HEAD_APART;
    return wanted && is_bf16(&cpu->base) && ct_head16_fits(op);
}

static int cpu_head(struct ct_device *dev, const struct ct_head *op, struct ct_err *err)
{
    struct cpu *cpu = cpu_of(dev);
    if (at_once(cpu, op)) {
        int rc = need_scratch(cpu, ct_head16_scratch(op), &op->grad, err);
        if (rc == 0) {
            ct_head16_run(cpu->loops, op, (uint32_t *)(void *)cpu->scratch);
        }
        return rc;
    }
    int rc = cpu_linear(dev, &op->linear, err);
    if (rc == 0) {
        rc = cpu_loss(dev, &op->loss, err);
    }
    return rc == 0 ? cpu_linear_grad(dev, &op->grad, err) : rc;
}

static int cpu_sgd(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err)
{
    (void)err;
    const struct ct_cpu_loops *loops = cpu_of(dev)->loops;
    if (op->narrow == NULL) {
        loops->sgd(op);
        return 0;
    }
    for (size_t at = 0; at < op->count; at += NARROW_BLOCK) {
        struct ct_sgd part = *op;
        part.count = op->count - at < NARROW_BLOCK ? op->count - at : NARROW_BLOCK;
        part.param += at;
        part.grad += at;
        if (op->momentum_buf != NULL) {
            part.momentum_buf += at;
        }
        loops->sgd(&part);
        loops->narrow(part.count, part.param, op->narrow + at);
    }
    return 0;
}

static int cpu_adamw(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err)
{
    (void)err;
    const struct ct_cpu_loops *loops = cpu_of(dev)->loops;
    if (op->narrow == NULL) {
        loops->adamw(op);
        return 0;
    }
    for (size_t at = 0; at < op->count; at += NARROW_BLOCK) {
        struct ct_adamw part = *op;
        part.count = op->count - at < NARROW_BLOCK ? op->count - at : NARROW_BLOCK;
        part.param += at;
        part.grad += at;
        part.m += at;
        part.v += at;
        loops->adamw(&part);
        loops->narrow(part.count, part.param, op->narrow + at);
    }
    return 0;
}

static int cpu_set_precision(struct ct_device *dev, enum ct_precision precision, struct ct_err *err)
{
    if (precision != CT_PRECISION_F32 && precision != CT_PRECISION_BF16) {
        return ct_err_set(err, CT_EUNSUPPORTED, "CPUs do not multiply %s",
                          ct_precision_name(precision));
    }
    int rc = ct_gemm_set_precision(cpu_of(dev)->gemm, precision, err);
    if (rc == 0) {
        dev->precision = precision;
    }
    return rc;
}

static int cpu_narrow(struct ct_device *dev, size_t count, const float *from, uint16_t *to,
                      struct ct_err *err)
{
    (void)err;
    cpu_of(dev)->loops->narrow(count, from, to);
    return 0;
}

static const struct ct_device_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .clear = cpu_clear,
    .copy = cpu_copy,
    .sync = cpu_sync,
    .gather = cpu_gather,
    .linear = cpu_linear,
    .linear_grad = cpu_linear_grad,
    .loss = cpu_loss,
    .head = cpu_head,
    .sgd = cpu_sgd,
    .adamw = cpu_adamw,
    .set_precision = cpu_set_precision,
    .narrow = cpu_narrow,
};

int ct_cpu_open(struct ct_device **out, struct ct_err *err)
{
    struct cpu *cpu = ct_calloc(1, sizeof(*cpu));
    if (cpu == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the CPU device");
    }
    cpu->loops = ct_cpu_loops_get(0);
    int rc = ct_gemm_new(cpu->loops, &cpu->gemm, err);
    if (rc != 0) {
        ct_free(cpu);
        return rc;
    }
    (void)snprintf(cpu->name, sizeof(cpu->name), "cpu (%s)", ct_gemm_name(cpu->gemm));
    cpu->base = (struct ct_device){.ops = &cpu_ops, .kind = CT_DEVICE_CPU, .name = cpu->name};
    *out = &cpu->base;
    return 0;
}
