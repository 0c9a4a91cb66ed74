/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns have fixed widths, which suit the usual values. Names come from other machines, so
 * control characters are taken out of them.
 */
#include "launcher/preflight/preflight_table.h"

#include "common/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HOST_COLUMNS 20
#define CELL_MAX 32

/* "24.0 GiB", "64.0 MiB"; "-" if it is negative. */
static void bytes(int64_t number, char out[CELL_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)number;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, CELL_MAX,
                   number < 0  ? "-"
                   : unit == 0 ? "%.0f %s"
                               : "%.1f %s",
                   value, units[unit]);
}

/* What three digits would round to 1000, and so print as 1e+03, is told in the next unit. */
static void rate(double bytes_per_s, char out[CELL_MAX])
{
    bool giga = bytes_per_s >= 999.5e6, mega = bytes_per_s >= 999.5e3;
    double value = giga ? bytes_per_s / 1e9 : mega ? bytes_per_s / 1e6 : bytes_per_s / 1e3;
    (void)snprintf(out, CELL_MAX, "%.3g %s/s", value, giga ? "GB" : mega ? "MB" : "kB");
}

static void latency(double seconds, char out[CELL_MAX])
{
    if (seconds < 1e-3) {
        (void)snprintf(out, CELL_MAX, "%.0f us", seconds * 1e6);
    } else if (seconds < 999.5e-3) {
        (void)snprintf(out, CELL_MAX, "%.3g ms", seconds * 1e3);
    } else {
        (void)snprintf(out, CELL_MAX, "%.3g s", seconds);
    }
}

/* The best that the machine reached with any other one. */
static void network(const struct ct_preflight_machine *machines, int i, char out[CELL_MAX])
{
    double best = 0;
    for (int n = 0; n < machines[i].num_links; n++) {
        double value, unused;
        const char *error;
        if (ct_preflight_pair(machines, i, machines[i].links[n].partner, &value, &unused, &error) &&
            value > best) {
            best = value;
        }
    }
    (void)snprintf(out, CELL_MAX, "-");
    if (best > 0) {
        rate(best, out);
    }
}

static void add_row(const struct ct_preflight_machine *machines, int i, const char *mark,
                    struct ct_buf *out)
{
    const struct ct_preflight_machine *machine = &machines[i];
    char host[4 * HOST_COLUMNS + 1], shm[CELL_MAX], memlock[CELL_MAX], disk[CELL_MAX],
        clock[CELL_MAX] = "-", gpus[CELL_MAX] = "-", net[CELL_MAX];
    /* A long name is cut and its mark is not, which tells it from others. */
    int marked = (int)strlen(machine->mark);
    size_t columns =
        ct_text_fit(machine->host, (size_t)(HOST_COLUMNS - marked), host, sizeof(host));
    bytes(machine->shm_free, shm);
    bytes(machine->memlock, memlock);
    bytes(machine->folder_free, disk);
    network(machines, i, net);
    if (!isnan(machine->clock_s)) {
        (void)snprintf(clock, sizeof(clock), "%+.1f s", machine->clock_s);
    }
    if (machine->gpus >= 0) {
        (void)snprintf(gpus, sizeof(gpus), "%d", machine->gpus);
    }
    ct_buf_addf(out, "%s%s%*s %10s %10s %10s %9s %4s %10s  %s\n", host, machine->mark,
                HOST_COLUMNS - marked - (int)columns, "", shm,
                machine->memlock < 0 && machine->stuck[0] == '\0' ? "unlimited" : memlock, disk,
                clock, gpus, net, mark);
}

static void add_clean(const char *quoted, struct ct_buf *out)
{
    char text[2 * CT_PREFLIGHT_TEXT_MAX];
    (void)snprintf(text, sizeof(text), "%s", quoted);
    ct_text_clean(text);
    ct_buf_addf(out, "%s", text);
}

static void add_name(const struct ct_preflight_machine *machine, struct ct_buf *out)
{
    char name[CT_PREFLIGHT_NAME_MAX];
    ct_preflight_name(machine, name);
    ct_buf_addf(out, "%s", name);
}

int ct_preflight_pairs_text(const struct ct_preflight_machine *machines, int count,
                            const struct ct_preflight_verdict *verdict, struct ct_buf *out)
{
    char value[CELL_MAX], time[CELL_MAX];
    if (verdict->pairs == 0) {
        return ct_buf_status(out);
    }
    if (ct_preflight_all_meet(count)) {
        ct_buf_addf(out, "%d pair%s", verdict->pairs, verdict->pairs == 1 ? "" : "s");
    } else {
        ct_buf_addf(out, "%d of %lld pairs", verdict->pairs, (long long)count * (count - 1) / 2);
    }
    if (verdict->broken_pairs > 0) {
        ct_buf_addf(out, ", %d exchanged no data", verdict->broken_pairs);
    }
    if (verdict->slowest[0] >= 0) {
        rate(verdict->median_rate, value);
        latency(verdict->median_latency_s, time);
        ct_buf_addf(out, ", median %s and %s; the slowest is ", value, time);
        add_name(&machines[verdict->slowest[0]], out);
        ct_buf_addf(out, " - ");
        add_name(&machines[verdict->slowest[1]], out);
        rate(verdict->slowest_rate, value);
        latency(verdict->slowest_latency_s, time);
        ct_buf_addf(out, " with %s and %s", value, time);
    }
    return ct_buf_status(out);
}

/* Says each finding below the table, so that its rows stay short. */
static void add_findings(const struct ct_preflight_machine *machines,
                         const struct ct_preflight_verdict *verdict, struct ct_buf *out)
{
    for (int i = 0; i < verdict->num_findings; i++) {
        const struct ct_preflight_finding *finding = &verdict->findings[i];
        ct_buf_addf(out, "%s: ", finding->unfit ? "not fit" : "warning");
        add_name(&machines[finding->machine], out);
        ct_buf_addf(out, ": ");
        add_clean(finding->what, out);
        ct_buf_addf(out, "; %s\n", finding->advice);
    }
}

int ct_preflight_table(const struct ct_preflight_machine *machines, int count,
                       const struct ct_preflight_verdict *verdict, struct ct_buf *out)
{
    int next = 0;
    ct_buf_addf(out, "%-*s %10s %10s %10s %9s %4s %10s  %s\n", HOST_COLUMNS, "MACHINE", "SHM FREE",
                "MEMLOCK", "DISK FREE", "CLOCK", "GPUS", "NETWORK", "VERDICT");
    for (int i = 0; i < count; i++) {
        bool unfit = false;
        for (; next < verdict->num_findings && verdict->findings[next].machine == i; next++) {
            unfit = unfit || verdict->findings[next].unfit;
        }
        add_row(machines, i, unfit ? "not fit" : "fit", out);
    }
    add_findings(machines, verdict, out);
    if (verdict->pairs > 0) {
        ct_buf_addf(out, "network: ");
        if (ct_preflight_pairs_text(machines, count, verdict, out) != 0) {
            return CT_ENOMEM;
        }
        ct_buf_addf(out, "\n");
    }
    return ct_buf_status(out);
}
