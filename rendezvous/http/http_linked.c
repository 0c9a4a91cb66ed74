/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of http_load.c where libmicrohttpd is a part of the program, as in wheels, which can
 * expect no library on the machine.
 */
#include "rendezvous/http/http_load.h"

int ct_mhd_load(struct ct_mhd *out, struct ct_err *err)
{
    (void)err;
#define TAKE(name) out->name = MHD_##name;
    CT_MHD_FUNCTIONS(TAKE)
#undef TAKE
    return 0;
}
