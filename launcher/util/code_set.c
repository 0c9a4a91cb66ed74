/* SPDX-License-Identifier: Apache-2.0
 *
 * One bit for each exit code. Blanks around a part are allowed, empty parts are not, because a
 * comma too many is more likely a mistake than a wish.
 */
#include "launcher/util/code_set.h"

#include "common/num.h"
#include "launcher/util/signals.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Longer than "100-200" and than every name of a signal. */
#define PART_MAX 24
#define SIGNAL_BASE 128

bool ct_code_set_has(const struct ct_code_set *set, int code)
{
    return code >= 0 && code < 256 && (set->bits[code / 64] >> (code % 64) & 1) != 0;
}

/* Reads one part. CT_EINVAL without a text. */
static int read_part(char *part, int *first, int *last)
{
    if (!isdigit((unsigned char)part[0])) {
        int signo = ct_signal_number(part);
        *first = *last = SIGNAL_BASE + signo;
        return signo > 0 ? 0 : CT_EINVAL;
    }
    char *dash = strchr(part, '-');
    if (dash != NULL) {
        *dash = '\0';
    }
    if (ct_parse_int(part, 1, 255, first) != 0) {
        return CT_EINVAL;
    }
    *last = *first;
    return dash == NULL ? 0 : ct_parse_int(dash + 1, *first, 255, last);
}

int ct_code_set_parse(const char *text, struct ct_code_set *out, struct ct_err *err)
{
    struct ct_code_set set = {{0}};
    for (const char *at = text;; at++) {
        char part[PART_MAX];
        int first = 0, last = 0;
        at += strspn(at, " ");
        const char *begin = at;
        at += strcspn(at, ",");
        size_t len = (size_t)(at - begin);
        while (len > 0 && begin[len - 1] == ' ') {
            len--;
        }
        bool fits = len < sizeof(part);
        memcpy(part, begin, fits ? len : 0);
        part[fits ? len : 0] = '\0';
        if (len == 0) {
            return ct_err_set(err, CT_EINVAL,
                              text[0] == '\0' ? "there is no exit code and no signal"
                                              : "there is nothing between two "
                                                "commas, or before or behind one");
        }
        if (!fits || read_part(part, &first, &last) != 0) {
            char meant[CT_SIGNAL_NAME_MAX];
            if (fits && ct_signal_is_meant(part, strlen(part), meant)) {
                return ct_err_set(err, CT_EINVAL, "'%s' is no signal; did you mean %s?", part,
                                  meant);
            }
            return ct_err_set(err, CT_EINVAL,
                              "'%.*s' is neither an exit code from 1 to 255, nor a range such as "
                              "64-78, nor a signal such as SIGSEGV",
                              len < 64 ? (int)len : 64, begin);
        }
        for (int code = first; code <= last; code++) {
            set.bits[code / 64] |= UINT64_C(1) << (code % 64);
        }
        if (*at == '\0') {
            break;
        }
    }
    *out = set;
    return 0;
}
