/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a thread asks the store every second, because a question may take as long as the
 * timeout and keys must work meanwhile. The loop shows the answers and takes keys. All the time one
 * request waits for the end of the job (stat_end_uv.h); its answer becomes the last words.
 *
 * Other paths: ^Z gives the terminal back before the process stops, and SIGCONT takes it again. A
 * new window size redraws the screen. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the loop like the key
 * q; the caller ends by the signal then.
 *
 * Failure modes: a store that does not answer in time, or whose machine cannot be reached, is asked
 * again, and the foot of the screen says so, or a line for each silence. The first answer is waited
 * for before there is a screen. One that refuses the connection or closes it has ended. How the job
 * has ended may then be about to arrive. If it does not, the last words say what was seen last.
 * After a ctrun was killed, the store of another job may have its port: neither its status nor its
 * end is taken.
 *
 * Who frees: everything is in struct watch on the stack of ct_stat_watch_run(), which runs the loop
 * until all handles are closed; a question under way ends within its timeout.
 */
#include "rendezvous/ctrun-stat/stat_watch_uv.h"

#include "common/clock.h"
#include "common/file.h"
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_curve.h"
#include "rendezvous/ctrun-stat/stat_end_uv.h"
#include "rendezvous/ctrun-stat/stat_screen.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/page_history.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <uv.h>

#define PERIOD_MS 1000
#define NOTE_MAX 256

/* When the store has gone, its last answer is here, or on its way. */
#define LAST_ANSWER_MS 500

/* The second screen of a terminal, which keeps what stands on the first one; no cursor. */
#define ENTER "\x1b[?1049h\x1b[?25l"
#define LEAVE "\x1b[?25h\x1b[?1049l"
#define TOP_LEFT "\x1b[H"
#define ERASE_LINE "\x1b[2K"
#define ERASE_BELOW "\x1b[J"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

struct watch {
    const struct ct_stat_watch_options *options;
    struct ct_stat_watched *out;
    char where[CT_ADDR_JOIN_MAX];
    uv_loop_t loop;
    uv_timer_t timer;
    uv_signal_t signal[SIGNALS];
    uv_poll_t keys;
    int key_fd; /* a description of our own, which may be non-blocking; -1 = there are no keys */
    uv_work_t work;
    struct ct_stat_end end;
    bool asking, quitting, entered, has_saved;
    bool store_is_gone;
    bool is_silent; /* the last question got no answer, and that has been printed */
    int rc_print;   /* why an answer could not be printed, as `why_print` says */
    struct ct_err why_print;
    struct termios saved;
    struct ct_stat_view view;
    struct ct_page_history losses; /* which the view shows */
    cJSON *status;                 /* the last one */
    int64_t status_ns;             /* when it came */
    char note[NOTE_MAX];
    /* what the thread gives; not to be touched while it asks */
    cJSON *answer;
    int rc;
    struct ct_err err;
};

/* ---- the terminal --------------------------------------------------------------------------- */

static void say(const struct watch *watch, const char *text)
{
    (void)!ct_fd_write_all(watch->options->out_fd, text, strlen(text));
}

/* Keys come at once and are not shown; ^C and ^Z stay signals. */
static void enter(struct watch *watch)
{
    if (watch->key_fd >= 0 && (watch->has_saved || tcgetattr(watch->key_fd, &watch->saved) == 0)) {
        struct termios raw = watch->saved;
        watch->has_saved = true;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(watch->key_fd, TCSADRAIN, &raw);
    }
    say(watch, ENTER);
    watch->entered = true;
}

static void leave(struct watch *watch)
{
    if (!watch->entered) {
        return;
    }
    watch->entered = false;
    say(watch, LEAVE);
    if (watch->has_saved) {
        (void)tcsetattr(watch->key_fd, TCSADRAIN, &watch->saved);
        watch->has_saved = false; /* after a stop the shell may have set another mode */
    }
}

static void measure(struct watch *watch)
{
    struct winsize size;
    bool known =
        ioctl(watch->options->out_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    watch->view.rows = known ? size.ws_row : 24;
    watch->view.columns = known ? size.ws_col : 80;
}

static void draw(struct watch *watch)
{
    struct ct_buf lines = CT_BUF_INIT, bytes = CT_BUF_INIT;
    if (!watch->entered || watch->status == NULL) {
        return;
    }
    measure(watch);
    if (ct_stat_screen(watch->status, watch->where, watch->note, &watch->view, &lines) == 0) {
        ct_buf_addf(&bytes, TOP_LEFT);
        for (const char *line = ct_buf_cstr(&lines); line != NULL && *line != '\0';) {
            size_t len = strcspn(line, "\n");
            bool last = line[len] == '\0';
            ct_buf_addf(&bytes, ERASE_LINE "%.*s%s", (int)len, line, last ? "" : "\r\n");
            line += len + !last;
        }
        ct_buf_addf(&bytes, ERASE_BELOW);
        if (ct_buf_status(&bytes) == 0) {
            (void)!ct_fd_write_all(watch->options->out_fd, ct_buf_bytes(&bytes), bytes.len);
        }
    }
    ct_buf_fini(&lines);
    ct_buf_fini(&bytes);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void quit(struct watch *watch)
{
    if (watch->quitting) {
        return;
    }
    watch->quitting = true;
    leave(watch);
    ct_stat_end_close(&watch->end);
    uv_close((uv_handle_t *)&watch->timer, NULL);
    for (size_t i = 0; i < SIGNALS && watch->options->print == NULL; i++) {
        uv_close((uv_handle_t *)&watch->signal[i], NULL);
    }
    if (watch->key_fd >= 0) {
        uv_close((uv_handle_t *)&watch->keys, NULL);
    }
}

static void fail(struct watch *watch, int rc)
{
    watch->rc_print = rc;
    quit(watch);
}

static void say_last_words(struct watch *watch, const cJSON *verdict)
{
    const struct ct_stat_watch_options *options = watch->options;
    struct ct_buf text = CT_BUF_INIT;
    if (options->print_end != NULL) {
        watch->rc_print = options->print_end(options->data, verdict, &watch->why_print);
    } else if (ct_stat_screen_end(watch->status, verdict, watch->where, &text) == 0) {
        (void)!ct_fd_write_all(options->out_fd, ct_buf_bytes(&text), text.len);
    }
    if (options->print_end == NULL && watch->out->replaced) {
        say(watch, "another job's store answers there now\n");
    }
    ct_buf_fini(&text);
}

static void finish(struct watch *watch, const cJSON *verdict)
{
    if (!watch->quitting) {
        watch->out->ended = true;
        watch->out->is_known = verdict != NULL;
        watch->out->succeeded = strcmp(ct_json_text(verdict, "outcome", ""), "succeeded") == 0;
        quit(watch);
        say_last_words(watch, verdict);
    }
}

/* Ends the watch, because the store of another job has the address now. */
static void finish_replaced(struct watch *watch)
{
    watch->out->replaced = true;
    finish(watch, NULL);
}

static void on_end(void *data, const cJSON *verdict)
{
    struct watch *watch = data;
    bool had_job = ct_status_next_job(watch->status, NULL) != NULL;
    if (verdict != NULL && had_job &&
        !ct_stat_has_job(watch->status, ct_json_text(verdict, "run_id", ""))) {
        finish_replaced(watch);
    } else if (verdict != NULL || watch->store_is_gone) {
        finish(watch, verdict);
    }
}

static void on_no_last_answer(uv_timer_t *timer)
{
    finish(timer->data, NULL);
}

/* The store has gone: waits for its last answer, if one may come. */
static void lose_store(struct watch *watch)
{
    watch->store_is_gone = true;
    if (ct_stat_end_is_asking(&watch->end)) {
        (void)uv_timer_start(&watch->timer, on_no_last_answer, LAST_ANSWER_MS, 0);
    } else {
        finish(watch, NULL);
    }
}

/* ---- questions ------------------------------------------------------------------------------ */

static void ask(uv_work_t *work)
{
    struct watch *watch = work->data;
    watch->err = (struct ct_err){0};
    watch->answer = NULL;
    watch->rc = ct_stat_ask(&watch->options->where, watch->options->token,
                            watch->options->timeout_s, &watch->answer, &watch->err);
}

/* Does the answer come from the store of another job? */
static bool is_replaced(const struct watch *watch)
{
    double passed_s = (double)(ct_clock_now(NULL) - watch->status_ns) / (double)CT_NS_PER_S;
    return watch->rc == 0 && ct_stat_is_replaced(watch->status, watch->answer, passed_s);
}

static void take_answer(struct watch *watch)
{
    watch->note[0] = '\0';
    if (watch->rc == 0) {
        cJSON_Delete(watch->status);
        watch->status = watch->answer;
        watch->status_ns = ct_clock_now(NULL);
        watch->answer = NULL;
        ct_stat_curve_add(&watch->losses, watch->status);
        (void)!ct_stat_verdict(watch->status, &watch->out->healthy); /* was checked */
        watch->out->seen = true;
    } else if (!ct_stat_ask_is_gone(&watch->err)) {
        (void)snprintf(watch->note, sizeof(watch->note), "%.200s; asking again", watch->err.text);
    }
}

/* Shows what has come, or that nothing has. */
static void show_answer(struct watch *watch)
{
    const struct ct_stat_watch_options *options = watch->options;
    int rc = 0;
    if (options->print == NULL) {
        draw(watch);
    } else if (watch->rc == 0) {
        rc = options->print(options->data, watch->status, &watch->why_print);
    } else if (!watch->is_silent) {
        rc = options->print_silence(options->data, &watch->err, &watch->why_print);
    }
    watch->is_silent = watch->rc != 0;
    if (rc != 0) {
        fail(watch, rc);
    }
}

static void on_answer(uv_work_t *work, int status)
{
    struct watch *watch = work->data;
    (void)status;
    watch->asking = false;
    if (watch->quitting) {
        cJSON_Delete(watch->answer);
        return;
    }
    if (is_replaced(watch)) {
        cJSON_Delete(watch->answer);
        finish_replaced(watch);
        return;
    }
    take_answer(watch);
    if (watch->rc != 0 && ct_stat_ask_is_gone(&watch->err)) {
        lose_store(watch);
    } else {
        show_answer(watch);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct watch *watch = timer->data;
    if (!watch->asking && !watch->store_is_gone) {
        watch->asking = uv_queue_work(&watch->loop, &watch->work, ask, on_answer) == 0;
    }
}

/* ---- keys and signals ----------------------------------------------------------------------- */

static void on_key(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    char keys[64];
    ssize_t n = status == 0 ? read(watch->key_fd, keys, sizeof(keys)) : -1;
    (void)events;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        quit(watch); /* the terminal has gone */
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (ct_stat_screen_key(&watch->view, keys[i])) {
            quit(watch);
            return;
        }
    }
    draw(watch);
}

static void on_signal(uv_signal_t *handle, int signo)
{
    struct watch *watch = handle->data;
    if (signo == SIGTSTP) {
        leave(watch);
        (void)uv_signal_stop(handle); /* the default action is back */
        (void)raise(signo);
        (void)uv_signal_start(handle, on_signal, signo);
        enter(watch);
        draw(watch);
    } else if (signo == SIGCONT) {
        if (watch->entered) { /* it was stopped by another signal, and the screen may be gone */
            say(watch, ENTER);
        }
        draw(watch);
    } else if (signo == SIGWINCH) {
        draw(watch);
    } else {
        watch->out->signo = signo;
        quit(watch);
    }
}

static int open_keys(struct watch *watch)
{
    char path[32];
    if (isatty(watch->options->in_fd) != 1) {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", watch->options->in_fd);
    /* libuv makes it non-blocking, which the shell must not find. */
    watch->key_fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (watch->key_fd < 0) {
        return 0;
    }
    int rc = uv_poll_init(&watch->loop, &watch->keys, watch->key_fd);
    if (rc != 0) {
        (void)close(watch->key_fd);
        watch->key_fd = -1;
        return rc;
    }
    watch->keys.data = watch;
    return uv_poll_start(&watch->keys, UV_READABLE, on_key);
}

/* Every handle is initialised even if a start fails, so that quit() can close them all. */
static int open_handles(struct watch *watch)
{
    (void)uv_timer_init(&watch->loop, &watch->timer); /* cannot fail */
    watch->timer.data = watch;
    int rc = uv_timer_start(&watch->timer, on_timer, PERIOD_MS, PERIOD_MS);
    watch->key_fd = -1;
    if (watch->options->print != NULL) {
        return rc;
    }
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)uv_signal_init(&watch->loop, &watch->signal[i]); /* cannot fail in this loop */
        watch->signal[i].data = watch;
        if (rc == 0) {
            rc = uv_signal_start(&watch->signal[i], on_signal, signals[i]);
        }
    }
    int keys_rc = open_keys(watch);
    return rc != 0 ? rc : keys_rc;
}

/* Waits for the first answer, without a screen: who watches has seen nothing yet, and ends the
 * program by a signal. */
static int ask_first(struct watch *watch, struct ct_err *err)
{
    const struct ct_stat_watch_options *options = watch->options;
    for (;;) {
        int rc =
            ct_stat_ask(&options->where, options->token, options->timeout_s, &watch->answer, err);
        if (rc == 0 || !ct_stat_ask_may_answer(err)) {
            watch->is_silent = false;
            return rc;
        }
        struct ct_err why = *err;
        rc = watch->is_silent ? 0 : options->print_silence(options->data, &why, err);
        if (rc != 0) {
            return rc;
        }
        watch->is_silent = true;
        (void)poll(NULL, 0, PERIOD_MS);
    }
}

int ct_stat_watch_run(const struct ct_stat_watch_options *options, struct ct_stat_watched *out,
                      struct ct_err *err)
{
    struct watch watch = {.options = options, .out = out, .key_fd = -1};
    watch.work.data = &watch;
    watch.view.losses = &watch.losses;
    ct_addr_join(options->where.host, options->where.port, watch.where, sizeof(watch.where));
    int rc = ask_first(&watch, err);
    if (rc != 0) {
        return rc;
    }
    take_answer(&watch);
    rc = options->print != NULL ? options->print(options->data, watch.status, err) : 0;
    if (rc != 0) {
        cJSON_Delete(watch.status);
        return rc;
    }
    rc = uv_loop_init(&watch.loop);
    if (rc != 0) {
        cJSON_Delete(watch.status);
        return ct_err_set(err, CT_EIO, "cannot make an event loop: %s", uv_strerror(rc));
    }
    rc = open_handles(&watch);
    if (rc != 0) {
        quit(&watch);
    } else {
        /* Without it the end is seen as that of the store. */
        (void)!ct_stat_end_open(&watch.end, &watch.loop, &options->where, options->token, on_end,
                                &watch);
        if (options->print == NULL) {
            enter(&watch);
            draw(&watch);
        }
    }
    (void)uv_run(&watch.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&watch.loop);
    if (watch.key_fd >= 0) {
        (void)close(watch.key_fd);
    }
    cJSON_Delete(watch.status);
    if (watch.rc_print != 0) {
        *err = watch.why_print;
        return watch.rc_print;
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot watch: %s", uv_strerror(rc));
}
