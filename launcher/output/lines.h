/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker writes, cut into lines. Pure: bytes in, bytes out, no descriptors.
 *
 * A line ends with '\n'. It leaves only when it is whole, with the prefix in front, so that lines
 * of different workers can be put one after the other without tearing. "\r\n" counts as "\n". A
 * lone '\r' (a progress bar) on a terminal ends a segment that leaves at once with its prefix and
 * is overwritten by whatever comes next; elsewhere it is an ordinary byte of its line.
 *
 * In raw mode (one worker, no prefix) every byte leaves at once and unchanged.
 *
 * In each mode the last lines are remembered for the failure report.
 */
#ifndef CT_LAUNCHER_OUTPUT_LINES_H
#define CT_LAUNCHER_OUTPUT_LINES_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* A line longer than this leaves in pieces, each a line of its own: bounds what one worker without
 * newlines can make us hold. The pipe's own default capacity. */
#define CT_LINES_MAX 65536

/* The report shows this many lines: a Python traceback of usual depth fits. */
#define CT_LINES_TAIL 20

/* They come from this many last bytes of the stream, and of each line its last part is shown: a
 * long line is a dump of data with the message behind it. */
#define CT_LINES_TAIL_BYTES 16384
#define CT_LINES_TAIL_LINE 1024

/* A prefix and NUL; users may have one of their own making, with a host's name in it. */
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
    bool cr;               /* a '\r' came last, and the next byte decides what it meant */
    bool rewriting;        /* a segment that ended in '\r' stands on the terminal */
    struct ct_buf tail;    /* the last bytes, as they came */
    bool tail_cut;         /* something came before them */
};

/* `prefix` (at most CT_LINES_PREFIX_MAX - 1 bytes, longer is cut) is copied; "" = none. */
void ct_lines_init(struct ct_lines *lines, enum ct_lines_mode mode, const char *prefix);
/* Zeroed memory and NULL are allowed. */
void ct_lines_fini(struct ct_lines *lines);

/* Appends to `out` what may leave now. CT_ENOMEM: what did not fit is lost, the object is usable.
 */
CT_MUST_CHECK int ct_lines_feed(struct ct_lines *lines, const void *bytes, size_t len,
                                struct ct_buf *out);

/* End of the stream: a last line without '\n' leaves with one (unchanged in raw mode). */
CT_MUST_CHECK int ct_lines_finish(struct ct_lines *lines, struct ct_buf *out);

/* Appends the last lines, each with `indent` in front and '\n' behind. Harmless on any terminal
 * and in any JSON: escape sequences are dropped, other control bytes and invalid UTF-8 become '?'.
 * A line that does not begin at its beginning starts with "...". An unfinished last line counts.
 * Appends nothing when the worker has written nothing. */
CT_MUST_CHECK int ct_lines_tail(const struct ct_lines *lines, const char *indent,
                                struct ct_buf *out);

/* Writes "[<rank>] ", or "[<host>:<rank>] " with the first part of `host` unless that is NULL;
 * coloured by rank when `colour` is set. */
void ct_lines_prefix(const char *host, int rank, bool colour, char out[CT_LINES_PREFIX_MAX]);

/* The same for several: `ranks` is put in the place of the rank. */
void ct_lines_prefix_many(const char *host, const char *ranks, bool colour,
                          char out[CT_LINES_PREFIX_MAX]);

/* The rank in the prefix of a line as above, without colour, and the prefix's length. False: the
 * line has none. */
bool ct_lines_read_prefix(const char *line, size_t len, int *rank, size_t *prefix_len);

/* Should a stream on this descriptor be coloured? It is a terminal, TERM is not "dumb" and
 * NO_COLOR is unset or empty (https://no-color.org). */
bool ct_lines_colour(bool is_terminal, const char *term, const char *no_color);

#endif
