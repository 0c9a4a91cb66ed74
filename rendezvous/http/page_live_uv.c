/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the timer takes a sample each CT_PAGE_SAMPLE_MS. When somebody watches, the changes
 * become one frame, which all viewers share; each viewer's connection is resumed, the library asks
 * for its bytes (read_events()), and a viewer that has all of them is suspended again.
 *
 * Other paths: a new viewer, and one that was still busy with an older frame, gets the whole sample
 * in place of the changes, so what is kept for a viewer is one frame at most, however slow it is.
 * Samples cost time of the store's clients, so the next one is put off by CT_PAGE_COST_FACTOR times
 * what this one took, and so far that all viewers together get CT_PAGE_BYTES_PER_S at most.
 *
 * When the owner of the store says how the job has ended, each viewer gets this as an event of its
 * own, behind the sample that it is due, and so does each that comes later.
 *
 * Failure modes: a viewer that does not take its frame within the time of a request is ended by
 * http_uv.c; each sample makes a frame, so a connection whose peer is gone is found. Memory that
 * runs out ends the viewer concerned or loses the sample.
 *
 * Who frees: the library frees a viewer with its response; a frame goes with its last viewer.
 */
#include "rendezvous/http/page_live_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/http/page_feed.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"

#include <string.h>
#include <time.h>

/* Bytes that the library asks for at a time; they must fit into a connection's CT_HTTP_MEMORY. */
#define BLOCK_BYTES 4096

/* What is before the object in the event of the end. */
#define END_HEAD "event: end\ndata: "

struct frame {
    unsigned users;
    uint64_t seq;
    size_t charged;
    struct ct_buf text;
};

struct viewer {
    struct ct_list at_live;
    struct ct_page_live *live;
    struct MHD_Connection *connection;
    struct frame *frame; /* that is being sent; NULL = none */
    size_t sent;
    uint64_t seq; /* of the last sample that it got; 0 = none */
    bool has_end; /* the event of the end was begun */
    bool suspended;
};

struct ct_page_live {
    uv_timer_t timer;
    struct ct_http_source source;
    const struct ct_mhd *mhd;
    struct ct_page_live_hooks hooks;
    struct ct_page_feed feed;
    struct frame *whole, *changes; /* of the present sample, made when somebody wants them */
    struct frame *end;             /* how the job has ended; NULL = it goes on */
    struct ct_list viewers;
    unsigned count;
    int64_t opened_ns;
    bool closing;
    void (*close_cb)(void *data);
    void *close_data;
};

/* ---- frames --------------------------------------------------------------------------------- */

static void frame_drop(struct ct_page_live *live, struct frame **frame)
{
    if (*frame != NULL && --(*frame)->users == 0) {
        if (live->source.budget != NULL) {
            ct_budget_give(live->source.budget, (*frame)->charged);
        }
        ct_buf_fini(&(*frame)->text);
        ct_free(*frame);
    }
    *frame = NULL;
}

static void charge(struct ct_page_live *live, struct frame *frame)
{
    if (live->source.budget != NULL) {
        frame->charged = sizeof(*frame) + frame->text.cap + 2 * CT_BLOCK_COST;
        ct_budget_force(live->source.budget, frame->charged);
    }
}

/* NULL when memory, or the store's part of it, is out. The caller uses it. */
static struct frame *frame_new(struct ct_page_live *live, bool whole)
{
    struct frame *frame = ct_calloc(1, sizeof(*frame));
    if (frame == NULL) {
        return NULL;
    }
    frame->users = 1;
    frame->seq = live->feed.seq;
    ct_buf_addf(&frame->text, "data: ");
    int rc = ct_page_feed_print(&live->feed, whole, &frame->text);
    ct_buf_addf(&frame->text, "\n\n");
    struct ct_budget *budget = live->source.budget;
    bool fits = budget == NULL || frame->text.len <= CT_GRANT_BYTES ||
                ct_budget_fits(budget, frame->text.cap);
    if (rc != 0 || ct_buf_status(&frame->text) != 0 || !fits) {
        frame_drop(live, &frame);
        return NULL;
    }
    charge(live, frame);
    return frame;
}

/* The frame that a viewer needs now; NULL when memory is out. */
static struct frame *frame_for(struct ct_page_live *live, const struct viewer *viewer)
{
    bool follows = viewer->seq > 0 && viewer->seq + 1 == live->feed.seq;
    struct frame **frame = follows ? &live->changes : &live->whole;
    if (*frame == NULL) {
        *frame = frame_new(live, !follows);
    }
    if (*frame != NULL) {
        (*frame)->users++;
    }
    return *frame;
}

/* ---- samples -------------------------------------------------------------------------------- */

static double seconds_open(const struct ct_page_live *live)
{
    return (double)(ct_clock_now(NULL) - live->opened_ns) / (double)CT_NS_PER_S;
}

static void wake(struct viewer *viewer)
{
    if (viewer->suspended) {
        viewer->suspended = false;
        viewer->live->mhd->resume_connection(viewer->connection);
    }
}

static void wake_all(struct ct_page_live *live)
{
    for (struct ct_list *at = live->viewers.next; at != &live->viewers; at = at->next) {
        wake(CT_CONTAINER_OF(at, struct viewer, at_live));
    }
}

/* Returns false when memory is out: the viewers wait for the next one. */
static bool take_sample(struct ct_page_live *live)
{
    struct ct_status_rows rows = {.tails = false};
    cJSON *status = NULL;
    int rc = live->source.status(live->source.data, &rows, &status);
    if (rc == 0) {
        rc = ct_page_feed_take(&live->feed, status, &rows, seconds_open(live));
        cJSON_Delete(status);
    }
    ct_status_rows_fini(&rows);
    if (rc == 0) {
        frame_drop(live, &live->whole);
        frame_drop(live, &live->changes);
    }
    return rc == 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_page_live *live = CT_CONTAINER_OF(timer, struct ct_page_live, timer);
    int64_t begin = ct_clock_now(NULL);
    if (take_sample(live) && live->count > 0) {
        wake_all(live);
        live->hooks.on_resumed(live->hooks.data);
    }
    uint64_t cost_ms = (uint64_t)((ct_clock_now(NULL) - begin) / CT_NS_PER_MS);
    size_t bytes = (live->changes != NULL ? live->changes->text.len : 0) +
                   (live->whole != NULL ? live->whole->text.len : 0);
    uint64_t sending_ms = (uint64_t)bytes * live->count * 1000 / CT_PAGE_BYTES_PER_S;
    uint64_t next_ms = cost_ms * CT_PAGE_COST_FACTOR;
    next_ms = next_ms > sending_ms ? next_ms : sending_ms;
    next_ms = next_ms > CT_PAGE_SAMPLE_MS ? next_ms : CT_PAGE_SAMPLE_MS;
    next_ms = next_ms < CT_PAGE_SAMPLE_MAX_MS ? next_ms : CT_PAGE_SAMPLE_MAX_MS;
    (void)uv_timer_start(&live->timer, on_timer, next_ms, 0);
}

void ct_page_live_sample(struct ct_page_live *live)
{
    (void)take_sample(live);
}

/* Before the first one of the timer. */
static void sample_if_none(struct ct_page_live *live)
{
    if (live->feed.seq == 0) {
        (void)take_sample(live);
    }
}

/* ---- viewers -------------------------------------------------------------------------------- */

/* The library wants bytes for a viewer. Returning 0 without a suspension would make it ask again at
 * once. */
static ssize_t read_events(void *cls, uint64_t pos, char *out, size_t max)
{
    struct viewer *viewer = cls;
    struct ct_page_live *live = viewer->live;
    (void)pos;
    if (live->closing) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (viewer->frame != NULL && viewer->sent == viewer->frame->text.len) {
        frame_drop(live, &viewer->frame);
        live->hooks.on_taken(live->hooks.data, viewer->connection);
    }
    if (viewer->frame == NULL && viewer->seq < live->feed.seq) {
        viewer->frame = frame_for(live, viewer);
        viewer->sent = 0;
        if (viewer->frame == NULL) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        viewer->seq = viewer->frame->seq;
    }
    if (viewer->frame == NULL && live->end != NULL && !viewer->has_end) {
        viewer->frame = live->end;
        viewer->frame->users++;
        viewer->has_end = true;
        viewer->sent = 0;
    }
    if (viewer->frame == NULL) {
        viewer->suspended = true;
        live->mhd->suspend_connection(viewer->connection);
        return 0;
    }
    size_t left = viewer->frame->text.len - viewer->sent;
    left = left < max ? left : max;
    memcpy(out, ct_buf_bytes(&viewer->frame->text) + viewer->sent, left);
    viewer->sent += left;
    return (ssize_t)left;
}

static void viewer_free(void *cls)
{
    struct viewer *viewer = cls;
    frame_drop(viewer->live, &viewer->frame);
    ct_list_remove(&viewer->at_live);
    viewer->live->count--;
    ct_free(viewer);
}

int ct_page_live_watch(struct ct_page_live *live, struct MHD_Connection *connection,
                       struct MHD_Response **out)
{
    sample_if_none(live);
    struct viewer *viewer = ct_calloc(1, sizeof(*viewer));
    if (viewer == NULL) {
        return CT_ENOMEM;
    }
    viewer->live = live;
    viewer->connection = connection;
    ct_list_init(&viewer->at_live);
    ct_list_append(&live->viewers, &viewer->at_live);
    live->count++;
    *out = live->mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_events,
                                                    viewer, viewer_free);
    if (*out == NULL) {
        viewer_free(viewer);
        return CT_ENOMEM;
    }
    return 0;
}

void ct_page_live_tell_end(struct ct_page_live *live, const char *json)
{
    struct frame *end = ct_calloc(1, sizeof(*end));
    if (end == NULL) {
        return;
    }
    end->users = 1;
    ct_buf_addf(&end->text, END_HEAD "%.*s\n\n", (int)strcspn(json, "\n"), json);
    if (live->end != NULL || ct_buf_status(&end->text) != 0) {
        frame_drop(live, &end);
        return;
    }
    charge(live, end);
    live->end = end;
    if (live->count > 0) {
        wake_all(live);
        live->hooks.on_resumed(live->hooks.data);
    }
}

bool ct_page_live_is_telling_end(const struct ct_page_live *live)
{
    for (struct ct_list *at = live->viewers.next; live->end != NULL && at != &live->viewers;
         at = at->next) {
        const struct viewer *viewer = CT_CONTAINER_OF(at, struct viewer, at_live);
        if (!viewer->has_end || viewer->frame == live->end) {
            return true;
        }
    }
    return false;
}

unsigned ct_page_live_viewers(const struct ct_page_live *live)
{
    return live->count;
}

void ct_page_live_data(struct ct_page_live *live, struct ct_http_answer *out)
{
    sample_if_none(live);
    *out = (struct ct_http_answer){.code = 200, .type = "application/json"};
    int rc = ct_page_feed_print(&live->feed, true, &out->body);
    if (rc == 0 && live->end != NULL) { /* as another member of the object */
        const char *end = ct_buf_cstr(&live->end->text) + sizeof(END_HEAD) - 1;
        out->body.len--;
        ct_buf_addf(&out->body, ",\"end\":%.*s}", (int)strcspn(end, "\n"), end);
        rc = ct_buf_status(&out->body);
    }
    if (rc != 0) {
        ct_http_answer_error(out, 500, "no memory");
    }
}

/* ---- opening and closing -------------------------------------------------------------------- */

int ct_page_live_open(uv_loop_t *loop, const struct ct_http_source *source,
                      const struct ct_mhd *mhd, const struct ct_page_live_hooks *hooks,
                      struct ct_page_live **out)
{
    struct ct_page_live *live = ct_calloc(1, sizeof(*live));
    if (live == NULL) {
        return CT_ENOMEM;
    }
    live->source = *source;
    live->mhd = mhd;
    live->hooks = *hooks;
    live->opened_ns = ct_clock_now(NULL);
    ct_list_init(&live->viewers);
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    ct_page_feed_init(&live->feed, source->budget, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    CT_ASSERT(uv_timer_init(loop, &live->timer) == 0); /* cannot fail */
    (void)uv_timer_start(&live->timer, on_timer, CT_PAGE_SAMPLE_MS, 0);
    *out = live;
    return 0;
}

void ct_page_live_finish(struct ct_page_live *live)
{
    live->closing = true;
    wake_all(live);
}

static void on_timer_close(uv_handle_t *handle)
{
    struct ct_page_live *live = CT_CONTAINER_OF(handle, struct ct_page_live, timer);
    void (*cb)(void *data) = live->close_cb;
    void *data = live->close_data;
    ct_free(live);
    cb(data);
}

void ct_page_live_close(struct ct_page_live *live, void (*cb)(void *data), void *data)
{
    live->close_cb = cb;
    live->close_data = data;
    frame_drop(live, &live->whole);
    frame_drop(live, &live->changes);
    frame_drop(live, &live->end);
    ct_page_feed_fini(&live->feed);
    uv_close((uv_handle_t *)&live->timer, on_timer_close);
}
