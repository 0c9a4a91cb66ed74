/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: one handle for each signal, all with one callback. Signals that are ignored, as under
 * nohup(1), stay so. Failure mode: libuv refuses a handle; those opened before it wait for
 * ct_signals_watch_close(). The handles are the caller's memory, which must last until the loop has
 * closed them.
 */
#include "launcher/util/signals_uv.h"

#include <signal.h>
#include <stdbool.h>

static bool is_ignored(int signo)
{
    struct sigaction action;
    return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int ct_signals_watch_open(struct ct_signals_watch *watch, uv_loop_t *loop, const char *names,
                          const struct ct_log *log, uv_signal_cb cb, void *data, struct ct_err *err)
{
    struct ct_signals wanted;
    ct_signals_parse(names, log, &wanted);
    for (size_t i = 0; i < wanted.count; i++) {
        if (is_ignored(wanted.signo[i])) {
            continue;
        }
        uv_signal_t *handle = &watch->handles[watch->count];
        int rc = uv_signal_init(loop, handle);
        if (rc == 0) {
            watch->count++;
            handle->data = data;
            rc = uv_signal_start(handle, cb, wanted.signo[i]);
        }
        if (rc != 0) {
            return ct_err_set(err, CT_EIO, "cannot watch signals: %s", uv_strerror(rc));
        }
    }
    return 0;
}

void ct_signals_watch_close(struct ct_signals_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        uv_close((uv_handle_t *)&watch->handles[i], NULL);
    }
    watch->count = 0;
}
