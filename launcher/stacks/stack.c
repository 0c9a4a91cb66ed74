/* SPDX-License-Identifier: Apache-2.0
 *
 * The stacks of one worker: two arrays of fixed limits, and what a user reads of them.
 */
#include "launcher/stacks/stack.h"

#include "common/alloc.h"
#include "common/text.h"

#include <string.h>

/* The files of Python's import. */
#define IMPORT "<frozen importlib"

void ct_stack_fini(struct ct_stack *stack)
{
    ct_free(stack->threads);
    ct_free(stack->frames);
    *stack = (struct ct_stack){0};
}

/* Copies the end of a text that is too long: of a path it tells most. */
static void copy_end(struct ct_stack_text text, char *out, size_t size)
{
    size_t len = text.len < size ? text.len : size - 1;
    if (len > 0) {
        memcpy(out, text.at + text.len - len, len);
    }
    out[len] = '\0';
    ct_text_clean(out);
}

static void copy_beginning(struct ct_stack_text text, char *out, size_t size)
{
    text.len = text.len < size ? text.len : size - 1;
    copy_end(text, out, size);
}

/* Returns the array with room for one more element, or NULL. The room doubles each time. */
static void *grow(void *elements, int count, size_t size)
{
    bool is_full = count == 0 || (count >= 16 && (count & (count - 1)) == 0);
    size_t room = count == 0 ? 16 : (size_t)count * 2;
    return is_full ? ct_realloc(elements, room * size) : elements;
}

int ct_stack_add_thread(struct ct_stack *stack, struct ct_stack_text name)
{
    if (stack->thread_count == CT_STACK_THREADS_MAX) {
        stack->cut = true;
        return 0;
    }
    struct ct_stack_thread *threads =
        grow(stack->threads, stack->thread_count, sizeof(*stack->threads));
    if (threads == NULL) {
        return CT_ENOMEM;
    }
    stack->threads = threads;
    struct ct_stack_thread *thread = &stack->threads[stack->thread_count++];
    *thread = (struct ct_stack_thread){.first = stack->frame_count};
    copy_beginning(name, thread->name, sizeof(thread->name));
    return 0;
}

int ct_stack_add_frame(struct ct_stack *stack, struct ct_stack_text function,
                       struct ct_stack_text file, int line)
{
    int rc = stack->thread_count == 0 ? ct_stack_add_thread(stack, (struct ct_stack_text){0}) : 0;
    if (rc != 0) {
        return rc;
    }
    if (stack->cut || stack->frame_count == CT_STACK_FRAMES_MAX) {
        stack->cut = true;
        return 0;
    }
    struct ct_stack_frame *frames = grow(stack->frames, stack->frame_count, sizeof(*stack->frames));
    if (frames == NULL) {
        return CT_ENOMEM;
    }
    stack->frames = frames;
    struct ct_stack_frame *frame = &stack->frames[stack->frame_count++];
    copy_beginning(function, frame->function, sizeof(frame->function));
    copy_end(file, frame->file, sizeof(frame->file));
    frame->line = line;
    stack->threads[stack->thread_count - 1].count++;
    return 0;
}

/* ---- what a user reads ----------------------------------------------------------------------- */

/* Is it a source of glibc? Distributions build it in its own folder, so that paths begin there, or
 * in one that has its name. Their lines are known where its debug information is installed, which
 * comes along with gdb. */
static bool is_of_c_library(const char *file)
{
    static const char *const folders[] = {"./csu/",    "./elf/",    "./io/",     "./libio/",
                                          "./malloc/", "./math/",   "./misc/",   "./nptl/",
                                          "./posix/",  "./rt/",     "./signal/", "./socket/",
                                          "./stdlib/", "./string/", "./time/",   "./termios/"};
    if (strstr(file, "/sysdeps/") != NULL || strstr(file, "/glibc-") != NULL) {
        return true;
    }
    file += file[0] == '.' && file[1] == '.'; /* "../nptl/", too */
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        if (strncmp(file, folders[i], strlen(folders[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_own(const struct ct_stack *stack, const struct ct_stack_frame *frame)
{
    static const char *const others[] = {"/site-packages/", "/dist-packages/", "/lib/python",
                                         "<frozen ", "<string>"};
    if (!stack->python) {
        return frame->line > 0 && !is_of_c_library(frame->file);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strstr(frame->file, others[i]) != NULL) {
            return false;
        }
    }
    return frame->file[0] != '\0';
}

const struct ct_stack_frame *ct_stack_own_frame(const struct ct_stack *stack)
{
    const struct ct_stack_frame *named = NULL;
    if (stack->thread_count == 0) {
        return NULL;
    }
    const struct ct_stack_thread *thread = &stack->threads[stack->main_thread];
    for (int i = 0; i < thread->count; i++) {
        const struct ct_stack_frame *frame = &stack->frames[thread->first + i];
        if (is_own(stack, frame)) {
            return frame;
        }
        named = named == NULL && frame->function[0] != '\0' ? frame : named;
    }
    return named;
}

/* The last part of a path. A user knows the file by it, and the full path is in the whole stack. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void print_frame(const struct ct_stack_frame *frame, const char *file, struct ct_buf *out)
{
    const char *function = frame->function[0] != '\0' ? frame->function : "?";
    if (file[0] == '\0') {
        ct_buf_addf(out, "%s", function);
    } else if (frame->line > 0) {
        ct_buf_addf(out, "%s:%d in %s", file, frame->line, function);
    } else {
        ct_buf_addf(out, "%s in %s", file, function);
    }
}

/* Functions of Python's and PyTorch's decorators: they only call what the user has called. */
static bool is_wrapper(const char *function)
{
    const char *dot = strrchr(function, '.'); /* py-spy: "log.<locals>.wrapper" */
    const char *name = dot != NULL ? dot + 1 : function;
    static const char *const names[] = {
        "wrapper", "inner", "_wrapped_call_impl", "_call_impl", "decorate_context", "_fn"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return name[0] == '\0';
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Is it one of PyTorch's files with the functions that users call for a collective? */
static bool is_api(const struct ct_stack_frame *frame)
{
    return strstr(frame->file, "/torch/distributed/distributed_c10d.py") != NULL ||
           strstr(frame->file, "/torch/distributed/_functional_collectives.py") != NULL;
}

static bool is_of_collective(const struct ct_stack *stack, const struct ct_stack_frame *frame)
{
    static const char *const prefixes[] = {"MPI_", "PMPI_", "nccl", "gloo::", "ctw_comm_"};
    if (stack->python) {
        return strstr(frame->file, "/torch/distributed/") != NULL;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(frame->function, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Is it PyTorch's code in which a collective may be hidden? Loading data is not. */
static bool may_hide_one(const struct ct_stack *stack, const struct ct_stack_frame *frame)
{
    return stack->python && strstr(frame->file, "/torch/") != NULL &&
           strstr(frame->file, "/torch/utils/data/") == NULL;
}

enum ct_stack_waits ct_stack_waits(const struct ct_stack *stack, const char **function)
{
    const struct ct_stack_frame *own = ct_stack_own_frame(stack), *found = NULL;
    if (own == NULL || stack->cut) {
        return CT_STACK_UNTOLD;
    }
    /* Without a frame of the user's own, any of the thread may be the one. */
    const struct ct_stack_thread *thread = &stack->threads[stack->main_thread];
    const struct ct_stack_frame *innermost = &stack->frames[thread->first];
    bool has_own = is_own(stack, own), hides = !has_own;
    const struct ct_stack_frame *end = has_own ? own : innermost + thread->count;
    for (const struct ct_stack_frame *frame = innermost; frame < end; frame++) {
        if (is_wrapper(frame->function)) {
            continue;
        }
        hides = hides || may_hide_one(stack, frame);
        if (is_of_collective(stack, frame) && (found == NULL || !is_api(found) || is_api(frame))) {
            found = frame; /* the outermost one of the API, else the outermost one */
        }
    }
    if (found != NULL) {
        *function = found->function;
        return CT_STACK_IN_COLLECTIVE;
    }
    return hides ? CT_STACK_UNTOLD : CT_STACK_ELSEWHERE;
}

/* ---- in words -------------------------------------------------------------------------------- */

int ct_stack_print_where(const struct ct_stack *stack, struct ct_buf *out)
{
    const struct ct_stack_frame *own = ct_stack_own_frame(stack);
    if (own == NULL) {
        return ct_buf_status(out);
    }
    print_frame(own, base_name(own->file), out);
    const struct ct_stack_frame *innermost =
        &stack->frames[stack->threads[stack->main_thread].first];
    for (const struct ct_stack_frame *frame = own; frame-- > innermost;) {
        if (!is_wrapper(frame->function)) {
            ct_buf_addf(out, ", inside %s", frame->function);
            break;
        }
    }
    return ct_buf_status(out);
}

static bool is_nameless(const struct ct_stack_frame *frame)
{
    return frame->function[0] == '\0' && frame->file[0] == '\0';
}

bool ct_stack_lacks_names(const struct ct_stack *stack)
{
    int nameless = 0;
    for (int i = 0; stack->thread_count > 0 && i < stack->threads[stack->main_thread].count; i++) {
        nameless += is_nameless(&stack->frames[stack->threads[stack->main_thread].first + i]);
    }
    return nameless > 1; /* the entry point, _start, has none in most programs */
}

/* Prints frames without a name that follow each other as one line, because each says nothing. */
static void print_nameless(int count, const char *prefix, struct ct_buf *out)
{
    if (count > 0) {
        ct_buf_addf(out, "%s  (%d frame%s without a name)\n", prefix, count, count == 1 ? "" : "s");
    }
}

static void print_thread(const struct ct_stack *stack, int index, const char *prefix,
                         struct ct_buf *out)
{
    const struct ct_stack_thread *thread = &stack->threads[index];
    bool is_main = index == stack->main_thread;
    if (thread->name[0] != '\0') {
        ct_buf_addf(out, "%s%s %s:\n", prefix, is_main ? "main thread" : "thread", thread->name);
    } else {
        ct_buf_addf(out, "%s%s:\n", prefix, is_main ? "main thread" : "thread");
    }
    int nameless = 0;
    for (int i = 0; i < thread->count; i++) {
        const struct ct_stack_frame *frame = &stack->frames[thread->first + i];
        if (strncmp(frame->file, IMPORT, strlen(IMPORT)) == 0) {
            continue; /* five of them stand between two modules, and none tells anything */
        }
        if (is_nameless(frame)) {
            nameless++;
            continue;
        }
        print_nameless(nameless, prefix, out);
        nameless = 0;
        ct_buf_addf(out, "%s  ", prefix);
        print_frame(frame, frame->file, out);
        ct_buf_addf(out, "\n");
    }
    print_nameless(nameless, prefix, out);
    if (thread->count == 0) {
        ct_buf_addf(out, "%s  (no frame)\n", prefix);
    }
}

int ct_stack_print_main(const struct ct_stack *stack, const char *prefix, struct ct_buf *out)
{
    if (stack->thread_count > 0) {
        print_thread(stack, stack->main_thread, prefix, out);
    }
    return ct_buf_status(out);
}

int ct_stack_print(const struct ct_stack *stack, const char *prefix, struct ct_buf *out)
{
    ct_stack_print_main(stack, prefix, out);
    for (int i = 0; i < stack->thread_count; i++) {
        if (i != stack->main_thread) {
            print_thread(stack, i, prefix, out);
        }
    }
    if (stack->cut) {
        ct_buf_addf(out, "%s(more frames or threads are left out)\n", prefix);
    }
    return ct_buf_status(out);
}
