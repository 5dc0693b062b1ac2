// A package shared by threads that answer requests, each with a context of its own: how a server uses it.
//
//   ./serve_threads PACKAGE [THREADS [REQUESTS]]
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "diapason/runtime.hpp"

namespace {

using diapason::runtime::Buffer;
using diapason::runtime::Context;
using diapason::runtime::Package;

// Answers requests until there are none left. A real server would take the inputs from the network.
void Serve(const Package& package, std::atomic<int>& left) {
  Context context(package, /*threads=*/1);
  std::vector<std::vector<uint8_t>> inputs, outputs;
  std::vector<Buffer> in, out;
  for (size_t i = 0; i < package.inputs().size(); ++i)
    inputs.emplace_back(context.Input(static_cast<int32_t>(i)).bytes);
  for (size_t i = 0; i < package.outputs().size(); ++i)
    outputs.emplace_back(context.Output(static_cast<int32_t>(i)).bytes);
  for (std::vector<uint8_t>& bytes : inputs) in.emplace_back(bytes);
  for (std::vector<uint8_t>& bytes : outputs) out.emplace_back(bytes);
  while (left.fetch_sub(1) > 0) context.Run(in, out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: serve_threads PACKAGE [THREADS [REQUESTS]]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2, requests = argc > 3 ? std::atoi(argv[3]) : 100;
  try {
    const Package package(argv[1]);
    std::atomic<int> left{requests};
    std::atomic<bool> failed{false};
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> servers;
    for (int t = 0; t < threads; ++t)
      servers.emplace_back([&] {
        try {
          Serve(package, left);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "serve_threads: %s\n", error.what());
          failed = true;
        }
      });
    for (std::thread& server : servers) server.join();
    if (failed) return 1;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%d requests by %d threads, %.1f per second\n", requests, threads, requests / seconds);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serve_threads: %s\n", error.what());
    return 1;
  }
}
