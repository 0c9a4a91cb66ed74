/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts what a worker writes into lines. Pure: bytes go in, bytes come out.
 *
 * A line ends with '\n'. It leaves only when it is complete, with the prefix in front, so that
 * lines of several workers never mix. "\r\n" counts as "\n". A '\r' alone is used by progress bars.
 * On a terminal it ends a segment, which leaves at once with its prefix and which the next segment
 * overwrites. Elsewhere it is an ordinary byte of its line.
 *
 * In raw mode (one worker, no prefix) every byte leaves at once and unchanged.
 *
 * In every mode the last lines are kept for the report of a failure.
 */
#ifndef CT_LAUNCHER_OUTPUT_LINES_H
#define CT_LAUNCHER_OUTPUT_LINES_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* A longer line leaves in pieces, each a line of its own. This limits the memory for a worker that
 * writes no line ends. It is the default capacity of a pipe. */
#define CT_LINES_MAX 65536

/* The report shows this many lines, which is enough for most Python tracebacks. */
#define CT_LINES_TAIL 20

/* They are taken from this many last bytes of the stream. Of a long line its end is shown, because
 * such a line is mostly data with the message at its end. */
#define CT_LINES_TAIL_BYTES 16384
#define CT_LINES_TAIL_LINE 1024

/* A prefix with its NUL. A prefix that the user has chosen may have a host name in it. */
#define CT_LINES_PREFIX_MAX 256

enum ct_lines_mode {
    CT_LINES_RAW,      /* bytes pass unchanged */
    CT_LINES_PLAIN,    /* whole lines with the prefix */
    CT_LINES_TERMINAL, /* the same, and lone '\r' is understood */
    CT_LINES_TAIL_ONLY /* nothing leaves; the tail is kept */
};

struct ct_lines {
    enum ct_lines_mode mode;
    char prefix[CT_LINES_PREFIX_MAX];
    size_t prefix_len;
    struct ct_buf partial; /* the line that has no end yet; empty in raw mode */
    bool cr;               /* the last byte was '\r', and the next byte decides what it meant */
    bool rewriting;        /* the terminal's current line is a segment that ended in '\r' */
    struct ct_buf tail;    /* the last bytes, as they came */
    bool tail_cut;         /* something came before them */
};

/* `prefix` (at most CT_LINES_PREFIX_MAX - 1 bytes, longer is cut) is copied; "" = none. */
void ct_lines_init(struct ct_lines *lines, enum ct_lines_mode mode, const char *prefix);
/* Zeroed memory and NULL are allowed. */
void ct_lines_fini(struct ct_lines *lines);

/* Appends to `out` what may leave now. CT_ENOMEM: some bytes are lost. The object stays usable. */
CT_MUST_CHECK int ct_lines_feed(struct ct_lines *lines, const void *bytes, size_t len,
                                struct ct_buf *out);

/* To be called at the end of the stream. A last line without '\n' leaves with one, in raw mode
 * unchanged. */
CT_MUST_CHECK int ct_lines_finish(struct ct_lines *lines, struct ct_buf *out);

/* Appends the last lines, each with `indent` in front and '\n' behind; nothing if the worker has
 * written nothing. The text is safe for a terminal and for JSON: escape sequences are dropped,
 * other control bytes and invalid UTF-8 become '?'. A line whose beginning is missing starts with
 * "...". An unfinished last line counts as a line. */
CT_MUST_CHECK int ct_lines_tail(const struct ct_lines *lines, const char *indent,
                                struct ct_buf *out);

/* The last bytes as they came, at least CT_LINES_TAIL_BYTES of them if there were so many. They may
 * hold anything, and are valid until the next call with `lines`. Gives their number; NULL = none.
 */
const char *ct_lines_tail_bytes(const struct ct_lines *lines, size_t *len);

/* Writes "[<rank>] ", or "[<host>:<rank>] " with the first part of `host` unless that is NULL;
 * coloured by rank when `colour` is set. */
void ct_lines_prefix(const char *host, int rank, bool colour, char out[CT_LINES_PREFIX_MAX]);

/* The same for several workers, with `ranks` instead of the rank. */
void ct_lines_prefix_many(const char *host, const char *ranks, bool colour,
                          char out[CT_LINES_PREFIX_MAX]);

/* Reads the rank from such a prefix without colour, and gives the length of the prefix. False when
 * the line has no prefix. */
bool ct_lines_read_prefix(const char *line, size_t len, int *rank, size_t *prefix_len);

/* Should a stream on this descriptor be coloured? It is a terminal, TERM is not "dumb" and
 * NO_COLOR is unset or empty (https://no-color.org). */
bool ct_lines_colour(bool is_terminal, const char *term, const char *no_color);

#endif
