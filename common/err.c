/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of error codes, and the functions that fill a struct ct_err. A text is formatted into a
 * buffer of its own first, so an argument may point into the struct that is filled.
 */
#include "common/err.h"

#include "common/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header defines these as macros for the analyzer. Here they are defined as functions. */
#undef ct_err_set
#undef ct_err_sys
#undef ct_err_wrap
#undef ct_code_from_errno

const char *ct_code_text(int code)
{
    switch (code) {
    case 0:
        return "success";
#define CT_ERR_CASE(name, value, text) \
    case name:                         \
        return text;
        CT_ERR_CODES(CT_ERR_CASE)
#undef CT_ERR_CASE
    default:
        return "unknown error";
    }
}

int ct_err_set(struct ct_err *err, int code, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    char text[CT_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ct_text_clean(text);
    memcpy(err->text, text, sizeof(text));
    err->code = code;
    err->sys = 0;
    return code;
}

int ct_err_sys(struct ct_err *err, int code, int errnum, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    char text[CT_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    char reason[128];
    (void)ct_err_set(err, code, "%s: %s", text, strerror_r(errnum, reason, sizeof(reason)));
    err->sys = errnum;
    return code;
}

int ct_err_wrap(struct ct_err *err, const char *fmt, ...)
{
    if (err == NULL || err->code == 0) {
        return CT_EINVAL;
    }
    char prefix[CT_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(prefix, sizeof(prefix), fmt, ap);
    va_end(ap);
    int sys = err->sys;
    (void)ct_err_set(err, err->code, "%s: %s", prefix, err->text);
    err->sys = sys;
    return err->code;
}

int ct_code_from_errno(int errnum)
{
    switch (errnum) {
    case ENOMEM:
        return CT_ENOMEM;
    case EINVAL:
    case EISDIR:
        return CT_EINVAL;
    case ETIMEDOUT:
        return CT_ETIMEDOUT;
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
        return CT_ECLOSED;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
        return CT_ENOENT;
    case EADDRINUSE:
    case EBUSY:
        return CT_EBUSY;
    case EACCES:
    case EPERM:
    case EROFS:
        return CT_EPERM;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMSGSIZE:
        return CT_ELIMIT;
    case EOPNOTSUPP:
    case ENOSYS:
    case EAFNOSUPPORT:
        return CT_EUNSUPPORTED;
    default:
        return CT_EIO;
    }
}

void ct_assert_failed(const char *file, int line, const char *rule)
{
    (void)fprintf(stderr, "%s:%d: internal error: %s\n", file, line, rule);
    abort();
}
