/* SPDX-License-Identifier: Apache-2.0
 *
 * One function for each check. Each adds at most one finding for a machine, so that their number is
 * known beforehand.
 */
#include "launcher/preflight/preflight.h"

#include "common/alloc.h"
#include "common/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
/* Findings of one machine at most: the checks of check_machine(), and one more of each kind of
 * pair. */
#define FINDINGS_MAX 12
/* A machine is not fit if its best rate is so many times lower than that of most machines. A link
 * that fell back from 10 to 1 Gbit/s is ten times slower; what else runs on a machine rarely makes
 * it so. */
#define SLOW_TIMES 8
/* The best latency of a machine is too large if it is so many times that of most machines, unless
 * it is below LATE_LEAST_S, where it harms nobody. */
#define LATE_TIMES 10
#define LATE_LEAST_S 0.005
/* With fewer machines there is no majority. */
#define COMPARED_LEAST 3

struct judge {
    const struct ct_preflight_machine *machines;
    int count;
    const struct ct_preflight_limits *limits;
    struct ct_preflight_verdict *out;
    double *rates, *latencies; /* the best ones of each machine; 0 and INFINITY = none */
    int *broken;               /* pairs of each machine that do not work */
    double typical_rate, typical_latency_s;
    int typical_gpus;
};

void ct_preflight_machine_init(struct ct_preflight_machine *machine)
{
    *machine = (struct ct_preflight_machine){
        .takes_part = true,
        .workers = 1,
        .shm_size = -1,
        .shm_free = -1,
        .memlock = -1,
        .folder_free = -1,
        .clock_s = NAN,
        .gpus = -1,
        .xids = -1,
    };
}

/* ---- names ---------------------------------------------------------------------------------- */

static int by_host(const void *a, const void *b)
{
    const struct ct_preflight_machine *one = *(struct ct_preflight_machine *const *)a;
    const struct ct_preflight_machine *other = *(struct ct_preflight_machine *const *)b;
    return strcmp(one->host, other->host);
}

static void mark(struct ct_preflight_machine *machine)
{
    (void)snprintf(machine->mark, sizeof(machine->mark), " (node %d)", machine->node_rank);
}

int ct_preflight_mark_names(struct ct_preflight_machine *machines, int count)
{
    struct ct_preflight_machine **sorted = ct_calloc((size_t)count + 1, sizeof(sorted[0]));
    if (sorted == NULL) {
        return CT_ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        sorted[i] = &machines[i];
    }
    qsort(sorted, (size_t)count, sizeof(sorted[0]), by_host);
    for (int i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1]->host, sorted[i]->host) == 0) {
            mark(sorted[i - 1]);
            mark(sorted[i]);
        }
    }
    ct_free(sorted);
    return 0;
}

void ct_preflight_name(const struct ct_preflight_machine *machine, char out[CT_PREFLIGHT_NAME_MAX])
{
    (void)snprintf(out, CT_PREFLIGHT_NAME_MAX, "%s%s", machine->host, machine->mark);
    ct_text_clean(out);
}

/* ---- findings ------------------------------------------------------------------------------- */

static void add(struct judge *judge, int machine, bool unfit, const char *advice, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

static void add(struct judge *judge, int machine, bool unfit, const char *advice, const char *fmt,
                ...)
{
    struct ct_preflight_finding *finding = &judge->out->findings[judge->out->num_findings++];
    va_list ap;
    *finding = (struct ct_preflight_finding){.machine = machine, .unfit = unfit, .advice = advice};
    va_start(ap, fmt);
    (void)vsnprintf(finding->what, sizeof(finding->what), fmt, ap);
    va_end(ap);
    ct_text_clean(finding->what); /* it may quote another machine */
}

/* ---- one machine ---------------------------------------------------------------------------- */

static void check_stuck(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    if (machine->stuck[0] != '\0') {
        add(judge, i, true, "look at dmesg, and at the device or file system that it waits for",
            "the check of %s did not end", machine->stuck);
    }
}

static void check_shm(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    double need = (double)judge->limits->shm * machine->workers;
    if (machine->shm_free >= 0 && (double)machine->shm_free < need) {
        add(judge, i, true,
            "delete what is left there, or make it larger: `mount -o remount,size=SIZE /dev/shm`, "
            "for a container --shm-size or an emptyDir of medium Memory",
            "/dev/shm has %.0f MiB free of %.0f MiB; %d worker%s need%s %.0f MiB",
            (double)machine->shm_free / MIB, (double)machine->shm_size / MIB, machine->workers,
            machine->workers == 1 ? "" : "s", machine->workers == 1 ? "s" : "", need / MIB);
    } else if (machine->shm_size < 0 && machine->stuck[0] == '\0') {
        add(judge, i, judge->limits->shm > 0, "mount a tmpfs there", "it has no /dev/shm");
    }
}

static void check_memlock(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    int64_t least = judge->limits->memlock;
    bool low = least >= 0 ? machine->memlock >= 0 && machine->memlock < least
                          : machine->memlock >= 0 && machine->rdma > 0;
    if (low) {
        add(judge, i, true,
            "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a unit of systemd, "
            "--ulimit memlock=-1 for a container",
            "only %.2f MiB of memory may be locked (ulimit -l)%s", (double)machine->memlock / MIB,
            least < 0 ? ", and RDMA locks all that it uses" : "");
    }
}

static void check_disk(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    if (machine->folder_free >= 0 && machine->folder_free < judge->limits->disk) {
        add(judge, i, true, "make room there, or choose another folder (--log-dir, TMPDIR)",
            "the disk of %.100s has %.0f MiB free, less than %.0f MiB", machine->folder,
            (double)machine->folder_free / MIB, (double)judge->limits->disk / MIB);
    }
}

static void check_clock(struct judge *judge, int i)
{
    double clock_s = judge->machines[i].clock_s;
    if (!isnan(clock_s) && fabs(clock_s) > judge->limits->clock_s) {
        add(judge, i, true, "let chrony, ntpd or systemd-timesyncd set the clocks of all machines",
            "its clock is %.1f s %s that of node rank 0", fabs(clock_s),
            clock_s > 0 ? "ahead of" : "behind");
    }
}

static void check_gpus(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    int least = judge->limits->gpus >= 0 ? judge->limits->gpus : judge->typical_gpus;
    int gpus = machine->gpus > 0 ? machine->gpus : 0;
    if (machine->gpu_trouble[0] != '\0') {
        add(judge, i, true, "look at nvidia-smi -q; a reset of the GPU or of the machine may help",
            "%s", machine->gpu_trouble);
    }
    if (gpus < least && machine->stuck[0] == '\0') {
        add(judge, i, true, "look at nvidia-smi and dmesg for the one that is missing",
            judge->limits->gpus >= 0 ? "it has %d GPU%s, less than %d"
                                     : "it has %d GPU%s, where most machines have %d",
            gpus, gpus == 1 ? "" : "s", least);
    }
    if (machine->xids > 0 && machine->gpu_trouble[0] == '\0') {
        add(judge, i, false, "look at dmesg",
            "its kernel has logged %d Xid error%s since it was started, the last one %s",
            machine->xids, machine->xids == 1 ? "" : "s", machine->last_xid);
    }
}

static bool has_ignored_limits(const struct judge *judge, int i)
{
    const char *limits = judge->machines[i].limits;
    return limits[0] != '\0' && strcmp(limits, judge->machines[0].limits) != 0;
}

/* The limits of node rank 0, the first machine, hold for all machines. A user who has given another
 * machine different ones should hear that they do nothing. One finding names all such machines. */
static void check_limits(struct judge *judge, int i)
{
    const char *valid = judge->machines[0].limits;
    if (!has_ignored_limits(judge, i)) {
        return;
    }
    for (int n = 0; n < i; n++) {
        if (has_ignored_limits(judge, n)) {
            return;
        }
    }
    char text[48] = "";
    int more = 0;
    for (int n = i + 1; n < judge->count; n++) {
        more += has_ignored_limits(judge, n);
    }
    if (more > 0) {
        (void)snprintf(text, sizeof(text), ", nor do those of %d more machine%s", more,
                       more == 1 ? "" : "s");
    }
    add(judge, i, false, "give the same --preflight-limits on all machines",
        "its --preflight-limits %.80s do not count%s: node rank 0 has %s%.80s",
        judge->machines[i].limits, text, valid[0] != '\0' ? "" : "none", valid);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static const struct ct_preflight_link *link_to(const struct ct_preflight_machine *machine,
                                               int partner)
{
    for (int i = 0; i < machine->num_links; i++) {
        if (machine->links[i].partner == partner) {
            return &machine->links[i];
        }
    }
    return NULL;
}

bool ct_preflight_pair(const struct ct_preflight_machine *machines, int one, int other,
                       double *rate, double *latency_s, const char **error)
{
    const struct ct_preflight_link *ends[2] = {link_to(&machines[one], other),
                                               link_to(&machines[other], one)};
    *rate = INFINITY;
    *latency_s = NAN;
    *error = "nothing was measured";
    for (int i = 0; i < 2; i++) {
        if (ends[i] == NULL || ends[i]->error[0] != '\0' || isnan(ends[i]->rate)) {
            *error = ends[i] != NULL && ends[i]->error[0] != '\0' ? ends[i]->error : *error;
            return false;
        }
        *rate = ends[i]->rate < *rate ? ends[i]->rate : *rate;
        *latency_s = isnan(ends[i]->latency_s) ? *latency_s : ends[i]->latency_s;
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Sorts the values. NAN without any. */
static double median(double *values, int count)
{
    if (count == 0) {
        return NAN;
    }
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[(count - 1) / 2];
}

static void note_pair(struct judge *judge, int one, int other, double rate, double latency_s)
{
    struct ct_preflight_verdict *out = judge->out;
    const int ends[2] = {one, other};
    for (int i = 0; i < 2; i++) {
        double *best = &judge->rates[ends[i]], *soon = &judge->latencies[ends[i]];
        *best = rate > *best ? rate : *best;
        *soon = latency_s < *soon ? latency_s : *soon;
    }
    if (out->slowest[0] < 0 || rate < out->slowest_rate) {
        out->slowest[0] = one;
        out->slowest[1] = other;
        out->slowest_rate = rate;
        out->slowest_latency_s = latency_s;
    }
}

/* Fills in what is known of pairs. CT_ENOMEM. */
static int read_pairs(struct judge *judge)
{
    struct ct_preflight_verdict *out = judge->out;
    size_t room = (size_t)judge->count * CT_PREFLIGHT_ROUNDS_MAX + 1;
    double *rates = ct_calloc(room, sizeof(*rates)), *latencies = ct_calloc(room, sizeof(*rates));
    int works = 0, rc = rates == NULL || latencies == NULL ? CT_ENOMEM : 0;
    for (int i = 0; rc == 0 && i < judge->count; i++) {
        const struct ct_preflight_machine *machine = &judge->machines[i];
        for (int n = 0; n < machine->num_links; n++) {
            int other = machine->links[n].partner;
            double rate, latency_s;
            const char *error;
            if (other <= i) {
                continue; /* seen from the other end */
            }
            out->pairs++;
            if (!ct_preflight_pair(judge->machines, i, other, &rate, &latency_s, &error)) {
                out->broken_pairs++;
                judge->broken[i]++;
                judge->broken[other]++;
                continue;
            }
            note_pair(judge, i, other, rate, latency_s);
            rates[works] = rate;
            latencies[works++] = isnan(latency_s) ? 0 : latency_s;
        }
    }
    if (rc == 0) {
        out->median_rate = median(rates, works);
        out->median_latency_s = median(latencies, works);
        memcpy(rates, judge->rates, (size_t)judge->count * sizeof(*rates));
        memcpy(latencies, judge->latencies, (size_t)judge->count * sizeof(*latencies));
        judge->typical_rate = median(rates, judge->count);
        judge->typical_latency_s = median(latencies, judge->count);
    }
    ct_free(rates);
    ct_free(latencies);
    return rc;
}

/* Has this machine the fault of a pair that does not work? The one with more of them has. */
static bool is_to_blame(const struct judge *judge, int machine, int other)
{
    int mine = judge->broken[machine], theirs = judge->broken[other];
    bool silent = link_to(&judge->machines[other], machine) == NULL; /* it can say nothing */
    return silent || mine > theirs || (mine == theirs && machine > other);
}

static void check_broken(struct judge *judge, int i)
{
    const struct ct_preflight_machine *machine = &judge->machines[i];
    for (int n = 0; n < machine->num_links; n++) {
        int other = machine->links[n].partner;
        double rate, latency_s;
        const char *error;
        if (!ct_preflight_pair(judge->machines, i, other, &rate, &latency_s, &error) &&
            is_to_blame(judge, i, other)) {
            char more[48] = "", name[CT_PREFLIGHT_NAME_MAX];
            ct_preflight_name(&judge->machines[other], name);
            if (judge->broken[i] > 1) {
                (void)snprintf(more, sizeof(more), " and with %d other%s", judge->broken[i] - 1,
                               judge->broken[i] == 2 ? "" : "s");
            }
            add(judge, i, true,
                "open the firewall between the machines of the job for all TCP ports, and look at "
                "the routes and cables",
                "it cannot exchange data with %.80s%s: %s", name, more, error);
            return;
        }
    }
}

static void check_rate(struct judge *judge, int i)
{
    double rate = judge->rates[i], least = judge->limits->rate;
    bool compared = least < 0 && judge->count >= COMPARED_LEAST;
    if (rate <= 0 || judge->broken[i] == judge->machines[i].num_links) {
        return;
    }
    static const char advice[] =
        "look at its link (ethtool, ibstat), its cable and its port of the switch";
    if (least >= 0 && rate < least) {
        add(judge, i, true, advice,
            "it exchanges %.1f MB/s with another machine at most, less than %.1f MB/s", rate / 1e6,
            least / 1e6);
    } else if (compared && rate * SLOW_TIMES < judge->typical_rate) {
        add(judge, i, true, advice,
            "it exchanges %.1f MB/s with another machine at most, where half of the machines "
            "reach %.1f MB/s",
            rate / 1e6, judge->typical_rate / 1e6);
    }
}

static void check_latency(struct judge *judge, int i)
{
    double latency_s = judge->latencies[i], most = judge->limits->latency_s;
    bool compared = most < 0 && judge->count >= COMPARED_LEAST;
    static const char advice[] = "look at its link, and at what else uses the network";
    if (isinf(latency_s)) {
        return;
    }
    if (most >= 0 && latency_s > most) {
        add(judge, i, true, advice,
            "a message to another machine takes it %.3f ms at least, more than %.3f ms",
            latency_s * 1e3, most * 1e3);
    } else if (compared && latency_s > LATE_LEAST_S &&
               latency_s > LATE_TIMES * judge->typical_latency_s) {
        add(judge, i, true, advice,
            "a message to another machine takes it %.3f ms at least, where half of the machines "
            "need %.3f ms",
            latency_s * 1e3, judge->typical_latency_s * 1e3);
    }
}

/* Warns of the slowest pair if both machines are well otherwise. */
static void check_slowest(struct judge *judge, int i)
{
    const struct ct_preflight_verdict *out = judge->out;
    if (i != out->slowest[1] || out->slowest_rate * SLOW_TIMES >= out->median_rate) {
        return;
    }
    for (int n = 0; n < 2; n++) {
        if (judge->rates[out->slowest[n]] * SLOW_TIMES < judge->typical_rate) {
            return; /* the machine itself is slow */
        }
    }
    char name[CT_PREFLIGHT_NAME_MAX];
    ct_preflight_name(&judge->machines[out->slowest[0]], name);
    add(judge, i, false, "look at the switches and cables between the two",
        "its way to %.80s is slow: %.1f MB/s, where half of the pairs reach %.1f MB/s", name,
        out->slowest_rate / 1e6, out->median_rate / 1e6);
}

/* ---- all ------------------------------------------------------------------------------------ */

/* The number of GPUs that more than half of the machines have; 0 if there is none. */
static int gpus_of_most(const struct judge *judge)
{
    int candidate = 0, votes = 0, count = 0;
    for (int i = 0; i < judge->count; i++) {
        int gpus = judge->machines[i].gpus;
        candidate = votes == 0 ? gpus : candidate;
        votes += gpus == candidate ? 1 : -1;
    }
    for (int i = 0; i < judge->count; i++) {
        count += judge->machines[i].gpus == candidate;
    }
    return 2 * count > judge->count && candidate > 0 ? candidate : 0;
}

static void check_machine(struct judge *judge, int i)
{
    int before = judge->out->num_findings;
    check_stuck(judge, i);
    check_shm(judge, i);
    check_memlock(judge, i);
    check_disk(judge, i);
    check_clock(judge, i);
    check_gpus(judge, i);
    check_broken(judge, i);
    check_rate(judge, i);
    check_latency(judge, i);
    bool unfit = false;
    for (int n = before; n < judge->out->num_findings; n++) {
        unfit = unfit || judge->out->findings[n].unfit;
    }
    judge->out->unfit += unfit;
    check_limits(judge, i);
    check_slowest(judge, i);
}

int ct_preflight_judge(const struct ct_preflight_machine *machines, int count,
                       const struct ct_preflight_limits *limits, struct ct_preflight_verdict *out)
{
    size_t n = (size_t)count;
    *out = (struct ct_preflight_verdict){
        .findings = ct_calloc(n * FINDINGS_MAX + 1, sizeof(*out->findings)),
        .slowest = {-1, -1},
        .median_rate = NAN,
        .median_latency_s = NAN,
    };
    struct judge judge = {
        .machines = machines,
        .count = count,
        .limits = limits,
        .out = out,
        .rates = ct_calloc(n + 1, sizeof(double)),
        .latencies = ct_calloc(n + 1, sizeof(double)),
        .broken = ct_calloc(n + 1, sizeof(int)),
    };
    int rc = CT_ENOMEM;
    if (out->findings == NULL || judge.rates == NULL || judge.latencies == NULL ||
        judge.broken == NULL) {
        goto out;
    }
    for (int i = 0; i < count; i++) {
        judge.latencies[i] = INFINITY;
    }
    rc = read_pairs(&judge);
    if (rc != 0) {
        goto out;
    }
    judge.typical_gpus = gpus_of_most(&judge);
    for (int i = 0; i < count; i++) {
        check_machine(&judge, i);
    }
out:
    if (rc != 0) {
        ct_preflight_verdict_fini(out);
    }
    ct_free(judge.rates);
    ct_free(judge.latencies);
    ct_free(judge.broken);
    return rc;
}

void ct_preflight_verdict_fini(struct ct_preflight_verdict *verdict)
{
    ct_free(verdict->findings);
    verdict->findings = NULL;
    verdict->num_findings = 0;
}
