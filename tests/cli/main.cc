// As the program's own main: the workers that `tune` starts execute this file again as their builders and runners.
#include <gtest/gtest.h>

#include "api/processes/processes.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (const std::optional<int> code = diapason::api::RunInternal(args)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
