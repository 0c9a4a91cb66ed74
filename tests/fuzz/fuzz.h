/* SPDX-License-Identifier: Apache-2.0
 *
 * What every fuzz target defines. libFuzzer calls it, or, under any compiler, replay.c's main() for
 * each file of a corpus.
 */
#ifndef CT_TESTS_FUZZ_FUZZ_H
#define CT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0; a finding ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
