/* SPDX-License-Identifier: Apache-2.0
 *
 * The error contract of the whole project.
 *
 * 1. A function that can fail returns int: 0 is done, a negative value is one of the codes below.
 *    A positive value is a named outcome of that module (its header lists them) which the direct
 *    caller must handle.
 * 2. Where a person will read the reason, the last parameter is `struct ct_err *err`. It may be
 *    NULL. It is written only on failure, needs no allocation and no clean-up. ct_err_set() returns
 *    the code so that a failure is one statement: `return ct_err_set(err, CT_EFORMAT, ...)`.
 * 3. On the way up ct_err_wrap() prefixes the context the lower layer could not know.
 * 4. Failure leaves output parameters untouched unless the header says otherwise.
 * 5. Libraries never print and never exit. A main.c prints the text once and maps the code.
 */
#ifndef CT_COMMON_ERR_H
#define CT_COMMON_ERR_H

#include "common/err_code.h"

/* The phrase for a code; "unknown error" for a value that is not one. Never NULL. */
const char *ct_code_text(int code);

/* Sets code and text (printf style, one line) and returns `code`. `err` may be NULL. */
int ct_err_set(struct ct_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As ct_err_set() and appends ": <strerror(errnum)>"; keeps errnum in `sys`. */
int ct_err_sys(struct ct_err *err, int code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "<context>: " in front of the text. Returns err->code, or CT_EINVAL when `err` is NULL or
 * empty: a caller that may have been given NULL returns its own code instead. */
int ct_err_wrap(struct ct_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* errno value -> code (ENOMEM -> CT_ENOMEM, EADDRINUSE -> CT_EBUSY, ...); CT_EIO when unlisted. */
int ct_code_from_errno(int errnum);

#ifdef __clang_analyzer__
/* The analyzer sees one file only, and would assume that a failure may return 0. */
#define ct_err_set(err, code, ...) \
    ((void)(ct_err_set)(err, code, __VA_ARGS__), (code) < 0 ? (code) : CT_EINVAL)
#define ct_err_sys(err, code, errnum, ...) \
    ((void)(ct_err_sys)(err, code, errnum, __VA_ARGS__), (code) < 0 ? (code) : CT_EINVAL)
#define ct_err_wrap(err, ...) ((void)(ct_err_wrap)(err, __VA_ARGS__), CT_EINVAL)
#define ct_code_from_errno(errnum) ((void)(ct_code_from_errno)(errnum), CT_EIO)
#endif

/* The name of the file without its folders, which depend on where the build runs. */
#ifdef __FILE_NAME__
#define CT_FILE_NAME __FILE_NAME__
#else
#define CT_FILE_NAME __FILE__
#endif

/* Checks a rule of our own code, never an input. If the rule is broken, prints file, line and rule,
 * and aborts. Active in release builds, too. */
#define CT_ASSERT(cond) ((cond) ? (void)0 : ct_assert_failed(CT_FILE_NAME, __LINE__, #cond))
void ct_assert_failed(const char *file, int line, const char *rule) __attribute__((noreturn));

#endif
