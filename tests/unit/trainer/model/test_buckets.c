/* SPDX-License-Identifier: Apache-2.0
 *
 * How gradients are cut into buckets, and when each is sent. A device and a communicator that only
 * take notes stand in for a GPU and NCCL.
 */
#include "tests/lib/ct_test.h"
#include "trainer/model/buckets.h"
#include "worker/comm/comm.h"

#define MIB ((size_t)1 << 20)

static struct ct_layout layout_of_four(void)
{
    struct ct_layout layout;
    const struct ct_hidden hidden = {.count = 3, .size = {1024, 1024, 256}};
    assert_int_equal(ct_layout_init(&layout, 784, &hidden, 10, NULL), 0);
    return layout;
}

/* ---- the cut --------------------------------------------------------------------------------- */

static void buckets_are_whole_layers(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    static const size_t sizes[] = {1, MIB / 2, MIB, 2 * MIB, 6 * MIB, SIZE_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct ct_buckets b;
        ct_buckets_init(&b, &layout, sizes[s], NULL, NULL);
        size_t end = layout.count;
        for (size_t i = 0; i < b.count; i++) {
            assert_int_equal(b.bucket[i].end, end);
            assert_true(b.bucket[i].begin < end);
            assert_int_equal(b.bucket[i].begin, layout.layer[b.bucket[i].layer].weight);
            end = b.bucket[i].begin;
        }
        assert_int_equal(end, 0);
    }
}

static void the_first_bucket_is_small_and_the_others_are_as_large_as_asked(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    struct ct_buckets b;
    ct_buckets_init(&b, &layout, 6 * MIB, NULL, NULL);
    /* 256-10 and 1024-256 come to a MiB; 1024-1024 and 784-1024 to 6. */
    assert_int_equal(b.count, 2);
    assert_int_equal(b.bucket[0].layer, 2);
    ct_buckets_init(&b, &layout, SIZE_MAX, NULL, NULL);
    assert_int_equal(b.count, 2);
    ct_buckets_init(&b, &layout, 1, NULL, NULL);
    assert_int_equal(b.count, 4);
    /* A layer that comes to the size exactly is enough. */
    size_t exactly = (layout.count - layout.layer[3].weight) * sizeof(float);
    ct_buckets_init(&b, &layout, exactly, NULL, NULL);
    assert_int_equal(b.count, 4);
    ct_buckets_init(&b, &layout, exactly + 1, NULL, NULL);
    assert_int_equal(b.count, 3);
}

/* Without peers the first is no smaller; a single one is not updated beside anything. */
static void without_peers_buckets_are_for_updates(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    const struct ct_optimizer optimizer = {.kind = CT_OPTIMIZER_SGD};
    struct ct_group alone = {.world = 1};
    struct ct_buckets b;
    ct_buckets_init(&b, &layout, 5 * MIB, &alone, NULL);
    assert_int_equal(b.count, 2);
    assert_int_equal(b.bucket[0].layer, 1);
    ct_buckets_update(&b, &optimizer, NULL);
    assert_non_null(b.optimizer);
    ct_buckets_init(&b, &layout, SIZE_MAX, &alone, NULL);
    ct_buckets_update(&b, &optimizer, NULL);
    assert_null(b.optimizer);
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct {
    struct ct_bucket sent[CT_LAYERS_MAX];
    size_t count, forks, joins, fails_at;
} notes;

static float grads[1];

static int note_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                           struct ct_err *err)
{
    (void)comm;
    assert_ptr_equal(send, recv);
    assert_int_equal(notes.forks, notes.count + 1); /* what is queued comes before each */
    size_t begin = (size_t)(recv - grads);
    notes.sent[notes.count++] = (struct ct_bucket){.begin = begin, .end = begin + count};
    return notes.count == notes.fails_at ? ct_err_set(err, CT_EPEER, "a peer has died") : 0;
}

static void note_abort(struct ctw_comm *comm)
{
    (void)comm;
}

static int note_fork(struct ct_device *dev, struct ct_err *err)
{
    (void)dev;
    (void)err;
    notes.forks++;
    return 0;
}

static int note_join(struct ct_device *dev, struct ct_err *err)
{
    (void)dev;
    (void)err;
    notes.joins++;
    return 0;
}

static const struct ctw_comm_ops comm_ops = {.all_reduce = note_all_reduce, .abort = note_abort};
static const struct ct_device_ops device_ops = {.fork = note_fork, .join = note_join};

/* Sends a whole backward pass, last layer first. */
static int pass(struct ct_buckets *b, const struct ct_layout *layout)
{
    int rc = 0;
    for (size_t l = layout->layer_count; rc == 0 && l-- > 0;) {
        size_t before = notes.count;
        bool whole = b->sent < b->count && b->bucket[b->sent].layer == l;
        rc = ct_buckets_layer_done(b, l, NULL);
        assert_int_equal(notes.count, before + whole);
    }
    return rc;
}

static void a_bucket_is_sent_when_its_lowest_layer_is_done(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    struct ct_device dev = {.ops = &device_ops};
    struct ctw_comm comm = {.ops = &comm_ops, .size = 2};
    struct ct_group group = {.comm = &comm, .dev = &dev, .world = 2};
    struct ct_buckets b;
    ct_buckets_init(&b, &layout, 4 * MIB, &group, grads);
    assert_int_equal(b.count, 3);
    for (int step = 0; step < 2; step++) {
        memset(&notes, 0, sizeof notes);
        assert_int_equal(pass(&b, &layout), 0);
        assert_int_equal(notes.joins, 0);
        assert_int_equal(ct_buckets_finish(&b, NULL), 0);
        assert_int_equal(notes.joins, 1);
        assert_int_equal(notes.count, b.count);
        for (size_t i = 0; i < b.count; i++) {
            assert_int_equal(notes.sent[i].begin, b.bucket[i].begin);
            assert_int_equal(notes.sent[i].end, b.bucket[i].end);
        }
    }
}

static void what_has_not_been_sent_is_sent_at_the_end(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    struct ct_device dev = {.ops = &device_ops};
    struct ctw_comm comm = {.ops = &comm_ops, .size = 2};
    struct ct_group group = {.comm = &comm, .dev = &dev, .world = 2};
    struct ct_buckets b;
    ct_buckets_init(&b, &layout, 1, &group, grads);
    memset(&notes, 0, sizeof notes);
    assert_int_equal(ct_buckets_layer_done(&b, 3, NULL), 0);
    assert_int_equal(ct_buckets_finish(&b, NULL), 0);
    assert_int_equal(notes.count, 4);
    assert_int_equal(notes.sent[3].begin, 0);
    assert_int_equal(notes.joins, 1);
}

static void a_sum_that_fails_is_the_last(void **state)
{
    (void)state;
    const struct ct_layout layout = layout_of_four();
    struct ct_device dev = {.ops = &device_ops};
    struct ctw_comm comm = {.ops = &comm_ops, .size = 2};
    struct ct_group group = {.comm = &comm, .dev = &dev, .world = 2};
    struct ct_buckets b;
    ct_buckets_init(&b, &layout, 1, &group, grads);
    memset(&notes, 0, sizeof notes);
    notes.fails_at = 2;
    assert_int_equal(ct_buckets_finish(&b, NULL), CT_EPEER);
    assert_int_equal(notes.count, 2);
    assert_int_equal(notes.joins, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_whole_layers),
        cmocka_unit_test(without_peers_buckets_are_for_updates),
        cmocka_unit_test(the_first_bucket_is_small_and_the_others_are_as_large_as_asked),
        cmocka_unit_test(a_bucket_is_sent_when_its_lowest_layer_is_done),
        cmocka_unit_test(what_has_not_been_sent_is_sent_at_the_end),
        cmocka_unit_test(a_sum_that_fails_is_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
