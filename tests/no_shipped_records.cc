// For test programs whose builds and searches must not depend on the records that come with the program.
#include <gtest/gtest.h>
#include <stdlib.h>

namespace diapason {
namespace {

class NoShippedRecords : public testing::Environment {
 public:
  void SetUp() override { setenv("DIAPASON_RECORDS", "", 1); }
};

const testing::Environment* const kNone = testing::AddGlobalTestEnvironment(new NoShippedRecords);

}  // namespace
}  // namespace diapason
