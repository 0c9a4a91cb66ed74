/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by oneDNN matmul primitives. Each is made once per shape, because making one
 * generates machine code and takes longer than a training step. A training needs few: three
 * products per layer, for the full batch, the last batch of an epoch and the batch of the
 * evaluation. So they are in a small array that is searched in order; if it is full, the oldest is
 * replaced. A failed call of oneDNN gives an error with its text; ct_gemm_free() frees all.
 *
 * Threads: Debian's oneDNN uses libgomp. Because ranks share the machine, the default here is one
 * thread instead of one per processor; OMP_NUM_THREADS overrides it.
 */
#include "kernels/cpu/cpu_gemm.h"

#include "common/alloc.h"
#include "kernels/cpu/cpu_matmul.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <dnnl_debug.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SHAPES 64

/* For y = x * w^T oneDNN copies w to another order, which for a small batch costs a quarter of the
 * product. Up to this batch size yt = w * x^T is computed instead, for which oneDNN copies x, and
 * then transposed: 142 -> 118 us for 32 x 784 x 512 on Zen 5, equal at 128. */
#define TURNED_BATCH_MAX 64

enum product { PRODUCT_Y, PRODUCT_Y_RELU, PRODUCT_YT, PRODUCT_DW, PRODUCT_DX };

static const int arg_ids[CT_MATMUL_OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                                DNNL_ARG_BIAS};

struct shape {
    enum product product;
    size_t batch, in, out;
    bool bf16, wide; /* bf16: operands in bfloat16; wide: the result is float32 all the same */
};

struct cached {
    struct shape shape;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[CT_MATMUL_OPERANDS];
    int arg_count;
};

struct ct_gemm {
    const struct ct_cpu_loops *loops;
    float *yt; /* room for two arrays [out, batch] of the largest transposed product so far */
    size_t yt_count;
    bool bf16, single;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct cached cache[MAX_SHAPES];
    size_t cached, next; /* number of entries; the entry that the next new shape replaces */
    char name[64];
};

static int fail(struct ct_err *err, dnnl_status_t status, const char *what)
{
    int code = status == dnnl_out_of_memory ? CT_ENOMEM : CT_EUNSUPPORTED;
    return ct_err_set(err, code, "oneDNN: %s: %s", what, dnnl_status2str(status));
}

/* Sets one thread, unless the environment says otherwise. Returns whether it is one. */
static bool limit_threads(void)
{
    /* Looked up at run time, because oneDNN decides which OpenMP runtime is loaded. */
    void (*set_threads)(int);
    int (*most_threads)(void);
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    *(void **)&most_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    const char *set = getenv("OMP_NUM_THREADS");
    if ((set == NULL || set[0] == '\0') && set_threads != NULL) {
        set_threads(1);
    }
    return most_threads != NULL && most_threads() == 1;
}

int ct_gemm_new(const struct ct_cpu_loops *loops, struct ct_gemm **out, struct ct_err *err)
{
    struct ct_gemm *gemm = ct_calloc(1, sizeof(*gemm));
    if (gemm == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix product's shapes");
    }
    gemm->loops = loops;
    gemm->single = limit_threads();
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(gemm->name, sizeof(gemm->name), "oneDNN %d.%d.%d", version->major,
                   version->minor, version->patch);
    dnnl_status_t status = dnnl_engine_create(&gemm->engine, dnnl_cpu, 0);
    if (status == dnnl_success) {
        status = dnnl_stream_create(&gemm->stream, gemm->engine, dnnl_stream_default_flags);
    }
    if (status != dnnl_success) {
        ct_gemm_free(gemm);
        return fail(err, status, "cannot open the CPU engine");
    }
    *out = gemm;
    return 0;
}

static void drop(struct cached *c)
{
    if (c->primitive != NULL) {
        (void)dnnl_primitive_destroy(c->primitive);
    }
    for (int i = 0; i < c->arg_count; i++) {
        (void)dnnl_memory_destroy(c->args[i].memory);
    }
    *c = (struct cached){0};
}

/* True with AVX512-BF16, which processors with AMX have, too. Without it oneDNN can compute in
 * bfloat16, but slower than in float32. ONEDNN_MAX_CPU_ISA limits the result. */
static bool multiplies_bf16(void)
{
#if defined(__x86_64__)
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
#else
    return false; /* on other processors oneDNN cannot tell */
#endif
}

int ct_gemm_set_precision(struct ct_gemm *gemm, enum ct_precision precision, struct ct_err *err)
{
    if (precision == CT_PRECISION_BF16 && !multiplies_bf16()) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "this processor has no instructions for bfloat16 (AVX512-BF16 or AMX)");
    }
    gemm->bf16 = precision == CT_PRECISION_BF16;
    return 0;
}

void ct_gemm_free(struct ct_gemm *gemm)
{
    if (gemm == NULL) {
        return;
    }
    for (size_t i = 0; i < gemm->cached; i++) {
        drop(&gemm->cache[i]);
    }
    if (gemm->stream != NULL) {
        (void)dnnl_stream_destroy(gemm->stream);
    }
    if (gemm->engine != NULL) {
        (void)dnnl_engine_destroy(gemm->engine);
    }
    ct_free(gemm->yt);
    ct_free(gemm);
}

const char *ct_gemm_name(const struct ct_gemm *gemm)
{
    return gemm->name;
}

static void describe_all(const struct shape *s, struct ct_matmul_matrix matrix[CT_MATMUL_OPERANDS])
{
    size_t m = s->batch, n = s->out, k = s->in;
    bool src_t = false, weights_t = true; /* y = x * w^T */
    if (s->product == PRODUCT_YT) {       /* yt = w * x^T */
        m = s->out, n = s->batch;
    } else if (s->product == PRODUCT_DW) { /* dw = dy^T * x */
        m = s->out, n = s->in, k = s->batch;
        src_t = true, weights_t = false;
    } else if (s->product == PRODUCT_DX) { /* dx = dy * w */
        n = s->in, k = s->out;
        weights_t = false;
    }
    matrix[CT_MATMUL_SRC] = (struct ct_matmul_matrix){m, k, src_t, s->bf16};
    matrix[CT_MATMUL_WEIGHTS] = (struct ct_matmul_matrix){k, n, weights_t, s->bf16};
    matrix[CT_MATMUL_DST] = (struct ct_matmul_matrix){m, n, false, s->bf16 && !s->wide};
    matrix[CT_MATMUL_BIAS] = (struct ct_matmul_matrix){1, n, false, false};
}

static int make(struct ct_gemm *gemm, const struct shape *s, struct cached *out, struct ct_err *err)
{
    struct ct_matmul_matrix matrix[CT_MATMUL_OPERANDS];
    dnnl_memory_t memory[CT_MATMUL_OPERANDS] = {NULL};
    bool with_bias = s->product == PRODUCT_Y || s->product == PRODUCT_Y_RELU;
    struct cached c = {.shape = *s};
    describe_all(s, matrix);
    dnnl_status_t status = ct_matmul_make(gemm->engine, matrix, with_bias,
                                          s->product == PRODUCT_Y_RELU, &c.primitive, memory);
    for (; c.arg_count < CT_MATMUL_OPERANDS && memory[c.arg_count] != NULL; c.arg_count++) {
        c.args[c.arg_count] = (dnnl_exec_arg_t){arg_ids[c.arg_count], memory[c.arg_count]};
    }
    if (status != dnnl_success) {
        drop(&c);
        (void)fail(err, status, "cannot prepare a matrix product");
        return ct_err_wrap(err, "batch %zu, layer %zu -> %zu", s->batch, s->in, s->out);
    }
    *out = c;
    return 0;
}

static int find(struct ct_gemm *gemm, const struct shape *s, struct cached **out,
                struct ct_err *err)
{
    for (size_t i = 0; i < gemm->cached; i++) {
        const struct shape *have = &gemm->cache[i].shape;
        if (have->product == s->product && have->batch == s->batch && have->in == s->in &&
            have->out == s->out && have->bf16 == s->bf16 && have->wide == s->wide) {
            *out = &gemm->cache[i];
            return 0;
        }
    }
    struct cached made;
    int rc = make(gemm, s, &made, err);
    if (rc != 0) {
        return rc;
    }
    struct cached *slot = &gemm->cache[gemm->next];
    drop(slot);
    *slot = made;
    gemm->next = (gemm->next + 1) % MAX_SHAPES;
    gemm->cached += gemm->cached < MAX_SHAPES;
    *out = slot;
    return 0;
}

/* oneDNN takes pointers without const, but writes only to DST. */
static int run(struct ct_gemm *gemm, const struct shape *s,
               const void *const data[CT_MATMUL_OPERANDS], struct ct_err *err)
{
    struct cached *c;
    int rc = find(gemm, s, &c, err);
    if (rc != 0) {
        return rc;
    }
    dnnl_status_t status = dnnl_success;
    for (int i = 0; status == dnnl_success && i < c->arg_count; i++) {
        status = dnnl_memory_set_data_handle(c->args[i].memory, (void *)(uintptr_t)data[i]);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(c->primitive, gemm->stream, c->arg_count, c->args);
    }
    return status == dnnl_success ? 0 : fail(err, status, "matrix product failed");
}

static int linear_turned(struct ct_gemm *gemm, const struct ct_linear *op, struct ct_err *err)
{
    size_t count = op->batch * op->out;
    if (count > gemm->yt_count) {
        float *grown = ct_malloc(2 * count * sizeof(*grown));
        if (grown == NULL) {
            return ct_err_set(err, CT_ENOMEM, "no memory for a product of %zu numbers", count);
        }
        ct_free(gemm->yt);
        gemm->yt = grown;
        gemm->yt_count = count;
    }
    struct shape s = {PRODUCT_YT, op->batch, op->in, op->out, gemm->bf16, true};
    const void *data[CT_MATMUL_OPERANDS] = {
        [CT_MATMUL_SRC] = op->w, [CT_MATMUL_WEIGHTS] = op->x, [CT_MATMUL_DST] = gemm->yt};
    int rc = run(gemm, &s, data, err);
    if (rc == 0 && gemm->bf16 && !op->wide) {
        struct ct_linear wide = *op;
        wide.y = gemm->yt + count;
        gemm->loops->finish(&wide, gemm->yt);
        gemm->loops->narrow(count, wide.y, op->y);
    } else if (rc == 0) {
        gemm->loops->finish(op, gemm->yt);
    }
    return rc;
}

bool ct_gemm_single(const struct ct_gemm *gemm)
{
    return gemm->single;
}

int ct_gemm_linear(struct ct_gemm *gemm, const struct ct_linear *op, struct ct_err *err)
{
    if (op->batch <= TURNED_BATCH_MAX && op->batch < op->out) {
        return linear_turned(gemm, op, err);
    }
    struct shape s = {
        op->relu ? PRODUCT_Y_RELU : PRODUCT_Y, op->batch, op->in, op->out, gemm->bf16, op->wide};
    const void *data[CT_MATMUL_OPERANDS] = {[CT_MATMUL_SRC] = op->x,
                                            [CT_MATMUL_WEIGHTS] = op->w,
                                            [CT_MATMUL_DST] = op->y,
                                            [CT_MATMUL_BIAS] = op->b};
    return run(gemm, &s, data, err);
}

int ct_gemm_dw(struct ct_gemm *gemm, const struct ct_linear_grad *op, struct ct_err *err)
{
    struct shape s = {PRODUCT_DW, op->batch, op->in, op->out, gemm->bf16, true};
    const void *data[CT_MATMUL_OPERANDS] = {
        [CT_MATMUL_SRC] = op->dy, [CT_MATMUL_WEIGHTS] = op->x, [CT_MATMUL_DST] = op->dw};
    return run(gemm, &s, data, err);
}

int ct_gemm_dx(struct ct_gemm *gemm, const struct ct_linear_grad *op, struct ct_err *err)
{
    struct shape s = {PRODUCT_DX, op->batch, op->in, op->out, gemm->bf16, false};
    const void *data[CT_MATMUL_OPERANDS] = {
        [CT_MATMUL_SRC] = op->dy, [CT_MATMUL_WEIGHTS] = op->w, [CT_MATMUL_DST] = op->dx};
    return run(gemm, &s, data, err);
}
