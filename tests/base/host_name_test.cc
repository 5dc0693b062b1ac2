#include "base/host_name.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace diapason {
namespace {

TEST(HostName, IsTheKernels) {
  std::ifstream file("/proc/sys/kernel/hostname");
  std::string name;
  ASSERT_TRUE(std::getline(file, name));
  EXPECT_EQ(HostName(), name);
}

}  // namespace
}  // namespace diapason
