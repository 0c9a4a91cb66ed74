/* SPDX-License-Identifier: Apache-2.0
 *
 * The text output. On a terminal one line is rewritten in place, and ended before anything else is
 * printed. A failed write is ignored; the caller owns the stream.
 */
#include "trainer/show/console.h"

/* Carriage return and "erase to the end of the line" (ECMA-48 EL). */
#define REWRITE "\r\033[K"

void ct_console_break(struct ct_console *p)
{
    if (p->unfinished) {
        (void)fputs(REWRITE, p->out);
        p->unfinished = false;
    }
}

void ct_console_start(struct ct_console *p, const struct ct_trainer *t)
{
    (void)fprintf(p->out, "model %zu", t->layout.layer[0].in);
    for (size_t l = 0; l < t->layout.layer_count; l++) {
        (void)fprintf(p->out, "-%zu", t->layout.layer[l].out);
    }
    (void)fprintf(p->out, " (%zu parameters), %s, %zu training and %zu test images\n",
                  t->layout.parameters, ct_optimizer_name(t->optimizer.kind),
                  t->data.set.train.count, t->data.set.test.count);
    char stages[48] = "";
    if (t->pipe != NULL) {
        (void)snprintf(stages, sizeof stages, " in pipelines of %zu", t->pipe->stages);
    }
    (void)fprintf(p->out, "%d worker%s%s on %s, %zu samples per step\n", t->group.world,
                  t->group.world == 1 ? "" : "s", stages, t->dev->name, t->sampler.batch);
    if (t->step_snapshot.found.step > 0 || t->backup.from > 0) {
        (void)fprintf(p->out, "going on from memory after step %lld\n",
                      (long long)t->optimizer.step);
    } else if (t->at.batch > 0) {
        (void)fprintf(p->out, "resuming after epoch %d and %zu steps\n", t->at.epoch, t->at.batch);
    } else if (t->at.epoch > 0) {
        (void)fprintf(p->out, "resuming after epoch %d\n", t->at.epoch);
    }
    (void)fflush(p->out);
}

/* Writes for example "75 s", "12 min" or "3.5 h". */
static void format_time(char *out, size_t size, double seconds)
{
    if (seconds < 100) {
        (void)snprintf(out, size, "%.0f s", seconds);
    } else if (seconds < 6000) {
        (void)snprintf(out, size, "%.0f min", seconds / 60);
    } else {
        (void)snprintf(out, size, "%.1f h", seconds / 3600);
    }
}

void ct_console_tick(struct ct_console *p, const struct ct_step_report *r)
{
    if (p->terminal) {
        char left[32];
        format_time(left, sizeof left, r->eta_s);
        (void)fprintf(p->out,
                      REWRITE "epoch %d/%d: step %zu/%zu, loss %.4f, accuracy %.4f, %.0f "
                              "samples/s, all-reduce %.0f %%, %s left",
                      r->epoch, r->epochs, r->batch, r->batches, r->loss, r->accuracy,
                      r->samples_per_s, 100 * r->comm_share, left);
        (void)fflush(p->out);
        p->unfinished = true;
    }
}

void ct_console_epoch(struct ct_console *p, const struct ct_epoch_report *r)
{
    ct_console_break(p);
    (void)fprintf(p->out,
                  "epoch %d/%d: loss %.4f, test loss %.4f, test accuracy %.4f, %.0f samples/s, "
                  "%.0f us/step\n",
                  r->epoch, r->epochs, r->loss, r->test_loss, r->test_accuracy, r->samples_per_s,
                  r->us_per_step);
    (void)fflush(p->out);
}

void ct_console_done(struct ct_console *p, const struct ct_train_result *r)
{
    ct_console_break(p);
    const struct ct_saver_counts *c = &r->checkpoints;
    if (c->failed > 0 || c->skipped > 0) {
        (void)fprintf(p->out,
                      "checkpoints: %llu written, %llu failed, %llu skipped because one was still "
                      "being written\n",
                      (unsigned long long)c->written, (unsigned long long)c->failed,
                      (unsigned long long)c->skipped);
    }
    if (r->preempted) {
        (void)fprintf(p->out,
                      "preempted: the state after step %lld is saved, go on with --resume\n",
                      (long long)r->step);
        (void)fflush(p->out);
        return;
    }
    (void)fprintf(p->out, "parameters: hash %016llx\n", (unsigned long long)r->param_hash);
    (void)fprintf(p->out, "done: test accuracy %.4f in %.1f s", r->test_accuracy, r->seconds);
    if (r->samples_per_s > 0) { /* 0 if there was nothing left to train */
        (void)fprintf(p->out, ", %.0f samples/s", r->samples_per_s);
    }
    (void)fputc('\n', p->out);
    (void)fflush(p->out);
}
