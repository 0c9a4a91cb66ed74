/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a store is kept when its job has ended: until those who ask how it has ended have heard
 * it, and with --linger longer, for its live page. Pure.
 */
#ifndef CT_LAUNCHER_UTIL_STORE_END_H
#define CT_LAUNCHER_UTIL_STORE_END_H

#include <stdbool.h>
#include <stdint.h>

struct ct_store_end {
    bool lingers; /* the owner sets it when the job has ended, and clears it when it is to go */
    int64_t linger_until_ns, tell_until_ns;
};

/* The end is being told from now on. */
void ct_store_end_begin(struct ct_store_end *end, int64_t linger_s, int64_t now_ns);

/* May the store go? `is_telling`: some have asked and have not heard it all
 * (ct_server_is_telling_end()). Clears `lingers` when its time is over. */
bool ct_store_end_is_over(struct ct_store_end *end, bool is_telling, int64_t now_ns);

/* How often to ask. */
uint64_t ct_store_end_poll_ms(const struct ct_store_end *end);

#endif
