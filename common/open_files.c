/* SPDX-License-Identifier: Apache-2.0
 *
 * With too few descriptors a program fails late, where nobody expects it. libuv even aborts when it
 * cannot make the pipe for its signals. So the limit is checked before anything is opened.
 */
#include "common/open_files.h"

int ct_open_files_raise(size_t need, struct rlimit *original, struct ct_err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        limit = (struct rlimit){.rlim_cur = 1024, .rlim_max = 1024};
    }
    if (original != NULL) {
        *original = limit;
    }
    if (limit.rlim_max < need) {
        return ct_err_set(err, CT_ELIMIT,
                          "only %llu files may be open at once (ulimit -Hn), and %zu are needed",
                          (unsigned long long)limit.rlim_max, need);
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    return 0;
}
