/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries what workers write to ctrun's own stdout and stderr and to log files.
 *
 * ctrun has one `struct ct_output`. It holds a sink for stdout and one for stderr, or one for both
 * when they are the same file. Each worker has two streams, which are pipes. Lines of different
 * workers never mix.
 *
 * When a sink that is a pipe, socket or file is full, the streams that feed it are not read. So
 * memory stays bounded, and workers wait in write(2) as they would without ctrun. This is right
 * because the program that reads there (tee, less, a log collector) needs every line. A terminal
 * must not hold up the job, because a user may have stopped it to read. So each stream may have
 * CT_OUTPUT_KEEP bytes waiting; what exceeds this is dropped and counted, and a message says so.
 * Log files get every byte. A sink that was closed (ctrun | head) is reported once, and output for
 * it is thrown away: the job goes on. What does not fit on a full disk is lost, and a line stands
 * in its place when there is room again.
 *
 * On a terminal, equal lines of several workers may become one (fold.h).
 *
 * ctrun never makes its stdout and stderr non-blocking, because other programs share them.
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

/* When more bytes than HIGH wait for a sink, its streams are no longer read until fewer than LOW
 * wait. A sink holds at most HIGH and one read (with prefixes) of each stream that was ready in the
 * same turn of the loop. */
#define CT_OUTPUT_HIGH (256 * 1024)
#define CT_OUTPUT_LOW (64 * 1024)

/* Bytes of one stream that may wait for a terminal: several screens of tracebacks. With very many
 * streams it is less, so that all together have at most CT_OUTPUT_KEEP_ALL, but never less than
 * CT_OUTPUT_KEEP_LEAST. */
#define CT_OUTPUT_KEEP (256 * 1024)
#define CT_OUTPUT_KEEP_LEAST (16 * 1024)
#define CT_OUTPUT_KEEP_ALL (64 * 1024 * 1024)

enum ct_output_fd { CT_OUTPUT_OUT = 1, CT_OUTPUT_ERR = 2 };

struct ct_output;
struct ct_output_stream;

struct ct_output_options {
    int out_fd;               /* borrowed; usually 1 */
    int err_fd;               /* borrowed; usually 2 */
    bool apart;               /* no worker writes to them itself, as it would fail on a full disk */
    const struct ct_log *log; /* borrowed, may be NULL; hears once of a sink or file that fails; may
                                 itself write through ct_output_say() */
};

/* SIGPIPE must be ignored in this process. Gives *out. */
CT_MUST_CHECK int ct_output_open(uv_loop_t *loop, const struct ct_output_options *options,
                                 struct ct_output **out, struct ct_err *err);

/* Is the sink a terminal? */
bool ct_output_is_terminal(const struct ct_output *output, enum ct_output_fd fd);

/* Writes text of ctrun's own, as whole lines, after what workers wrote before. Starts a new line if
 * a worker has left the cursor inside one. Copies the text. */
void ct_output_say(struct ct_output *output, enum ct_output_fd fd, const char *bytes, size_t len);

/* Can a live line stand on stderr, a terminal, without meeting what others write there? Not if a
 * worker has the terminal itself, nor if stdout is a pipe, whose reader may write to it. */
bool ct_output_can_live(const struct ct_output *output);

/* Shows `line` below the output unless something was written since the last call, or the cursor is
 * inside a worker's line. Whatever is written next erases it. NULL erases it now. */
void ct_output_live(struct ct_output *output, const char *line);

/* ---- one stream of one worker ---------------------------------------------------------------- */

/* How equal lines of several streams become one. */
struct ct_output_fold {
    int first_rank, workers; /* of the streams that are folded together; 0 workers = no folding */
    bool forwarded;          /* lines of many workers, which begin with a prefix of lines.h */
    const char *host;        /* as in struct ct_fold_line; must outlive the stream */
    bool colour;
};

struct ct_output_stream_options {
    enum ct_output_fd to;    /* which sink */
    enum ct_lines_mode mode; /* CT_LINES_TAIL_ONLY = not shown (filtered or only redirected) */
    const char *prefix;      /* "" = none; copied */
    int rank;                /* named in the message when lines are dropped */
    enum ct_slow_output slow;
    struct ct_output_fold fold; /* only with CT_LINES_TERMINAL, and where the sink is one */
    const char *log_path;       /* appended to, created with mode 0644; NULL = no file; copied */
    const struct ct_line_filter_options *filter; /* copies lines into a file; NULL = none */
    bool inherit; /* the worker writes to the sink itself, so there is no pipe and no tail; only
                     with CT_LINES_RAW and no log_path */
};

/* Opens log file and pipe. *child_fd is what the worker gets as its stdout or stderr: the caller
 * closes it after the spawn by ct_output_stream_spawned(). An unwritable log file is CT_EPERM,
 * CT_ENOENT, ... and names the path. Gives *out. */
CT_MUST_CHECK int ct_output_stream_open(struct ct_output *output,
                                        const struct ct_output_stream_options *options,
                                        struct ct_output_stream **out, int *child_fd,
                                        struct ct_err *err);

/* To be called when the worker has its descriptor, or will not be started. Closes *child_fd, so
 * that the stream can end. */
void ct_output_stream_spawned(struct ct_output_stream *stream);

/* Says whether the worker goes on when the others have ended. If so, ct_output_drain() neither
 * waits for the end of the stream nor ends it. */
void ct_output_stream_stays(struct ct_output_stream *stream, bool stays);

/* Changes where the output goes, as if the stream had been opened with `options`. What is in the
 * pipe now still goes to the old place. Pipe, sink and `slow` stay. Fails as
 * ct_output_stream_open() does; then the stream can only be freed. */
CT_MUST_CHECK int ct_output_stream_next(struct ct_output_stream *stream,
                                        const struct ct_output_stream_options *options,
                                        struct ct_err *err);

/* Reads what is in the pipe now, so that the tail of a process that has just ended is whole. */
void ct_output_stream_catch_up(struct ct_output_stream *stream);

/* The last lines; see ct_lines_tail(). */
CT_MUST_CHECK int ct_output_stream_tail(const struct ct_output_stream *stream, const char *indent,
                                        struct ct_buf *out);

/* Are the last `lines` lines of this stream the last ones that were shown of any worker? */
bool ct_output_stream_is_last(const struct ct_output_stream *stream, uint64_t lines);

/* The last bytes; see ct_lines_tail_bytes(). */
const char *ct_output_stream_tail_bytes(const struct ct_output_stream *stream, size_t *len);

/* Ends and frees the stream. What was read still reaches the sink. Unread output is lost, so call
 * it after ct_output_drain(). NULL is allowed. */
void ct_output_stream_free(struct ct_output_stream *stream);

/* ---- the end --------------------------------------------------------------------------------- */

/* How long a stream may stay open after the generation has ended. A process that ctrun did not find
 * may still hold the pipe. */
#define CT_OUTPUT_LINGER_MS 500

typedef void (*ct_output_fn)(void *data);

/* To be called when the processes of a generation have ended. Waits until every stream has reached
 * its end; after CT_OUTPUT_LINGER_MS it reads what is in the pipe and closes the stream. Then waits
 * until both sinks have written everything, but at most `timeout_ms` (negative = no limit); what a
 * sink has not written by then stays queued. `cb` is called from the loop, not inside this call. */
void ct_output_drain(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data);

/* Every stream must have been freed. Waits until the sinks have taken what is queued, at most
 * `timeout_ms` (negative = as long as it takes), then closes, calls cb (may be NULL) and frees.
 * NULL is allowed and calls nothing. */
void ct_output_close(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data);

#endif
