// The test program is also the program that the agents under test execute for builders and runners.
#include <gtest/gtest.h>

#include <string>

#include "compiler/tensor/target.h"
#include "tests/worker/fakes.h"
#include "worker/process/child_process.h"
#include "worker/process/processes.h"

int main(int argc, char** argv) {
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "fake-builder") return diapason::BuilderMain(diapason::kChildSocket, *diapason::MakeFakeToolchain());
  if (command == "fake-runner" && argc > 2) {
    return diapason::RunnerMain(diapason::kChildSocket, diapason::Target::Parse(argv[2]).value(),
                                &diapason::OpenFakeDevice);
  }
  if (command == "straying-builder")
    return diapason::BuilderMain(diapason::kChildSocket, *diapason::MakeStrayingToolchain());
  // As the program does: "internal-runner --fd 3 --target TEXT".
  if (command == "internal-builder") return diapason::BuilderMain(diapason::kChildSocket);
  if (command == "internal-runner" && argc > 5) {
    return diapason::RunnerMain(diapason::kChildSocket, diapason::Target::Parse(argv[5]).value());
  }
  if (command == "slow-to-execute" && argc > 2) return diapason::StartSlowly(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
