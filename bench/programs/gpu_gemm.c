/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare matrix products of a training step on GPU 0, without biases, masks, copies and updates:
 * what a step cannot be faster than.
 *
 *     bench-gpu-gemm BATCH PRECISION SIZE,SIZE,...      features, hidden layers, classes
 *
 * Each product is run by the kernel that the plug-in chooses for it. Prints one line of JSON.
 */
#include "common/num.h"
#include "kernels/cuda/cuda_plugin.h"
#include "kernels/cuda/gemm_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 34
#define ROUNDS 5

extern const struct ct_cuda_plugin ct_cuda_plugin;

static struct ct_err err;

static void need(int rc)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench-gpu-gemm: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
}

static void need_cuda(cudaError_t status)
{
    need(status == cudaSuccess ? 0 : ct_err_set(&err, CT_EIO, "%s", cudaGetErrorString(status)));
}

/* Random numbers: on zeros the chip draws less power and runs faster. */
static void *numbers(struct ct_device *dev, size_t count)
{
    void *p = NULL, *narrow = NULL;
    float *host = malloc(count * sizeof *host);
    need(host != NULL ? 0 : ct_err_set(&err, CT_ENOMEM, "out of memory"));
    uint64_t state = count;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        host[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    need(dev->ops->alloc(dev, count * sizeof *host, &p, &err));
    need(dev->ops->upload(dev, p, host, count * sizeof *host, &err));
    free(host);
    if (!ct_precision_narrow(dev->precision)) {
        return p;
    }
    need(dev->ops->alloc(dev, count * sizeof(uint16_t), &narrow, &err));
    need(dev->ops->narrow(dev, count, p, narrow, &err));
    need(dev->ops->sync(dev, &err));
    dev->ops->release(dev, p);
    return narrow;
}

/* Microseconds of the fastest of a few rounds. */
static double time_product(struct ct_cuda *cuda, struct ct_gemm_cache *cache, struct ct_gemm_key k,
                           const struct ct_gemm_operands *o)
{
    cudaEvent_t start, stop;
    double best = 0;
    double work = 2e-6 * (double)k.batch * (double)k.in * (double)k.out; /* millions */
    int runs = work > 1e5 ? 5 : 200;
    need_cuda(cudaEventCreate(&start));
    need_cuda(cudaEventCreate(&stop));
    need(ct_gemm_run(cache, cuda, k, o, &err));
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        need_cuda(cudaEventRecord(start, cuda->stream));
        for (int i = 0; i < runs; i++) {
            need(ct_gemm_run(cache, cuda, k, o, &err));
        }
        need_cuda(cudaEventRecord(stop, cuda->stream));
        need_cuda(cudaEventSynchronize(stop));
        need_cuda(cudaEventElapsedTime(&ms, start, stop));
        double us = 1e3 * (double)ms / runs;
        best = round == 0 || us < best ? us : best;
    }
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    return best;
}

static double time_layer(struct ct_cuda *cuda, struct ct_gemm_cache *cache, size_t batch, size_t in,
                         size_t out, bool first, bool last)
{
    struct ct_device *dev = &cuda->base;
    enum ct_precision p = dev->precision;
    struct ct_gemm_key k = {.precision = p, .batch = batch, .in = in, .out = out, .wide = last};
    void *x = numbers(dev, batch * in), *w = numbers(dev, out * in),
         *dy = numbers(dev, batch * out);
    void *y = NULL, *dw = NULL, *dx = NULL;
    need(dev->ops->alloc(dev, batch * out * sizeof(float), &y, &err));
    need(dev->ops->alloc(dev, out * in * sizeof(float), &dw, &err));
    need(dev->ops->alloc(dev, batch * in * sizeof(float), &dx, &err));
    k.product = CT_PRODUCT_Y;
    double us = time_product(cuda, cache, k, &(struct ct_gemm_operands){.a = w, .b = x, .d = y});
    k.product = CT_PRODUCT_DW;
    k.wide = true;
    us += time_product(cuda, cache, k, &(struct ct_gemm_operands){.a = x, .b = dy, .d = dw});
    k.product = CT_PRODUCT_DX;
    k.wide = false;
    if (!first) {
        us += time_product(cuda, cache, k, &(struct ct_gemm_operands){.a = w, .b = dy, .d = dx});
    }
    void *all[] = {x, w, dy, y, dw, dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dev->ops->release(dev, all[i]);
    }
    return us;
}

int main(int argc, char *argv[])
{
    int64_t sizes[SIZES_MAX], batch;
    size_t count = 0;
    if (argc != 4 || ct_parse_i64(argv[1], 1, 1 << 20, &batch) != 0) {
        (void)fprintf(stderr, "usage: bench-gpu-gemm BATCH f32|tf32|bf16 SIZE,SIZE,...\n");
        return 2;
    }
    for (const char *p = argv[3]; p != NULL && count < SIZES_MAX; count++) {
        char item[16];
        size_t len = strcspn(p, ",");
        (void)snprintf(item, sizeof item, "%.*s", (int)len, p);
        need(ct_parse_i64(item, 1, 1 << 20, &sizes[count]) == 0
                 ? 0
                 : ct_err_set(&err, CT_EINVAL, "'%s' is not a size", item));
        p = p[len] == ',' ? p + len + 1 : NULL;
    }
    struct ct_device *dev = NULL;
    struct ct_gemm_cache *cache = NULL;
    need(ct_cuda_plugin.open(0, &dev, &err));
    need(
        strcmp(argv[2], "f32") == 0
            ? 0
            : dev->ops->set_precision(
                  dev, strcmp(argv[2], "bf16") == 0 ? CT_PRECISION_BF16 : CT_PRECISION_TF32, &err));
    need(ct_gemm_cache_new(&cache, &err));
    double us = 0;
    for (size_t l = 0; l + 1 < count; l++) {
        us += time_layer(ct_cuda_of(dev), cache, (size_t)batch, (size_t)sizes[l],
                         (size_t)sizes[l + 1], l == 0, l + 2 == count);
    }
    printf("{\"program\": \"gemm\", \"sizes\": \"%s\", \"batch\": %lld, \"precision\": \"%s\", "
           "\"us_per_step\": %.3f}\n",
           argv[3], (long long)batch, argv[2], us);
    ct_gemm_cache_free(cache);
    dev->ops->close(dev);
    return EXIT_SUCCESS;
}
