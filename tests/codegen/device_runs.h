// Runs kernels on a device and compares every element with the reference.
#pragma once

#include <random>

#include "compiler/codegen/codegen.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/executable.h"
#include "gtest/gtest.h"
#include "tests/codegen/kernels.h"
#include "tests/codegen/reference.h"

namespace diapason::testing {

// Random contents that are exact in every type: quarters for floats, small integers.
inline Array RandomArray(const BufferDecl& decl, std::mt19937& random) {
  Array array(decl.dtype, {decl.elements});
  for (int64_t i = 0; i < decl.elements; ++i) {
    const int value = static_cast<int>(random() % 33) - 16;
    if (IsFloat(decl.dtype))
      array.set(i, value / 4.0);
    else
      array.set_int(i, decl.dtype == DType::kBool ? value & 1 : decl.dtype == DType::kUint8 ? value + 16 : value);
  }
  return array;
}

inline void ExpectDeviceRunsAsReference(Device& device, const Target& target, const KernelFunc& kernel,
                                        double tolerance) {
  SCOPED_TRACE(ToString(kernel));
  absl::StatusOr<Program> program = CompileProgram(ProgramOf(kernel), target);
  ASSERT_TRUE(program.ok()) << program.status();
  SCOPED_TRACE(program->source);
  absl::StatusOr<std::unique_ptr<Executable>> executable = Executable::Create(device, *program);
  ASSERT_TRUE(executable.ok()) << executable.status();
  ASSERT_TRUE((*executable)->AllocateRest().ok());
  std::mt19937 random(7);
  NestRunner reference;
  std::vector<Array> arrays;
  for (const BufferDecl& param :
       kernel.params) {  // a buffer's index in the program is the order of ids, here of params
    arrays.push_back(RandomArray(param, random));
    for (int64_t i = 0; i < param.elements; ++i) reference.buffers[param.id].push_back(arrays.back().at(i));
    DeviceBuffer* buffer = (*executable)->buffer(static_cast<int>(arrays.size()) - 1);
    ASSERT_TRUE(device.CopyIn(*buffer, arrays.back().data.data(), arrays.back().data.size()).ok());
  }
  absl::StatusOr<std::unique_ptr<Plan>> plan = (*executable)->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status ran = (*plan)->Run();
  ASSERT_TRUE(ran.ok()) << ran;
  reference.Run(kernel);
  for (size_t b = 0; b < arrays.size(); ++b) {
    ASSERT_TRUE(
        device.CopyOut(arrays[b].data.data(), *(*executable)->buffer(static_cast<int>(b)), arrays[b].data.size()).ok());
    const std::vector<double>& expected = reference.buffers.at(kernel.params[b].id);
    for (int64_t i = 0; i < arrays[b].elements(); ++i)
      ASSERT_NEAR(arrays[b].at(i), expected[i], tolerance * (1 + std::fabs(expected[i])))
          << kernel.params[b].name << "[" << i << "]";
  }
}

}  // namespace diapason::testing
