/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread of the kernel that never waits costs a call: it begins on the stack where the one before
 * it ended. One that waits keeps its stack, and others go on.
 */
#include "tests/lib/fake_gpu/fake_block.h"

#include "tests/lib/fake_gpu/fake_fiber.h"
#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MAX 1024u
#define WARP 32u
#define SHARED_MAX 64
#define SHARED_BYTES ((size_t)48 << 10) /* what a block has without asking for more */

/* The block that runs; only one thread of the host is ever here (FAKE_ALONE). */
struct lane {
    struct fake_fiber *fiber; /* NULL = it has not begun */
    uint3 at;
    int line; /* of the source, where it waits */
    enum fake_warp_op op;
    unsigned mask, arg;
    uint64_t in, out;
};

static struct lane lanes[LANES_MAX];
static unsigned ready[LANES_MAX], ready_count, lane_count, ended;
static unsigned at_barrier,
    at_warp[LANES_MAX / WARP]; /* who waits: how many, and the lanes' bits */
static bool broken;
static struct lane *now, *next; /* the lane that runs; the one that a free fiber begins */

static struct fake_fiber host, fibers[LANES_MAX], *free_fibers[LANES_MAX], *self;
static unsigned fiber_count, free_count;

static struct {
    void *memory;
    size_t bytes;
} shared[SHARED_MAX];
static unsigned shared_count;
static void *dynamic_shared;
static const struct fake_launch *launched;
static const void *arguments;
static uint64_t random_state;

struct fake_place fake_place;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void change_to(struct fake_fiber *fiber)
{
    struct fake_fiber *from = self;
    self = fiber;
    fake_fiber_change(from, fiber);
}

/* The rule is broken for good: the rest of the launch is dropped. Does not come back. */
static void break_off(int line, const char *what)
{
    static char text[200];
    broken = true;
    if (fake.first_violation == NULL) {
        (void)snprintf(text, sizeof text, "%s, line %d: %s", launched->name, line, what);
    }
    fake_rule(false, text);
    if (self != &host) {
        change_to(&host);
    }
}

static void pass_on(struct lane *waiting);

/* What a fiber runs: threads of the kernel, one after the other. */
static void work(void)
{
    for (;;) {
        now = next;
        now->fiber = self;
        fake_place.thread = now->at;
        launched->run(arguments);
        ended++;
        pass_on(NULL);
    }
}

static struct fake_fiber *free_fiber(void)
{
    if (free_count > 0) {
        return free_fibers[--free_count];
    }
    struct fake_fiber *fiber = &fibers[fiber_count++];
    fake_fiber_begin(fiber, work);
    return fiber;
}

/* Another lane goes on. Comes back when `waiting` may; for NULL, whose fiber is free now, when
 * there is a lane for it to begin. */
static void pass_on(struct lane *waiting)
{
    if (ready_count == 0) { /* all have ended, or wait for who has */
        if (waiting == NULL) {
            free_fibers[free_count++] = self;
        }
        change_to(&host);
    } else {
        unsigned pick = draw(ready_count);
        struct lane *lane = &lanes[ready[pick]];
        ready[pick] = ready[--ready_count];
        if (lane->fiber == NULL) {
            next = lane;
            if (waiting != NULL) {
                change_to(free_fiber());
            }
        } else if (lane != waiting) {
            if (waiting == NULL) {
                free_fibers[free_count++] = self;
            }
            change_to(lane->fiber);
        }
    }
    if (waiting != NULL) {
        now = waiting;
        now->line = 0;
        fake_place.thread = now->at;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

void fake_barrier(int line)
{
    struct lane *lane = now;
    for (unsigned i = 0; at_barrier == lane_count - 1 && i < lane_count; i++) {
        if (&lanes[i] != lane && lanes[i].line != line) {
            break_off(line, "__syncthreads() for threads that wait at another one");
        }
    }
    lane->line = line;
    if (++at_barrier == lane_count) {
        at_barrier = 0;
        for (ready_count = 0; ready_count < lane_count; ready_count++) {
            ready[ready_count] = ready_count;
        }
    }
    pass_on(lane);
}

static uint64_t result_of(const struct lane *lane, unsigned number, const struct lane *warp)
{
    unsigned from = number;
    uint64_t all = 0;
    switch (lane->op) {
    case FAKE_WARP_SYNC:
        return 0;
    case FAKE_WARP_XOR:
        from = number ^ lane->arg;
        break;
    case FAKE_WARP_DOWN:
        from = number + lane->arg < WARP ? number + lane->arg : number;
        break;
    case FAKE_WARP_FROM:
        from = lane->arg % WARP;
        break;
    case FAKE_WARP_BALLOT:
    case FAKE_WARP_MAX:
        for (unsigned i = 0; i < WARP; i++) {
            if (lane->mask >> i & 1) {
                all = lane->op == FAKE_WARP_BALLOT ? all | (uint64_t)(warp[i].in != 0) << i
                      : warp[i].in > all           ? warp[i].in
                                                   : all;
            }
        }
        return all;
    }
    if (from >= WARP || !(lane->mask >> from & 1)) {
        break_off(lane->line, "a shuffle from a lane that takes no part");
    }
    return warp[from].in;
}

/* All of `mask` are here: were they called for the same? */
static void meet(struct lane *lane, struct lane *warp)
{
    for (unsigned i = 0; i < WARP; i++) {
        if ((lane->mask >> i & 1) &&
            (warp[i].op != lane->op || warp[i].line != lane->line || warp[i].mask != lane->mask)) {
            break_off(lane->line, "lanes of a warp meet at different calls");
        }
    }
    for (unsigned i = 0; i < WARP; i++) {
        if (lane->mask >> i & 1) {
            warp[i].out = result_of(&warp[i], i, warp);
            ready[ready_count++] = (unsigned)(&warp[i] - lanes);
        }
    }
}

uint64_t fake_warp(enum fake_warp_op op, unsigned mask, uint64_t value, unsigned arg, int line)
{
    struct lane *lane = now;
    unsigned number = (unsigned)(lane - lanes), warp = number / WARP;
    unsigned there = lane_count - warp * WARP;
    lane->op = op, lane->mask = mask, lane->in = value, lane->arg = arg, lane->line = line;
    if (!(mask >> number % WARP & 1) || (there < WARP && mask >> there != 0)) {
        break_off(line, "a mask without the own lane, or with lanes that do not exist");
    }
    at_warp[warp] |= 1u << number % WARP;
    if ((at_warp[warp] & mask) == mask) {
        at_warp[warp] &= ~mask;
        meet(lane, &lanes[warp * WARP]);
    }
    pass_on(lane);
    return lane->out;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void fake_shared(void *memory, size_t bytes)
{
    size_t all = bytes + launched->shared;
    for (unsigned i = 0; i < shared_count; i++) {
        if (shared[i].memory == memory) {
            return;
        }
        all += shared[i].bytes;
    }
    if (all > SHARED_BYTES || shared_count == SHARED_MAX) {
        break_off(0, "more shared memory than a block has");
    }
    shared[shared_count].memory = memory;
    shared[shared_count++].bytes = bytes;
    memset(memory, 0xff, bytes); /* in each type of floating point a NaN */
}

void *fake_dynamic_shared(void)
{
    return dynamic_shared;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void begin_block(void)
{
    dim3 size = launched->block;
    fake_place.threads = size;
    lane_count = size.x * size.y * size.z;
    ready_count = ended = at_barrier = shared_count = 0;
    memset(at_warp, 0, sizeof at_warp);
    if (dynamic_shared != NULL) {
        memset(dynamic_shared, 0xff, launched->shared);
    }
    for (unsigned i = 0; i < lane_count; i++) {
        lanes[i] = (struct lane){.at = {i % size.x, i / size.x % size.y, i / size.x / size.y}};
        ready[ready_count++] = i;
    }
}

static void run_block(void)
{
    begin_block();
    unsigned pick = draw(ready_count);
    next = &lanes[ready[pick]];
    ready[pick] = ready[--ready_count];
    self = &host;
    change_to(free_fiber());
    if (ended < lane_count && !broken) {
        int line = 0;
        for (unsigned i = 0; i < lane_count; i++) {
            line = lanes[i].line != 0 ? lanes[i].line : line;
        }
        break_off(line, "threads wait for others that do not come");
    }
    if (broken) { /* nobody comes back to what they were in the middle of */
        free_count = 0;
        fiber_count = 0;
    }
}

struct queued {
    struct fake_launch launch;
    max_align_t args[];
};

static void run_grid(const void *data)
{
    const struct queued *q = data;
    dim3 grid = q->launch.grid;
    uint32_t count = grid.x * grid.y * grid.z;
    launched = &q->launch;
    arguments = q->args;
    dynamic_shared = launched->shared > 0 ? malloc(launched->shared) : NULL;
    fake_place.blocks = grid;
    random_state += fake.seed;
    broken = false;
    uint32_t first = draw(count), up = draw(2);
    for (uint32_t i = 0; i < count && !broken; i++) {
        uint32_t b = (uint32_t)(((uint64_t)first + (up ? i : count - i)) % count);
        fake_place.block = (uint3){b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        run_block();
    }
    free(dynamic_shared);
    dynamic_shared = NULL;
}

static bool possible(const struct fake_launch *l)
{
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    return threads > 0 && threads <= LANES_MAX && l->block.z <= 64 && l->grid.x > 0 &&
           l->grid.x < 1u << 31 && l->grid.y > 0 && l->grid.y < 1u << 16 && l->grid.z > 0 &&
           l->grid.z < 1u << 16 && l->shared <= SHARED_BYTES;
}

void fake_launch(const struct fake_launch *launch, const void *args, size_t bytes)
{
    FAKE_ALONE;
    if (fake_fails()) {
        fake_last_error = cudaErrorLaunchFailure;
        return;
    }
    if (!possible(launch)) {
        fake_rule(false, "a launch of sizes that no device has");
        fake_last_error = cudaErrorInvalidConfiguration;
        return;
    }
    size_t size = sizeof(struct queued) + bytes;
    struct queued *q = malloc(size);
    q->launch = *launch;
    memcpy(q->args, args, bytes);
    fake_queue(launch->stream, run_grid, q, size);
    free(q);
}
