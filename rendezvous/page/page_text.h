/* SPDX-License-Identifier: Apache-2.0
 *
 * The live page as one document, which embed.py makes of page.html, page.css and page.js when the
 * program is built.
 */
#ifndef CT_RENDEZVOUS_PAGE_PAGE_TEXT_H
#define CT_RENDEZVOUS_PAGE_PAGE_TEXT_H

#include <stddef.h>

extern const unsigned char ct_page_text[];
extern const size_t ct_page_text_len;

/* The value of Content-Security-Policy: it names the hashes of the style and of the script. */
extern const char ct_page_text_policy[];

#endif
