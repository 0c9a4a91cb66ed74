/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls by which the host waits for the fake GPU: tests/lib/fake_gpu/fake_gpu.h.
 */
#include "tests/lib/fake_gpu/fake_gpu_engine.h"

static bool is_done(const struct CUstream_st *s, const struct CUevent_st *event)
{
    if (event != NULL) {
        return event->done >= event->asked;
    }
    if (s != NULL) {
        return s->head == NULL;
    }
    bool done = fake_stream_of(NULL)->head == NULL;
    for (s = fake_streams; s != NULL; s = s->next) {
        done = done && (s->device != fake_current_device() || s->head == NULL);
    }
    return done;
}

/* Checks it half of the time only, because otherwise collectives would always run late. */
void fake_wait_needs_no_peer(struct CUstream_st *s, const struct CUevent_st *event,
                             const char *what)
{
    fake_stalled = fake_draw() % 2 == 0;
    while (fake_stalled && !is_done(s, event)) {
        if (!fake_turn()) {
            fake_rule(false, what);
            fake_stalled = false;
        }
    }
    fake_stalled = false;
}

static bool is_replayed(const struct CUstream_st *s, const struct CUgraph_st *g)
{
    for (const struct op *op = s->head; op != NULL; op = op->next) {
        if (op->kind == OP_GRAPH && op->graph == g) {
            return true;
        }
    }
    return false;
}

static bool is_replayed_anywhere(const struct CUgraph_st *g)
{
    bool replayed = is_replayed(fake_stream_of(NULL), g);
    for (const struct CUstream_st *s = fake_streams; s != NULL && !replayed; s = s->next) {
        replayed = is_replayed(s, g);
    }
    return replayed;
}

void fake_await_replays(const struct CUgraph_st *g)
{
    bool waits = false; /* for a peer, perhaps */
    for (int i = 0; i < g->held_count; i++) {
        waits = waits || !g->held[i]->aborted;
    }
    fake_stalled = waits && fake_draw() % 2 == 0;
    while (is_replayed_anywhere(g)) {
        if (!fake_turn() && (fake_stalled || !fake_await_others())) {
            fake_rule(false, "a graph destroyed while a replay of it is stuck: CUDA waits for it");
            break;
        }
    }
    fake_stalled = false;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAKE_ALONE;
    if (!fake_may_block("cudaEventSynchronize() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    fake.waits += event->done < event->asked;
    fake_wait_needs_no_peer(NULL, event, "cudaEventSynchronize() behind a collective");
    while (event->done < event->asked) {
        if (!fake_turn() && !fake_await_others()) {
            fake_rule(false, "an event that never comes");
            return cudaErrorUnknown;
        }
    }
    return fake_fails() ? cudaErrorUnknown : cudaSuccess;
}

/* Each measurement gives a longer time than the one before, so that the first candidate wins. With
 * `any_wins` the time is drawn, and differs between devices. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    FAKE_ALONE;
    fake_rule(start->done == start->asked && end->done == end->asked, "time of what is not done");
    unsigned drawn = (unsigned)(++fake.timed + 7 * fake_current_device()) * 2654435761u;
    drawn = (drawn ^ drawn >> 15) * 2246822519u;
    *ms = (float)(fake.any_wins ? (drawn ^ drawn >> 13) >> 16 : (unsigned)fake.timed);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAKE_ALONE;
    if (!fake_may_block("cudaStreamSynchronize() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    fake.waits++;
    fake_wait_needs_no_peer(fake_stream_of(stream), NULL,
                            "cudaStreamSynchronize() behind a collective");
    fake_drain(stream);
    return fake_fails() ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FAKE_ALONE;
    if (!fake_may_block("cudaStreamQuery() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (fake.stream_error != 0) {
        return (cudaError_t)fake.stream_error;
    }
    if (fake.stream_turns > 0) {
        fake.stream_turns--;
    }
    const struct CUstream_st *s = fake_stream_of(stream);
    if (fake.stream_turns != 0 && s->head != NULL) {
        return cudaErrorNotReady;
    }
    fake.waits++;
    while (fake.cliques > 0 && s->head != NULL) { /* a query does not wait for other threads */
        if (!fake_turn()) {
            return cudaErrorNotReady;
        }
    }
    fake_drain(stream);
    return cudaSuccess;
}
