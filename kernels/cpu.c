/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu.h"

#include "common/alloc.h"
#include "kernels/cpu_gemm.h"
#include "kernels/cpu_loops.h"

#include <stdio.h>
#include <string.h>

/* A cache line and an AVX-512 vector. */
#define ALIGNMENT 64

/* Rows of dx per matrix product when a mask follows: small enough that they are still in L2 then,
 * large enough for the product to run at full speed. */
#define MASK_BYTES ((size_t)256 * 1024)

struct cpu {
    struct ct_device base; /* first: the table's functions get a pointer to it */
    const struct ct_cpu_loops *loops;
    struct ct_gemm *gemm;
    char name[96];
};

static struct cpu *cpu_of(struct ct_device *dev)
{
    return (struct cpu *)dev;
}

static void cpu_close(struct ct_device *dev)
{
    if (dev != NULL) {
        ct_gemm_free(cpu_of(dev)->gemm);
        ct_free(dev);
    }
}

/* The allocation table knows no alignment: the block's own address is kept in front of what is
 * handed out. */
static int cpu_alloc(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err)
{
    (void)dev;
    char *block = NULL;
    if (bytes <= SIZE_MAX - ALIGNMENT - sizeof(block)) {
        block = ct_malloc(bytes + ALIGNMENT + sizeof(block));
    }
    if (block == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for %zu bytes", bytes);
    }
    uintptr_t first = (uintptr_t)block + sizeof(block);
    char *ptr = (char *)((first + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    memcpy(ptr - sizeof(block), &block, sizeof(block));
    memset(ptr, 0, bytes);
    *out = ptr;
    return 0;
}

static void cpu_release(struct ct_device *dev, void *ptr)
{
    (void)dev;
    if (ptr != NULL) {
        char *block;
        memcpy(&block, (char *)ptr - sizeof(block), sizeof(block));
        ct_free(block);
    }
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
    cpu_of(dev)->loops->gather(op);
    return 0;
}

static int cpu_linear(struct ct_device *dev, const struct ct_linear *op, struct ct_err *err)
{
    return op->batch == 0 ? 0 : ct_gemm_linear(cpu_of(dev)->gemm, op, err);
}

static int masked_dx(struct cpu *cpu, const struct ct_linear_grad *op, struct ct_err *err)
{
    size_t step = MASK_BYTES / (op->in * sizeof(float));
    step = step < 32 ? 32 : step;
    for (size_t row = 0; row < op->batch; row += step) {
        struct ct_linear_grad part = *op;
        part.batch = op->batch - row < step ? op->batch - row : step;
        part.dy = op->dy + row * op->out;
        part.dx = op->dx + row * op->in;
        int rc = ct_gemm_dx(cpu->gemm, &part, err);
        if (rc != 0) {
            return rc;
        }
        cpu->loops->mask(part.batch * op->in, part.dx, op->mask + row * op->in);
    }
    return 0;
}

static int cpu_linear_grad(struct ct_device *dev, const struct ct_linear_grad *op,
                           struct ct_err *err)
{
    struct cpu *cpu = cpu_of(dev);
    cpu->loops->column_sum(op->batch, op->out, op->dy, op->db);
    if (op->batch == 0) {
        memset(op->dw, 0, op->out * op->in * sizeof(float));
        return 0;
    }
    int rc = ct_gemm_dw(cpu->gemm, op, err);
    if (rc != 0 || op->dx == NULL) {
        return rc;
    }
    return op->mask != NULL ? masked_dx(cpu, op, err) : ct_gemm_dx(cpu->gemm, op, err);
}

static int cpu_loss(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err)
{
    if (op->classes == 0 || op->classes > CT_MAX_CLASSES) {
        return ct_err_set(err, CT_EINVAL, "%zu classes: must be 1 to %d", op->classes,
                          CT_MAX_CLASSES);
    }
    cpu_of(dev)->loops->loss(op);
    return 0;
}

static int cpu_sgd(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err)
{
    (void)err;
    cpu_of(dev)->loops->sgd(op);
    return 0;
}

static int cpu_adamw(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err)
{
    (void)err;
    cpu_of(dev)->loops->adamw(op);
    return 0;
}

static const struct ct_device_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .clear = cpu_clear,
    .sync = cpu_sync,
    .gather = cpu_gather,
    .linear = cpu_linear,
    .linear_grad = cpu_linear_grad,
    .loss = cpu_loss,
    .sgd = cpu_sgd,
    .adamw = cpu_adamw,
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
