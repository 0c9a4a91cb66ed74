// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch 1.13's own client makes of WATCH_KEY, which its Python interface does not have: one
// store watches keys that another changes, and prints each change. `watch_keys PORT`.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<int> notices{0};

static void await(int count)
{
    for (int i = 0; i < 600 && notices < count; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    std::printf("%d notices\n", notices.load());
}

static std::string show(const c10::optional<std::string> &value)
{
    if (!value) {
        return "(none)";
    }
    return value->size() < 100 ? *value : std::to_string(value->size()) + " bytes";
}

static void print_changes(c10d::TCPStore &store, const std::string &key)
{
    store.watchKey(key, [key](c10::optional<std::string> before, c10::optional<std::string> after) {
        std::printf("%s: %s -> %s\n", key.c_str(), show(before).c_str(), show(after).c_str());
        notices++;
    });
}

static std::vector<uint8_t> bytes(const char *text)
{
    return std::vector<uint8_t>(text, text + std::strlen(text));
}

int main(int argc, char **argv)
{
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(argc == 2 ? std::atoi(argv[1]) : 0);
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(60);
    c10d::TCPStore watcher("127.0.0.1", options), other("127.0.0.1", options);
    print_changes(watcher, "key");
    print_changes(watcher, "large");
    other.set("key", bytes("1"));
    other.set("key", bytes("1"));
    other.add("key", 41);
    other.compareSet("key", bytes("42"), bytes("new"));
    other.deleteKey("key");
    watcher.set("key", bytes("of its own")); // its answers must not mix with its notices
    if (watcher.add("number", 7) != 7) {
        std::printf("wrong sum\n");
    }
    await(6);
    other.set("large", std::vector<uint8_t>(4 << 20));
    other.set("large", std::vector<uint8_t>(8 << 20));
    await(8);
    watcher.watchKey("often",
                     [](c10::optional<std::string>, c10::optional<std::string>) { notices++; });
    int64_t sum = 0;
    for (int i = 0; i < 20000; i++) {
        sum = other.add("often", 1);
    }
    await(20008);
    std::printf("%lld\n", static_cast<long long>(sum));
    std::fflush(stdout);
    _exit(0); // its threads do not like to be ended
}
