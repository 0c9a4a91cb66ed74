/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events of the fake GPU (tests/lib/fake_gpu/fake_gpu.h), and the order in which work
 * on streams runs.
 */
#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_gpu fake;

static struct CUstream_st default_stream;
struct CUstream_st *fake_streams;
static uint64_t random_state;
bool fake_stalled;
uint64_t fake_done;

/* ---- threads --------------------------------------------------------------------------------- */

/* No test makes another thread or process so late. */
#define PATIENCE_S 20

static pthread_mutex_t alone = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;

int fake_enter(void)
{
    return pthread_mutex_lock(&alone);
}

void fake_leave(const int *held)
{
    (void)held;
    (void)pthread_mutex_unlock(&alone);
}

/* Since when waits have gone on in which nothing has run; 0 = something has run. */
static time_t idle_since;

/* Wakes up after a millisecond in any case, because other processes do not signal what they queue.
 */
bool fake_await_others(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    idle_since = idle_since == 0 ? until.tv_sec : idle_since;
    if (fake.cliques == 0 || until.tv_sec - idle_since > PATIENCE_S) {
        return false;
    }
    until.tv_nsec += 1000 * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&news, &alone, &until);
    return true;
}

void fake_tell_others(void)
{
    (void)pthread_cond_broadcast(&news);
}

void fake_await_told(void)
{
    (void)pthread_cond_wait(&news, &alone);
}

/* ---- words ----------------------------------------------------------------------------------- */

uint32_t fake_draw(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

void fake_rule(bool kept, const char *text)
{
    if (!kept) {
        fake.violations++;
        if (fake.first_violation == NULL) {
            fake.first_violation = text;
        }
    }
}

bool fake_fails(void)
{
    return ++fake.calls == fake.fail_cuda_call;
}

static void drop_op(struct op *op)
{
    if (op->kind == OP_GRAPH) {
        fake_drop_graph(op->graph);
        free(op->done);
    }
    if (op->kind == OP_RUN) {
        free(op->data);
    }
    free(op);
}

static void drop_queue(struct CUstream_st *s)
{
    while (s->head != NULL) {
        struct op *op = s->head;
        s->head = op->next;
        drop_op(op);
    }
}

void fake_drop_all(void)
{
    drop_queue(&default_stream);
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        drop_queue(s);
    }
}

/* Returns what is added to the seed of each script, so that a loop over a test program tries orders
 * that the program itself does not. */
static unsigned seed_offset(void)
{
    const char *text = getenv("FAKE_GPU_SEED_OFFSET");
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 0;
}

void fake_gpu_begin(const struct fake_gpu *script)
{
    fake_drop_all();
    while (fake_streams != NULL) { /* a test that failed may have left some */
        struct CUstream_st *next = fake_streams->next;
        free(fake_streams);
        fake_streams = next;
    }
    fake = script != NULL ? *script : (struct fake_gpu){0};
    fake.device = -1;
    fake.seed += seed_offset();
    random_state = fake.seed;
}

/* ---- doing ----------------------------------------------------------------------------------- */

static bool can_go(const struct CUstream_st *s)
{
    const struct op *op = s->head;
    if (op == NULL) {
        return false;
    }
    if (op->kind == OP_WAIT) {
        return op->event->done >= op->number;
    }
    if (op->kind == OP_GRAPH) {
        return op->left == 0 || fake_pick_node(op) >= 0;
    }
    return op->kind != OP_RUN ||
           (!(op->collective && fake_stalled) && (op->can == NULL || op->can(op->data)));
}

static void go(struct CUstream_st *s)
{
    struct op *op = s->head;
    switch (op->kind) {
    case OP_RUN:
        fake_done++;
        op->run(op->data);
        break;
    case OP_RECORD:
        op->event->done = op->event->done > op->number ? op->event->done : op->number;
        break;
    case OP_GRAPH:
        if (op->left > 0) {
            fake_run_node(op, fake_pick_node(op));
        }
        if (op->left > 0) {
            return;
        }
        break;
    case OP_WAIT:
        break;
    }
    s->head = op->next;
    drop_op(op);
}

bool fake_turn(void)
{
    struct CUstream_st *chosen = NULL;
    unsigned ready = can_go(&default_stream);
    if (ready > 0) {
        chosen = &default_stream;
    }
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        if (can_go(s) && fake_draw() % ++ready == 0) {
            chosen = s;
        }
    }
    if (chosen != NULL) {
        idle_since = 0;
        go(chosen);
    }
    return chosen != NULL;
}

struct CUstream_st *fake_stream_of(cudaStream_t stream)
{
    return stream != NULL ? stream : &default_stream;
}

void fake_drain(cudaStream_t stream)
{
    struct CUstream_st *s = fake_stream_of(stream);
    while (s->head != NULL) {
        if (!fake_turn() && !fake_await_others()) {
            fake_rule(false, "a wait that never ends");
            drop_queue(s);
        }
    }
}

void fake_drain_all(void)
{
    while (fake_turn()) {
    }
}

/* ---- queueing -------------------------------------------------------------------------------- */

bool fake_is_capturing(cudaStream_t stream)
{
    return fake_stream_of(stream)->capture != NULL;
}

struct op *fake_append(struct CUstream_st *s, enum op_kind kind)
{
    struct op *op = calloc(1, sizeof *op);
    op->kind = kind;
    fake_rule(s == &default_stream || s->device == fake_current_device(),
              "work for a stream of another device than the thread's");
    (void)pthread_cond_broadcast(&news);
    if (s->head == NULL) {
        s->head = op;
    } else {
        s->tail->next = op;
    }
    s->tail = op;
    return op;
}

void fake_queue(cudaStream_t stream, fake_run_fn run, const void *data, size_t bytes)
{
    fake_queue_when(stream, NULL, run, data, bytes);
}

void fake_queue_when(cudaStream_t stream, fake_can_fn can, fake_run_fn run, const void *data,
                     size_t bytes)
{
    struct CUstream_st *s = fake_stream_of(stream);
    void *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    if (s->capture == NULL) {
        struct op *op = fake_append(s, OP_RUN);
        op->run = run;
        op->can = can;
        op->data = copy;
        fake.queued++;
        return;
    }
    struct CUgraph_st *g = s->capture;
    if (g->count == NODES_MAX) {
        fake_rule(false, "a graph with more nodes than the fake GPU can hold");
        free(copy);
        return;
    }
    g->nodes[g->count] = (struct graph_node){run, can, false, s->priority, copy, s->frontier};
    s->frontier = (struct frontier){.node = {g->count}, .count = 1};
    g->count++;
    fake.captured++;
}

void fake_count_collective(cudaStream_t stream, struct fake_hold *held)
{
    struct CUgraph_st *g = fake_stream_of(stream)->capture;
    if (g == NULL) {
        fake.collectives++;
        fake_stream_of(stream)->tail->collective = true;
        return;
    }
    fake.captured_collectives++;
    g->nodes[g->count - 1].collective = true;
    for (int i = 0; i < g->held_count; i++) {
        if (g->held[i] == held) {
            return;
        }
    }
    if (g->held_count == HELD_MAX) {
        fake_rule(false, "a graph with more communicators than the fake GPU can hold");
        return;
    }
    fake.holding += g->held_count == 0;
    g->held[g->held_count++] = held;
    held->graphs++;
}

bool fake_is_idle(void)
{
    bool idle = default_stream.head == NULL;
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        idle = idle && s->head == NULL;
    }
    return idle;
}

/* Checks what a capture of the mode "thread local" forbids. */
bool fake_may_block(const char *what)
{
    bool may = true;
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        if (s->capture != NULL && pthread_equal(s->capture->owner, pthread_self())) {
            s->capture->broken = true;
            may = false;
        }
    }
    fake_rule(may, what);
    return may;
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    FAKE_ALONE;
    (void)flags;
    if (fake_fails()) {
        return cudaErrorMemoryAllocation;
    }
    *event = calloc(1, sizeof **event);
    fake.events++;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    FAKE_ALONE;
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAKE_ALONE;
    fake_drain_all(); /* CUDA keeps an event until the work that uses it is done */
    free(event);
    fake.events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_ALONE;
    struct CUstream_st *s = fake_stream_of(stream);
    event->capture = s->capture;
    if (s->capture != NULL) {
        event->frontier = s->frontier;
        return cudaSuccess;
    }
    struct op *op = fake_append(s, OP_RECORD);
    op->event = event;
    op->number = ++event->asked;
    return cudaSuccess;
}

static void merge(struct frontier *into, const struct frontier *from)
{
    for (int i = 0; i < from->count; i++) {
        bool there = false;
        for (int k = 0; k < into->count; k++) {
            there = there || into->node[k] == from->node[i];
        }
        if (!there) {
            fake_rule(into->count < EDGES_MAX, "more edges than the fake GPU can hold");
            into->node[into->count % EDGES_MAX] = from->node[i];
            into->count += into->count < EDGES_MAX;
        }
    }
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    FAKE_ALONE;
    (void)flags;
    struct CUstream_st *s = fake_stream_of(stream);
    if (event->capture != NULL) {
        if (s->capture == NULL) {
            s->capture = event->capture;
            s->frontier = (struct frontier){0};
        }
        fake_rule(s->capture == event->capture, "a wait for an event of another capture");
        fake_rule(!event->capture->ended, "a wait for an event of a capture that has ended");
        merge(&s->frontier, &event->frontier);
        return cudaSuccess;
    }
    if (s->capture != NULL) {
        fake_rule(false, "captured work waits for an event from outside of its capture");
        s->capture->broken = true;
        return cudaErrorStreamCaptureIsolation;
    }
    struct op *op = fake_append(s, OP_WAIT);
    op->event = event;
    op->number = event->asked;
    return cudaSuccess;
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ALONE;
    *least = 0;
    *greatest = -5;
    return fake_fails() ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    FAKE_ALONE;
    fake_rule(flags == cudaStreamNonBlocking, "a stream that waits for the default one");
    if (fake_fails()) {
        return cudaErrorMemoryAllocation;
    }
    struct CUstream_st *s = calloc(1, sizeof *s);
    s->device = fake_current_device();
    s->priority = priority;
    s->next = fake_streams;
    fake_streams = s;
    fake.streams++;
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    FAKE_ALONE;
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    FAKE_ALONE;
    *priority = fake_stream_of(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAKE_ALONE;
    fake_rule(stream->capture == NULL, "a stream destroyed while it is captured");
    fake_drain(stream);
    for (struct CUstream_st **at = &fake_streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            free(stream);
            fake.streams--;
            return cudaSuccess;
        }
    }
    fake_rule(false, "a stream destroyed twice");
    return cudaErrorInvalidResourceHandle;
}
