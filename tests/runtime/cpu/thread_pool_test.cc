#include "compiler/runtime/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace diapason {
namespace {

void CountEach(void* const* args, int64_t begin, int64_t end) {
  auto* counts = static_cast<std::atomic<int>*>(args[0]);
  for (int64_t i = begin; i < end; ++i) counts[i].fetch_add(1);
}

TEST(ThreadPool, RunsEachIterationOnceForAnyCountAndNumberOfThreads) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 15, 16, 17, 31, 33, 100, 1023, 65537, 200000}) {
      std::vector<std::atomic<int>> counts(count + 1);
      void* args[] = {counts.data()};
      pool.Run(CountEach, args, count);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(counts[i].load(), 1) << threads << " threads, " << i << " of " << count;
      ASSERT_EQ(counts[count].load(), 0);
    }
  }
}

// Each loop reads what the one before wrote, with no pause between them: a piece run late, or with the arguments of
// another loop, gives another number.
void AddOneToNext(void* const* args, int64_t begin, int64_t end) {
  const auto* from = static_cast<const int64_t*>(args[0]);
  auto* to = static_cast<int64_t*>(args[1]);
  for (int64_t i = begin; i < end; ++i) to[i] = from[i] + 1;
}

TEST(ThreadPool, LoopsFollowEachOtherInOrder) {
  ThreadPool pool(4);
  constexpr int64_t kCount = 37;
  std::vector<int64_t> a(kCount, 0), b(kCount, 0);
  void* forth[] = {a.data(), b.data()};
  void* back[] = {b.data(), a.data()};
  constexpr int kRounds = 5000;
  for (int i = 0; i < kRounds; ++i) {
    pool.Run(AddOneToNext, forth, kCount);
    pool.Run(AddOneToNext, back, kCount);
  }
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(a[i], 2 * kRounds);
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> counts(100);
  void* args[] = {counts.data()};
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // ten times as long as they look for work
    pool.Run(CountEach, args, 100);
  }
  for (auto& count : counts) EXPECT_EQ(count.load(), 20);
}

void RecordThread(void* const* args, int64_t begin, int64_t end) {
  auto* threads = static_cast<std::thread::id*>(args[0]);
  for (int64_t i = begin; i < end; ++i) {
    threads[i] = std::this_thread::get_id();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPool, WorkIsShared) {
  ThreadPool pool(2);
  std::vector<std::thread::id> threads(40);
  void* args[] = {threads.data()};
  pool.Run(RecordThread, args, 40);
  int mine = 0;
  for (const auto& id : threads) mine += id == std::this_thread::get_id();
  EXPECT_GT(mine, 0);
  EXPECT_LT(mine, 40);
}

TEST(ThreadPool, UsableCoresIsPositive) { EXPECT_GE(UsableCores(), 1); }

TEST(ThreadPool, ACallerThatIsKeptIsInPlace) {
  ThreadPool pool(UsableCores());
  const ThreadPool::CallerPin pin(pool);
  EXPECT_TRUE(pool.CallerIsInPlace());
}

}  // namespace
}  // namespace diapason
