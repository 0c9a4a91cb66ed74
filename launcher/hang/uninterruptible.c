/* SPDX-License-Identifier: Apache-2.0
 *
 * When a look finds another state than D, the time starts anew, because the kernel has answered. A
 * process may leave state D and come back between two looks, unseen. The looks are frequent, so
 * this is unlikely.
 */
#include "launcher/hang/uninterruptible.h"

#include "common/clock.h"
#include "common/num.h"
#include "launcher/cli/option_values.h"
#include "launcher/util/environ.h"

#include <stddef.h>

#define TIMEOUT_ENV "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
/* Thirty years are as good as never, and cannot overflow. */
#define TIMEOUT_MAX_S 1e9
/* The period is the timeout divided by this, within these bounds. */
#define LOOKS 10
#define PERIOD_MIN_MS 100
#define PERIOD_MAX_MS 1000

int64_t ct_uninterruptible_timeout_ns(char *const *env)
{
    const char *value = ct_environ_get(env, TIMEOUT_ENV);
    char number[CT_OPTION_NUMBER_MAX];
    double seconds;
    if (value == NULL ||
        ct_parse_double(ct_option_trim(value, number), 0, TIMEOUT_MAX_S, &seconds) != 0) {
        return 0;
    }
    return (int64_t)(seconds * (double)CT_NS_PER_S);
}

int64_t ct_uninterruptible_period_ms(int64_t timeout_ns)
{
    int64_t ms = timeout_ns / CT_NS_PER_MS / LOOKS;
    if (ms < PERIOD_MIN_MS) {
        return PERIOD_MIN_MS;
    }
    return ms < PERIOD_MAX_MS ? ms : PERIOD_MAX_MS;
}

int64_t ct_uninterruptible_step(struct ct_uninterruptible *process, char state, int64_t timeout_ns,
                                int64_t now_ns)
{
    if (state != 'D') {
        process->since_ns = 0;
        return -1;
    }
    if (process->since_ns == 0) {
        process->since_ns = now_ns;
    }
    int64_t slept_ns = now_ns - process->since_ns;
    return slept_ns >= timeout_ns ? slept_ns : -1;
}
