/* SPDX-License-Identifier: Apache-2.0
 *
 * What a preflight finds out about the machine that it runs on.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_HERE_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_HERE_H

#include "launcher/preflight/preflight.h"

/* Where it looks; everything is borrowed. */
struct ct_preflight_places {
    const char *shm, *infiniband, *kmsg;
    const char *nvml;       /* name of the library */
    const char *folders[2]; /* that the job writes to; NULL = there is none */
    /* Called before each check that may never end, with its name. */
    void (*stage)(void *data, const char *name);
    void *data;
};

extern const struct ct_preflight_places ct_preflight_places_here;

/* Fills in the fields of the machine itself, from shm_size to last_xid, but not its clock. What
 * cannot be read stays as ct_preflight_machine_init() has set it. */
void ct_preflight_look(const struct ct_preflight_places *places,
                       struct ct_preflight_machine *machine);

/* Counts the machine's Xid errors in what the kernel has logged since it was started. */
void ct_preflight_count_xids(const char *kmsg, struct ct_preflight_machine *machine);

#endif
