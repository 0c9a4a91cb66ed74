/* SPDX-License-Identifier: Apache-2.0
 *
 * Many host names on one line: "gpu-[3-17,20], login (x2)".
 */
#ifndef CT_COMMON_HOST_LIST_H
#define CT_COMMON_HOST_LIST_H

#include <stddef.h>

/* Enough for a few names and for the numbers of a rack. */
#define CT_HOST_LIST_MAX 160

/* Sorts the array into natural order (common/host_order.h) and writes the names. Names that differ
 * in one number share a bracket, as in the lists of schedulers. A name that occurs several times is
 * written once, with a count. Names that do not fit are counted: "a, b, and 17 more". `size` is at
 * least 32. */
void ct_host_list_text(const char **names, int count, char *out, size_t size);

/* The same for numbers in ascending order: "3-17,20", or "3-17,20,22 and 9 more" if not all fit. */
void ct_number_list_text(const int *numbers, int count, char *out, size_t size);

#endif
