/* SPDX-License-Identifier: Apache-2.0
 *
 * Which settings must be the same on all ranks: the fingerprint changes with each of them. Ranks
 * that differ, in these or in where they stand, are told which of them does.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "trainer/session/config_check.h"

#include <stddef.h>
#include <stdio.h>

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

/* ---- between ranks --------------------------------------------------------------------------- */

#define WORLD 3

/* In which way the last ranks differ from rank 0. */
struct difference {
    struct field field;
    int from; /* the first rank that differs; WORLD: none does */
};

static void check_together(int rank, void *data)
{
    const struct difference *difference = data;
    struct ct_err err = {0};
    struct ctw_job *job = rank_open_job();
    CHECK(ct_device_open(CT_DEVICE_CPU, 0, &trainer.dev, NULL) == 0);
    CHECK(ct_group_open(job, trainer.dev, CTW_ORDER_RANK, &trainer.group, NULL) == 0);
    trainer.layout.layer_count = 2;
    trainer.options.pipeline_stages = 2;
    if (rank >= difference->from) {
        *((unsigned char *)&trainer + difference->field.at) ^= 1;
    }
    int rc = ct_config_check(&trainer, &err);
    if (difference->from == WORLD) {
        CHECK(rc == 0);
    } else {
        char want[64];
        (void)snprintf(want, sizeof want, "rank %d has other options, data or checkpoint",
                       difference->from);
        CHECK(rc == CT_EINVAL);
        rank_check_text(&err, want);
    }
    ct_group_close(&trainer.group);
    trainer.dev->ops->close(trainer.dev);
    ctw_job_free(job);
}

static void the_first_rank_that_differs_is_named_to_all(void **state)
{
    (void)state;
    static const struct field fields[] = {
        FIELD(options.seed),          FIELD(options.eval_only),  FIELD(options.bucket_mb),
        FIELD(options.metrics_every), FIELD(at.epoch),           FIELD(at.batch),
        FIELD(optimizer.step),        FIELD(options.checkpoint), FIELD(options.checkpoint_every),
    };
    trainer = (struct ct_trainer){.at = {.epoch = 0}};
    for (size_t f = 0; f < COUNT(fields); f++) {
        struct difference difference = {fields[f], 1 + (int)(f % 2)};
        ranks_run(WORLD, check_together, &difference);
        ranks.count = 0; /* they have ended */
    }
    struct difference none = {.from = WORLD};
    ranks_run(WORLD, check_together, &none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_setting_that_decides_the_result_counts, setup),
        cmocka_unit_test_setup(what_a_rank_may_decide_alone_does_not_count, setup),
        RANKS_TEST(the_first_rank_that_differs_is_named_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
