/* SPDX-License-Identifier: Apache-2.0
 *
 * Error codes and struct ct_err: the part of common/err.h that libctworker installs. No functions.
 */
#ifndef CT_COMMON_ERR_CODE_H
#define CT_COMMON_ERR_CODE_H

/* X(name, value, what a person would call it). */
#define CT_ERR_CODES(X)                                \
    X(CT_ENOMEM, -1, "out of memory")                  \
    X(CT_EINVAL, -2, "invalid argument")               \
    X(CT_EIO, -3, "input/output error")                \
    X(CT_ETIMEDOUT, -4, "timed out")                   \
    X(CT_ECLOSED, -5, "connection closed by the peer") \
    X(CT_EPROTO, -6, "protocol violated")              \
    X(CT_ELIMIT, -7, "limit exceeded")                 \
    X(CT_ENOENT, -8, "not found")                      \
    X(CT_EBUSY, -9, "in use")                          \
    X(CT_EPERM, -10, "not permitted")                  \
    X(CT_EUNSUPPORTED, -11, "not supported")           \
    X(CT_EFORMAT, -12, "malformed data")               \
    X(CT_EPEER, -13, "a peer failed")                  \
    X(CT_EABORTED, -14, "aborted")

enum ct_code {
#define CT_ERR_ENUM(name, value, text) name = value,
    CT_ERR_CODES(CT_ERR_ENUM)
#undef CT_ERR_ENUM
};

/* Longer messages are cut. There is room for a usual path; none needs the full 4096 bytes. */
#define CT_ERR_TEXT_MAX 1024

struct ct_err {
    int code;                   /* enum ct_code, 0 when nothing failed */
    int sys;                    /* errno behind it, 0 when there is none */
    char text[CT_ERR_TEXT_MAX]; /* one line: control characters became '?' */
};

/* Stands on every function that can fail. The compiler warns if its result is not looked at. */
#define CT_MUST_CHECK __attribute__((warn_unused_result))

#endif
