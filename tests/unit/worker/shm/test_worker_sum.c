/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of arrays: order, bits, shares of ranks.
 */
#include "tests/lib/ct_test.h"

#include "worker/shm/sum.h"

#include <stdbool.h>

#define RANKS 64
#define MOST 5000

static float sources[RANKS][MOST];

/* Values whose sum depends on the order of addition. */
static void fill(void)
{
    unsigned seed = 12345;
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < MOST; i++) {
            seed = seed * 1103515245U + 12345U;
            sources[r][i] = (float)(seed >> 8) / 1000.0F * (r % 2 == 0 ? 1.0F : -3.7F);
        }
    }
}

/* One after the other. */
static float in_line(int n, size_t i)
{
    float sum = sources[0][i];
    for (int r = 1; r < n; r++) {
        sum += sources[r][i];
    }
    return sum;
}

/* As a balanced tree, from source `first` on. */
static float as_tree(int first, int n, size_t i)
{
    return n == 1 ? sources[first][i] : as_tree(first, n / 2, i) + as_tree(first + n / 2, n / 2, i);
}

struct order {
    sum_fn sum;
    bool tree;
    int most; /* sources that are tried */
};

static struct order line = {sum_arrays, false, 10}, tree = {sum_tree, true, RANKS};

static int next_count(const struct order *order, int n)
{
    return order->tree ? 2 * n : n + 1;
}

static float expected(const struct order *order, int n, size_t i)
{
    return order->tree ? as_tree(0, n, i) : in_line(n, i);
}

static void adds_in_order(void **state)
{
    const struct order *order = *state;
    fill();
    const float *src[RANKS];
    for (int r = 0; r < RANKS; r++) {
        src[r] = sources[r];
    }
    static float dst[MOST];
    const size_t ends[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 4999, MOST};
    for (int n = 1; n <= order->most; n = next_count(order, n)) {
        for (size_t e = 0; e < sizeof(ends) / sizeof(ends[0]); e++) {
            size_t begin = ends[e] > 3 ? 3 : 0;
            for (size_t i = 0; i < MOST; i++) {
                dst[i] = -1;
            }
            order->sum(dst, src, n, begin, ends[e]);
            for (size_t i = 0; i < MOST; i++) {
                float want = i >= begin && i < ends[e] ? expected(order, n, i) : -1;
                if (memcmp(&dst[i], &want, sizeof(want)) != 0) {
                    fail_msg("n %d, end %zu: dst[%zu] = %a, expected %a", n, ends[e], i,
                             (double)dst[i], (double)want);
                }
            }
        }
    }
}

static void may_write_over_any_source(void **state)
{
    const struct order *order = *state;
    for (int n = 1; n <= order->most; n = next_count(order, n)) {
        for (int target = 0; target<n; target += n> 16 ? 7 : 1) {
            fill();
            static float want[MOST];
            const float *src[RANKS];
            for (int r = 0; r < RANKS; r++) {
                src[r] = sources[r];
            }
            for (size_t i = 0; i < MOST; i++) {
                want[i] = expected(order, n, i);
            }
            order->sum(sources[target], src, n, 0, MOST);
            assert_memory_equal(sources[target], want, sizeof(want));
        }
    }
}

/* Two ranks with four terms each, four with two, eight with one: the same bits. */
static void nested_trees_give_the_same_bits(void **state)
{
    (void)state;
    fill();
    static float parts[8][MOST], whole[MOST], again[MOST];
    const float *src[8];
    for (int r = 0; r < 8; r++) {
        src[r] = sources[r];
    }
    sum_tree(whole, src, 8, 0, MOST);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        const float *subtrees[8];
        for (int r = 0; r < ranks; r++) {
            sum_tree(parts[r], src + r * (8 / ranks), 8 / ranks, 0, MOST);
            subtrees[r] = parts[r];
        }
        sum_tree(again, subtrees, ranks, 0, MOST);
        assert_memory_equal(again, whole, sizeof(whole));
    }
}

static void shares_cover_everything_once(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 15, 16, 17, 31, 32, 33, 1000, 407050, SIZE_MAX / 4};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int size = 1; size <= 70; size += size < 8 ? 1 : 31) {
            size_t at = 0, least = SIZE_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                size_t begin, end;
                sum_share(counts[c], rank, size, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end >= begin);
                assert_true(begin % 16 == 0 || begin == counts[c]);
                at = end;
                least = end - begin < least ? end - begin : least;
                most = end - begin > most ? end - begin : most;
            }
            assert_int_equal(at, counts[c]);
            assert_true(most - least <= 32);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(adds_in_order, &line),
        cmocka_unit_test_prestate(adds_in_order, &tree),
        cmocka_unit_test_prestate(may_write_over_any_source, &line),
        cmocka_unit_test_prestate(may_write_over_any_source, &tree),
        cmocka_unit_test(nested_trees_give_the_same_bits),
        cmocka_unit_test(shares_cover_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
