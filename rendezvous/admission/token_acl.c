/* SPDX-License-Identifier: Apache-2.0
 *
 * systemd gives a credential to a service as root's file with mode 0400 and a list that lets the
 * service's user read it. stat(2) then shows 0440, because with a list the group's bits show the
 * most that any entry of the list grants, and not what the group may do.
 */
#include "rendezvous/admission/token_acl.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdint.h>

/* Little-endian on every machine: a version, then entries of a tag, permissions and an id. */
#define HEAD_LEN sizeof(struct posix_acl_xattr_header)
#define ENTRY_LEN sizeof(struct posix_acl_xattr_entry)

static uint32_t read_le(const unsigned char *p, size_t len)
{
    uint32_t value = 0;
    for (size_t i = len; i > 0; i--) {
        value = value << 8 | p[i - 1];
    }
    return value;
}

bool ct_acl_is_private(const unsigned char *acl, size_t len, uid_t uid)
{
    if (len < HEAD_LEN || (len - HEAD_LEN) % ENTRY_LEN != 0 ||
        read_le(acl, 4) != POSIX_ACL_XATTR_VERSION) {
        return false;
    }
    for (const unsigned char *entry = acl + HEAD_LEN; entry < acl + len; entry += ENTRY_LEN) {
        uint32_t tag = read_le(entry, 2);
        uint32_t permissions = read_le(entry + 2, 2);
        uint32_t id = read_le(entry + 4, 4);
        bool ours =
            tag == ACL_USER_OBJ || tag == ACL_MASK || (tag == ACL_USER && (id == uid || id == 0));
        if (permissions != 0 && !ours) {
            return false;
        }
    }
    return true;
}
