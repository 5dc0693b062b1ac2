// For tests: cpu programs made of C source with the system's compiler, and shorthand for buffers and kernels.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "compiler/runtime/device.h"
#include "compiler/tensor/program.h"
#include "gtest/gtest.h"

namespace diapason {

// The shared object of C source; empty, with a test failure, when it does not compile.
inline std::string CompileCForTest(const std::string& source) {
  std::string base = ::testing::TempDir() + "/c_program_XXXXXX";
  if (mkdtemp(base.data()) == nullptr) {
    ADD_FAILURE() << "no temporary directory";
    return "";
  }
  std::ofstream(base + "/k.c") << source;
  const std::string command = "cc -O1 -shared -fPIC -o '" + base + "/k.so' '" + base + "/k.c'";
  EXPECT_EQ(std::system(command.c_str()), 0) << source;
  std::ifstream file(base + "/k.so", std::ios::binary);
  std::string binary{std::istreambuf_iterator<char>(file), {}};
  std::remove((base + "/k.c").c_str());
  std::remove((base + "/k.so").c_str());
  std::remove(base.c_str());
  return binary;
}

inline ProgramBuffer FloatBuffer(std::string name, int64_t elements, BufferRole role, int stage = -1) {
  ProgramBuffer buffer;
  buffer.name = std::move(name);
  buffer.elements = elements;
  buffer.role = role;
  buffer.stage = stage;
  return buffer;
}

inline Kernel KernelOf(std::string name, std::vector<int> args, int64_t grid, int64_t block = 1) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.args = std::move(args);
  kernel.grid = {grid, 1, 1};
  kernel.block = {block, 1, 1};
  return kernel;
}

inline Program CProgram(const std::string& source) {
  Program program;
  program.target.kind = TargetKind::kCpu;
  program.source = source;
  program.binary = CompileCForTest(source);
  return program;
}

inline std::vector<float> ReadFloats(Device& device, const DeviceBuffer& buffer, int64_t count) {
  std::vector<float> values(count, -12345);
  const absl::Status copied = device.CopyOut(values.data(), buffer, count * 4);
  EXPECT_TRUE(copied.ok()) << copied;
  return values;
}

inline void WriteFloats(Device& device, DeviceBuffer& buffer, const std::vector<float>& values) {
  const absl::Status copied = device.CopyIn(buffer, values.data(), values.size() * 4);
  EXPECT_TRUE(copied.ok()) << copied;
}

}  // namespace diapason
