/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a worker can do: connect to the store at MASTER_ADDR:MASTER_PORT, wait in a
 * BARRIER (an extension of ctrun's stores) until all WORLD_SIZE are there, end.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY "floor"

/* Of PyTorch's protocol: VALIDATE with its magic, then BARRIER with key and count. */
struct __attribute__((packed)) greeting {
    uint8_t validate;
    uint32_t magic;
    uint8_t barrier;
    uint64_t key_len;
    char key[sizeof(KEY) - 1];
    int64_t count;
};

int main(void)
{
    const char *host = getenv("MASTER_ADDR");
    const char *port = getenv("MASTER_PORT");
    const char *world = getenv("WORLD_SIZE");
    if (host == NULL || port == NULL || world == NULL) {
        (void)fputs("bench-floor-client: no MASTER_ADDR, MASTER_PORT and WORLD_SIZE\n", stderr);
        return 2;
    }
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    struct greeting greeting = {.validate = 0,
                                .magic = 0x3C85F7CE,
                                .barrier = 18,
                                .key_len = sizeof(KEY) - 1,
                                .count = strtol(world, NULL, 10)};
    memcpy(greeting.key, KEY, sizeof(greeting.key));
    char all_here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, host, &addr.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL) != (ssize_t)sizeof(greeting) ||
        read(fd, &all_here, 1) != 1) {
        perror("bench-floor-client");
        return 1;
    }
    return 0;
}
