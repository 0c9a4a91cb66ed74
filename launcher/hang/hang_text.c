/* SPDX-License-Identifier: Apache-2.0
 *
 * A verdict in words: first who, for how long and why; then what each rank was seen doing.
 */
#include "launcher/hang/hang.h"

#include "common/clock.h"

#include <inttypes.h>
#include <string.h>

/* A reader compares the suspect with a few other ranks. Hundreds of lines would not tell more. */
#define OTHERS_SHOWN 8

static const char *state_name(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "asleep";
    case 'D':
        return "stuck in the kernel";
    case 'T':
        return "stopped";
    case 't':
        return "traced";
    case 'Z':
        return "dead";
    default:
        return "in a state that is not known";
    }
}

int ct_hang_reason_text(const struct ct_hang_verdict *verdict, const struct ct_hang_sample *suspect,
                        struct ct_buf *out)
{
    const struct ct_progress *page = &suspect->page;
    switch (verdict->reason) {
    case CT_HANG_NONE:
        break;
    case CT_HANG_STOPPED:
        ct_buf_addf(out, "it is stopped, by SIGSTOP or by a terminal");
        break;
    case CT_HANG_BUSY:
        ct_buf_addf(out, "in phase %s of step %" PRId64 ", while others wait for it",
                    ct_phase_name(page->phase), page->step);
        break;
    case CT_HANG_BEHIND:
        ct_buf_addf(out, "it %s in step %" PRId64 ", the others in a later one",
                    page->phase == CT_PHASE_COLLECTIVE ? "waits" : "is", page->step);
        break;
    case CT_HANG_UNINTERRUPTIBLE:
        ct_buf_addf(out, "it is stuck in the kernel (a disk or a device that gives no answer)");
        break;
    case CT_HANG_SLEEPS_ELSEWHERE:
        ct_buf_addf(out, "it sleeps in %s, the others elsewhere", suspect->wchan);
        break;
    case CT_HANG_LOOPS:
        ct_buf_addf(out, "it uses the CPU, but does not leave one place of its program");
        break;
    case CT_HANG_ALL:
        ct_buf_addf(out, "no rank stands out");
        break;
    }
    return ct_buf_status(out);
}

static void add_rank(const struct ct_hang_sample *sample, int rank, int64_t now_ns,
                     const char *prefix, struct ct_buf *out)
{
    ct_buf_addf(out, "%srank %d: process %ld is %s", prefix, rank, (long)sample->pid,
                state_name(sample->state));
    if (sample->wchan[0] != '\0' && strcmp(sample->wchan, "0") != 0) {
        ct_buf_addf(out, " in %s", sample->wchan);
    }
    if (sample->has_page) {
        ct_buf_addf(out, "; phase %s of step %" PRId64 " for %.1f s",
                    ct_phase_name(sample->page.phase), sample->page.step,
                    (double)(now_ns - sample->page.stamp_ns) / (double)CT_NS_PER_S);
    }
    ct_buf_addf(out, "\n");
}

/* Says what the verdict rests on where that is the use of the CPU alone: a healthy program that
 * sleeps most of the time looks the same. How often it wakes up would not help, for a data loader
 * of PyTorch and a blocking wait of NCCL wake up for ever while they hang. */
static void add_basis(const struct ct_hang *hang, const struct ct_hang_verdict *verdict,
                      const struct ct_hang_sample *samples, const char *prefix, struct ct_buf *out)
{
    if (verdict->reason != CT_HANG_ALL && verdict->reason != CT_HANG_SLEEPS_ELSEWHERE) {
        return;
    }
    for (int i = 0; i < hang->ranks; i++) {
        if (samples[i].alive && samples[i].has_page) {
            return;
        }
    }
    ct_buf_addf(out,
                "%sthe workers tell no steps, so use of less than a fiftieth of a CPU counts as "
                "standing still; if they were at work, call ctworker.progress() in each step, or "
                "give a longer --hang-timeout\n",
                prefix);
}

int ct_hang_describe(const struct ct_hang *hang, const struct ct_hang_verdict *verdict,
                     const struct ct_hang_sample *samples, int first_rank, int64_t now_ns,
                     const char *prefix, struct ct_buf *out)
{
    int suspect = verdict->local_rank, shown = 0, more = 0;
    bool all = verdict->reason == CT_HANG_ALL;
    if (all) {
        ct_buf_addf(out, "%sthe job hangs: no rank has made progress", prefix);
    } else {
        ct_buf_addf(out, "%srank %d hangs: %s", prefix, first_rank + suspect,
                    verdict->reason == CT_HANG_LOOPS ? "the others have waited for it"
                                                     : "it has stood still");
    }
    ct_buf_addf(out, " for %.1f s (allowed are %.1f s)%s",
                (double)verdict->still_ns / (double)CT_NS_PER_S,
                (double)verdict->timeout_ns / (double)CT_NS_PER_S, all ? "\n" : ": ");
    if (!all) { /* else whether one stands out may be known when they have told where they are */
        (void)!ct_hang_reason_text(verdict, &samples[suspect], out); /* is checked below */
        ct_buf_addf(out, "\n");
    }
    add_rank(&samples[suspect], first_rank + suspect, now_ns, prefix, out);
    for (int i = 0; i < hang->ranks; i++) {
        if (i == suspect || !samples[i].alive) {
            continue;
        }
        if (shown++ < OTHERS_SHOWN) {
            add_rank(&samples[i], first_rank + i, now_ns, prefix, out);
        } else {
            more++;
        }
    }
    if (more > 0) {
        ct_buf_addf(out, "%sand %d more ranks\n", prefix, more);
    }
    add_basis(hang, verdict, samples, prefix, out);
    return ct_buf_status(out);
}
