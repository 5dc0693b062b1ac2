#include "service/measurer.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(MeasurementOf, CarriesEveryOption) {
  MeasureRequest request;
  request.id = 7;
  request.workload = std::make_shared<const std::string>("dag");
  request.schedule = "steps";
  request.target = "cpu -num-cores=2";
  request.options = {5, 11, 12.5, 31, 13, false};
  request.best_seconds = 0.25;
  const Measurement m = MeasurementOf(request);
  EXPECT_EQ(m.id, 7);
  EXPECT_EQ(m.workload, request.workload);
  EXPECT_EQ(m.schedule, "steps");
  EXPECT_EQ(m.target, "cpu -num-cores=2");
  EXPECT_EQ(m.mode, MeasurementMode::kTime);
  EXPECT_EQ(m.repeat, 5);
  EXPECT_EQ(m.number, 11);
  EXPECT_EQ(m.min_repeat_ms, 12.5);
  EXPECT_EQ(m.build_timeout_s, 31);
  EXPECT_EQ(m.run_timeout_s, 13);
  EXPECT_FALSE(m.race);
  EXPECT_EQ(m.best_seconds, 0.25);
  request.verify = true;
  EXPECT_EQ(MeasurementOf(request).mode, MeasurementMode::kVerify);
}

TEST(OutcomeOf, TurnsAWrongResultIntoAVerdict) {
  MeasurementResult result;
  result.id = 3;
  result.outcome = MeasureError{ErrorKind::kWrongResult, MeasureStage::kVerify, "off"};
  result.check = MeasurementCheck{false, 0.5, 0.1, 1e-4, "y at element 2"};
  const MeasureOutcome outcome = OutcomeOf(result);
  EXPECT_EQ(outcome.id, 3);
  ASSERT_TRUE(outcome.verdict.has_value());
  EXPECT_FALSE(outcome.verdict->ok);
  EXPECT_EQ(outcome.verdict->max_error, 0.5);
  EXPECT_EQ(outcome.verdict->text, "y at element 2");
  EXPECT_TRUE(std::holds_alternative<Timing>(outcome.outcome));
}

TEST(OutcomeOf, KeepsErrorsAndPutsClocksWhereTheyBelong) {
  MeasurementResult result;
  result.outcome = MeasureError{ErrorKind::kRunTimeout, MeasureStage::kRun, "10 s"};
  result.device = "cpu:0";
  result.core_mhz = 2600.4;
  MeasureOutcome outcome = OutcomeOf(result);
  EXPECT_EQ(std::get<MeasureError>(outcome.outcome), std::get<MeasureError>(result.outcome));
  EXPECT_EQ(outcome.clocks, (Clocks{0, 0, 2600}));
  result.device = "cuda:1";
  result.memory_mhz = 3201;
  EXPECT_EQ(OutcomeOf(result).clocks, (Clocks{2600, 3201, 0}));
}

}  // namespace
}  // namespace diapason
