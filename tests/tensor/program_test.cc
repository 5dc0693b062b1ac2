#include "compiler/tensor/program.h"

#include "gtest/gtest.h"

namespace diapason {
namespace {

Program SomeProgram() {
  Program program;
  program.target = Target::Parse("cuda -arch=sm_90").value();
  program.buffers.push_back({.name = "x",
                             .dtype = DType::kInt64,
                             .elements = 7,
                             .role = BufferRole::kInput,
                             .stage = 0,
                             .valid_min = -3,
                             .valid_max = 1LL << 40});
  program.buffers.push_back(
      {.name = "w", .dtype = DType::kFloat16, .elements = 1LL << 33, .role = BufferRole::kConstant, .stage = 1});
  program.buffers.push_back(
      {.name = "y", .dtype = DType::kBool, .elements = 9, .role = BufferRole::kOutput, .stage = 2});
  Kernel kernel;
  kernel.name = "first";
  kernel.args = {0, 2};
  kernel.grid = {1000, 2, 3};
  kernel.block = {256, 1, 1};
  kernel.shared_bytes = 70000;
  kernel.cluster = 4;
  program.prologue.push_back(kernel);
  kernel.name = "second";
  kernel.args = {};
  program.kernels = {kernel, kernel};
  GemmCall product;
  product.m = product.n = product.k = product.lda = product.ldb = product.ldc = 2;
  program.kernels[1].library = std::make_shared<const LibraryCall>(LibraryCall{0, product});
  program.source = "source\n";
  program.binary = std::string(
      "\x7f"
      "ELF\0\xff",
      6);
  program.compiler = "NVRTC 13.0";
  program.registers = {61, 255};
  program.spill_bytes = {0, 128};
  return program;
}

TEST(Program, EveryFieldSurvivesTheWayThroughBytes) {
  const Program program = SomeProgram();
  const absl::StatusOr<Program> back = ParseProgram(SerializeProgram(program));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->target.ToString(), "cuda -arch=sm_90");
  ASSERT_EQ(back->buffers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back->buffers[i].name, program.buffers[i].name);
    EXPECT_EQ(back->buffers[i].dtype, program.buffers[i].dtype);
    EXPECT_EQ(back->buffers[i].elements, program.buffers[i].elements);
    EXPECT_EQ(back->buffers[i].role, program.buffers[i].role);
    EXPECT_EQ(back->buffers[i].stage, program.buffers[i].stage);
    EXPECT_EQ(back->buffers[i].valid_min, program.buffers[i].valid_min);
    EXPECT_EQ(back->buffers[i].valid_max, program.buffers[i].valid_max);
  }
  ASSERT_EQ(back->prologue.size(), 1u);
  ASSERT_EQ(back->kernels.size(), 2u);
  EXPECT_EQ(back->kernels[0].library, nullptr);
  ASSERT_NE(back->kernels[1].library, nullptr);
  EXPECT_EQ(*back->kernels[1].library, *program.kernels[1].library);
  EXPECT_EQ(back->Libraries(), std::vector<Library>{Library::kCublas});
  const Kernel& kernel = back->prologue[0];
  EXPECT_EQ(kernel.name, "first");
  EXPECT_EQ(kernel.args, (std::vector<int>{0, 2}));
  EXPECT_EQ(kernel.grid, (std::array<int64_t, 3>{1000, 2, 3}));
  EXPECT_EQ(kernel.block, (std::array<int64_t, 3>{256, 1, 1}));
  EXPECT_EQ(kernel.shared_bytes, 70000);
  EXPECT_EQ(kernel.cluster, 4);
  EXPECT_EQ(back->kernels[1].name, "second");
  EXPECT_EQ(back->source, program.source);
  EXPECT_EQ(back->binary, program.binary);
  EXPECT_EQ(back->compiler, program.compiler);
  EXPECT_EQ(back->registers, program.registers);
  EXPECT_EQ(back->spill_bytes, program.spill_bytes);
  EXPECT_EQ(SerializeProgram(*back), SerializeProgram(program));
}

// Kernels with tensor maps, of a buffer of 9 * 128 + 64 elements.
Program MappedProgram() {
  Program program = SomeProgram();
  program.buffers[1].elements = 9 * 128 + 64;
  program.kernels[0].args = {0, 1};
  program.kernels[0].tensor_maps = {{.arg = 1, .element_bytes = 2, .box = {0, {64, 10}, {1, 128}, {64, 8}, 128}},
                                    {.arg = 1, .element_bytes = 2, .box = {16, {32}, {1}, {32}, 0}}};
  return program;
}

// And one of windows over 4 images of 3x3 pixels and 16 channels.
Program ProgramWithWindows() {
  Program program = MappedProgram();
  program.kernels[1].args = {1};
  program.kernels[1].tensor_maps = {{.arg = 0,
                                     .element_bytes = 2,
                                     .box = {.extents = {16, 3, 3, 4},
                                             .strides = {1, 16, 48, 144},
                                             .box = {16, 8},
                                             .swizzle = 32,
                                             .windows = {{-1, 3, 1, 3, 1}, {-2, 2, 2, 3, 2}}}}};
  return program;
}

TEST(Program, WindowsSurviveTheWayThroughBytes) {
  const Program program = ProgramWithWindows();
  const absl::StatusOr<Program> back = ParseProgram(SerializeProgram(program));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kernels[0].tensor_maps, program.kernels[0].tensor_maps);
  EXPECT_EQ(back->kernels[1].tensor_maps, program.kernels[1].tensor_maps);
  EXPECT_TRUE(FitsTensorMap(*back, back->kernels[1], back->kernels[1].tensor_maps[0]));
  EXPECT_EQ(SerializeProgram(program)[8], 4);
}

TEST(Program, TensorMapsSurviveTheWayThroughBytes) {
  const Program program = MappedProgram();
  const absl::StatusOr<Program> back = ParseProgram(SerializeProgram(program));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kernels[0].tensor_maps, program.kernels[0].tensor_maps);
  EXPECT_TRUE(back->kernels[1].tensor_maps.empty());
  EXPECT_TRUE(back->prologue[0].tensor_maps.empty());
  EXPECT_EQ(SerializeProgram(*back), SerializeProgram(program));
}

// So that runtimes that know nothing of tensor maps read what has none.
TEST(Program, ProgramsWithoutTensorMapsKeepTheirVersion) {
  EXPECT_EQ(SerializeProgram(SomeProgram())[8], 2);
  EXPECT_EQ(SerializeProgram(MappedProgram())[8], 3);
}

TEST(Program, TensorMapsFitTheirBuffers) {
  const Program program = MappedProgram();
  const Kernel& kernel = program.kernels[0];
  for (const Kernel::TensorMap& map : kernel.tensor_maps) EXPECT_TRUE(FitsTensorMap(program, kernel, map));
  Kernel::TensorMap other = kernel.tensor_maps[0];
  other.arg = 0;
  EXPECT_FALSE(FitsTensorMap(program, kernel, other)) << "elements of 8 bytes";
  other.arg = 2;
  EXPECT_FALSE(FitsTensorMap(program, kernel, other)) << "there are two arguments";
  other = kernel.tensor_maps[0];
  other.box.extents[1] = 11;
  EXPECT_FALSE(FitsTensorMap(program, kernel, other)) << "past the end";
}

TEST(Program, CutAnywhereIsDataLoss) {
  for (const std::string& bytes :
       {SerializeProgram(SomeProgram()), SerializeProgram(MappedProgram()), SerializeProgram(ProgramWithWindows())})
    for (size_t size = 0; size < bytes.size(); ++size)
      ASSERT_EQ(ParseProgram(bytes.substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  const std::string bytes = SerializeProgram(SomeProgram());
  EXPECT_EQ(ParseProgram(bytes + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST(Program, EveryDamagedByteIsDataLoss) {
  const std::string bytes = SerializeProgram(SomeProgram());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (char flip : {'\x01', '\x80'}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      ASSERT_EQ(ParseProgram(damaged).status().code(), absl::StatusCode::kDataLoss) << at;
    }
  }
}

TEST(Program, RefusalsSayWhatIsWrong) {
  EXPECT_EQ(std::string(ParseProgram("hello").status().message()),
            "these bytes are no compiled program of diapason; build it again");
  std::string newer = SerializeProgram(SomeProgram());
  newer[8] = 5;
  EXPECT_EQ(std::string(ParseProgram(newer).status().message()),
            "the compiled program has format version 5, this diapason reads versions 2 to 4; build it again");
  std::string damaged = SerializeProgram(SomeProgram());
  damaged.back() ^= 1;
  EXPECT_EQ(std::string(ParseProgram(damaged).status().message()),
            "the compiled program is damaged: its checksum does not match; build it again");
}

}  // namespace
}  // namespace diapason
