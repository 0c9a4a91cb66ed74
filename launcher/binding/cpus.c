/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel ends its lists with a newline; an empty list is valid. CPUs beyond CT_CPUS_MAX are
 * left out.
 */
#include "launcher/binding/cpus.h"

#include "common/ranges.h"

#include <sched.h>
#include <string.h>

#define WORD_BITS ((int)(8 * sizeof(unsigned long)))

/* A number of a CPU has no more digits. A longer one could overflow an int. */
#define DIGITS_MAX 7

void ct_cpus_add(struct ct_cpus *cpus, int cpu)
{
    if (cpu >= 0 && cpu < CT_CPUS_MAX) {
        cpus->bits[cpu / WORD_BITS] |= 1UL << (cpu % WORD_BITS);
    }
}

bool ct_cpus_has(const struct ct_cpus *cpus, int cpu)
{
    return cpu >= 0 && cpu < CT_CPUS_MAX &&
           (cpus->bits[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1) != 0;
}

int ct_cpus_count(const struct ct_cpus *cpus)
{
    int count = 0;
    for (size_t i = 0; i < sizeof(cpus->bits) / sizeof(cpus->bits[0]); i++) {
        count += __builtin_popcountl(cpus->bits[i]);
    }
    return count;
}

int ct_cpus_next(const struct ct_cpus *cpus, int from)
{
    for (int cpu = from; cpu < CT_CPUS_MAX; cpu++) {
        if (ct_cpus_has(cpus, cpu)) {
            return cpu;
        }
    }
    return -1;
}

/* Reads digits; false when there are none or too many. */
static bool read_number(const char **text, int *out)
{
    int value = 0, digits = 0;
    while (**text >= '0' && **text <= '9') {
        if (++digits > DIGITS_MAX) {
            return false;
        }
        value = value * 10 + (*(*text)++ - '0');
    }
    *out = value;
    return digits > 0;
}

int ct_cpus_parse(const char *text, struct ct_cpus *out)
{
    struct ct_cpus cpus = {{0}};
    const char *p = text;
    while (*p != '\0' && *p != '\n') {
        int first, last;
        if (!read_number(&p, &first)) {
            return CT_EFORMAT;
        }
        last = first;
        if (*p == '-') {
            p++;
            if (!read_number(&p, &last) || last < first) {
                return CT_EFORMAT;
            }
        }
        for (int cpu = first; cpu <= last && cpu < CT_CPUS_MAX; cpu++) {
            ct_cpus_add(&cpus, cpu);
        }
        if (*p == ',') {
            p++;
        } else if (*p != '\0' && *p != '\n') {
            return CT_EFORMAT;
        }
    }
    if (strspn(p, " \n") != strlen(p)) {
        return CT_EFORMAT;
    }
    *out = cpus;
    return 0;
}

static bool has(const void *cpus, int cpu)
{
    return ct_cpus_has(cpus, cpu);
}

int ct_cpus_print(const struct ct_cpus *cpus, struct ct_buf *out)
{
    const struct ct_ranges all = {.has = has, .set = cpus, .count = CT_CPUS_MAX};
    ct_ranges_add(&all, ",", out);
    return ct_buf_status(out);
}

void ct_cpus_allowed(struct ct_cpus *out)
{
    *out = (struct ct_cpus){{0}};
    if (sched_getaffinity(0, sizeof(out->bits), (cpu_set_t *)out->bits) != 0) {
        *out = (struct ct_cpus){{0}};
    }
}
