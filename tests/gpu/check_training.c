/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss and parameter updates.
 */
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

#include "common/alloc.h"

#include <math.h>
#include <string.h>

/* ---- loss ----------------------------------------------------------------------------------- */

/* Runs the operation on `logits` and returns the totals that it added to what was there. */
static void run_loss(struct ct_device *dev, const struct test_tensor *logits, const uint8_t *labels,
                     struct ct_loss *op, double totals[2])
{
    struct ct_err err = {0};
    const double before[2] = {100.0, 7.0};
    void *dlabels, *dtotals;
    ct_check_need(dev->ops->alloc(dev, op->batch + 1, &dlabels, &err), &err);
    ct_check_need(dev->ops->alloc(dev, sizeof(before), &dtotals, &err), &err);
    ct_check_need(dev->ops->upload(dev, dlabels, labels, op->batch, &err), &err);
    ct_check_need(dev->ops->upload(dev, dtotals, before, sizeof(before), &err), &err);
    op->logits = logits->data, op->labels = dlabels, op->totals = dtotals;
    ct_check_need(dev->ops->loss(dev, op, &err), &err);
    ct_check_need(dev->ops->download(dev, totals, dtotals, sizeof(before), &err), &err);
    totals[0] -= before[0], totals[1] -= before[1];
    dev->ops->release(dev, dlabels), dev->ops->release(dev, dtotals);
}

static void check_loss_size(struct ct_device *dev, size_t batch, size_t classes, float spread)
{
    struct ct_random rng = {batch * 7919 + classes};
    struct test_tensor logits = test_tensor_filled(dev, batch * classes, &rng);
    struct test_tensor d = test_tensor_poisoned(dev, batch * classes);
    uint8_t *labels = ct_malloc(batch);
    CHECK(labels != NULL);
    for (size_t i = 0; i < logits.count; i++) {
        logits.host[i] *= spread;
    }
    test_tensor_push(&logits);
    for (size_t i = 0; i < batch; i++) {
        labels[i] = (uint8_t)ct_random_below(&rng, classes);
    }
    struct ct_loss op = {.batch = batch, .classes = classes, .scale = 0.25f, .dlogits = d.data};
    double totals[2], expected[2] = {0.0, 0.0}, *ref = ct_check_doubles(batch * classes);
    run_loss(dev, &logits, labels, &op, totals);
    test_tensor_pull(&d);
    struct ct_loss host = op;
    host.logits = logits.host, host.labels = labels;
    ct_ref_loss(&host, ref, expected);
    test_tensor_expect("dlogits", &d, ref, 1e-7);
    CHECK(fabs(totals[0] - expected[0]) <= 1e-6 * (double)batch + 1e-6 * expected[0]);
    CHECK(totals[1] == expected[1]);
    /* Without dlogits the totals are the same to the bit. */
    double again[2];
    op.dlogits = NULL;
    run_loss(dev, &logits, labels, &op, again);
    CHECK(again[0] == totals[0] && again[1] == totals[1]);
    ct_free(ref), ct_free(labels);
    test_tensor_drop(&logits), test_tensor_drop(&d);
}

static void check_loss(struct ct_device *dev)
{
    const size_t batches[] = {0, 1, 3, 17, 33, 1000};
    const size_t classes[] = {1, 2, 10, 33, 256};
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
        for (size_t c = 0; c < sizeof(classes) / sizeof(classes[0]); c++) {
            check_loss_size(dev, batches[b], classes[c], 3.0f);
            check_loss_size(dev, batches[b], classes[c], 300.0f); /* exp() alone would overflow */
        }
    }
}

static void check_loss_ties_and_nan(struct ct_device *dev)
{
    const float rows[5][3] = {{2, 2, 1}, {2, 2, 1}, {0, 5, 5}, {-1e30f, 1e30f, 0}, {NAN, 0, 1}};
    const uint8_t labels[5] = {0, 1, 2, 1, 2};
    struct test_tensor logits = test_tensor_poisoned(dev, 15);
    memcpy(logits.host, rows, sizeof(rows));
    test_tensor_push(&logits);
    double totals[2];
    struct ct_loss op = {.batch = 4, .classes = 3, .scale = 1.0f};
    run_loss(dev, &logits, labels, &op, totals);
    CHECK(totals[1] == 2.0); /* rows 0 and 3; 1 and 2 lose their tie */
    CHECK(isfinite(totals[0]));
    op.batch = 5;
    run_loss(dev, &logits, labels, &op, totals);
    CHECK(isnan(totals[0])); /* a run that diverges must show it */
    test_tensor_drop(&logits);
}

static void check_loss_refuses_classes(struct ct_device *dev)
{
    struct ct_err err = {0};
    struct ct_loss op = {.batch = 1, .classes = 257};
    CHECK(dev->ops->loss(dev, &op, &err) == CT_EINVAL);
    CHECK(strstr(err.text, "257") != NULL);
    op.classes = 0;
    CHECK(dev->ops->loss(dev, &op, &err) == CT_EINVAL);
}

/* The analytic gradient against central differences of the operation's own loss. */
static void check_loss_gradient(struct ct_device *dev)
{
    struct ct_random rng = {11};
    const uint8_t labels[2] = {3, 0};
    struct test_tensor logits = test_tensor_filled(dev, 10, &rng),
                       d = test_tensor_poisoned(dev, 10);
    double totals[2];
    struct ct_loss op = {.batch = 2, .classes = 5, .scale = 1.0f, .dlogits = d.data};
    run_loss(dev, &logits, labels, &op, totals);
    test_tensor_pull(&d);
    op.dlogits = NULL;
    const float h = 1.0f / 128.0f;
    for (size_t i = 0; i < 10; i++) {
        double side[2][2];
        float middle = logits.host[i];
        for (int s = 0; s < 2; s++) {
            logits.host[i] = s == 0 ? middle - h : middle + h;
            test_tensor_push(&logits);
            run_loss(dev, &logits, labels, &op, side[s]);
        }
        logits.host[i] = middle;
        double slope = (side[1][0] - side[0][0]) / (2.0 * (double)h);
        CHECK(fabs(slope - (double)d.host[i]) < 1e-4);
    }
    test_tensor_drop(&logits), test_tensor_drop(&d);
}

/* ---- updates -------------------------------------------------------------------------------- */

static void check_sgd_case(struct ct_device *dev, size_t count, float momentum, float decay,
                           bool buffer)
{
    struct ct_err err = {0};
    struct ct_random rng = {count + 5};
    struct test_tensor p = test_tensor_filled(dev, count, &rng),
                       g = test_tensor_filled(dev, count, &rng);
    struct test_tensor v = test_tensor_filled(dev, count, &rng);
    struct ct_sgd op = {count, p.data, buffer ? v.data : NULL, g.data, 0.1f, momentum, decay, NULL};
    double *rp = ct_check_doubles(count), *rv = ct_check_doubles(count);
    for (size_t i = 0; i < count; i++) {
        rp[i] = (double)p.host[i], rv[i] = (double)v.host[i];
    }
    for (int step = 0; step < 3; step++) {
        ct_check_need(dev->ops->sgd(dev, &op, &err), &err);
        ct_ref_sgd(&op, g.host, rp, rv);
    }
    test_tensor_pull(&p), test_tensor_pull(&v), test_tensor_pull(&g);
    test_tensor_expect("p", &p, rp, 1e-6);
    if (buffer) {
        test_tensor_expect("v", &v, rv, 1e-6);
    }
    ct_free(rp), ct_free(rv);
    test_tensor_drop(&p), test_tensor_drop(&g), test_tensor_drop(&v);
}

static void check_sgd(struct ct_device *dev)
{
    const size_t counts[] = {0, 1, 17, 1000, 401920};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_sgd_case(dev, counts[i], 0.9f, 0.01f, true);
        check_sgd_case(dev, counts[i], 0.0f, 0.0f, true);
        check_sgd_case(dev, counts[i], 0.0f, 0.01f, false);
    }
}

static void check_adamw(struct ct_device *dev)
{
    struct ct_err err = {0};
    const size_t counts[] = {0, 1, 33, 100003};
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        size_t count = counts[n];
        struct ct_random rng = {count + 9};
        struct test_tensor p = test_tensor_filled(dev, count, &rng),
                           g = test_tensor_filled(dev, count, &rng);
        struct test_tensor m = test_tensor_filled(dev, count, &rng),
                           v = test_tensor_filled(dev, count, &rng);
        double *rp = ct_check_doubles(count), *rm = ct_check_doubles(count),
               *rv = ct_check_doubles(count);
        for (size_t i = 0; i < count; i++) {
            v.host[i] *= v.host[i];
            rp[i] = (double)p.host[i], rm[i] = (double)m.host[i], rv[i] = (double)v.host[i];
        }
        test_tensor_push(&v);
        struct ct_adamw op = {.count = count, .param = p.data, .m = m.data, .v = v.data};
        op.grad = g.data, op.lr = 0.01f, op.beta1 = 0.9f, op.beta2 = 0.999f, op.eps = 1e-8f;
        op.weight_decay = 0.1f;
        for (op.step = 1; op.step <= 4; op.step++) {
            ct_check_need(dev->ops->adamw(dev, &op, &err), &err);
            ct_ref_adamw(&op, g.host, rp, rm, rv);
        }
        test_tensor_pull(&p), test_tensor_pull(&m), test_tensor_pull(&v), test_tensor_pull(&g);
        test_tensor_expect("m", &m, rm, 1e-6);
        test_tensor_expect("v", &v, rv, 1e-6);
        test_tensor_expect("p", &p, rp, 2e-5); /* m / sqrt(v) reaches 10: steps of 0.1 */
        ct_free(rp), ct_free(rm), ct_free(rv);
        test_tensor_drop(&p), test_tensor_drop(&g), test_tensor_drop(&m), test_tensor_drop(&v);
    }
}

const struct ct_check ct_checks_training[] = {
    {"loss", check_loss},
    {"loss_ties_and_nan", check_loss_ties_and_nan},
    {"loss_refuses_classes", check_loss_refuses_classes},
    {"loss_gradient", check_loss_gradient},
    {"sgd", check_sgd},
    {"adamw", check_adamw},
    {NULL, NULL},
};
