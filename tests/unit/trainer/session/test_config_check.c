/* SPDX-License-Identifier: Apache-2.0
 *
 * Which settings must be the same on all ranks: the fingerprint changes with each of them.
 */
#include "tests/lib/ct_test.h"
#include "trainer/session/config_check.h"

#include <stddef.h>

struct field {
    const char *name;
    size_t at, bytes;
};
#define FIELD(path)                                                                      \
    {                                                                                    \
#path, offsetof(struct ct_trainer, path), sizeof(((struct ct_trainer *)0)->path) \
    }
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct ct_device device;
static struct ct_trainer trainer;

static int setup(void **state)
{
    (void)state;
    device = (struct ct_device){.precision = CT_PRECISION_F32};
    trainer = (struct ct_trainer){.dev = &device, .layout = {.layer_count = 2}};
    return 0;
}

/* The fingerprint with one bit of a field's byte turned over. */
static uint64_t with_another(const struct field *field, size_t byte)
{
    unsigned char *place = (unsigned char *)&trainer + field->at + byte;
    *place ^= 1;
    uint64_t hash = ct_config_check_fingerprint(&trainer);
    *place ^= 1;
    return hash;
}

static void every_setting_that_decides_the_result_counts(void **state)
{
    (void)state;
    static const struct field fields[] = {
        FIELD(layout.layer[0].in),      FIELD(layout.layer[0].out),
        FIELD(layout.layer[1].in),      FIELD(layout.layer[1].out),
        FIELD(options.epochs),          FIELD(options.batch_size),
        FIELD(options.shards),          FIELD(options.lr),
        FIELD(options.momentum),        FIELD(options.weight_decay),
        FIELD(options.optimizer),       FIELD(options.schedule),
        FIELD(options.scale_lr),        FIELD(options.base_batch),
        FIELD(options.warmup_epochs),   FIELD(options.seed),
        FIELD(options.pipeline_stages), FIELD(options.micro_batches),
        FIELD(options.augment.flip),    FIELD(options.augment.shift),
        FIELD(data.set.train.count),    FIELD(data.set.test.count),
        FIELD(data.set.mean),           FIELD(data.set.stddev),
    };
    enum { MOST = COUNT(fields) * sizeof(uint64_t) };
    uint64_t seen[MOST + 2];
    size_t count = 0;
    seen[count++] = ct_config_check_fingerprint(&trainer);
    device.precision = CT_PRECISION_BF16;
    seen[count++] = ct_config_check_fingerprint(&trainer);
    device.precision = CT_PRECISION_F32;
    for (size_t f = 0; f < COUNT(fields); f++) {
        for (size_t byte = 0; byte < fields[f].bytes; byte++) {
            seen[count++] = with_another(&fields[f], byte);
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_true(seen[i] != seen[j]);
        }
    }
}

/* Ranks may differ in where they write, and in how they compute the same. */
static void what_a_rank_may_decide_alone_does_not_count(void **state)
{
    (void)state;
    static const struct field fields[] = {
        FIELD(options.metrics), FIELD(options.checkpoint), FIELD(options.device),
        FIELD(options.output),  FIELD(options.cuda_graph), FIELD(group.rank),
    };
    uint64_t plain = ct_config_check_fingerprint(&trainer);
    for (size_t f = 0; f < COUNT(fields); f++) {
        assert_true(with_another(&fields[f], 0) == plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_setting_that_decides_the_result_counts, setup),
        cmocka_unit_test_setup(what_a_rank_may_decide_alone_does_not_count, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
