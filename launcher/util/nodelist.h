/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's shorthand for many hosts and many counts. Read here, because scontrol(1) is missing in
 * most container images.
 */
#ifndef CT_LAUNCHER_UTIL_NODELIST_H
#define CT_LAUNCHER_UTIL_NODELIST_H

#include "common/err.h"
#include "launcher/util/strlist.h"

/* Gives the names of a list such as "node[001,007-015],rack[1-2]n[0-3]-ib,login", in its order; the
 * last bracket counts fastest. Numbers keep their leading zeros. CT_EFORMAT quotes what is wrong;
 * CT_ELIMIT (too many names, or one longer than a host name can be); CT_ENOMEM. Gives *out, which
 * starts empty, closed. */
CT_MUST_CHECK int ct_nodelist_expand(const char *text, struct ct_strlist *out, struct ct_err *err);

/* Gives the number of tasks on node `index` from a list such as "2(x3),1", which means 2, 2, 2, 1.
 * CT_EFORMAT; CT_ENOENT when the list has fewer nodes. */
CT_MUST_CHECK int ct_nodelist_count(const char *text, int index, int *out, struct ct_err *err);

#endif
