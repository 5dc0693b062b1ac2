// Turns to read a model: one at a time.
#include "service/preparation_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/status.h"

namespace diapason {
namespace {

TEST(PreparationTurns, OneAtATime) {
  PreparationTurns turns;
  const std::atomic<bool> stop{false};
  auto first = std::make_unique<PreparationTurns::Turn>(*turns.BeginSubmission());
  std::atomic<bool> begun{false};
  std::thread second([&] {
    EXPECT_TRUE(turns.BeginJob(stop).ok());
    begun = true;
  });
  EXPECT_FALSE(begun);
  first.reset();
  second.join();
  EXPECT_TRUE(turns.BeginSubmission().ok());  // the second one has ended, too
}

TEST(PreparationTurns, AJobThatIsToStopDoesNotWait) {
  PreparationTurns turns;
  std::atomic<bool> stop{false};
  const auto first = turns.BeginSubmission();
  std::thread job([&] { EXPECT_EQ(turns.BeginJob(stop).status(), absl::CancelledError("stopped")); });
  stop = true;
  turns.Wake();
  job.join();
}

TEST(PreparationTurns, SubmissionsEndWhenTheServiceStops) {
  PreparationTurns turns;
  const auto first = turns.BeginSubmission();
  std::thread submission(
      [&] { EXPECT_EQ(turns.BeginSubmission().status(), absl::UnavailableError("the service stops")); });
  turns.Stop();
  submission.join();
}

}  // namespace
}  // namespace diapason
