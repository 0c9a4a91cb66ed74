/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA plug-in's host code against stand-ins for CUDA and cuBLASLt: what is chosen, the order
 * of work, and every call that can fail.
 */
#include "tests/lib/ct_test.h"

#include "common/buf.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/device.h"
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/lib/fake_gpu/fake_plugin.h"

#include <cublasLt.h>
#include <malloc.h>
#include <math.h>
#include <string.h>

static void need(int rc, const struct ct_err *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

/* ---- a layer in every precision -------------------------------------------------------------- */

#define BATCH ((size_t)16)
#define IN ((size_t)32)
#define OUT ((size_t)48)

static void *device_array(struct ct_device *dev, size_t bytes)
{
    struct ct_err err = {0};
    void *p;
    need(dev->ops->alloc(dev, bytes, &p, &err), &err);
    return p;
}

static float value(size_t i)
{
    return sinf((float)(i * 7 + 3));
}

/* Numbers in the device's precision. */
static void *numbers(struct ct_device *dev, size_t count, size_t first)
{
    float host[BATCH * IN + OUT * IN + BATCH * OUT];
    struct ct_err err = {0};
    for (size_t i = 0; i < count; i++) {
        host[i] = value(first + i);
    }
    void *wide = device_array(dev, count * sizeof(float));
    need(dev->ops->upload(dev, wide, host, count * sizeof(float), &err), &err);
    if (!ct_precision_narrow(dev->precision)) {
        return wide;
    }
    void *narrow = device_array(dev, count * sizeof(uint16_t));
    need(dev->ops->narrow(dev, count, wide, narrow, &err), &err);
    dev->ops->release(dev, wide);
    return narrow;
}

static float read_number(struct ct_device *dev, const void *p, size_t i)
{
    struct ct_err err = {0};
    uint32_t bits = 0;
    size_t bytes = ct_precision_bytes(dev->precision);
    need(dev->ops->download(dev, &bits, (const char *)p + i * bytes, bytes, &err), &err);
    bits = bytes == sizeof(uint16_t) ? bits << 16 : bits;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void check_layer(enum ct_precision precision, int no_epilogues, double tolerance)
{
    struct ct_device *dev = fake_plugin_open(&(struct fake_gpu){.no_epilogues = no_epilogues});
    struct ct_err err = {0};
    need(ct_device_set_precision(dev, precision, &err), &err);
    void *x = numbers(dev, BATCH * IN, 0), *w = numbers(dev, OUT * IN, 10000);
    void *dy = numbers(dev, BATCH * OUT, 20000);
    float *b = device_array(dev, OUT * sizeof(float));
    uint16_t *b16 = device_array(dev, OUT * sizeof(uint16_t));
    float bias[OUT];
    for (size_t i = 0; i < OUT; i++) {
        bias[i] = 0.5f * value(30000 + i);
    }
    need(dev->ops->upload(dev, b, bias, sizeof bias, &err), &err);
    need(dev->ops->narrow(dev, OUT, b, b16, &err), &err);
    void *y = device_array(dev, BATCH * OUT * sizeof(float));
    void *bits = device_array(dev, ct_relu_bits_bytes(BATCH, OUT));
    void *dx = device_array(dev, BATCH * OUT * sizeof(float));
    float *dw = device_array(dev, OUT * OUT * sizeof(float));
    float *db = device_array(dev, OUT * sizeof(float));
    /* One layer forward, and the gradient of the layer above it by its output. */
    const struct ct_linear forward = {
        .batch = BATCH,
        .in = IN,
        .out = OUT,
        .x = x,
        .w = w,
        .b = b,
        .y = y,
        .relu = true,
        .b16 = b16,
        .bits = bits,
    };
    need(dev->ops->linear(dev, &forward, &err), &err);
    void *w2 = numbers(dev, OUT * OUT, 40000);
    const struct ct_linear_grad backward = {
        .batch = BATCH,
        .in = OUT,
        .out = OUT,
        .x = y,
        .w = w2,
        .dy = dy,
        .mask = y,
        .dw = dw,
        .db = db,
        .dx = dx,
        .bits = bits,
    };
    need(dev->ops->linear_grad(dev, &backward, &err), &err);
    double worst = 0;
    for (size_t r = 0; r < BATCH; r++) {
        for (size_t o = 0; o < OUT; o++) {
            double sum = (double)bias[o], back = 0;
            for (size_t i = 0; i < IN; i++) {
                sum += (double)value(r * IN + i) * (double)value(10000 + o * IN + i);
            }
            for (size_t i = 0; i < OUT; i++) {
                back += (double)value(20000 + r * OUT + i) * (double)value(40000 + i * OUT + o);
            }
            double got = (double)read_number(dev, y, r * OUT + o);
            worst = fmax(worst, fabs(got - (sum > 0 ? sum : 0)));
            double got_back = (double)read_number(dev, dx, r * OUT + o);
            worst = fmax(worst, fabs(got_back - (got > 0 ? back : 0)));
        }
    }
    float first = 0, expected = 0;
    need(dev->ops->download(dev, &first, db, sizeof first, &err), &err);
    for (size_t r = 0; r < BATCH; r++) {
        expected += value(20000 + r * OUT);
    }
    worst = fmax(worst, fabs((double)(first - expected)));
    if (!(worst <= tolerance)) {
        fail_msg("%s: off by %g", ct_precision_name(precision), worst);
    }
    void *all[] = {x, w, dy, b, b16, y, bits, dx, dw, db, w2};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dev->ops->release(dev, all[i]);
    }
    fake_plugin_close(dev);
}

static void layers_in_every_precision(void **state)
{
    (void)state;
    const int refusals[] = {0, CUBLASLT_EPILOGUE_RELU_AUX, 8, CUBLASLT_EPILOGUE_BGRADB, 4};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        check_layer(CT_PRECISION_F32, refusals[i], 1e-4);
        check_layer(CT_PRECISION_TF32, refusals[i], 1e-4); /* the stand-in rounds nothing */
        check_layer(CT_PRECISION_BF16, refusals[i], 0.15);
        check_layer(CT_PRECISION_FP8, refusals[i], 0.9);
        assert_true(fake.e4m3 > 0 && fake.e5m2 > 0); /* and no bfloat16 in their place */
    }
}

/* Kernels of cuBLASLt read a bias, and write its gradient, 16 bytes at a time, and cannot be told
 * of another alignment. What differs by `offset` floats has the same results. */
static void biases_may_be_anywhere(void **state)
{
    (void)state;
    float results[2][OUT + 1];
    for (size_t offset = 0; offset < 2; offset++) {
        struct ct_device *dev = fake_plugin_open(NULL);
        struct ct_err err = {0};
        void *x = numbers(dev, BATCH * IN, 0), *w = numbers(dev, OUT * IN, 10000);
        float *b = numbers(dev, OUT + 1, 30000 - offset);
        void *dy = numbers(dev, BATCH * OUT, 20000), *y = device_array(dev, BATCH * OUT * 4);
        float *dw = device_array(dev, OUT * IN * sizeof *dw);
        float *db = device_array(dev, (OUT + 1) * sizeof *db);
        const struct ct_linear forward = {
            .batch = BATCH, .in = IN, .out = OUT, .x = x, .w = w, .b = b + offset, .y = y};
        need(dev->ops->linear(dev, &forward, &err), &err);
        const struct ct_linear_grad backward = {.batch = BATCH,
                                                .in = IN,
                                                .out = OUT,
                                                .x = x,
                                                .w = w,
                                                .dy = dy,
                                                .dw = dw,
                                                .db = db + offset};
        need(dev->ops->linear_grad(dev, &backward, &err), &err);
        need(dev->ops->download(dev, results[offset], db + offset, OUT * sizeof *db, &err), &err);
        results[offset][OUT] = read_number(dev, y, 5);
        void *all[] = {x, w, b, dy, y, dw, db};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            dev->ops->release(dev, all[i]);
        }
        fake_plugin_close(dev);
    }
    for (size_t i = 0; i <= OUT; i++) {
        assert_true(fabsf(results[0][i] - results[1][i]) < 1e-5f);
    }
}

static void expect_words(struct ct_device *dev, const char *const *words)
{
    struct ct_err err = {0};
    struct ct_buf said = CT_BUF_INIT;
    need(dev->ops->explain(dev, &said, &err), &err);
    for (; *words != NULL; words++) {
        if (strstr(ct_buf_cstr(&said), *words) == NULL) {
            fail_msg("no %s in %s", *words, ct_buf_cstr(&said));
        }
    }
    ct_buf_fini(&said);
}

struct layer_work {
    int launches, e4m3, e5m2;
};

/* What a layer of `in` by `in` with a ReLU does, forward and backward, when its shape is known. */
static struct layer_work work_of_layer(enum ct_precision precision, size_t in, unsigned luck,
                                       const char *const *words)
{
    struct ct_device *dev =
        fake_plugin_open(&(struct fake_gpu){.any_wins = true, .timed = (int)luck});
    struct ct_err err = {0};
    need(ct_device_set_precision(dev, precision, &err), &err);
    void *x = numbers(dev, BATCH * in, 0), *w = numbers(dev, in * in, 10000);
    float *b = device_array(dev, in * sizeof *b), *dw = device_array(dev, in * in * sizeof *dw);
    void *y = device_array(dev, BATCH * in * sizeof(float));
    void *dx = device_array(dev, BATCH * in * sizeof(float));
    void *bits = device_array(dev, ct_relu_bits_bytes(BATCH, in));
    const struct ct_linear forward = {.batch = BATCH,
                                      .in = in,
                                      .out = in,
                                      .x = x,
                                      .w = w,
                                      .b = b,
                                      .y = y,
                                      .relu = true,
                                      .bits = bits};
    const struct ct_linear_grad backward = {.batch = BATCH,
                                            .in = in,
                                            .out = in,
                                            .x = y,
                                            .w = w,
                                            .dy = x,
                                            .mask = y,
                                            .dw = dw,
                                            .db = b,
                                            .dx = dx,
                                            .bits = bits};
    struct fake_gpu before = fake;
    for (int i = 0; i < 2; i++) {
        before = fake;
        need(dev->ops->linear(dev, &forward, &err), &err);
        need(dev->ops->linear_grad(dev, &backward, &err), &err);
    }
    const struct layer_work work = {fake.queued - before.queued, fake.e4m3 - before.e4m3,
                                    fake.e5m2 - before.e5m2};
    assert_int_equal(fake.timed, before.timed); /* once per shape */
    expect_words(dev, words);
    void *all[] = {x, w, b, dw, y, dx, bits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dev->ops->release(dev, all[i]);
    }
    fake_plugin_close(dev);
    return work;
}

static const char *const no_words[] = {NULL};

/* Each product by itself; its sizes must be multiples of 16. */
static void products_are_fp8_where_that_is_faster(void **state)
{
    (void)state;
    static const char *const words[] = {"\"part\": \"dx\", \"precision\": \"fp8\"",
                                        "\"fp8_us\": ", "\"bf16_us\": ", NULL};
    static const char *const unfit[] = {"\"fp8\": false, \"why\": \"no multiples of 16\"}", NULL};
    int y[2] = {0}, gradients[3] = {0};
    for (unsigned luck = 1; luck <= 30; luck++) {
        struct layer_work work = work_of_layer(CT_PRECISION_FP8, IN, luck, words);
        assert_in_range(work.e4m3, 0, 1);
        assert_in_range(work.e5m2, 0, 2);
        y[work.e4m3]++;
        gradients[work.e5m2]++;
    }
    assert_true(y[0] > 0 && y[1] > 0 && gradients[0] > 0 && gradients[1] > 0 && gradients[2] > 0);
    struct layer_work work = work_of_layer(CT_PRECISION_FP8, 24, 1, unfit);
    assert_int_equal(work.e4m3 + work.e5m2, 0);
}

static void what_follows_a_product_is_fused_where_that_is_faster(void **state)
{
    (void)state;
    int seen[7] = {0};
    for (unsigned luck = 1; luck <= 40; luck++) {
        int launches = work_of_layer(CT_PRECISION_F32, IN, luck, no_words).launches;
        assert_in_range(launches, 3, 6);
        seen[launches]++;
    }
    /* All three products fused; none. */
    assert_true(seen[3] > 0 && seen[6] > 0 && seen[4] + seen[5] > 0);
}

static void precisions_that_the_chip_has(void **state)
{
    (void)state;
    static const struct {
        int capability;
        bool bf16, fp8;
    } chips[] = {{75, false, false}, {80, true, false}, {89, true, true}, {90, true, true}};
    for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++) {
        struct ct_device *dev =
            fake_plugin_open(&(struct fake_gpu){.capability = chips[i].capability});
        struct ct_err err = {0};
        int rc = ct_device_set_precision(dev, CT_PRECISION_BF16, &err);
        assert_int_equal(rc, chips[i].bf16 ? 0 : CT_EUNSUPPORTED);
        rc = ct_device_set_precision(dev, CT_PRECISION_FP8, &err);
        assert_int_equal(rc, chips[i].fp8 ? 0 : CT_EUNSUPPORTED);
        if (rc != 0) {
            assert_non_null(strstr(err.text, "fp8: that takes compute capability 8.9"));
        }
        fake_plugin_close(dev);
    }
}

/* The reason in one line, with what to do about it. */
/* Does the device launch kernels early, after it has prepared? */
static bool launches_early(const struct fake_gpu *script, const char *const *words)
{
    struct ct_device *dev = fake_plugin_open(script);
    struct ct_err err = {0};
    float *from = device_array(dev, 16 * sizeof *from);
    uint16_t *to = device_array(dev, 16 * sizeof *to);
    need(dev->ops->prepare_record(dev, &err), &err);
    int before = fake.early;
    need(dev->ops->narrow(dev, 16, from, to, &err), &err);
    bool early = fake.early > before;
    expect_words(dev, words);
    dev->ops->release(dev, from), dev->ops->release(dev, to);
    fake_plugin_close(dev);
    return early;
}

static void kernels_are_launched_early_where_that_is_faster(void **state)
{
    (void)state;
    static const char *const yes[] = {"{\"plan\": \"launch\", \"early\": true, \"early_us\": ",
                                      NULL};
    static const char *const no[] = {"\"early\": false, \"early_us\": 0.000", NULL};
    assert_true(launches_early(NULL, yes));
    assert_false(launches_early(&(struct fake_gpu){.no_early = true}, no));
    assert_false(launches_early(&(struct fake_gpu){.no_early_root = true}, no));
    assert_false(launches_early(&(struct fake_gpu){.capability = 80}, no));
    assert_int_equal(fake.early, 0);
    int seen[2] = {0};
    for (int luck = 1; luck <= 10; luck++) {
        seen[launches_early(&(struct fake_gpu){.any_wins = true, .timed = luck}, no_words)]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
}

static void what_cannot_work_is_said_at_once(void **state)
{
    (void)state;
    static const struct {
        struct fake_gpu script;
        const char *words;
    } cases[] = {
        {{.driver = 12040}, "knows CUDA up to 12.4, this build needs"},
        {{.driver = FAKE_NEVER}, "no NVIDIA driver is installed"},
        {{.capability = 70}, "compute capability 7.0, for which this build has no kernels"},
        {{.capability = 70, .other_refusal = true}, "7.0, for which this build has no kernels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_device *dev = NULL;
        struct ct_err err = {0};
        fake_gpu_begin(&cases[i].script);
        assert_int_equal(ct_cuda_plugin.open(0, &dev, &err), CT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i].words));
        fake_plugin_expect_clean();
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

/* Steps of one parameter, whose rate is the step's number and whose gradient is 1. */
static int record_steps(struct ct_device *dev, float *param, const float *grad,
                        struct ct_step_cursor *cursor, uint64_t *now, struct ct_recording **out,
                        struct ct_err *err)
{
    int rc = dev->ops->record(dev, err);
    if (rc != 0) {
        return rc;
    }
    for (cursor->ahead = 0; rc == 0 && cursor->ahead < 3; cursor->ahead++) {
        rc = dev->ops->sgd(
            dev, &(struct ct_sgd){.count = 1, .param = param, .grad = grad, .cursor = cursor}, err);
    }
    rc = rc == 0 ? dev->ops->advance(dev, now, 3, err) : rc;
    struct ct_recording *made = NULL;
    int ended = dev->ops->record_end(dev, rc == 0 ? &made : NULL, err);
    *out = made;
    return rc != 0 ? rc : ended;
}

static void recorded_steps_find_their_place(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(NULL);
    struct ct_err err = {0};
    const struct ct_update_scalars scalars[9] = {{.lr = 1},  {.lr = 2},   {.lr = 4},
                                                 {.lr = 8},  {.lr = 16},  {.lr = 32},
                                                 {.lr = 64}, {.lr = 128}, {.lr = 256}};
    const float one = 1;
    float *param = device_array(dev, sizeof *param), *grad = device_array(dev, sizeof *grad);
    uint64_t *now = device_array(dev, sizeof *now);
    struct ct_update_scalars *table = device_array(dev, sizeof scalars);
    need(dev->ops->upload(dev, table, scalars, sizeof scalars, &err), &err);
    need(dev->ops->upload(dev, grad, &one, sizeof one, &err), &err);
    struct ct_step_cursor cursor = {.now = now, .scalars = table};
    struct ct_recording *steps = NULL;
    need(record_steps(dev, param, grad, &cursor, now, &steps, &err), &err);
    int waits = fake.waits;
    for (int i = 0; i < 3; i++) {
        need(dev->ops->replay(dev, steps, &err), &err);
    }
    assert_int_equal(fake.waits, waits); /* the host is not needed between steps */
    float sum;
    need(dev->ops->download(dev, &sum, param, sizeof sum, &err), &err);
    assert_true(sum == -511);
    expect_words(dev, (const char *const[]){"{\"plan\": \"recording\", \"nodes\": 4}", NULL});
    dev->ops->forget(dev, steps);
    dev->ops->forget(dev, NULL);
    dev->ops->release(dev, param), dev->ops->release(dev, grad);
    dev->ops->release(dev, now), dev->ops->release(dev, table);
    fake_plugin_close(dev);
}

/* A smaller number is served first. That recorded work keeps this is a rule of the stand-in. */
static void collectives_go_first(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(NULL);
    int stream, side;
    assert_int_equal(cudaStreamGetPriority(dev->stream, &stream), cudaSuccess);
    assert_int_equal(cudaStreamGetPriority(dev->side, &side), cudaSuccess);
    assert_true(side < stream);
    fake_plugin_close(dev);
}

static void explains_what_was_chosen(void **state)
{
    (void)state;
    static const char *const chosen[] = {"{\"plan\": \"product\", \"product\": \"y+bias+relu\"",
                                         "\"refused\": false, \"offered\": 4",
                                         "\"split_k\": ",
                                         "{\"plan\": \"layer\", \"part\": \"dw and db\", ",
                                         "\"fused\": true, \"fused_us\": ",
                                         "\"apart_us\": ",
                                         "{\"plan\": \"head\", ",
                                         "\"apart_us\": ",
                                         NULL};
    static const char *const refused[] = {"\"product\": \"y+bias+relu\"",
                                          "\"refused\": true, \"why\": \"cuBLASLt has no kernel\"}",
                                          NULL};
    /* "linear" and "head": all checks would take a while. */
    const struct ct_check linear[] = {ct_checks_layers[1], {0}}, head[] = {ct_checks_head[0], {0}};
    const struct ct_check *const lists[] = {linear, head, NULL}, *const linears[] = {linear, NULL};
    struct ct_device *dev = fake_plugin_open(NULL);
    assert_int_equal(ct_check_quietly(lists, dev), 0);
    expect_words(dev, chosen);
    dev->ops->close(dev);
    dev = fake_plugin_open(&(struct fake_gpu){.no_epilogues = CUBLASLT_EPILOGUE_RELU});
    assert_int_equal(ct_check_quietly(linears, dev), 0);
    expect_words(dev, refused);
    dev->ops->close(dev);
}

/* Work of the side stream that nobody waits for is no recording, and the device stays usable. */
static void what_is_forked_must_be_joined(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(NULL);
    struct ct_err err = {0};
    struct ct_recording *recording = NULL;
    void *word = device_array(dev, 8);
    for (int joined = 0; joined < 2; joined++) {
        need(dev->ops->record(dev, &err), &err);
        need(dev->ops->clear(dev, word, 8, &err), &err);
        need(dev->ops->fork(dev, &err), &err);
        assert_int_equal(ct_launch_advance((struct ct_launch_on){.stream = dev->side}, word, 1), 0);
        if (joined) {
            need(dev->ops->join(dev, &err), &err);
        }
        int rc = dev->ops->record_end(dev, &recording, &err);
        assert_int_equal(rc, joined ? 0 : CT_EIO);
        assert_int_equal(recording != NULL, joined);
    }
    dev->ops->forget(dev, recording);
    /* A wait breaks it. */
    recording = NULL;
    need(dev->ops->record(dev, &err), &err);
    assert_int_equal(dev->ops->sync(dev, &err), CT_EIO);
    assert_int_equal(dev->ops->record_end(dev, &recording, &err), CT_EIO);
    assert_null(recording);
    assert_int_equal(fake.violations, 1);
    fake.violations = 0;
    need(dev->ops->sync(dev, &err), &err);
    dev->ops->release(dev, word);
    fake_plugin_close(dev);
}

/* A larger batch between two replays, as an evaluation is, needs more room for e4m3 copies; the
 * recording goes on using the room that it found. */
static void recordings_keep_their_memory(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(NULL);
    struct ct_err err = {0};
    need(ct_device_set_precision(dev, CT_PRECISION_FP8, &err), &err);
    void *x = numbers(dev, BATCH * IN, 0), *w = numbers(dev, IN * IN, 10000);
    float *b = device_array(dev, IN * sizeof *b);
    void *y = device_array(dev, BATCH * IN * sizeof(float));
    struct ct_linear op = {.batch = BATCH, .in = IN, .out = IN, .x = x, .w = w, .b = b, .y = y};
    struct ct_recording *recording = NULL;
    need(dev->ops->linear(dev, &op, &err), &err);
    float expected = read_number(dev, y, 0);
    need(dev->ops->record(dev, &err), &err);
    need(dev->ops->linear(dev, &op, &err), &err);
    need(dev->ops->record_end(dev, &recording, &err), &err);
    int memory = fake.memory;
    void *more = device_array(dev, 8 * BATCH * IN * sizeof(float));
    struct ct_linear larger = op;
    larger.batch = 8 * BATCH, larger.x = more, larger.y = more;
    need(dev->ops->linear(dev, &larger, &err), &err);
    assert_int_equal(fake.memory, memory + 2); /* `more`, and room beside the old */
    need(dev->ops->clear(dev, y, BATCH * IN * sizeof(uint16_t), &err), &err);
    need(dev->ops->replay(dev, recording, &err), &err);
    assert_true(read_number(dev, y, 0) == expected);
    dev->ops->forget(dev, recording);
    void *all[] = {x, w, b, y, more};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dev->ops->release(dev, all[i]);
    }
    fake_plugin_close(dev);
}

/* ---- every call that can fail, fails once ---------------------------------------------------- */

/* A last layer in memory of 4096 zeros, in the way that is found to be the fastest. */
static int last_layer(struct ct_device *dev, void *x, void *w, char *zeros, struct ct_err *err)
{
    struct ct_head op = {.linear = {16, 16, 4, x, w, w, zeros, false, true, {0}, NULL, NULL}};
    op.loss = (struct ct_loss){.batch = 16, .classes = 4, .labels = w, .scale = 1};
    op.loss.logits = op.linear.y, op.loss.dlogits = zeros + 1024;
    op.grad = (struct ct_linear_grad){.batch = 16, .in = 16, .out = 4, .x = x, .w = w, .mask = x};
    op.grad.dy = op.loss.dlogits, op.grad.dx = zeros + 2048;
    op.grad.dw = (float *)(zeros + 3072), op.grad.db = (float *)(zeros + 3584);
    op.loss.totals = (double *)(zeros + 3840);
    return dev->ops->head(dev, &op, err);
}

static int life(bool head, struct ct_err *err)
{
    struct ct_device *dev = NULL;
    int rc = ct_cuda_plugin.open(0, &dev, err);
    if (rc != 0) {
        return rc;
    }
    void *x = NULL, *w = NULL, *y = NULL, *zeros = NULL;
    const struct ct_update_scalars scalars = {.lr = 1};
    rc = dev->ops->set_precision(dev, CT_PRECISION_FP8, err);
    rc = rc == 0 ? dev->ops->alloc(dev, 4096, &x, err) : rc;
    rc = rc == 0 ? dev->ops->alloc(dev, 4096, &w, err) : rc;
    rc = rc == 0 ? dev->ops->alloc(dev, 4096, &y, err) : rc;
    rc = rc == 0 ? dev->ops->alloc(dev, 4096, &zeros, err) : rc;
    const uint32_t index[16] = {0};
    struct ct_gather gather = {x, w, index, 16, 16, 0, 1, y, x, NULL};
    rc = rc == 0 ? dev->ops->gather(dev, &gather, err) : rc;
    struct ct_linear linear = {16, 16, 16, x, w, w, y, true, false, {0, 0}, NULL, NULL};
    rc = rc == 0 ? dev->ops->linear(dev, &linear, err) : rc;
    rc = rc == 0 && head ? last_layer(dev, x, w, zeros, err) : rc;
    rc = rc == 0 ? dev->ops->upload(dev, x, &scalars, sizeof scalars, err) : rc;
    struct ct_step_cursor cursor = {.now = w, .scalars = x};
    struct ct_recording *steps = NULL;
    rc = rc == 0 ? dev->ops->prepare_record(dev, err) : rc;
    rc = rc == 0 ? dev->ops->clear(dev, w, 16, err) : rc;
    rc = rc == 0 ? record_steps(dev, y, x, &cursor, w, &steps, err) : rc;
    rc = rc == 0 ? dev->ops->replay(dev, steps, err) : rc;
    rc = rc == 0 ? dev->ops->sync(dev, err) : rc;
    dev->ops->forget(dev, steps);
    dev->ops->release(dev, x), dev->ops->release(dev, w), dev->ops->release(dev, y);
    dev->ops->release(dev, zeros);
    dev->ops->close(dev);
    return rc;
}

static void every_failure_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    int failures = 0, rc = -1;
    /* Ways that cannot be timed are no failures. Most calls only time, eight times the same, and a
     * seventh of those will do. */
    for (int n = 1; n < 2000; n += rc == 0 ? 7 : 1) {
        fake_gpu_begin(&(struct fake_gpu){.fail_cuda_call = n});
        struct ct_err err = {0};
        rc = life(true, &err);
        fake_plugin_expect_clean();
        if (fake.calls < n) {
            assert_int_equal(rc, 0);
            break;
        }
        failures += rc != 0;
        assert_true(rc == 0 || (err.text[0] != '\0' && strchr(err.text, '\n') == NULL));
    }
    assert_true(failures > 40);
}

static int live(void *data)
{
    (void)data;
    fake_gpu_begin(NULL);
    int rc = life(false, NULL);
    fake_plugin_expect_clean();
    return rc;
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(live, NULL, 0) >= 3);
}

int main(void)
{
    /* Each device opened here takes a workspace of many pages, and gives it back soon after: pages
     * that are kept need not be fetched from the kernel again. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_in_every_precision),
        cmocka_unit_test(biases_may_be_anywhere),
        cmocka_unit_test(what_follows_a_product_is_fused_where_that_is_faster),
        cmocka_unit_test(products_are_fp8_where_that_is_faster),
        cmocka_unit_test(precisions_that_the_chip_has),
        cmocka_unit_test(kernels_are_launched_early_where_that_is_faster),
        cmocka_unit_test(what_cannot_work_is_said_at_once),
        cmocka_unit_test(recordings_keep_their_memory),
        cmocka_unit_test(recorded_steps_find_their_place),
        cmocka_unit_test(collectives_go_first),
        cmocka_unit_test(explains_what_was_chosen),
        cmocka_unit_test(what_is_forked_must_be_joined),
        cmocka_unit_test(every_failure_is_told_and_leaves_nothing),
        cmocka_unit_test(survives_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
