/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms in which tools print stacks. Each parser passes over lines that it does not know,
 * because the tools also print notes of their own.
 */
#include "launcher/stacks/stack.h"

#include "common/num.h"
#include "common/text.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- pieces of text -------------------------------------------------------------------------- */

/* Moves the first line out of *rest, without its line end. Returns false at the end. */
static bool next_line(struct ct_stack_text *rest, struct ct_stack_text *line)
{
    if (rest->len == 0) {
        return false;
    }
    const char *end = memchr(rest->at, '\n', rest->len);
    line->at = rest->at;
    line->len = end != NULL ? (size_t)(end - rest->at) : rest->len;
    size_t used = end != NULL ? line->len + 1 : line->len;
    rest->at += used;
    rest->len -= used;
    return true;
}

static struct ct_stack_text text_of(const char *words)
{
    return (struct ct_stack_text){.at = words, .len = strlen(words)};
}

static struct ct_stack_text from(struct ct_stack_text text, size_t offset)
{
    return (struct ct_stack_text){.at = text.at + offset, .len = text.len - offset};
}

static struct ct_stack_text until(struct ct_stack_text text, size_t end)
{
    return (struct ct_stack_text){.at = text.at, .len = end};
}

static struct ct_stack_text trim(struct ct_stack_text text)
{
    while (text.len > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
        text = from(text, 1);
    }
    return text;
}

static bool starts_with(struct ct_stack_text text, const char *words)
{
    size_t len = strlen(words);
    return text.len >= len && memcmp(text.at, words, len) == 0;
}

/* Gives the offset of the last occurrence; false if there is none. */
static bool find_last(struct ct_stack_text text, const char *words, size_t *offset)
{
    size_t len = strlen(words);
    for (size_t i = text.len + 1; i-- > 0;) {
        if (text.len - i >= len && memcmp(text.at + i, words, len) == 0) {
            *offset = i;
            return true;
        }
    }
    return false;
}

static bool find_first(struct ct_stack_text text, const char *words, size_t *offset)
{
    size_t len = strlen(words);
    for (size_t i = 0; i + len <= text.len; i++) {
        if (memcmp(text.at + i, words, len) == 0) {
            *offset = i;
            return true;
        }
    }
    return false;
}

/* The number at the beginning; 0 = there is none, or it is too large. */
static int leading_number(struct ct_stack_text text)
{
    char digits[12];
    size_t len = 0;
    while (len < text.len && len < sizeof(digits) - 1 && text.at[len] >= '0' &&
           text.at[len] <= '9') {
        digits[len] = text.at[len];
        len++;
    }
    digits[len] = '\0';
    int value = 0;
    return ct_parse_int(digits, 0, INT_MAX, &value) == 0 ? value : 0;
}

static int result(const struct ct_stack *stack)
{
    return stack->frame_count > 0 ? 0 : CT_EFORMAT;
}

/* ---- Python's faulthandler ------------------------------------------------------------------- */

/* `  File "/srv/train.py", line 15 in main` */
static int add_faulthandler_frame(struct ct_stack *stack, struct ct_stack_text line)
{
    size_t quote, in;
    struct ct_stack_text rest = from(line, strlen("File \""));
    if (!find_last(rest, "\", line ", &quote)) {
        return 0;
    }
    struct ct_stack_text number = from(rest, quote + strlen("\", line "));
    struct ct_stack_text function = {0};
    if (find_first(number, " in ", &in)) {
        function = from(number, in + strlen(" in "));
    }
    return ct_stack_add_frame(stack, function, until(rest, quote), leading_number(number));
}

/* "Thread 0x00007f10 [name] (most recent call first):" and "Current thread ...". Python 3.14 tells
 * the name. */
static struct ct_stack_text faulthandler_name(struct ct_stack_text line)
{
    size_t open, close;
    if (find_first(line, "[", &open) && find_last(line, "]", &close) && close > open) {
        return until(from(line, open + 1), close - open - 1);
    }
    return (struct ct_stack_text){0};
}

int ct_stack_parse_faulthandler(const char *text, size_t len, struct ct_stack *out)
{
    struct ct_stack_text rest = {text, len}, line;
    int rc = 0;
    out->python = true;
    while (rc == 0 && next_line(&rest, &line)) {
        line = trim(line);
        if (starts_with(line, "File \"")) {
            rc = add_faulthandler_frame(out, line);
        } else if (starts_with(line, "Thread 0x") || starts_with(line, "Current thread 0x")) {
            rc = ct_stack_add_thread(out, faulthandler_name(line));
        }
    }
    /* Python lists the newest thread first, and the main thread is the oldest one. */
    out->main_thread = out->thread_count > 0 ? out->thread_count - 1 : 0;
    return rc == 0 ? result(out) : rc;
}

/* ---- py-spy ---------------------------------------------------------------------------------- */

static int add_py_spy_thread(struct ct_stack *stack, const cJSON *thread)
{
    const char *name = ct_json_text(thread, "thread_name", "");
    const cJSON *frame;
    int rc = ct_stack_add_thread(stack, text_of(name));
    if (rc != 0) {
        return rc;
    }
    if (strcmp(name, "MainThread") == 0) {
        stack->main_thread = stack->thread_count - 1;
    }
    cJSON_ArrayForEach(frame, cJSON_GetObjectItemCaseSensitive(thread, "frames"))
    {
        double line = ct_json_number(frame, "line", 0);
        rc = ct_stack_add_frame(stack, text_of(ct_json_text(frame, "name", "")),
                                text_of(ct_json_text(frame, "filename", "")),
                                line > 0 && line < INT_MAX ? (int)line : 0);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int ct_stack_parse_py_spy(const char *text, size_t len, struct ct_stack *out)
{
    const cJSON *thread;
    int rc = 0;
    ct_json_use_our_memory();
    cJSON *json = cJSON_ParseWithLength(text, len);
    out->python = true;
    cJSON_ArrayForEach(thread, json)
    {
        rc = add_py_spy_thread(out, thread);
        if (rc != 0) {
            break;
        }
    }
    cJSON_Delete(json);
    return rc == 0 ? result(out) : rc;
}

/* ---- eu-stack and gdb ------------------------------------------------------------------------ */

/* Takes "FILE:LINE" or "FILE:LINE:COLUMN" apart. */
static struct ct_stack_text split_line_number(struct ct_stack_text place, int *line)
{
    size_t colon, earlier;
    *line = 0;
    if (!find_last(place, ":", &colon)) {
        return place;
    }
    if (find_last(until(place, colon), ":", &earlier) &&
        leading_number(from(place, earlier + 1)) > 0) {
        colon = earlier;
    }
    *line = leading_number(from(place, colon + 1));
    return *line > 0 ? until(place, colon) : place;
}

/* `#1  0x000055d0 in work (n=3) at work.c:12` and `#1  0x000055d0 work` */
static int add_native_frame(struct ct_stack *stack, struct ct_stack_text text)
{
    size_t at;
    int line = 0;
    struct ct_stack_text file = {0};
    while (text.len > 0 && text.at[0] != ' ') { /* "#1" */
        text = from(text, 1);
    }
    text = trim(text);
    if (starts_with(text, "0x")) {
        while (text.len > 0 && text.at[0] != ' ') {
            text = from(text, 1);
        }
        text = trim(text);
    }
    text = starts_with(text, "in ") ? from(text, strlen("in ")) : text;
    if (find_last(text, ") at ", &at)) {
        file = split_line_number(from(text, at + strlen(") at ")), &line);
        text = until(text, at + 1);
    } else if (find_last(text, " from ", &at)) {
        file = from(text, at + strlen(" from "));
        text = until(text, at);
    }
    if (find_first(text, " (", &at)) { /* the arguments */
        text = until(text, at);
    }
    if (text.len == 2 && memcmp(text.at, "??", 2) == 0) { /* gdb knows no name */
        text.len = 0;
    }
    return ct_stack_add_frame(stack, text, file, line);
}

/* eu-stack tells the source of a frame in a line of its own: `    /srv/work.c:12:5` */
static void add_source(struct ct_stack *stack, struct ct_stack_text place)
{
    int line;
    struct ct_stack_text file = split_line_number(place, &line);
    if (line == 0 || stack->frame_count == 0 || stack->cut) {
        return;
    }
    struct ct_stack_frame *frame = &stack->frames[stack->frame_count - 1];
    size_t drop = file.len < sizeof(frame->file) ? 0 : file.len - sizeof(frame->file) + 1;
    (void)snprintf(frame->file, sizeof(frame->file), "%.*s", (int)(file.len - drop),
                   file.at + drop);
    ct_text_clean(frame->file);
    frame->line = line;
}

int ct_stack_parse_native(const char *text, size_t len, struct ct_stack *out)
{
    struct ct_stack_text rest = {text, len}, line;
    int rc = 0;
    while (rc == 0 && next_line(&rest, &line)) {
        size_t open, close;
        if (starts_with(line, "#")) {
            rc = add_native_frame(out, line);
        } else if (starts_with(line, "    ")) {
            add_source(out, trim(line));
        } else if (starts_with(line, "TID ")) {
            rc = ct_stack_add_thread(out, until(from(line, 4), line.len > 4 ? line.len - 5 : 0));
        } else if (starts_with(line, "Thread ")) {
            struct ct_stack_text name = {0};
            if (find_first(line, "\"", &open) && find_last(line, "\"", &close) && close > open) {
                name = until(from(line, open + 1), close - open - 1);
            }
            rc = ct_stack_add_thread(out, name);
            /* gdb prints its first thread, the main one, last. */
            out->main_thread = leading_number(from(line, strlen("Thread "))) == 1
                                   ? out->thread_count - 1
                                   : out->main_thread;
        }
    }
    return rc == 0 ? result(out) : rc;
}
