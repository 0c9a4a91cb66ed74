/* SPDX-License-Identifier: Apache-2.0
 *
 * The last lines of a stream, made safe for a report. Worker output may hold escape sequences,
 * which a terminal would obey, half a UTF-8 character where the tail begins, and control bytes,
 * which JSON does not allow.
 */
#include "launcher/output/lines.h"

#include <string.h>

/* Length of the valid UTF-8 character at `p` (RFC 3629: no overlong forms, no surrogates, nothing
 * beyond U+10FFFF), or 0. */
static size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
    size_t length;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        length = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        length = 3;
        low = p[0] == 0xe0 ? 0xa0 : 0x80;
        high = p[0] == 0xed ? 0x9f : 0xbf;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        length = 4;
        low = p[0] == 0xf0 ? 0x90 : 0x80;
        high = p[0] == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if ((size_t)(end - p) < length || p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }
    return length;
}

/* Length of the escape sequence (ECMA-48) whose ESC is at `p`: CSI ends with its final byte, OSC
 * before ESC or with BEL, any other with the character that follows. */
static size_t escape_length(const unsigned char *p, const unsigned char *end)
{
    const unsigned char *q = p + 1;
    if (q == end) {
        return 1;
    }
    if (*q == '[') {
        for (q++; q < end && *q >= 0x20 && *q < 0x40; q++) {
        }
        return (size_t)(q < end && *q >= 0x40 && *q < 0x7f ? q + 1 - p : q - p);
    }
    if (*q == ']') {
        while (q < end && *q != 0x07 && *q != 0x1b) {
            q++;
        }
        return (size_t)(q < end && *q == 0x07 ? q + 1 - p : q - p);
    }
    return *q >= 0x20 && *q < 0x7f ? 2 : 1;
}

static void add_clean(struct ct_buf *out, const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        size_t length = utf8_length(p, end);
        /* C1 control characters (U+0080 to U+009F) control terminals as ESC does. */
        bool control = (p[0] < 0x20 && p[0] != '\t') || p[0] == 0x7f ||
                       (length == 2 && p[0] == 0xc2 && p[1] < 0xa0);
        if (p[0] == 0x1b) {
            p += escape_length(p, end);
        } else if (length == 0 || control) {
            ct_buf_add(out, "?", 1);
            p += length > 0 ? length : 1;
        } else {
            ct_buf_add(out, p, length);
            p += length;
        }
    }
}

/* Takes a length instead of an end: gcc 14 cannot know that an end lies behind its beginning, and
 * warns that memrchr() may search a negative range. */
static void add_line(struct ct_buf *out, const char *indent, const unsigned char *line, size_t len,
                     bool cut)
{
    /* A last '\r' belongs to the line end. Of a progress bar only the last segment is shown. */
    if (len > 0 && line[len - 1] == '\r') {
        len--;
    }
    const unsigned char *end = line + len;
    const unsigned char *carriage = memrchr(line, '\r', len);
    if (carriage != NULL) {
        line = carriage + 1;
        cut = false;
    }
    if (end - line > CT_LINES_TAIL_LINE) {
        line = end - CT_LINES_TAIL_LINE;
        cut = true;
    }
    while (cut && line < end && (*line & 0xc0) == 0x80) {
        line++; /* the rest of a character whose beginning was cut off */
    }
    ct_buf_addf(out, "%s%s", indent, cut ? "..." : "");
    add_clean(out, line, end);
    ct_buf_addf(out, "\n");
}

int ct_lines_tail(const struct ct_lines *lines, const char *indent, struct ct_buf *out)
{
    const unsigned char *begin = ct_buf_bytes(&lines->tail);
    if (lines->tail.len == 0) {
        return 0;
    }
    const unsigned char *end = begin + lines->tail.len;
    if (end[-1] == '\n') {
        end--; /* it ends the last line, and no empty line follows */
    }

    const unsigned char *line = begin;
    const unsigned char *before = end;
    for (int wanted = CT_LINES_TAIL; wanted > 0; wanted--) {
        const unsigned char *newline = memrchr(begin, '\n', (size_t)(before - begin));
        if (newline == NULL) {
            line = begin;
            break;
        }
        line = newline + 1;
        before = newline;
    }

    bool cut = line == begin && lines->tail_cut;
    while (line <= end) {
        const unsigned char *newline = memchr(line, '\n', (size_t)(end - line));
        const unsigned char *stop = newline != NULL ? newline : end;
        add_line(out, indent, line, (size_t)(stop - line), cut);
        cut = false;
        line = stop + 1;
    }
    return ct_buf_status(out);
}

const char *ct_lines_tail_bytes(const struct ct_lines *lines, size_t *len)
{
    *len = lines->tail.len;
    return lines->tail.len > 0 ? (const char *)ct_buf_bytes(&lines->tail) : NULL;
}
