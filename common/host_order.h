/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which people count machines.
 */
#ifndef CT_COMMON_HOST_ORDER_H
#define CT_COMMON_HOST_ORDER_H

/* Natural order of host names: runs of digits compare as numbers of any length, so that "node7"
 * comes before "node66" and "10.0.0.9" before "10.0.0.10"; upper and lower case are the same, as in
 * DNS. Less than, equal to or greater than 0 as by strcmp(3), and 0 only for names that are equal
 * byte by byte: names that differ in leading zeros or in case only still have an order, so every
 * machine sorts the same names the same way. */
int ct_host_compare(const char *a, const char *b);

#endif
