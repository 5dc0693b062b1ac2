// A loop over chunks on several threads.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace diapason {

// Calls body(chunk) once for each chunk in [0, chunks), from up to `threads` threads, and returns when all have
// returned.
template <typename Body>
void ParallelFor(int threads, int chunks, const Body& body) {
  if (threads <= 1 || chunks <= 1) {
    for (int chunk = 0; chunk < chunks; ++chunk) body(chunk);
    return;
  }
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int chunk = next++; chunk < chunks; chunk = next++) body(chunk);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads && i < chunks; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace diapason
