/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream feeds its bytes here; they are cut into lines, and those that hold a word go to the file
 * with one write(2), which the kernel appends as a whole beside those of other streams.
 *
 * Failure modes: without memory, or when the file cannot be written, ct_line_filter_feed() fails
 * for these bytes and goes on with the next ones.
 */
#include "launcher/output/line_filter.h"

#include "common/alloc.h"
#include "common/file.h"
#include "launcher/output/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct ct_line_filter {
    struct ct_strlist words;
    struct ct_lines lines; /* has no prefix, because the user's own may contain '\n' */
    char prefix[CT_LINES_PREFIX_MAX];
    struct ct_buf cut;     /* whole lines */
    struct ct_buf matched; /* those to write */
    int fd;
};

int ct_line_filter_words(const char *text, struct ct_strlist *out)
{
    for (const char *p = text; *p != '\0';) {
        if (*p == ',' && p[1] != ',') {
            p++;
            continue;
        }
        int rc = ct_strlist_begin(out);
        if (rc != 0) {
            return rc;
        }
        while (*p != '\0' && (*p != ',' || p[1] == ',')) {
            ct_buf_add(&out->text, p, 1);
            p += *p == ',' ? 2 : 1;
        }
        ct_buf_add(&out->text, "", 1);
        rc = ct_buf_status(&out->text);
        if (rc != 0) {
            return rc;
        }
    }
    return ct_strlist_close(out);
}

int ct_line_filter_open(const struct ct_line_filter_options *options, struct ct_line_filter **out,
                        struct ct_err *err)
{
    struct ct_line_filter *filter = ct_calloc(1, sizeof(*filter));
    if (filter == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %s", options->path);
    }
    ct_lines_init(&filter->lines, CT_LINES_PLAIN, "");
    (void)snprintf(filter->prefix, sizeof(filter->prefix), "%s", options->prefix);
    filter->fd = open(options->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    int rc = filter->fd < 0 ? ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot open %s",
                                         options->path)
                            : 0;
    if (rc == 0 && ct_line_filter_words(options->words, &filter->words) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory for %s", options->path);
    }
    if (rc != 0) {
        ct_line_filter_free(filter);
        return rc;
    }
    *out = filter;
    return 0;
}

static bool has_word(const struct ct_line_filter *filter, const char *line, size_t len)
{
    for (size_t i = 0; i < filter->words.count; i++) {
        const char *word = filter->words.list[i];
        if (memmem(line, len, word, strlen(word)) != NULL) {
            return true;
        }
    }
    return false;
}

/* Writes all matching lines with one write(2), because the kernel appends such a write as a whole,
 * while other streams write to the same file. */
static int write_matches(struct ct_line_filter *filter)
{
    if (filter->cut.len == 0) {
        return 0;
    }
    const char *p = (const char *)ct_buf_bytes(&filter->cut);
    const char *end = p + filter->cut.len;
    while (p < end) {
        size_t len = (size_t)((const char *)memchr(p, '\n', (size_t)(end - p)) + 1 - p);
        if (has_word(filter, p, len - 1)) {
            ct_buf_addf(&filter->matched, "%s", filter->prefix);
            ct_buf_add(&filter->matched, p, len);
        }
        p += len;
    }
    int rc = ct_buf_status(&filter->matched);
    if (rc == 0 && filter->matched.len > 0) {
        rc = ct_fd_write_all(filter->fd, ct_buf_bytes(&filter->matched), filter->matched.len);
    }
    ct_buf_reset(&filter->cut);
    ct_buf_reset(&filter->matched);
    return rc;
}

int ct_line_filter_feed(struct ct_line_filter *filter, const void *bytes, size_t len)
{
    if (filter->words.count == 0) {
        return 0;
    }
    int cut_rc = ct_lines_feed(&filter->lines, bytes, len, &filter->cut);
    int rc = write_matches(filter);
    return cut_rc != 0 ? cut_rc : rc;
}

void ct_line_filter_free(struct ct_line_filter *filter)
{
    if (filter == NULL) {
        return;
    }
    if (filter->fd >= 0) {
        if (ct_lines_finish(&filter->lines, &filter->cut) == 0) {
            (void)write_matches(filter);
        }
        (void)close(filter->fd);
    }
    ct_strlist_fini(&filter->words);
    ct_lines_fini(&filter->lines);
    ct_buf_fini(&filter->cut);
    ct_buf_fini(&filter->matched);
    ct_free(filter);
}
