/* SPDX-License-Identifier: Apache-2.0
 *
 * Update rules and learning rates against their formulas.
 */
#include "kernels/device/update_scalars.h"
#include "tests/lib/ct_test.h"
#include "trainer/data/sampler.h"
#include "trainer/formats/rng.h"
#include "trainer/model/lr_schedule.h"
#include "trainer/model/optimizer.h"

#include <math.h>

#define COUNT 1003
#define STEPS 3

struct arrays {
    float params[COUNT], grads[COUNT], state[2][COUNT];
};

static void fill(struct arrays *a)
{
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < COUNT; i++) {
        a->params[i] = ct_rng_unit(1, 1, i) - 0.5f;
        a->grads[i] = ct_rng_unit(1, 2, i) - 0.5f;
    }
}

static struct ct_optimizer make(enum ct_optimizer_kind kind, struct arrays *a)
{
    return (struct ct_optimizer){
        .kind = kind,
        .lr = 0.1f,
        .momentum = 0.9f,
        .weight_decay = 0.01f,
        .state = {a->state[0], ct_optimizer_state_name(kind, 1) != NULL ? a->state[1] : NULL},
    };
}

/* STEPS updates, each in `world` shares. */
static void train(struct ct_device *dev, enum ct_optimizer_kind kind, int world, struct arrays *a)
{
    struct ct_optimizer opt = make(kind, a);
    for (int step = 0; step < STEPS; step++) {
        for (int rank = 0; rank < world; rank++) {
            size_t begin, end;
            ct_sampler_share(COUNT, rank, world, &begin, &end);
            assert_int_equal(ct_optimizer_apply(&opt, dev, a->params, a->grads, begin, end, NULL),
                             0);
        }
        opt.step++;
    }
}

static void sgd_by_hand(struct arrays *a)
{
    for (size_t i = 0; i < COUNT; i++) {
        double p = a->params[i], v = 0;
        for (int step = 0; step < STEPS; step++) {
            v = 0.9 * v + a->grads[i] + 0.01 * p;
            p -= 0.1 * v;
        }
        a->params[i] = (float)p;
        a->state[0][i] = (float)v;
    }
}

static void adamw_by_hand(struct arrays *a)
{
    for (size_t i = 0; i < COUNT; i++) {
        double p = a->params[i], m = 0, v = 0, g = a->grads[i];
        for (int step = 1; step <= STEPS; step++) {
            p -= 0.1 * 0.01 * p;
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            double mean = m / (1 - pow(0.9, step)), square = v / (1 - pow(0.999, step));
            p -= 0.1 * mean / (sqrt(square) + 1e-8);
        }
        a->params[i] = (float)p;
        a->state[0][i] = (float)m;
    }
}

static void check(enum ct_optimizer_kind kind, void (*by_hand)(struct arrays *))
{
    struct ct_device *dev;
    static struct arrays want, whole, parts;
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    fill(&want);
    by_hand(&want);
    fill(&whole);
    train(dev, kind, 1, &whole);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(fabsf(whole.params[i] - want.params[i]) < 1e-5f);
        assert_true(fabsf(whole.state[0][i] - want.state[0][i]) < 1e-5f);
    }
    /* However the work is shared, the bits are the same. */
    for (int world = 2; world <= 8; world++) {
        fill(&parts);
        train(dev, kind, world, &parts);
        assert_memory_equal(&parts, &whole, sizeof whole);
    }
    dev->ops->close(dev);
}

static void test_sgd_follows_the_formula(void **state)
{
    (void)state;
    check(CT_OPTIMIZER_SGD, sgd_by_hand);
}

static void test_adamw_follows_the_formula(void **state)
{
    (void)state;
    check(CT_OPTIMIZER_ADAMW, adamw_by_hand);
}

/* What a recorded step of a GPU reads in place of the arguments of an update. */
static void test_scalars_are_those_of_the_rule(void **state)
{
    (void)state;
    const struct ct_optimizer sgd = {.kind = CT_OPTIMIZER_SGD, .weight_decay = 0.01f};
    const struct ct_optimizer adamw = {.kind = CT_OPTIMIZER_ADAMW, .weight_decay = 0.01f};
    const struct ct_update_scalars plain = {.lr = 0.1f};
    const struct ct_update_scalars want = ct_update_scalars_adamw(0.1f, 0.9f, 0.999f, 0.01f, 7);
    struct ct_update_scalars got = ct_optimizer_scalars(&sgd, 0.1f, 7);
    assert_memory_equal(&got, &plain, sizeof got);
    got = ct_optimizer_scalars(&adamw, 0.1f, 7);
    assert_memory_equal(&got, &want, sizeof got);
}

static void test_empty_share_touches_nothing(void **state)
{
    (void)state;
    struct ct_optimizer opt = {.kind = CT_OPTIMIZER_SGD};
    /* No device is asked. */
    assert_int_equal(ct_optimizer_apply(&opt, NULL, NULL, NULL, 5, 5, NULL), 0);
}

static void test_names_are_those_of_pytorch(void **state)
{
    (void)state;
    assert_string_equal(ct_optimizer_name(CT_OPTIMIZER_SGD), "sgd");
    assert_string_equal(ct_optimizer_name(CT_OPTIMIZER_ADAMW), "adamw");
    assert_string_equal(ct_optimizer_state_name(CT_OPTIMIZER_SGD, 0), "momentum");
    assert_null(ct_optimizer_state_name(CT_OPTIMIZER_SGD, 1));
    assert_null(ct_optimizer_state_name(CT_OPTIMIZER_SGD, 2));
    assert_string_equal(ct_optimizer_state_name(CT_OPTIMIZER_ADAMW, 1), "exp_avg_sq");
    assert_null(ct_optimizer_state_name(CT_OPTIMIZER_ADAMW, 2));
}

static void test_schedules_follow_the_formula(void **state)
{
    (void)state;
    struct ct_rate rate = {.schedule = CT_SCHEDULE_CONSTANT, .full = 0.1, .epochs = 10};
    assert_true(ct_lr_schedule_rate(&rate, 9, 0.1) == 0.1);
    rate.schedule = CT_SCHEDULE_COSINE;
    assert_true(ct_lr_schedule_rate(&rate, 0, 0.1) == 0.1);
    assert_true(fabs(ct_lr_schedule_rate(&rate, 5, 0.1) - 0.05) < 1e-12);
    assert_true(fabs(ct_lr_schedule_rate(&rate, 10, 0.1)) < 1e-12);
}

static void test_warmup_rises_step_by_step(void **state)
{
    (void)state;
    /* Three and a half steps of 0.1 epochs. */
    struct ct_rate rate = {
        .schedule = CT_SCHEDULE_CONSTANT, .full = 0.7, .warmup = 0.35, .epochs = 1.35};
    assert_true(fabs(ct_lr_schedule_rate(&rate, 0, 0.1) - 0.2) < 1e-12);
    assert_true(fabs(ct_lr_schedule_rate(&rate, 0.2, 0.1) - 0.6) < 1e-12);
    assert_true(ct_lr_schedule_rate(&rate, 0.3, 0.1) == 0.7);
    assert_true(ct_lr_schedule_rate(&rate, 0.4, 0.1) == 0.7);
    /* The cosine spans what is left. */
    rate.schedule = CT_SCHEDULE_COSINE;
    assert_true(ct_lr_schedule_rate(&rate, 0.35, 0.1) == 0.7);
    assert_true(fabs(ct_lr_schedule_rate(&rate, 0.85, 0.1) - 0.35) < 1e-12);
    assert_true(fabs(ct_lr_schedule_rate(&rate, 1.35, 0.1)) < 1e-12);
}

static void test_rate_follows_the_batch(void **state)
{
    (void)state;
    assert_true(ct_lr_schedule_scaled(CT_RATE_SCALE_OFF, 0.1, 1024, 256) == 0.1);
    assert_true(ct_lr_schedule_scaled(CT_RATE_SCALE_LINEAR, 0.1, 1024, 256) == 0.4);
    assert_true(ct_lr_schedule_scaled(CT_RATE_SCALE_SQRT, 0.1, 1024, 256) == 0.2);
    assert_true(ct_lr_schedule_scaled(CT_RATE_SCALE_LINEAR, 0.1, 64, 256) == 0.025);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd_follows_the_formula),
        cmocka_unit_test(test_adamw_follows_the_formula),
        cmocka_unit_test(test_scalars_are_those_of_the_rule),
        cmocka_unit_test(test_empty_share_touches_nothing),
        cmocka_unit_test(test_names_are_those_of_pytorch),
        cmocka_unit_test(test_schedules_follow_the_formula),
        cmocka_unit_test(test_warmup_rises_step_by_step),
        cmocka_unit_test(test_rate_follows_the_batch),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
