/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of collectives between hosts: a simulator carries out the schedules of all hosts over
 * channels between them and compares the sums bit by bit, and looks at each step for what it
 * promises.
 */
#include "tests/lib/ct_test.h"
#include "worker/net/schedule.h"
#include "worker/shm/sum.h"

#define NODES_MAX 16
#define FLOATS_MAX 1000
#define BYTES_MAX (FLOATS_MAX * sizeof(float))

struct node {
    struct schedule schedule;
    size_t step;
    bool sent; /* in this step */
    float own[FLOATS_MAX], out[FLOATS_MAX];
};

/* What one host has sent to another and nobody has read yet. */
struct channel {
    unsigned char bytes[2 * BYTES_MAX];
    size_t len;
};

struct world {
    int nodes;
    size_t moved;
    struct node node[NODES_MAX];
    struct channel channel[NODES_MAX][NODES_MAX];
};

static struct world world;

static const size_t counts[] = {0, 1, 15, 16, 17, 100, 999, FLOATS_MAX};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* ---- the simulator --------------------------------------------------------------------------- */

/* Values whose sum depends on the order of addition. */
static void begin(int nodes)
{
    unsigned seed = 4711;
    world.nodes = nodes;
    world.moved = 0;
    memset(world.channel, 0, sizeof(world.channel));
    for (int n = 0; n < nodes; n++) {
        struct node *node = &world.node[n];
        node->step = 0;
        node->sent = false;
        assert_int_equal(schedule_init(&node->schedule, nodes), 0);
        for (size_t i = 0; i < FLOATS_MAX; i++) {
            seed = seed * 1103515245U + 12345U;
            node->own[i] = (float)(seed >> 8) / 1000.0F * (n % 2 == 0 ? 1.0F : -3.7F);
            node->out[i] = -1;
        }
    }
}

static void end(void)
{
    for (int n = 0; n < world.nodes; n++) {
        schedule_fini(&world.node[n].schedule);
    }
}

static int host_at(int node, int link)
{
    if (link >= SCHEDULE_PARTNER) {
        return node ^ 1 << (link - SCHEDULE_PARTNER);
    }
    return (node + (link == SCHEDULE_NEXT ? 1 : world.nodes - 1)) % world.nodes;
}

static void send_range(int n, const struct schedule_step *step)
{
    struct node *node = &world.node[n];
    struct channel *to = &world.channel[n][host_at(n, step->to)];
    size_t len = step->send_end - step->send_begin;
    const float *from = step->send_own ? node->own : node->out;
    assert_true(to->len + len <= sizeof(to->bytes));
    memcpy(to->bytes + to->len, (const unsigned char *)from + step->send_begin, len);
    to->len += len;
    world.moved += len;
}

static void add(struct node *node, const struct schedule_step *step, const float *came)
{
    const float *mine = step->recv_own ? node->own : node->out;
    size_t first = step->recv_begin / sizeof(float);
    for (size_t i = first; i < step->recv_end / sizeof(float); i++) {
        float theirs = came[i - first];
        node->out[i] = step->mine_first ? mine[i] + theirs : theirs + mine[i];
    }
}

static bool receive_range(int n, const struct schedule_step *step)
{
    struct node *node = &world.node[n];
    struct channel *from = &world.channel[host_at(n, step->from)][n];
    size_t len = step->recv_end - step->recv_begin;
    float came[FLOATS_MAX];
    if (from->len < len) {
        return false;
    }
    memcpy(came, from->bytes, len);
    from->len -= len;
    memmove(from->bytes, from->bytes + len, from->len);
    if (step->add) {
        add(node, step, came);
    } else {
        memcpy((unsigned char *)node->out + step->recv_begin, came, len);
    }
    return true;
}

/* One host's next move; false when it must wait or has done. */
static bool move(int n)
{
    struct node *node = &world.node[n];
    if (node->step == node->schedule.count) {
        return false;
    }
    const struct schedule_step *step = &node->schedule.steps[node->step];
    if (!node->sent) {
        node->sent = true;
        if (step->to != SCHEDULE_NOBODY) {
            send_range(n, step);
        }
        return true;
    }
    if (step->from != SCHEDULE_NOBODY && !receive_range(n, step)) {
        return false;
    }
    node->step++;
    node->sent = false;
    return true;
}

static void run(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int n = 0; n < world.nodes; n++) {
            moved |= move(n);
        }
    }
    for (int n = 0; n < world.nodes; n++) {
        assert_int_equal(world.node[n].step, world.node[n].schedule.count);
        for (int m = 0; m < world.nodes; m++) {
            assert_int_equal(world.channel[n][m].len, 0);
        }
    }
}

/* ---- what steps promise ---------------------------------------------------------------------- */

static void check_steps(const struct schedule *schedule, size_t bytes)
{
    size_t base = 0;
    for (size_t k = 0; k < schedule->count; k++) {
        const struct schedule_step *step = &schedule->steps[k];
        assert_true(step->send_begin <= step->send_end && step->send_end <= bytes);
        assert_true(step->recv_begin <= step->recv_end && step->recv_end <= bytes);
        if (step->follows) {
            assert_true(k > 0);
            assert_int_equal(step->send_begin, schedule->steps[k - 1].recv_begin);
            assert_int_equal(step->send_end, schedule->steps[k - 1].recv_end);
        }
        bool overlap = step->send_begin < step->recv_end && step->recv_begin < step->send_end;
        assert_true(!overlap || step->copy);
        if (step->add && step->recv_own) {
            assert_int_equal(step->recv_base, base);
            base += step->recv_end - step->recv_begin;
        }
    }
}

/* From the host where the segment's way around the ring begins. */
static float in_ring(int nodes, int first, size_t i)
{
    float sum = world.node[first].own[i];
    for (int n = 1; n < nodes; n++) {
        sum += world.node[(first + n) % nodes].own[i];
    }
    return sum;
}

static float in_tree(int first, int n, size_t i)
{
    return n == 1 ? world.node[first].own[i]
                  : in_tree(first, n / 2, i) + in_tree(first + n / 2, n / 2, i);
}

typedef void (*fill_fn)(struct schedule *schedule, int node, int nodes, size_t bytes);

static void check_sums(fill_fn fill, int nodes, size_t count, bool ring)
{
    begin(nodes);
    for (int n = 0; n < nodes; n++) {
        fill(&world.node[n].schedule, n, nodes, count * sizeof(float));
        check_steps(&world.node[n].schedule, count * sizeof(float));
    }
    run();
    for (int segment = 0; segment < nodes; segment++) {
        size_t from, to;
        sum_share(count, segment, nodes, &from, &to);
        for (size_t i = from; i < to; i++) {
            float want = ring ? in_ring(nodes, segment, i) : in_tree(0, nodes, i);
            for (int n = 0; n < nodes; n++) {
                if (memcmp(&world.node[n].out[i], &want, sizeof(want)) != 0) {
                    fail_msg("%d hosts, %zu floats: [%zu] on host %d is %a, expected %a", nodes,
                             count, i, n, (double)world.node[n].out[i], (double)want);
                }
            }
        }
    }
    end();
}

/* ---- the schedules
 * ------------------------------------------------------------------------------- */

static void ring_sums_with_the_fewest_bytes(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= 9; nodes++) {
        for (size_t c = 0; c < COUNTS; c++) {
            check_sums(schedule_ring, nodes, counts[c], true);
            assert_int_equal(world.moved, 2 * (size_t)(nodes - 1) * counts[c] * sizeof(float));
        }
    }
}

static void tree_sums_with_the_fewest_bytes(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= NODES_MAX; nodes *= 2) {
        for (size_t c = 0; c < COUNTS; c++) {
            check_sums(schedule_tree, nodes, counts[c], false);
            assert_int_equal(world.moved, 2 * (size_t)(nodes - 1) * counts[c] * sizeof(float));
        }
    }
}

static void doubling_sums_in_the_fewest_steps(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= NODES_MAX; nodes *= 2) {
        for (size_t c = 0; c < COUNTS; c++) {
            check_sums(schedule_doubling, nodes, counts[c], false);
            assert_int_equal(world.node[0].step, schedule_levels(nodes));
        }
    }
}

static void broadcast_passes_on_what_the_root_has(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 4095, BYTES_MAX};
    for (int nodes = 2; nodes <= 5; nodes++) {
        for (int root = 0; root < nodes; root++) {
            for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                size_t bytes = sizes[s] < BYTES_MAX ? sizes[s] : BYTES_MAX;
                begin(nodes);
                for (int n = 0; n < nodes; n++) {
                    schedule_broadcast(&world.node[n].schedule, n, nodes, root, bytes);
                    check_steps(&world.node[n].schedule, bytes);
                }
                memcpy(world.node[root].out, world.node[root].own, BYTES_MAX);
                run();
                for (int n = 0; n < nodes; n++) {
                    assert_memory_equal(world.node[n].out, world.node[root].own, bytes);
                }
                assert_int_equal(world.moved, (size_t)(nodes - 1) * bytes);
                end();
            }
        }
    }
}

static void levels_are_of_powers_of_two_only(void **state)
{
    (void)state;
    const int levels[] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    for (int n = 0; n <= 8; n++) {
        assert_int_equal(schedule_levels(n), levels[n]);
        assert_int_equal(schedule_power_of_two(n), n == 1 || levels[n] > 0);
    }
    assert_false(schedule_power_of_two(-4));
}

static int init_body(void *data)
{
    struct schedule schedule;
    int rc = schedule_init(&schedule, 4);
    schedule_fini(&schedule);
    (void)data;
    return rc;
}

static void init_survives_faults(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(init_body, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_sums_with_the_fewest_bytes),
        cmocka_unit_test(tree_sums_with_the_fewest_bytes),
        cmocka_unit_test(doubling_sums_in_the_fewest_steps),
        cmocka_unit_test(broadcast_passes_on_what_the_root_has),
        cmocka_unit_test(levels_are_of_powers_of_two_only),
        cmocka_unit_test(init_survives_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
