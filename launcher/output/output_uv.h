/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers write, on its way to ctrun's own stdout and stderr and to log files.
 *
 * One `struct ct_output` per ctrun holds its stdout and stderr (one sink when both are the same
 * file). Each worker has two streams, each a pipe read here. Lines never tear or mix.
 *
 * A pipe, socket or file that does not take more stops the reading of the streams that feed it, so
 * memory stays bounded and workers wait in write(2), as they would without us: whoever reads there
 * (tee, less, a log collector) wants every line. A terminal that does not take more must not hold a
 * job up, since someone has stopped it to read or is far away: each stream may keep CT_OUTPUT_KEEP
 * bytes waiting, and what is beyond is dropped, counted and said. Log files get every byte. A sink
 * that is gone (ctrun | head) is reported once and output for it is thrown away: the job goes on.
 *
 * On a terminal equal lines of several workers may become one; see fold.h.
 *
 * ctrun's own stdout and stderr never become non-blocking for others who share them.
 */
#ifndef CT_LAUNCHER_OUTPUT_OUTPUT_UV_H
#define CT_LAUNCHER_OUTPUT_OUTPUT_UV_H

#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "launcher/cli/options.h"
#include "launcher/output/fold.h"
#include "launcher/output/line_filter.h"
#include "launcher/output/lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Bytes waiting for one sink above which its streams are no longer read, and below which they are
 * read again. The most it ever holds is this plus one read (with prefixes) of each stream that was
 * ready in the same round. */
#define CT_OUTPUT_HIGH (256 * 1024)
#define CT_OUTPUT_LOW (64 * 1024)

/* Bytes of one stream that may wait for a sink which drops what it cannot take: a screenful of
 * tracebacks from each. With very many streams it is less, down to the least, to hold no more than
 * CT_OUTPUT_KEEP_ALL of them all. */
#define CT_OUTPUT_KEEP (256 * 1024)
#define CT_OUTPUT_KEEP_LEAST (16 * 1024)
#define CT_OUTPUT_KEEP_ALL (64 * 1024 * 1024)

enum ct_output_fd { CT_OUTPUT_OUT = 1, CT_OUTPUT_ERR = 2 };

struct ct_output;
struct ct_output_stream;

struct ct_output_options {
    int out_fd;               /* borrowed; usually 1 */
    int err_fd;               /* borrowed; usually 2 */
    const struct ct_log *log; /* borrowed, may be NULL; hears once of a sink or file that fails; may
                                 itself write through ct_output_say() */
};

/* SIGPIPE must be ignored in this process. Gives *out. */
CT_MUST_CHECK int ct_output_open(uv_loop_t *loop, const struct ct_output_options *options,
                                 struct ct_output **out, struct ct_err *err);

/* Is the sink a terminal? */
bool ct_output_is_terminal(const struct ct_output *output, enum ct_output_fd fd);

/* ctrun's own text, whole lines, in order with what workers wrote before. Starts on a fresh line
 * when a worker has left the cursor inside one. Copies. */
void ct_output_say(struct ct_output *output, enum ct_output_fd fd, const char *bytes, size_t len);

/* ---- one stream of one worker ---------------------------------------------------------------- */

/* How equal lines of several streams become one. */
struct ct_output_fold {
    int first_rank, workers; /* of the streams that have lines in common; 0 workers = not folded */
    bool forwarded;          /* lines of many workers, which begin with a prefix of lines.h */
    const char *host;        /* as in struct ct_fold_line; must outlive the stream */
    bool colour;
};

struct ct_output_stream_options {
    enum ct_output_fd to;    /* which sink */
    enum ct_lines_mode mode; /* CT_LINES_TAIL_ONLY = not shown (filtered or only redirected) */
    const char *prefix;      /* "" = none; copied */
    int rank;                /* what it is called when lines of it are dropped */
    enum ct_slow_output slow;
    struct ct_output_fold fold; /* only with CT_LINES_TERMINAL, and where the sink is one */
    const char *log_path;       /* appended to, created with mode 0644; NULL = no file; copied */
    const struct ct_line_filter_options *filter; /* copies lines into a file; NULL = none */
    bool inherit; /* let the worker write to the sink itself: no pipe, no tail; only with
                     CT_LINES_RAW and no log_path */
};

/* Opens log file and pipe. *child_fd is what the worker gets as its stdout or stderr: the caller
 * closes it after the spawn by ct_output_stream_spawned(). An unwritable log file is CT_EPERM,
 * CT_ENOENT, ... and names the path. Gives *out. */
CT_MUST_CHECK int ct_output_stream_open(struct ct_output *output,
                                        const struct ct_output_stream_options *options,
                                        struct ct_output_stream **out, int *child_fd,
                                        struct ct_err *err);

/* The worker has its descriptor (or will never be started): ours is closed, so that the stream can
 * end. */
void ct_output_stream_spawned(struct ct_output_stream *stream);

/* Does its worker go on when the others have ended? Then ct_output_drain() neither waits for its
 * end nor brings it about. */
void ct_output_stream_stays(struct ct_output_stream *stream, bool stays);

/* What is in the pipe now still goes where it went; what comes goes where `options` say, as if the
 * stream had been opened with them. Pipe, sink and slowness stay. Fails as opening it does, and
 * leaves a stream that only can be freed. */
CT_MUST_CHECK int ct_output_stream_next(struct ct_output_stream *stream,
                                        const struct ct_output_stream_options *options,
                                        struct ct_err *err);

/* The last lines; see ct_lines_tail(). */
CT_MUST_CHECK int ct_output_stream_tail(const struct ct_output_stream *stream, const char *indent,
                                        struct ct_buf *out);

/* Ends and frees the stream; what was read stays on its way to the sink. Normally called after
 * ct_output_drain(); before that, unread output is lost. NULL is allowed. */
void ct_output_stream_free(struct ct_output_stream *stream);

/* ---- the end --------------------------------------------------------------------------------- */

/* Time a stream may stay open after its job has ended, because some process that escaped us holds
 * the pipe. */
#define CT_OUTPUT_LINGER_MS 500

typedef void (*ct_output_fn)(void *data);

/* To be called when the processes of a generation have ended. `cb` is called from the loop, never
 * inside this call, when every stream has reached its end (or CT_OUTPUT_LINGER_MS is over: then
 * what is in the pipe is taken and the stream closed) and both sinks have taken everything, or
 * when `timeout_ms` is over (negative = never); then what a sink did not take yet stays queued. */
void ct_output_drain(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data);

/* Every stream must have been freed. Waits until the sinks have taken what is queued, at most
 * `timeout_ms` (negative = as long as it takes), then closes, calls cb (may be NULL) and frees.
 * NULL is allowed and calls nothing. */
void ct_output_close(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data);

#endif
