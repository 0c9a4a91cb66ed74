/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may read a file that has an access control list (acl(5)).
 */
#ifndef CT_RENDEZVOUS_ADMISSION_TOKEN_ACL_H
#define CT_RENDEZVOUS_ADMISSION_TOKEN_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The list's name among a file's attributes, and the most bytes of one that is looked at. */
#define CT_ACL_ATTRIBUTE "system.posix_acl_access"
#define CT_ACL_MAX 512

/* Does the list, in the kernel's form, let only the file's owner, `uid` and root use the file?
 * False for what is no such list. Pure. */
bool ct_acl_is_private(const unsigned char *acl, size_t len, uid_t uid);

#endif
