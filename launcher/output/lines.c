/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: whole lines are copied from the input to the output with their prefix; the part
 * behind the last '\n' waits in `partial` for its end.
 *
 * Failure modes: without memory the lines at hand are lost as a whole, never in half, and the
 * caller is told.
 */
#include "launcher/output/lines.h"

#include "common/num.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Clears the rest of a terminal's line, where a longer one may have stood. */
#define ERASE "\x1b[K"
/* The longest label of a host name (RFC 1035). */
#define HOST_LABEL_MAX 63

void ct_lines_init(struct ct_lines *lines, enum ct_lines_mode mode, const char *prefix)
{
    *lines = (struct ct_lines){.mode = mode};
    lines->prefix_len = strnlen(prefix, sizeof(lines->prefix) - 1);
    memcpy(lines->prefix, prefix, lines->prefix_len);
}

void ct_lines_fini(struct ct_lines *lines)
{
    if (lines != NULL) {
        ct_buf_fini(&lines->partial);
        ct_buf_fini(&lines->tail);
    }
}

/* ---- the tail ------------------------------------------------------------------------------- */

static int remember(struct ct_lines *lines, const char *bytes, size_t len)
{
    if (len > CT_LINES_TAIL_BYTES) {
        bytes += len - CT_LINES_TAIL_BYTES;
        len = CT_LINES_TAIL_BYTES;
        lines->tail_cut = true;
    }
    int rc = ct_buf_append(&lines->tail, bytes, len);
    /* The buffer may grow to twice the size, so that the bytes are rarely moved. */
    if (rc == 0 && lines->tail.len > 2 * CT_LINES_TAIL_BYTES) {
        ct_buf_consume(&lines->tail, lines->tail.len - CT_LINES_TAIL_BYTES);
        lines->tail_cut = true;
    }
    return rc;
}

/* ---- cutting -------------------------------------------------------------------------------- */

/* Appends the held part and `bytes` to `out` as one line that ends in `last`, '\n' or '\r'. */
static int emit(struct ct_lines *lines, const char *bytes, size_t len, char last,
                struct ct_buf *out)
{
    const char *end = last == '\r' ? ERASE "\r" : lines->rewriting ? ERASE "\n" : "\n";
    const size_t end_len = strlen(end);
    lines->rewriting = last == '\r';
    const size_t held = lines->partial.len;
    /* All or nothing is appended, because half a line without its end would garble the next one. */
    int rc = ct_buf_reserve(out, lines->prefix_len + held + len + end_len);
    if (rc == 0) { /* with this room nothing can fail */
        ct_buf_add(out, lines->prefix, lines->prefix_len);
        ct_buf_add(out, ct_buf_bytes(&lines->partial), held);
        ct_buf_add(out, bytes, len);
        ct_buf_add(out, end, end_len);
    }
    ct_buf_reset(&lines->partial);
    return rc;
}

/* Keeps a part of a line until its end is seen. A piece of CT_LINES_MAX bytes leaves at once. */
static int hold(struct ct_lines *lines, const char *bytes, size_t len, struct ct_buf *out)
{
    int rc = 0;
    while (rc == 0 && len > 0) {
        size_t take = CT_LINES_MAX - lines->partial.len;
        if (len < take) {
            return ct_buf_append(&lines->partial, bytes, len);
        }
        rc = emit(lines, bytes, take, '\n', out);
        bytes += take;
        len -= take;
    }
    return rc;
}

/* Decides by `next` what the '\r' in front of it meant. Sets *skip when `next` is used up. */
static int after_return(struct ct_lines *lines, char next, bool *skip, struct ct_buf *out)
{
    lines->cr = false;
    *skip = next == '\n';
    if (next == '\n') {
        return emit(lines, NULL, 0, '\n', out);
    }
    if (lines->mode == CT_LINES_TERMINAL) {
        /* Progress bars often begin with '\r', when there is nothing to show yet. */
        return lines->partial.len > 0 ? emit(lines, NULL, 0, '\r', out) : 0;
    }
    return hold(lines, "\r", 1, out);
}

static int cut(struct ct_lines *lines, const char *bytes, size_t len, struct ct_buf *out)
{
    int rc = 0;
    while (rc == 0 && len > 0) {
        if (lines->cr) {
            bool skip;
            rc = after_return(lines, bytes[0], &skip, out);
            bytes += skip;
            len -= skip;
            continue;
        }
        const char *newline = memchr(bytes, '\n', len);
        size_t line = newline != NULL ? (size_t)(newline - bytes) : len;
        const char *carriage = memchr(bytes, '\r', line);
        if (carriage != NULL) {
            line = (size_t)(carriage - bytes);
            rc = hold(lines, bytes, line, out);
            lines->cr = true;
        } else if (newline != NULL && lines->partial.len + line <= CT_LINES_MAX) {
            rc = emit(lines, bytes, line, '\n', out);
        } else {
            rc = hold(lines, bytes, line, out);
            if (newline != NULL && rc == 0) {
                rc = emit(lines, NULL, 0, '\n', out);
            }
        }
        size_t used = line + (carriage != NULL || newline != NULL);
        bytes += used;
        len -= used;
    }
    return rc;
}

int ct_lines_feed(struct ct_lines *lines, const void *bytes, size_t len, struct ct_buf *out)
{
    /* The output matters more than the tail: without memory for the tail the bytes still leave. */
    int tail_rc = remember(lines, bytes, len);
    int rc = 0;
    switch (lines->mode) {
    case CT_LINES_RAW:
        rc = ct_buf_append(out, bytes, len);
        break;
    case CT_LINES_PLAIN:
    case CT_LINES_TERMINAL:
        rc = cut(lines, bytes, len, out);
        break;
    case CT_LINES_TAIL_ONLY:
        break;
    }
    if (rc != 0) {
        return rc;
    }
    return tail_rc;
}

int ct_lines_finish(struct ct_lines *lines, struct ct_buf *out)
{
    lines->cr = false; /* a '\r' at the very end has no effect */
    return lines->partial.len > 0 ? emit(lines, NULL, 0, '\n', out) : 0;
}

/* ---- prefix --------------------------------------------------------------------------------- */

/* `colour` is an SGR code, 0 = none. */
static void print_prefix(const char *host, const char *ranks, unsigned colour,
                         char out[CT_LINES_PREFIX_MAX])
{
    const char *name = host != NULL ? host : "";
    const char *colon = name[0] != '\0' ? ":" : "";
    int len = (int)strcspn(name, ".");
    len = len < HOST_LABEL_MAX ? len : HOST_LABEL_MAX;
    if (colour == 0) {
        (void)snprintf(out, CT_LINES_PREFIX_MAX, "[%.*s%s%s] ", len, name, colon, ranks);
        return;
    }
    /* The reset (0) in front ends a colour that a worker left on. */
    (void)snprintf(out, CT_LINES_PREFIX_MAX, "\x1b[0;%um[%.*s%s%s]\x1b[0m ", colour, len, name,
                   colon, ranks);
}

void ct_lines_prefix(const char *host, int rank, bool colour, char out[CT_LINES_PREFIX_MAX])
{
    /* Cyan, yellow, green, magenta, blue, and their bright forms: red is left to errors, black and
     * white to backgrounds. */
    static const unsigned char codes[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
    char text[16];
    (void)snprintf(text, sizeof(text), "%d", rank);
    print_prefix(host, text, colour ? codes[(unsigned)rank % sizeof(codes)] : 0, out);
}

void ct_lines_prefix_many(const char *host, const char *ranks, bool colour,
                          char out[CT_LINES_PREFIX_MAX])
{
    print_prefix(host, ranks, colour ? 1 : 0, out); /* 1 = bold, the colour of no single rank */
}

bool ct_lines_read_prefix(const char *line, size_t len, int *rank, size_t *prefix_len)
{
    size_t most = len < CT_LINES_PREFIX_MAX ? len : CT_LINES_PREFIX_MAX;
    const char *end = most > 0 && line[0] == '[' ? memchr(line, ']', most) : NULL;
    if (end == NULL || end + 1 >= line + most || end[1] != ' ') {
        return false;
    }
    const char *colon = memrchr(line, ':', (size_t)(end - line));
    const char *number = colon != NULL ? colon + 1 : line + 1;
    char text[16];
    (void)snprintf(text, sizeof(text), "%.*s", (int)(end - number), number);
    *prefix_len = (size_t)(end + 2 - line);
    return end - number < (ptrdiff_t)sizeof(text) && ct_parse_int(text, 0, INT_MAX, rank) == 0;
}

bool ct_lines_colour(bool is_terminal, const char *term, const char *no_color)
{
    return is_terminal && (no_color == NULL || no_color[0] == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0;
}
