/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of pipelines: a simulator runs all stages of one in random order over channels that
 * hold one message, and checks at each step what the schedule promises.
 */
#include "tests/gpu/reference.h"
#include "tests/lib/ct_test.h"
#include "trainer/model/pipeline_schedule.h"

#define STAGES_MAX 8
#define MICROS_MAX 24

/* ---- layers ---------------------------------------------------------------------------------- */

static struct ct_layout layout_of(const size_t *hidden, size_t count)
{
    struct ct_layout layout;
    struct ct_hidden sizes = {.count = count};
    memcpy(sizes.size, hidden, count * sizeof *hidden);
    assert_int_equal(ct_layout_init(&layout, 784, &sizes, 10, NULL), 0);
    return layout;
}

static void expect_stage(const struct ct_layout *layout, size_t stages, size_t s, size_t first,
                         size_t end)
{
    size_t have_first, have_end;
    ct_pipe_layers(layout, stages, s, &have_first, &have_end);
    assert_int_equal(have_first, first);
    assert_int_equal(have_end, end);
}

static void test_layers_are_split_by_work(void **state)
{
    (void)state;
    /* 784-512-512-512-10: work of 803, 786, 786, 15 thousand. */
    struct ct_layout even = layout_of((const size_t[]){512, 512, 512}, 3);
    expect_stage(&even, 1, 0, 0, 4);
    expect_stage(&even, 2, 0, 0, 1);
    expect_stage(&even, 2, 1, 1, 4);
    expect_stage(&even, 3, 0, 0, 1);
    expect_stage(&even, 3, 1, 1, 2);
    expect_stage(&even, 3, 2, 2, 4);
    for (size_t s = 0; s < 4; s++) {
        expect_stage(&even, 4, s, s, s + 1);
    }
    /* One layer outweighs all others together. */
    struct ct_layout top = layout_of((const size_t[]){8, 8, 2000, 2000}, 4);
    expect_stage(&top, 2, 0, 0, 3);
    expect_stage(&top, 2, 1, 3, 5);
}

static double cost(const struct ct_layout *layout, size_t l)
{
    return (double)(layout->layer[l].in * layout->layer[l].out) * (l == 0 ? 2 : 3);
}

/* Costliest stage of the best split of layers [at, count) into `stages`, by trying them all. */
static double best_by_trying(const struct ct_layout *layout, size_t at, size_t stages)
{
    double sum = 0, best = -1;
    for (size_t end = at + 1; end + stages - 1 <= layout->layer_count; end++) {
        sum += cost(layout, end - 1);
        if (stages == 1 && end < layout->layer_count) {
            continue;
        }
        double rest = stages == 1 ? 0 : best_by_trying(layout, end, stages - 1);
        double most = sum > rest ? sum : rest;
        best = best < 0 || most < best ? most : best;
    }
    return best;
}

static void test_no_split_is_better(void **state)
{
    (void)state;
    struct ct_random rng = {11};
    for (int round = 0; round < 200; round++) {
        size_t hidden[8], count = 1 + ct_random_below(&rng, 7);
        for (size_t i = 0; i < count; i++) {
            hidden[i] = 1 + ct_random_below(&rng, 1000);
        }
        struct ct_layout layout = layout_of(hidden, count);
        for (size_t stages = 1; stages <= layout.layer_count; stages++) {
            double most = 0;
            size_t next = 0;
            for (size_t s = 0; s < stages; s++) {
                size_t first, end;
                double sum = 0;
                ct_pipe_layers(&layout, stages, s, &first, &end);
                assert_int_equal(first, next);
                assert_true(end > first);
                for (size_t l = first; l < end; l++) {
                    sum += cost(&layout, l);
                }
                most = sum > most ? sum : most;
                next = end;
            }
            assert_int_equal(next, layout.layer_count);
            assert_true(most == best_by_trying(&layout, 0, stages));
        }
    }
}

static void test_stages_join_to_the_whole(void **state)
{
    (void)state;
    struct ct_layout whole = layout_of((const size_t[]){33, 7, 100}, 3);
    static float all[40000], part[40000];
    assert_true(whole.count < 40000);
    ct_layout_draw(&whole, 5, all);
    size_t next = 0, parameters = 0;
    for (size_t s = 0; s < 3; s++) {
        size_t first, end;
        struct ct_layout stage;
        ct_pipe_layers(&whole, 3, s, &first, &end);
        ct_layout_stage(&whole, first, end, &stage);
        assert_int_equal(whole.layer[first].weight, next);
        struct ct_span span = ct_pipe_span(&whole, 3, s);
        assert_int_equal(span.first, next);
        assert_int_equal(span.count, stage.count);
        memset(part, 0, sizeof part);
        ct_layout_draw(&stage, 5, part);
        assert_memory_equal(part, all + next, stage.count * sizeof(float));
        next += stage.count;
        parameters += stage.parameters;
    }
    assert_int_equal(next, whole.count);
    assert_int_equal(parameters, whole.parameters);
}

/* ---- order ----------------------------------------------------------------------------------- */

struct stage {
    size_t next;               /* action */
    size_t forward, backward;  /* passes done */
    bool receives;             /* what the action needs has been taken */
    size_t holder[MICROS_MAX]; /* micro-batch + 1 in each slot, 0 = free */
};

struct pipe {
    size_t stages, micros;
    struct stage stage[STAGES_MAX];
    size_t up[STAGES_MAX], down[STAGES_MAX]; /* message + 1 from a stage to the next; 0 = none */
};

static bool take(size_t *channel, size_t micro)
{
    if (*channel == 0) {
        return false;
    }
    assert_int_equal(*channel, micro + 1); /* in order */
    *channel = 0;
    return true;
}

static bool give(size_t *channel, size_t micro)
{
    if (*channel != 0) {
        return false;
    }
    *channel = micro + 1;
    return true;
}

/* One receive and pass, or one send, of stage s. False when it has to wait. */
static bool step(struct pipe *p, size_t s)
{
    struct stage *st = &p->stage[s];
    if (st->next == 2 * p->micros) {
        return false;
    }
    struct ct_pipe_action a = ct_pipe_action(p->stages, s, p->micros, st->next);
    size_t depth = ct_pipe_depth(p->stages, s, p->micros);
    bool top = s + 1 == p->stages;
    assert_true(a.micro < p->micros);
    if (!st->receives) {
        if (a.backward ? !top && !take(&p->down[s], a.micro)
                       : s > 0 && !take(&p->up[s - 1], a.micro)) {
            return false;
        }
        st->receives = true;
        size_t *slot = &st->holder[a.micro % depth];
        if (a.backward) {
            assert_int_equal(a.micro, st->backward++);
            assert_int_equal(*slot, a.micro + 1); /* what forward left is still there */
            *slot = 0;
        } else {
            assert_int_equal(a.micro, st->forward++);
            assert_int_equal(*slot, 0);
            *slot = a.micro + 1;
        }
        assert_true(st->forward - st->backward <= depth);
        return true;
    }
    if (a.backward ? s > 0 && !give(&p->down[s - 1], a.micro) : !top && !give(&p->up[s], a.micro)) {
        return false;
    }
    st->receives = false;
    st->next++;
    return true;
}

static void simulate(size_t stages, size_t micros, struct ct_random *rng)
{
    struct pipe p = {.stages = stages, .micros = micros};
    for (size_t done = 0; done < stages;) {
        /* From a random stage on, the first that can go on does. If none can, they wait for each
         * other for ever. */
        size_t start = ct_random_below(rng, stages), tried = 0;
        while (tried < stages && !step(&p, (start + tried) % stages)) {
            tried++;
        }
        if (tried == stages) {
            done = 0;
            for (size_t s = 0; s < stages; s++) {
                done += p.stage[s].next == 2 * micros;
            }
            if (done < stages) {
                fail_msg("deadlock: %zu stages, %zu micro-batches", stages, micros);
            }
        }
    }
    for (size_t s = 0; s < stages; s++) {
        assert_int_equal(p.stage[s].forward, micros);
        assert_int_equal(p.stage[s].backward, micros);
        assert_int_equal(p.up[s], 0);
        assert_int_equal(p.down[s], 0);
    }
}

static void test_every_order_of_events_ends(void **state)
{
    (void)state;
    struct ct_random rng = {1};
    for (size_t stages = 1; stages <= STAGES_MAX; stages++) {
        for (size_t micros = 1; micros <= MICROS_MAX; micros++) {
            for (int round = 0; round < 10; round++) {
                simulate(stages, micros, &rng);
            }
        }
    }
}

static void test_few_are_in_flight(void **state)
{
    (void)state;
    assert_int_equal(ct_pipe_depth(4, 0, 100), 4);
    assert_int_equal(ct_pipe_depth(4, 3, 100), 1);
    assert_int_equal(ct_pipe_depth(4, 0, 2), 2);
    assert_int_equal(ct_pipe_depth(1, 0, 100), 1);
}

static void test_order_is_1f1b(void **state)
{
    (void)state;
    static const char *const want[] = {"F0F1F2B0F3B1B2B3", "F0F1B0F2B1F3B2B3", "F0B0F1B1F2B2F3B3"};
    for (size_t s = 0; s < 3; s++) {
        char got[17] = "";
        for (size_t i = 0; i < 8; i++) {
            struct ct_pipe_action a = ct_pipe_action(3, s, 4, i);
            got[2 * i] = a.backward ? 'B' : 'F';
            got[2 * i + 1] = (char)('0' + a.micro);
        }
        assert_string_equal(got, want[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_are_split_by_work),
        cmocka_unit_test(test_no_split_is_better),
        cmocka_unit_test(test_stages_join_to_the_whole),
        cmocka_unit_test(test_every_order_of_events_ends),
        cmocka_unit_test(test_few_are_in_flight),
        cmocka_unit_test(test_order_is_1f1b),
    };
    return cmocka_run_group_tests_name("pipeline_schedule", tests, NULL, NULL);
}
