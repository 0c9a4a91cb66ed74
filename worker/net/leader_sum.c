/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum over the ranks of a host. The counters are in the shared page, one per helper and stream.
 * A helper raises its counter after each chunk, and the leader reads it with acquire order before
 * it sends. Nothing here fails or allocates.
 */
#include "worker/net/leader_sum.h"

unsigned char *view_at(const struct view *view, size_t at, size_t *run)
{
    size_t i = 0;
    while (i + 1 < view->count && at >= view->pieces[i].end) {
        i++;
    }
    *run = view->pieces[i].end - at;
    return view->pieces[i].start + at;
}

void leader_sum_begin(struct host *host)
{
    struct sync_slot *slot = &host->shm.page->slots[host->comm.rank];
    for (int s = 0; s < LEADER_SUM_STREAMS; s++) {
        atomic_store_explicit(&slot->progress[s], 0, memory_order_relaxed);
    }
}

void leader_sum_add(const struct leader_sum *own_sum, size_t begin, size_t end)
{
    const struct host *host = own_sum->host;
    while (begin < end) {
        size_t run;
        float *to = (float *)(void *)(view_at(&own_sum->view, begin, &run) - begin);
        run = run < end - begin ? run : end - begin;
        host->sum(to, host->sources, host->comm.size, begin / sizeof(float),
                  (begin + run) / sizeof(float));
        begin += run;
    }
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Adds the part of a range that lies in chunk c. The range begins `base` bytes into its stream.
 * Returns whether the range reaches into the chunk. */
static bool add_range(const struct leader_sum *own_sum, size_t c, size_t base, size_t begin,
                      size_t end)
{
    size_t from = c * LEADER_SUM_CHUNK, to = from + LEADER_SUM_CHUNK, length = end - begin;
    if (to <= base || from >= base + length) {
        return false;
    }
    leader_sum_add(own_sum, begin + (from > base ? from - base : 0),
                   begin + min(to - base, length));
    return true;
}

static bool add_chunk(const struct leader_sum *own_sum, enum leader_sum_stream stream, size_t c)
{
    bool any = false;
    for (size_t i = 0; i < own_sum->schedule->count; i++) {
        const struct schedule_step *step = &own_sum->schedule->steps[i];
        if (stream == LEADER_SUM_SENT && step->send_own) {
            any |= add_range(own_sum, c, 0, step->send_begin, step->send_end);
        } else if (stream == LEADER_SUM_ADDED && step->recv_own) {
            any |= add_range(own_sum, c, step->recv_base, step->recv_begin, step->recv_end);
        }
    }
    return any;
}

void leader_sum_work(const struct leader_sum *own_sum)
{
    const struct host *host = own_sum->host;
    struct sync_slot *slot = &host->shm.page->slots[host->comm.rank];
    size_t helpers = (size_t)host->comm.size - 1;
    bool any = true;
    for (size_t c = (size_t)host->comm.rank - 1; any; c += helpers) {
        any = false;
        for (int s = 0; s < LEADER_SUM_STREAMS; s++) {
            if (add_chunk(own_sum, (enum leader_sum_stream)s, c)) {
                (void)atomic_fetch_add_explicit(&slot->progress[s], 1, memory_order_release);
                any = true;
            }
        }
    }
}

size_t leader_sum_ready(const struct leader_sum *own_sum, enum leader_sum_stream stream,
                        size_t base, size_t begin, size_t at, size_t end)
{
    const struct sync_slot *slots = own_sum->host->shm.page->slots;
    size_t helpers = (size_t)own_sum->host->comm.size - 1;
    size_t c = (base + (at - begin)) / LEADER_SUM_CHUNK;
    while (begin + c * LEADER_SUM_CHUNK < base + end &&
           atomic_load_explicit(&slots[1 + c % helpers].progress[stream], memory_order_acquire) >
               c / helpers) {
        c++;
    }
    size_t ready = c * LEADER_SUM_CHUNK > base ? begin + (c * LEADER_SUM_CHUNK - base) : begin;
    return min(ready, end);
}
