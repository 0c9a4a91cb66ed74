/* SPDX-License-Identifier: Apache-2.0
 *
 * Two recordings are made when they are first needed: of one step, and of as many as take a
 * millisecond or so. Both are dropped before the communicator ends, which would wait for them. If
 * recording fails on any rank while all peers are well, steps are queued one by one from then on,
 * on all ranks, and a warning says so.
 */
#include "trainer/loop/cuda_graph.h"

#include "kernels/device/update_scalars.h"
#include "trainer/loop/train.h"

#include <string.h>

/* The host queues about this much work at a time: long against a launch and the gap between two
 * graphs (some 10 us), short against what a person waits for. At 20 million multiplications a
 * microsecond, what an H200 does in float32 with a batch of a thousand, that is a millisecond; a
 * GPU of a tenth of that speed takes ten. */
#define REPLAY_WORK 2e10
#define UNROLL_MAX 32

/* Replays that may be under way before the host waits for them, and looks after its peers. */
#define REPLAYS_MAX 32

/* The same on every rank: it depends on what they share. */
static size_t unroll_of(size_t parameters, double rows)
{
    /* Forward, and two products backward. */
    double work = 3.0 * (double)parameters * rows;
    size_t steps = 1;
    while (steps < UNROLL_MAX && work * (double)(2 * steps) <= REPLAY_WORK) {
        steps *= 2;
    }
    return steps;
}

/* The communicator ends, and would wait for ever for what holds its collectives. */
static void let_go(void *data)
{
    struct ct_trainer *t = data;
    struct ct_cuda_graph *r = &t->graph;
    if (r->recording) {
        r->recording = false;
        (void)t->dev->ops->record_end(t->dev, NULL, NULL);
    }
    t->dev->ops->forget(t->dev, r->one);
    t->dev->ops->forget(t->dev, r->many);
    r->one = r->many = NULL;
}

/* What differs from epoch to epoch is one block, so that one copy brings it:
 *
 *     [ number of the batch | scalars, one for each batch | order, one for each sample ]
 */
struct block {
    uint64_t *now;
    struct ct_update_scalars *scalars;
    uint32_t *order;
};

/* Of the device or of the host: nothing is read there. */
static struct block block_of(const struct ct_trainer *t, void *base)
{
    size_t scalars = ct_sampler_batches(&t->sampler) * sizeof(struct ct_update_scalars);
    char *first = (char *)base + sizeof(uint64_t);
    return (struct block){
        .now = base,
        .scalars = (struct ct_update_scalars *)(void *)first,
        .order = (uint32_t *)(void *)(first + scalars),
    };
}

static int open_block(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    const struct ct_device_ops *ops = t->dev->ops;
    void *now;
    r->block = sizeof(uint64_t) +
               ct_sampler_batches(&t->sampler) * sizeof(struct ct_update_scalars) +
               t->sampler.count * sizeof(uint32_t);
    int rc = ops->alloc(t->dev, r->block, &now, err);
    r->now = rc == 0 ? now : NULL;
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = ops->alloc_host(t->dev, r->block, &r->host[i], err);
    }
    return rc;
}

int ct_cuda_graph_open(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    const struct ct_device_ops *ops = t->dev->ops;
    if (t->options.cuda_graph == CT_CUDA_GRAPH_OFF) { /* the fastest is found with a graph */
        t->dev->head_way = CT_HEAD_APART;
    }
    /* Augmented images come from the host. */
    if (ops->record == NULL || t->options.cuda_graph == CT_CUDA_GRAPH_OFF ||
        t->data.train.augment != NULL) {
        return 0;
    }
    int rc = open_block(t, err);
    if (rc != 0) {
        return rc;
    }
    if (t->group.comm != NULL) {
        ctw_comm_on_end(t->group.comm, let_go, t);
    }
    /* One step of a pipeline is long: each micro-batch goes through every stage. */
    r->steps = t->pipe != NULL ? 1
                               : unroll_of(t->layout.parameters,
                                           (double)t->sampler.batch / (double)t->group.world);
    r->on = true;
    const struct block in = block_of(t, r->now);
    size_t left;
    r->cursor = (struct ct_step_cursor){
        .now = in.now, .order = in.order, .batch = t->sampler.batch, .scalars = in.scalars};
    ct_sampler_share(t->sampler.batch, t->sampler.rank, t->sampler.world, &r->cursor.begin, &left);
    if (t->shards.count > 0) {
        r->cursor.begin = ct_shards_begin(&t->shards, t->sampler.batch);
    }
    return 0;
}

void ct_cuda_graph_close(struct ct_trainer *t)
{
    struct ct_cuda_graph *r = &t->graph;
    if (t->dev == NULL || t->dev->ops->forget == NULL) {
        return;
    }
    if (t->group.comm != NULL) {
        ctw_comm_on_end(t->group.comm, NULL, NULL);
    }
    let_go(t);
    t->dev->ops->release(t->dev, r->now);
    t->dev->ops->release_host(t->dev, r->host[0]);
    t->dev->ops->release_host(t->dev, r->host[1]);
    *r = (struct ct_cuda_graph){0};
}

/* Queued behind all steps that still read the block. The copy before the last one has been waited
 * for: there is a wait in every epoch. */
static int bring(struct ct_trainer *t, int epoch, size_t batch, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    void *host = r->host[r->turn];
    const struct block to = block_of(t, host);
    size_t batches = ct_sampler_batches(&t->sampler);
    *to.now = batch;
    for (size_t b = batch; b < batches; b++) {
        float lr = (float)ct_trainer_rate_of(t, epoch, b);
        int64_t step = t->optimizer.step + (int64_t)(b - batch) + 1;
        to.scalars[b] = ct_optimizer_scalars(&t->optimizer, lr, step);
    }
    memcpy(to.order, t->sampler.order, t->sampler.count * sizeof *to.order);
    r->turn = 1 - r->turn;
    return t->dev->ops->upload_later(t->dev, r->now, host, r->block, err);
}

int ct_cuda_graph_epoch(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    if (!r->on) {
        return 0;
    }
    bool there = r->prepared == t->at.epoch + 1 && t->at.batch == 0;
    r->prepared = 0;
    r->counted = t->at.batch;
    return there ? 0 : bring(t, t->at.epoch, t->at.batch, err);
}

int ct_cuda_graph_prepare(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    int epoch = t->at.epoch + 1;
    if (!r->on) {
        return 0;
    }
    ct_sampler_shuffle(&t->sampler, (unsigned)epoch);
    int rc = bring(t, epoch, 0, err);
    r->prepared = rc == 0 ? epoch + 1 : 0;
    return rc;
}

/* A rank without a shard of the batch has none; a stage of a pipeline has none or several. */
static bool has_one_loss(const struct ct_trainer *t)
{
    return t->pipe == NULL && (t->shards.count == 0 ||
                               ct_shards_begin(&t->shards, t->sampler.batch) < t->sampler.batch);
}

/* Queues `steps` steps as the recording will do them. The last one's loss counts them all: one
 * launch less, and behind it only the last updates look at the count. */
static int queue_steps(struct ct_trainer *t, size_t steps, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    struct ct_step_cursor cursor = r->cursor, update = r->cursor;
    bool by_loss = has_one_loss(t);
    size_t begin, end;
    ct_sampler_share(t->sampler.batch, t->sampler.rank, t->sampler.world, &begin, &end);
    t->model.cursor = &cursor;
    t->optimizer.cursor = &update;
    if (t->pipe != NULL) {
        t->pipe->cursor = &cursor;
    }
    int rc = 0;
    for (size_t s = 0; rc == 0 && s < steps; s++) {
        bool counts = by_loss && s + 1 == steps;
        cursor.ahead = s;
        cursor.counter = counts ? r->now : NULL;
        cursor.steps = steps;
        update.ahead = counts ? s - steps : s; /* wraps around, and back with the count */
        rc = ct_trainer_queue(t, NULL, end - begin, t->sampler.batch, err);
    }
    t->model.cursor = NULL;
    t->optimizer.cursor = NULL;
    if (t->pipe != NULL) {
        t->pipe->cursor = NULL;
    }
    return rc != 0 || by_loss ? rc : t->dev->ops->advance(t->dev, r->now, steps, err);
}

static int record(struct ct_trainer *t, size_t steps, struct ct_recording **out, struct ct_err *err)
{
    const struct ct_device_ops *ops = t->dev->ops;
    int rc = ops->record(t->dev, err);
    if (rc != 0) {
        return rc;
    }
    t->graph.recording = true;
    rc = queue_steps(t, steps, err);
    int ended = 0;
    if (t->graph.recording) { /* else the communicator has ended, and the recording with it */
        t->graph.recording = false;
        /* What failed first is told; ending the recording only cleans up then. */
        ended = ops->record_end(t->dev, rc == 0 ? out : NULL, rc == 0 ? err : NULL);
    }
    return rc != 0 ? rc : ended;
}

/* A recording that fails is no failure of the training, as long as the peers are there. All ranks
 * replay, or none does: NCCL wants each collective and message recorded on all its ranks, or on
 * none of them. */
static int record_or_go_on(struct ct_trainer *t, size_t steps, struct ct_recording **out,
                           struct ct_err *err)
{
    struct ct_err reason = {0};
    bool all;
    /* To make a recording usable may wait for the device, and replays of the other one may be stuck
     * there behind a peer that has died. */
    int rc = ct_group_sync(&t->group, err);
    if (rc != 0) {
        return rc;
    }
    rc = record(t, steps, out, &reason);
    if (rc != 0 && t->group.comm != NULL && ctw_comm_poll(t->group.comm, NULL) != 0) {
        return ct_err_set(err, rc, "%s", reason.text);
    }
    int voted = ct_group_agree(&t->group, rc == 0, &all, err);
    if (voted != 0) {
        return voted;
    }
    if (all) {
        return 0;
    }
    t->graph.on = false;
    t->dev->ops->forget(t->dev, *out);
    *out = NULL;
    rc = ct_buf_printf(&t->warnings, "steps are not recorded as CUDA graphs: %s\n",
                       rc != 0 ? reason.text : "another worker could not record them");
    return rc == 0 ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

/* Eager steps since the last replay have moved on without the device's count. */
static int catch_up(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    uint64_t behind = (uint64_t)t->at.batch - r->counted;
    r->counted = t->at.batch;
    return behind == 0 ? 0 : t->dev->ops->advance(t->dev, r->now, behind, err);
}

static int replay(struct ct_trainer *t, struct ct_recording *recording, size_t steps,
                  struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    int rc = catch_up(t, err);
    if (rc == 0) {
        rc = t->dev->ops->replay(t->dev, recording, err);
    }
    if (rc == 0 && ++r->lead >= REPLAYS_MAX) {
        r->lead = 0;
        rc = ct_group_sync(&t->group, err);
    }
    r->counted += steps;
    return rc;
}

/* The device waits without a deadline, so nothing may be queued that waits for a peer. */
static int prepare(struct ct_trainer *t, struct ct_err *err)
{
    int rc = ct_group_sync(&t->group, err);
    return rc == 0 ? t->dev->ops->prepare_record(t->dev, err) : rc;
}

int ct_cuda_graph_run(struct ct_trainer *t, size_t most, size_t *done, struct ct_err *err)
{
    struct ct_cuda_graph *r = &t->graph;
    size_t whole = t->sampler.count / t->sampler.batch; /* batches that are */
    size_t left = t->at.batch < whole ? whole - t->at.batch : 0;
    *done = 0;
    /* Every rank must have samples, or it would queue other work than its peers. */
    if (!r->on || left == 0 || most == 0 || t->sampler.batch < (size_t)t->sampler.world) {
        return 0;
    }
    if (!r->warm) { /* the step that comes now is queued as ever */
        r->warm = true;
        return prepare(t, err);
    }
    left = left < most ? left : most;
    size_t steps = left >= r->steps ? r->steps : 1;
    struct ct_recording **recording = steps == 1 ? &r->one : &r->many;
    int rc = 0;
    if (*recording == NULL) {
        rc = record_or_go_on(t, steps, recording, err);
    }
    if (rc != 0 || *recording == NULL) {
        return rc;
    }
    t->optimizer.lr = (float)ct_trainer_rate(t, t->at.batch + steps - 1);
    rc = replay(t, *recording, steps, err);
    if (rc == 0) {
        t->optimizer.step += (int64_t)steps;
        *done = steps;
    }
    return rc;
}
