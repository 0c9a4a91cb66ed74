/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread of the kernel that never waits is cheap: it begins on the stack on which the previous
 * one has ended. A thread that waits keeps its stack, and other threads run, of its block or of
 * another block that has begun. Shared memory is in static variables of the program. When another
 * block runs, their content is exchanged.
 */
#include "tests/lib/fake_gpu/fake_block.h"

#include "tests/lib/fake_gpu/fake_fiber.h"
#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "tests/lib/fake_gpu/fake_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MAX 1024u
#define WARP 32u
#define SHARED_MAX 64
#define SHARED_BYTES ((size_t)48 << 10) /* what a block has unless the launch asks for more */

/* The most blocks that have begun and not ended. Only one thread of the host is ever here
 * (FAKE_ALONE). */
#define RESIDENT_MAX 4

/* At one of so many waits of a thread, another block runs. */
#define BLOCK_TURNS 32
/* At one of so many atomic operations and fences, the block becomes late. */
#define LATE_TURNS 6

struct block;

struct lane {
    struct block *block;
    struct fake_fiber *fiber; /* NULL = it has not begun */
    uint3 at;
    int line;    /* of the source at which it waits */
    bool may_go; /* need not wait for the work in front of the launch, or has waited */
    enum fake_warp_op op;
    unsigned mask, arg;
    uint64_t in, out;
};

struct shared {
    void *memory;
    void *kept; /* the content while another block runs */
    size_t bytes;
};

struct block {
    bool runs; /* has begun and not ended */
    bool late; /* runs only when no other block can */
    uint3 at;
    struct lane lanes[LANES_MAX];
    unsigned ready[LANES_MAX], ready_count, ended;
    unsigned at_barrier;                /* how many lanes wait there */
    unsigned at_warp[LANES_MAX / WARP]; /* the bits of the lanes that wait in their warp */
    struct shared shared[SHARED_MAX];
    unsigned shared_count;
    void *dynamic_shared;
    struct fake_view view;
};

static struct block blocks[RESIDENT_MAX], *current;
static unsigned resident, lane_count;
static bool broken;
static struct lane *now, *next; /* the lane that runs; the lane that a free fiber will begin */

static struct fake_fiber host, fibers[RESIDENT_MAX * LANES_MAX],
    *free_fibers[RESIDENT_MAX * LANES_MAX], *self;
static unsigned fiber_count, free_count;

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

/* Reports a violation and drops the rest of the launch. Does not return to a kernel. */
static void break_off(int line, const char *what)
{
    static char text[200];
    broken = true;
    if (fake.first_violation == NULL) {
        /* "... [with auto Kernel = name; ...]" of a template that launches */
        const char *within = strstr(launched->name, "Kernel = ");
        const char *name = within != NULL ? within + strlen("Kernel = ") : launched->name;
        (void)snprintf(text, sizeof text, "%.*s, line %d: %s", (int)strcspn(name, ";]"), name, line,
                       what);
    }
    fake_rule(false, text);
    if (self != &host) {
        change_to(&host);
    }
}

static void pass_on(struct lane *waiting);

/* Checks that an early kernel has waited before this thread goes on. */
static void expect_gone(void)
{
    if (!now->may_go) {
        break_off(now->line, "an early kernel that does not wait for the work in front of it");
    }
}

void fake_await_previous(void)
{
    now->may_go = true;
}

/* The function of each fiber. It runs threads of the kernel, one after the other. */
static void work(void)
{
    for (;;) {
        now = next;
        now->fiber = self;
        fake_place.thread = now->at;
        launched->run(arguments);
        expect_gone();
        current->ended++;
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

static void change_memory(struct block *to)
{
    if (current == to) {
        return;
    }
    for (unsigned i = 0; current != NULL && i < current->shared_count; i++) {
        memcpy(current->shared[i].kept, current->shared[i].memory, current->shared[i].bytes);
    }
    if (current != NULL) {
        fake_view_leave(&current->view);
    }
    current = to;
    for (unsigned i = 0; i < to->shared_count; i++) {
        memcpy(to->shared[i].memory, to->shared[i].kept, to->shared[i].bytes);
    }
    fake_view_enter(&to->view);
    fake_place.block = to->at;
}

/* Draws one of the blocks that can run, or returns NULL. */
static struct block *draw_block(bool late)
{
    struct block *chosen = NULL;
    unsigned seen = 0;
    for (unsigned b = 0; b < resident; b++) {
        const struct block *block = &blocks[b];
        if (block->runs && block->ready_count > 0 && block->late == late && draw(++seen) == 0) {
            chosen = &blocks[b];
        }
    }
    return chosen;
}

/* Mostly the current block continues. A late block runs only when no other can. */
static struct block *pick_block(void)
{
    bool stays = resident == 1 || draw(BLOCK_TURNS) > 0;
    if (stays && current != NULL && current->ready_count > 0 && !current->late) {
        return current;
    }
    struct block *chosen = draw_block(false);
    chosen = chosen != NULL ? chosen : draw_block(true);
    if (chosen != NULL) {
        chosen->late = false;
    }
    return chosen;
}

static struct lane *pick_lane(void)
{
    struct block *block = pick_block();
    if (block == NULL) {
        return NULL;
    }
    unsigned pick = draw(block->ready_count);
    struct lane *lane = &block->lanes[block->ready[pick]];
    block->ready[pick] = block->ready[--block->ready_count];
    change_memory(block);
    return lane;
}

/* Lets another lane run, and returns when `waiting` may run again. NULL means that the lane of this
 * fiber has ended: then it returns when there is a lane that the fiber can begin. The host runs
 * when a block has ended, or when no lane can run. */
static void pass_on(struct lane *waiting)
{
    bool over = waiting == NULL && current->ended == lane_count;
    struct lane *lane = over ? NULL : pick_lane();
    if (lane == NULL) {
        if (waiting == NULL) {
            free_fibers[free_count++] = self;
        }
        change_to(&host);
    } else if (lane->fiber == NULL) {
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
    struct block *b = current;
    expect_gone();
    for (unsigned i = 0; b->at_barrier == lane_count - 1 && i < lane_count; i++) {
        if (&b->lanes[i] != lane && b->lanes[i].line != line) {
            break_off(line, "__syncthreads() for threads that wait at another one");
        }
    }
    lane->line = line;
    if (++b->at_barrier == lane_count) {
        b->at_barrier = 0;
        for (b->ready_count = 0; b->ready_count < lane_count; b->ready_count++) {
            b->ready[b->ready_count] = b->ready_count;
        }
    }
    pass_on(lane);
}

/* Lets other threads run, without waiting for them. If the block becomes late here, all others that
 * can run do so first. */
static void yield(void)
{
    expect_gone();
    current->ready[current->ready_count++] = (unsigned)(now - current->lanes);
    current->late = draw(LATE_TURNS) == 0;
    pass_on(now);
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

/* All lanes of the mask are here. Checks that they are in the same call, and gives the results. */
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
            current->ready[current->ready_count++] = (unsigned)(&warp[i] - current->lanes);
        }
    }
}

uint64_t fake_warp(enum fake_warp_op op, unsigned mask, uint64_t value, unsigned arg, int line)
{
    struct lane *lane = now;
    expect_gone();
    unsigned number = (unsigned)(lane - current->lanes), warp = number / WARP;
    unsigned there = lane_count - warp * WARP;
    lane->op = op, lane->mask = mask, lane->in = value, lane->arg = arg, lane->line = line;
    if (!(mask >> number % WARP & 1) || (there < WARP && mask >> there != 0)) {
        break_off(line, "a mask without the own lane, or with lanes that do not exist");
    }
    current->at_warp[warp] |= 1u << number % WARP;
    if ((current->at_warp[warp] & mask) == mask) {
        current->at_warp[warp] &= ~mask;
        meet(lane, &current->lanes[warp * WARP]);
    }
    pass_on(lane);
    return lane->out;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void fake_shared(void *memory, size_t bytes)
{
    struct block *b = current;
    size_t all = bytes + launched->shared;
    for (unsigned i = 0; i < b->shared_count; i++) {
        if (b->shared[i].memory == memory) {
            return;
        }
        all += b->shared[i].bytes;
    }
    if (all > SHARED_BYTES || b->shared_count == SHARED_MAX) {
        break_off(0, "more shared memory than a block has");
    }
    b->shared[b->shared_count++] = (struct shared){memory, malloc(bytes), bytes};
    memset(memory, 0xff, bytes); /* a NaN in each type of floating point */
}

void *fake_dynamic_shared(void)
{
    return current->dynamic_shared;
}

/* ---- between blocks -------------------------------------------------------------------------- */

/* At the first atomic operation or fence of a grid, each block gets its own view of memory. */
static void begin_views(void)
{
    if (fake_views_begin()) {
        for (unsigned b = 0; b < resident; b++) {
            if (blocks[b].runs) {
                fake_view_new(&blocks[b].view);
            }
        }
    }
}

void fake_atomic(void *at, size_t bytes, void (*change)(void *at, void *data), void *data)
{
    yield();
    begin_views();
    fake_view_before_atomic(at, bytes);
    change(at, data);
    fake_view_after_atomic(&current->view, at, bytes);
    yield();
}

void fake_fence(void)
{
    begin_views();
    fake_view_fence(&current->view);
    yield();
}

/* ---- launches -------------------------------------------------------------------------------- */

static void begin_block(struct block *b, uint3 at)
{
    dim3 size = launched->block;
    *b = (struct block){.runs = true, .at = at};
    for (unsigned i = 0; i < lane_count; i++) {
        b->lanes[i] = (struct lane){.block = b,
                                    .may_go = !launched->early,
                                    .at = {i % size.x, i / size.x % size.y, i / size.x / size.y}};
        b->ready[b->ready_count++] = i;
    }
    if (launched->shared > 0) {
        b->dynamic_shared = malloc(launched->shared);
        memset(b->dynamic_shared, 0xff, launched->shared);
    }
    fake_view_new(&b->view);
}

static void end_block(struct block *b)
{
    for (unsigned i = 0; i < b->shared_count; i++) {
        free(b->shared[i].kept);
    }
    free(b->dynamic_shared);
    fake_view_end(&b->view, b == current);
    b->runs = false;
    current = b == current ? NULL : current;
}

/* Runs until a block has ended, or until no lane can run. False if no lane can run at all. */
static bool go_on(void)
{
    struct lane *lane = pick_lane();
    if (lane == NULL) {
        return false;
    }
    self = &host;
    if (lane->fiber == NULL) {
        next = lane;
        change_to(free_fiber());
    } else {
        change_to(lane->fiber);
    }
    return true;
}

static void tell_who_waits(void)
{
    int line = 0;
    for (unsigned b = 0; b < resident; b++) {
        for (unsigned i = 0; blocks[b].runs && i < lane_count; i++) {
            line = blocks[b].lanes[i].line != 0 ? blocks[b].lanes[i].line : line;
        }
    }
    break_off(line, "threads wait for others that do not come");
}

struct queued {
    struct fake_launch launch;
    max_align_t args[];
};

static void run_blocks(dim3 grid)
{
    uint32_t count = grid.x * grid.y * grid.z, begun = 0, ended = 0;
    uint32_t first = draw(count), up = draw(2);
    resident = count > 1 ? 2 + draw(RESIDENT_MAX - 1) : 1;
    while (ended < count && !broken) {
        for (unsigned b = 0; b < resident && begun < count; b++) {
            if (!blocks[b].runs) {
                uint32_t n = (uint32_t)(((uint64_t)first + (up ? begun : count - begun)) % count);
                begin_block(&blocks[b],
                            (uint3){n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y});
                begun++;
            }
        }
        if (!go_on()) {
            tell_who_waits();
        }
        for (unsigned b = 0; b < resident; b++) {
            if (blocks[b].runs && blocks[b].ended == lane_count) {
                end_block(&blocks[b]);
                ended++;
            }
        }
    }
}

static void run_grid(const void *data)
{
    const struct queued *q = data;
    dim3 size = q->launch.block;
    launched = &q->launch;
    arguments = q->args;
    fake_place.threads = size;
    fake_place.blocks = q->launch.grid;
    lane_count = size.x * size.y * size.z;
    random_state += fake.seed;
    broken = false;
    current = NULL;
    self = &host;
    run_blocks(q->launch.grid);
    for (unsigned b = 0; b < resident; b++) {
        if (blocks[b].runs) {
            end_block(&blocks[b]);
        }
    }
    if (broken) { /* fibers in the middle of a kernel are never resumed */
        free_count = 0;
        fiber_count = 0;
    }
    fake_views_end();
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
    fake_rule(!launch->early || fake.capability == 0 || fake.capability >= 90,
              "an early launch on a device that has none");
    const struct CUstream_st *s = fake_stream_of(launch->stream);
    bool root = s->capture != NULL && s->frontier.count == 0;
    if (launch->early && (fake.no_early || (root && fake.no_early_root))) {
        fake_last_error = cudaErrorNotSupported;
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
    fake.early += launch->early;
    fake_queue(launch->stream, run_grid, q, size);
    free(q);
}
