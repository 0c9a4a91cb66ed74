/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that a C library before glibc 2.34 does not have. meson.build includes this header in
 * every file if the C library has not got them; otherwise nobody does.
 */
#ifndef CT_COMMON_OLDER_LIBC_H
#define CT_COMMON_OLDER_LIBC_H

/* As sigabbrev_np(3): "TERM", or NULL if there is no such signal. */
const char *ct_older_libc_sigabbrev(int signo);

/* As close_range(2). */
int ct_older_libc_close_range(unsigned first, unsigned last, int flags);

#ifdef CT_OLDER_LIBC
#define sigabbrev_np ct_older_libc_sigabbrev
#define close_range ct_older_libc_close_range
/* Of waitid(2): Linux has had it since 5.4, glibc since 2.36. */
#define P_PIDFD ((idtype_t)3)
#endif

#endif
