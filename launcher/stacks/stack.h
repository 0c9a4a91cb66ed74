/* SPDX-License-Identifier: Apache-2.0
 *
 * Where does a worker stand? The stacks of its threads, as one of four tools prints them, become
 * one form. Pure: text goes in, frames come out. The text may hold anything, because a worker or
 * its program has a say in it: lengths are bounded here, and names hold no control characters.
 *
 *   source               form
 *   PyTorch's worker     "Thread 0x7f... (most recent call first):" and lines such as
 *   server, faulthandler   File "/srv/train.py", line 15 in main
 *   py-spy dump --json   an array of threads with "frames"
 *   eu-stack, gdb        "TID 42:" or "Thread 2 (... LWP 42 ...)" and lines such as
 *                          #1  0x000055d0 in work () at work.c:12
 */
#ifndef CT_LAUNCHER_STACKS_STACK_H
#define CT_LAUNCHER_STACKS_STACK_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Of one worker. What is beyond these limits is left out, and `cut` says so. */
#define CT_STACK_THREADS_MAX 64
#define CT_STACK_FRAMES_MAX 512

#define CT_STACK_NAME_MAX 64
#define CT_STACK_FILE_MAX 192

struct ct_stack_frame {
    char function[CT_STACK_NAME_MAX]; /* "" = not known */
    char file[CT_STACK_FILE_MAX];     /* the source, of C code perhaps its library; "" = not known;
                                         of a long path the end */
    int line;                         /* 0 = not known */
};

struct ct_stack_thread {
    char name[CT_STACK_NAME_MAX]; /* "" = it has none */
    int first, count;             /* its frames, the innermost first */
};

struct ct_stack {
    bool python;
    bool cut;
    int thread_count, frame_count;
    int main_thread; /* its index, if there is a thread */
    struct ct_stack_thread *threads;
    struct ct_stack_frame *frames;
};

/* Zeroed memory is an empty stack, too. */
void ct_stack_fini(struct ct_stack *stack);

/* Each gives *out, which must be empty, and which ct_stack_fini() frees also after an error.
 * CT_EFORMAT if no frame is found; CT_ENOMEM. */
CT_MUST_CHECK int ct_stack_parse_faulthandler(const char *text, size_t len, struct ct_stack *out);
CT_MUST_CHECK int ct_stack_parse_py_spy(const char *text, size_t len, struct ct_stack *out);
CT_MUST_CHECK int ct_stack_parse_native(const char *text, size_t len, struct ct_stack *out);

/* Returns the frame of the main thread that tells a user most: the innermost one of the user's own
 * code, else the innermost one that has a name. NULL = there is none. Python's own modules and what
 * pip has installed are not the user's code; a native frame is if it has a source line. */
const struct ct_stack_frame *ct_stack_own_frame(const struct ct_stack *stack);

/* What a stack tells of the collectives of a program. */
enum ct_stack_waits {
    CT_STACK_UNTOLD,        /* it may be in one: PyTorch begins some in C++, as in backward() */
    CT_STACK_ELSEWHERE,     /* it is in none */
    CT_STACK_IN_COLLECTIVE, /* of PyTorch, MPI, NCCL, gloo or libctworker */
};

/* Is the main thread in a collective? Gives the name of the function that the user's code has
 * called, or one near it, for CT_STACK_IN_COLLECTIVE; borrowed from the stack. */
enum ct_stack_waits ct_stack_waits(const struct ct_stack *stack, const char **function);

/* Has the main thread frames that the tool knows no name of, as in a program without symbols? */
bool ct_stack_lacks_names(const struct ct_stack *stack);

/* Appends "train.py:15 in main, inside all_reduce": the frame of ct_stack_own_frame(), and the
 * outermost function that it has called, if it is in code of others. Appends nothing without a
 * frame. Returns ct_buf_status(out). */
int ct_stack_print_where(const struct ct_stack *stack, struct ct_buf *out);

/* Appends the main thread alone, as ct_stack_print() does. */
int ct_stack_print_main(const struct ct_stack *stack, const char *prefix, struct ct_buf *out);

/* Appends all threads, the main thread first, one frame a line. Each line begins with `prefix`.
 * Returns ct_buf_status(out). */
int ct_stack_print(const struct ct_stack *stack, const char *prefix, struct ct_buf *out);

/* ---- for the parsers ------------------------------------------------------------------------- */

/* A text that need not end in NUL. */
struct ct_stack_text {
    const char *at;
    size_t len;
};

/* Opens a thread; frames that follow belong to it. CT_ENOMEM. */
CT_MUST_CHECK int ct_stack_add_thread(struct ct_stack *stack, struct ct_stack_text name);

/* Opens a thread without a name if there is none. CT_ENOMEM. */
CT_MUST_CHECK int ct_stack_add_frame(struct ct_stack *stack, struct ct_stack_text function,
                                     struct ct_stack_text file, int line);

#endif
