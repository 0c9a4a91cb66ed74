/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of the lines: the reason why a rank is named, where it stands, where the others stand,
 * then its whole stack, or one of each place if nobody is named. Whoever reads only two lines knows
 * the rank and its line of code.
 */
#include "launcher/stacks/explain.h"

#include "common/ranges.h"

#include <stdio.h>
#include <string.h>

#define STACK_INDENT "    "
/* Places where ranks stand. More of them would not tell more. */
#define PLACES_SHOWN 8

static const struct ct_stack_frame *frame_of(const struct ct_explain *explain, int local_rank)
{
    return ct_stack_own_frame(&explain->probe->answers[local_rank].stack);
}

/* A stack may have come in which no frame has a name. */
static bool has_stack(const struct ct_explain *explain, int local_rank)
{
    return explain->probe->answers[local_rank].source != CT_PROBE_NOTHING;
}

static bool is_same_line(const struct ct_stack_frame *a, const struct ct_stack_frame *b)
{
    return a == b || (a != NULL && b != NULL && a->line == b->line &&
                      strcmp(a->file, b->file) == 0 && strcmp(a->function, b->function) == 0);
}

/* ---- who ------------------------------------------------------------------------------------- */

int ct_explain_stands(const struct ct_probe *probe, struct ct_stands *out)
{
    int rc = ct_stands_init(out, probe->count);
    for (int i = 0; rc == 0 && i < probe->count; i++) {
        const struct ct_stack_frame *frame = ct_stack_own_frame(&probe->answers[i].stack);
        const char *function = "";
        enum ct_stack_waits waits = ct_stack_waits(&probe->answers[i].stack, &function);
        if (waits != CT_STACK_UNTOLD) {
            (void)snprintf(out->in[i], sizeof(out->in[i]), "%s",
                           waits == CT_STACK_ELSEWHERE ? CT_STAND_IN_NONE : function);
        }
        if (frame != NULL) {
            (void)snprintf(out->at[i], sizeof(out->at[i]), "%s:%d %s", frame->file, frame->line,
                           frame->function);
        }
        rc = ct_flight_copy(&probe->flights[i], &out->flights[i]);
    }
    return rc;
}

/* Finds who holds the job up and appends the reason, in a clause. Of a rank that the verdict has
 * named, only what was found of it or of all. */
static int find_suspect(const struct ct_explain *explain, struct ct_buf *reason)
{
    struct ct_stands stands;
    int found = -1;
    if (!explain->whole_job) {
        return explain->suspect;
    }
    if (ct_explain_stands(explain->probe, &stands) != 0 ||
        ct_stands_judge(&stands, &found, reason) != 0) {
        found = -1;
    }
    ct_stands_fini(&stands);
    if (explain->suspect >= 0 && found >= 0 && found != explain->suspect) {
        ct_buf_reset(reason);
    }
    return explain->suspect >= 0 ? explain->suspect : found;
}

int ct_explain_suspect(const struct ct_explain *explain, struct ct_buf *reason)
{
    return find_suspect(explain, reason);
}

/* Is this name one of those that were told by the workers before? */
static bool was_named(const struct ct_probe *probe, int before, const char *name)
{
    for (int i = 0; i < before; i++) {
        const char *other = "";
        if (ct_stack_waits(&probe->answers[i].stack, &other) == CT_STACK_IN_COLLECTIVE &&
            strcmp(name, other) == 0) {
            return true;
        }
    }
    return false;
}

int ct_explain_operations(const struct ct_probe *probe, struct ct_buf *out)
{
    for (int i = 0; i < probe->count; i++) {
        const char *name = "";
        if (ct_stack_waits(&probe->answers[i].stack, &name) == CT_STACK_IN_COLLECTIVE &&
            !was_named(probe, i, name)) {
            ct_buf_addf(out, "%s%s", out->len > 0 ? ", " : "", name);
        }
    }
    return ct_buf_status(out);
}

/* ---- where ----------------------------------------------------------------------------------- */

static bool is_alive(const struct ct_explain *explain, int local_rank)
{
    return explain->probe->answers[local_rank].asked;
}

/* Is it listed with `other`, because both stand on one line? Ranks without a stack are alike, too,
 * and so are those whose stacks have no names. */
static bool is_together(const struct ct_explain *explain, int local_rank, int other)
{
    return is_alive(explain, local_rank) && is_alive(explain, other) &&
           has_stack(explain, local_rank) == has_stack(explain, other) &&
           is_same_line(frame_of(explain, local_rank), frame_of(explain, other));
}

/* The ranks that stand where `like` does; not `except`. */
struct together {
    const struct ct_explain *explain;
    int like, except;
};

static bool has(const void *set, int local_rank)
{
    const struct together *them = set;
    return local_rank != them->except && is_together(them->explain, local_rank, them->like);
}

/* Appends "ranks 0, 2-7". Returns how many. */
static int print_ranks(const struct ct_explain *explain, int like, int except, struct ct_buf *out)
{
    const struct together them = {explain, like, except};
    const struct ct_ranges ranges = {
        .has = has, .set = &them, .count = explain->probe->count, .first = explain->first_rank};
    return ct_ranges_add_ranks(&ranges, out);
}

/* Is an earlier rank listed with it? */
static bool is_listed(const struct ct_explain *explain, int local_rank, int except)
{
    for (int i = 0; i < local_rank; i++) {
        if (i != except && is_together(explain, i, local_rank)) {
            return true;
        }
    }
    return false;
}

/* A line for each place where ranks other than `suspect` stand, known places first. */
static void print_others(const struct ct_explain *explain, int suspect, const char *prefix,
                         struct ct_buf *out)
{
    int shown = 0, unknown = -1, nameless = -1;
    for (int i = 0; i < explain->probe->count; i++) {
        if (i == suspect || !is_alive(explain, i) || is_listed(explain, i, suspect)) {
            continue;
        }
        if (!has_stack(explain, i)) {
            unknown = i;
        } else if (frame_of(explain, i) == NULL) {
            nameless = i;
        } else if (shown++ < PLACES_SHOWN) {
            ct_buf_addf(out, "%s", prefix);
            int count = print_ranks(explain, i, suspect, out);
            ct_buf_addf(out, count == 1 ? " is at " : " are at ");
            ct_stack_print_where(&explain->probe->answers[i].stack, out);
            ct_buf_addf(out, "\n");
        }
    }
    if (shown > PLACES_SHOWN) {
        ct_buf_addf(out, "%sothers are at %d further places\n", prefix, shown - PLACES_SHOWN);
    }
    if (nameless >= 0) {
        ct_buf_addf(out, "%sno names in the stack of ", prefix);
        print_ranks(explain, nameless, suspect, out);
        ct_buf_addf(out, "\n");
    }
    if (unknown >= 0) {
        ct_buf_addf(out, "%sno stack of ", prefix);
        print_ranks(explain, unknown, suspect, out);
        ct_buf_addf(out, "\n");
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Says what to install, or which right is missing, so that there would have been an answer. */
static void print_hint(const struct ct_probe *probe, const char *prefix, struct ct_buf *out)
{
    bool has_native = probe->tools[CT_PROBE_EU_STACK] != NULL || probe->tools[CT_PROBE_GDB] != NULL;
    bool has_py_spy = probe->tools[CT_PROBE_PY_SPY] != NULL;
    bool misses_native = false, misses_py_spy = false, is_refused = false, lacks_names = false;
    for (int i = 0; i < probe->count; i++) {
        const struct ct_probe_answer *answer = &probe->answers[i];
        bool misses = answer->asked && answer->source == CT_PROBE_NOTHING;
        misses_py_spy = misses_py_spy || (misses && answer->python && !has_py_spy);
        misses_native = misses_native || (misses && !answer->python && !has_native);
        is_refused = is_refused ||
                     (misses && probe->is_barred && (answer->python ? has_py_spy : has_native));
        lacks_names = lacks_names || ct_stack_lacks_names(&answer->stack);
    }
    if (misses_py_spy) {
        ct_buf_addf(out, "%sto see the lines of Python programs: pip install py-spy\n", prefix);
    }
    if (misses_native) {
        ct_buf_addf(out, "%sto see stacks of C programs, install gdb, or elfutils for eu-stack\n",
                    prefix);
    }
    if (is_refused) {
        ct_buf_addf(out,
                    "%sctrun's programs may look at no worker here: give ctrun CAP_SYS_PTRACE "
                    "(docker run --cap-add SYS_PTRACE), or set kernel.yama.ptrace_scope=0\n",
                    prefix);
    }
    if (lacks_names) {
        ct_buf_addf(out,
                    "%sto see the names of a program's functions, build it with -g and do not "
                    "strip it, or install its debug symbols (-dbgsym, -debuginfo)\n",
                    prefix);
    }
}

static void print_stack(const struct ct_explain *explain, int local_rank, const char *prefix,
                        struct ct_buf *out)
{
    const struct ct_probe_answer *answer = &explain->probe->answers[local_rank];
    if (has_stack(explain, local_rank)) {
        ct_buf_addf(out, "%sstack of rank %d, from %s:\n", prefix, explain->first_rank + local_rank,
                    ct_probe_source_name(answer->source));
        (void)ct_stack_print(&answer->stack, STACK_INDENT, out);
    }
}

int ct_explain_print(const struct ct_explain *explain, const char *prefix, struct ct_buf *out)
{
    struct ct_buf reason = CT_BUF_INIT;
    const struct ct_probe *probe = explain->probe;
    int suspect = find_suspect(explain, &reason);
    if (reason.len > 0) {
        ct_buf_addf(out, "%s%s\n", prefix, ct_buf_cstr(&reason));
    }
    if (suspect >= 0 && frame_of(explain, suspect) != NULL) {
        ct_buf_addf(out, "%srank %d is at ", prefix, explain->first_rank + suspect);
        ct_stack_print_where(&probe->answers[suspect].stack, out);
        ct_buf_addf(out, "\n");
    } else if (suspect >= 0 && !has_stack(explain, suspect)) {
        ct_buf_addf(out, "%sno stack of rank %d\n", prefix, explain->first_rank + suspect);
    }
    print_others(explain, suspect, prefix, out);

    if (suspect >= 0) {
        print_stack(explain, suspect, prefix, out);
    }
    for (int i = 0, shown = 0; suspect < 0 && i < probe->count && shown < PLACES_SHOWN; i++) {
        if (frame_of(explain, i) != NULL && !is_listed(explain, i, suspect)) {
            print_stack(explain, i, prefix, out);
            shown++;
        }
    }
    print_hint(probe, prefix, out);
    ct_buf_fini(&reason);
    return ct_buf_status(out);
}
