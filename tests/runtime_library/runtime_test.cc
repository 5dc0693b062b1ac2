#include "diapason/runtime.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <thread>

#include "base/check.h"
#include "compiler/runtime/dynamic_library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/dlpack.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Network Classifier() {
  NetworkMaker m;
  const int x = m.In("image", {1, 4, 8, 8}), scale = m.In("scale", {1, 10});
  const int conv = m.Op("conv2d", {x, m.Const("weight", {4, 4, 3, 3})}, {{"pads", Shape{1, 1, 1, 1}}});
  const int mean =
      m.Op("reshape", {m.Op("reduce_mean", {m.Op("relu", {conv})}, {{"axes", Shape{2, 3}}})}, {{"shape", Shape{1, 4}}});
  const int logits = m.Op("mul", {m.Op("gemm", {mean, m.Const("fc", {4, 10})}), scale}, {}, "logits");
  return m.Out({m.Op("softmax", {logits}, {}, "probabilities"), logits});
}

// Each row by itself.
Network Rows(int64_t batch) {
  NetworkMaker m;
  const int x = m.In("x", {batch, 4});
  Array weight(DType::kFloat32, {4, 3});
  FillRandom(weight, 5);
  return m.Out({m.Op("tanh", {m.Op("matmul", {x, m.n.AddConstant("weight", weight)})}, {}, "y")});
}

struct FreeHandles {
  void operator()(diapason_package* package) const { diapason_package_free(package); }
  void operator()(diapason_context* context) const { diapason_context_free(context); }
};
using PackageHandle = std::unique_ptr<diapason_package, FreeHandles>;
using ContextHandle = std::unique_ptr<diapason_context, FreeHandles>;

std::vector<diapason_buffer> BuffersOf(std::vector<Array>& arrays) {
  std::vector<diapason_buffer> buffers;
  for (Array& array : arrays) buffers.push_back({array.data.data(), array.data.size()});
  return buffers;
}

class RuntimeTest : public FolderTest {
 protected:
  void BuildClassifier() {
    ASSERT_EQ(BuildReferencePackage(Path("p"), classifier_, TestTarget(TargetKind::kCpu)), absl::OkStatus());
  }

  // For the GPU that is here, and that device; the error of opening it where there is none.
  absl::StatusOr<std::unique_ptr<Device>> BuildClassifierForCuda() {
    Target target = TestTarget(TargetKind::kCuda);
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(target));
    target.arch = device->facts().arch;
    EXPECT_EQ(BuildReferencePackage(Path("p"), classifier_, target), absl::OkStatus());
    return device;
  }

  // With plans for these sizes, and padding between them where `padding`.
  void BuildRows(const std::vector<int64_t>& sizes, bool padding = true) {
    std::list<Network> networks;
    std::list<Partition> partitions;
    std::vector<PackageRequest> requests;
    for (size_t i = 0; i < sizes.size(); ++i) {
      networks.push_back(Rows(sizes[i]));
      partitions.push_back(PartitionNetwork(networks.back()).value());
      requests.push_back(ReferenceRequest(networks.back(), partitions.back(), TestTarget(TargetKind::kCpu)));
      PlanSymbols& symbols = requests.back().symbols;
      symbols.sizes = {{"batch", sizes[i]}};
      symbols.inputs = {{"batch", ""}};
      if (padding) symbols.padding["batch"] = {i == 0 ? 1 : sizes[i - 1] + 1, "", {{{0, 1}}}};
    }
    ASSERT_EQ(BuildPackage(Path("p"), requests), absl::OkStatus());
  }

  PackageHandle Load(const std::string& name = "p") {
    diapason_package* package = nullptr;
    EXPECT_EQ(diapason_package_load(Path(name).c_str(), nullptr, &package), DIAPASON_OK) << diapason_last_error();
    return PackageHandle(package);
  }

  static ContextHandle Make(const PackageHandle& package, int32_t threads = 0) {
    const diapason_context_options options{sizeof options, threads};
    diapason_context* context = nullptr;
    EXPECT_EQ(diapason_context_create(package.get(), &options, &context), DIAPASON_OK) << diapason_last_error();
    return ContextHandle(context);
  }

  // By position.
  static std::vector<Array> InputsOf(const Network& network, uint64_t seed) {
    std::vector<Array> inputs;
    for (int id : network.inputs) {
      inputs.emplace_back(network.tensor(id).type.dtype, network.tensor(id).type.shape);
      FillRandom(inputs.back(), seed++);
    }
    return inputs;
  }
  static std::vector<Array> OutputsOf(const Network& network) {
    std::vector<Array> outputs;
    for (int id : network.outputs) outputs.emplace_back(network.tensor(id).type.dtype, network.tensor(id).type.shape);
    return outputs;
  }

  static void ExpectClose(const std::vector<Array>& got, const std::vector<Array>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].shape, want[i].shape);
      for (int64_t e = 0; e < want[i].elements(); ++e)
        ASSERT_NEAR(got[i].at(e), want[i].at(e), 1e-5 * (1 + std::abs(want[i].at(e)))) << i << ", " << e;
    }
  }

  static void ExpectRight(diapason_context* context, const Network& network, uint64_t seed) {
    std::vector<Array> inputs = InputsOf(network, seed), outputs = OutputsOf(network);
    const std::vector<diapason_buffer> in = BuffersOf(inputs), out = BuffersOf(outputs);
    ASSERT_EQ(diapason_run(context, in.data(), in.size(), out.data(), out.size()), DIAPASON_OK)
        << diapason_last_error();
    ExpectClose(outputs, EvaluateNetwork(network, inputs).value());
  }

  const Network classifier_ = Classifier();
};

TEST_F(RuntimeTest, DescribesAPackage) {
  BuildClassifier();
  const PackageHandle package = Load();
  EXPECT_STREQ(diapason_package_network(package.get()), "test");
  EXPECT_STREQ(diapason_package_target(package.get()), "cpu -num-cores=2");
  EXPECT_EQ(diapason_package_device_type(package.get()), DIAPASON_CPU);
  ASSERT_EQ(diapason_package_input_count(package.get()), 2);
  ASSERT_EQ(diapason_package_output_count(package.get()), 2);
  diapason_port port{};
  port.struct_size = sizeof port;
  ASSERT_EQ(diapason_package_input(package.get(), 0, &port), DIAPASON_OK);
  EXPECT_STREQ(port.name, "image");
  EXPECT_EQ(port.dtype, DIAPASON_FLOAT32);
  EXPECT_THAT(std::vector<int64_t>(port.shape, port.shape + port.rank), ElementsAre(1, 4, 8, 8));
  EXPECT_THAT(std::vector<const char*>(port.symbols, port.symbols + port.rank),
              ElementsAre(nullptr, nullptr, nullptr, nullptr));
  ASSERT_EQ(diapason_package_output(package.get(), 1, &port), DIAPASON_OK);
  EXPECT_STREQ(port.name, "logits");
  EXPECT_EQ(diapason_package_find_input(package.get(), "scale"), 1);
  EXPECT_EQ(diapason_package_find_output(package.get(), "probabilities"), 0);
  EXPECT_EQ(diapason_package_find_output(package.get(), "scale"), -1);
  EXPECT_EQ(diapason_package_symbol_count(package.get()), 0);
  EXPECT_EQ(diapason_package_symbol(package.get(), 0), nullptr);
  EXPECT_EQ(diapason_package_plan_count(package.get()), 1);
  EXPECT_EQ(diapason_package_plan_size(package.get(), 0, 0), -1);
}

TEST_F(RuntimeTest, RunsOnMemoryOfTheHost) {
  BuildClassifier();
  const PackageHandle package = Load();
  for (int threads : {0, 1, 3}) {
    const ContextHandle context = Make(package, threads);
    for (uint64_t seed : {1, 2}) ExpectRight(context.get(), classifier_, seed);
  }
}

TEST_F(RuntimeTest, TheContextsOwnMemoryNeedsNoCopies) {
  BuildClassifier();
  const ContextHandle context = Make(Load());  // it keeps the package
  const std::vector<Array> inputs = InputsOf(classifier_, 3);
  std::vector<Array> outputs = OutputsOf(classifier_);
  diapason_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  for (int32_t i : {0, 1}) {
    ASSERT_EQ(diapason_context_input(context.get(), i, &tensor), DIAPASON_OK);
    ASSERT_EQ(tensor.bytes, inputs[i].data.size());
    std::memcpy(tensor.data, inputs[i].data.data(), tensor.bytes);
  }
  ASSERT_EQ(diapason_run(context.get(), nullptr, 0, nullptr, 0), DIAPASON_OK) << diapason_last_error();
  for (int32_t i : {0, 1}) {
    ASSERT_EQ(diapason_context_output(context.get(), i, &tensor), DIAPASON_OK);
    EXPECT_THAT(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank), ElementsAre(1, 10));
    std::memcpy(outputs[i].data.data(), tensor.data, tensor.bytes);
  }
  const std::vector<Array> want = EvaluateNetwork(classifier_, inputs).value();
  ExpectClose(outputs, want);
  // Some of both: one output by itself.
  std::vector<Array> logits = {OutputsOf(classifier_)[1]};
  const diapason_buffer out[] = {{nullptr, 0}, {logits[0].data.data(), logits[0].data.size()}};
  ASSERT_EQ(diapason_run_on_stream(context.get(), nullptr, nullptr, 0, out, 2), DIAPASON_OK) << diapason_last_error();
  ExpectClose(logits, {want[1]});
}

// Large enough not to be copied.
Network Wide() {
  NetworkMaker m;
  const int x = m.In("x", {64, 128}), weight = m.In("weight", {128, 96});
  return m.Out({m.Op("relu", {m.Op("matmul", {x, weight})}, {}, "y")});
}

// Pages of which the last one cannot be touched.
class GuardedPages {
 public:
  explicit GuardedPages(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    memory_ = mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(static_cast<uint8_t*>(memory_) + bytes_, kPage, PROT_NONE), 0);
  }
  ~GuardedPages() { munmap(memory_, bytes_ + kPage); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  // So many bytes, with `behind` readable ones between them and the guard.
  uint8_t* Before(size_t bytes, size_t behind) { return static_cast<uint8_t*>(memory_) + bytes_ - behind - bytes; }

 private:
  static constexpr size_t kPage = 4096;
  const size_t bytes_;
  void* memory_ = nullptr;
};

// The caller's memory is used as it is where kernels may read behind it; at the end of a page it is copied.
TEST_F(RuntimeTest, LargeTensorsAreUsedWhereTheyAre) {
  const Network wide = Wide();
  ASSERT_EQ(BuildReferencePackage(Path("p"), wide, TestTarget(TargetKind::kCpu)), absl::OkStatus());
  const ContextHandle context = Make(Load(), 1);
  std::vector<Array> outputs = OutputsOf(wide);
  const std::vector<diapason_buffer> out = BuffersOf(outputs);
  for (const size_t behind : {size_t{64}, size_t{0}, size_t{32}}) {
    const std::vector<Array> inputs = InputsOf(wide, behind + 1);
    diapason_tensor own{};
    own.struct_size = sizeof own;
    ASSERT_EQ(diapason_context_input(context.get(), 1, &own), DIAPASON_OK);
    std::memset(own.data, 0x41, own.bytes);
    GuardedPages x(1 << 16), weight(1 << 16);
    const size_t x_bytes = inputs[0].data.size(), weight_bytes = inputs[1].data.size();
    std::memcpy(x.Before(x_bytes, behind), inputs[0].data.data(), x_bytes);
    std::memcpy(weight.Before(weight_bytes, behind), inputs[1].data.data(), weight_bytes);
    const diapason_buffer in[] = {{x.Before(x_bytes, behind), x_bytes},
                                  {weight.Before(weight_bytes, behind), weight_bytes}};
    for (int run = 0; run < 2; ++run) {
      ASSERT_EQ(diapason_run(context.get(), in, 2, out.data(), 1), DIAPASON_OK) << diapason_last_error();
      ExpectClose(outputs, EvaluateNetwork(wide, inputs).value());
    }
    const bool copied = static_cast<uint8_t*>(own.data)[0] != 0x41;
    EXPECT_EQ(copied, behind != 64) << behind;
  }
}

TEST_F(RuntimeTest, ThreadsShareAPackage) {
  BuildClassifier();
  PackageHandle package = Load();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const ContextHandle context = Make(package, 1);
      for (uint64_t i = 0; i < 20; ++i) ExpectRight(context.get(), classifier_, 100 * t + i);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RuntimeTest, AContextInTwoThreadsIsRefused) {
  BuildClassifier();
  const ContextHandle context = Make(Load(), 1);
  std::atomic<bool> refused{false};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto run = [&] {
    while (!refused && std::chrono::steady_clock::now() < end) {
      if (diapason_run(context.get(), nullptr, 0, nullptr, 0) == DIAPASON_OK) continue;
      EXPECT_STREQ(diapason_last_error(),
                   "the context is used by another thread: give each thread a context of its own");
      refused = true;
    }
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_TRUE(refused);
}

TEST_F(RuntimeTest, SymbolicDimensionsChooseThePlan) {
  BuildRows({1, 4});
  const PackageHandle package = Load();
  ASSERT_EQ(diapason_package_symbol_count(package.get()), 1);
  EXPECT_STREQ(diapason_package_symbol(package.get(), 0), "batch");
  ASSERT_EQ(diapason_package_plan_count(package.get()), 2);
  EXPECT_EQ(diapason_package_plan_size(package.get(), 1, 0), 4);
  diapason_port port{};
  port.struct_size = sizeof port;
  for (auto* describe : {diapason_package_input, diapason_package_output}) {
    ASSERT_EQ(describe(package.get(), 0, &port), DIAPASON_OK);
    EXPECT_EQ(port.shape[0], -1);
    EXPECT_STREQ(port.symbols[0], "batch");
    EXPECT_EQ(port.symbols[1], nullptr);
  }
  const ContextHandle context = Make(package);
  diapason_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  for (int64_t batch : {4, 1, 3, 2}) {
    ASSERT_EQ(diapason_context_set_size(context.get(), "batch", batch), DIAPASON_OK);
    ASSERT_EQ(diapason_context_output(context.get(), 0, &tensor), DIAPASON_OK);
    EXPECT_THAT(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank), ElementsAre(batch, 3));
    EXPECT_EQ(tensor.data == nullptr, batch == 3 || batch == 2)
        << "padded inputs and outputs are not where the caller has them";
    ExpectRight(context.get(), Rows(batch), batch);
  }
}

TEST_F(RuntimeTest, SizesThatDoNotFitAreRefused) {
  BuildRows({1, 4});
  const ContextHandle context = Make(Load());
  EXPECT_EQ(diapason_context_set_size(context.get(), "seq", 2), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "the package has no symbolic dimension 'seq': it has 'batch'");
  EXPECT_EQ(diapason_context_set_size(context.get(), "batch", 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "'batch' cannot be 0: give a size of at least 1");
  ASSERT_EQ(diapason_context_set_size(context.get(), "batch", 5), DIAPASON_OK);
  EXPECT_EQ(diapason_run(context.get(), nullptr, 0, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(),
               "the inputs have batch=5, and the package has plans up to batch=4 (batch=1,4): give smaller inputs, or "
               "build it again with --dim batch=5");
  ASSERT_EQ(diapason_context_set_size(context.get(), "batch", 3), DIAPASON_OK);
  EXPECT_EQ(diapason_run(context.get(), nullptr, 0, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(),
               "input 'x' has no memory of the context's own here (its sizes are padded): give a buffer");
  ASSERT_EQ(diapason_context_set_size(context.get(), "batch", 1), DIAPASON_OK);
  ExpectRight(context.get(), Rows(1), 1);
}

TEST_F(RuntimeTest, OutputsOfPlansThatCannotBePaddedFollowThePlan) {
  BuildRows({1, 4}, /*padding=*/false);
  const PackageHandle package = Load();
  diapason_port port{};
  port.struct_size = sizeof port;
  ASSERT_EQ(diapason_package_output(package.get(), 0, &port), DIAPASON_OK);
  EXPECT_EQ(port.shape[0], -1);
  EXPECT_STREQ(port.symbols[0], "batch");
  const ContextHandle context = Make(package);
  ASSERT_EQ(diapason_context_set_size(context.get(), "batch", 4), DIAPASON_OK);
  ExpectRight(context.get(), Rows(4), 1);
}

TEST_F(RuntimeTest, BuffersThatDoNotFitAreRefused) {
  BuildClassifier();
  const ContextHandle context = Make(Load());
  std::vector<Array> inputs = InputsOf(classifier_, 1);
  std::vector<diapason_buffer> in = BuffersOf(inputs);
  const auto refusal = [&](size_t count) {
    EXPECT_EQ(diapason_run(context.get(), in.data(), count, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
    return std::string(diapason_last_error());
  };
  EXPECT_EQ(
      refusal(1),
      "1 inputs were given, and the package has 2: give all of them in order, or none to use the context's own memory");
  in[1].bytes = 12;
  EXPECT_EQ(refusal(2), "input 'scale' is float32 1x10, 40 bytes, and the buffer has 12");
  int stream = 0;
  EXPECT_EQ(diapason_run_on_stream(context.get(), &stream, nullptr, 0, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "a package for cpu has no streams: give a null stream");
}

TEST_F(RuntimeTest, IndicesOfNoElementAreRefused) {
  NetworkMaker m;
  const Network network = m.Out({m.Op("gather", {m.Const("table", {7, 3}), m.In("indices", {2}, DType::kInt32)})});
  ASSERT_EQ(BuildReferencePackage(Path("p"), network, TestTarget(TargetKind::kCpu)), absl::OkStatus());
  const ContextHandle context = Make(Load());
  std::vector<Array> inputs = InputsOf(network, 1), outputs = OutputsOf(network);
  const std::vector<diapason_buffer> in = BuffersOf(inputs), out = BuffersOf(outputs);
  inputs[0].set_int(1, 6);
  EXPECT_EQ(diapason_run(context.get(), in.data(), 1, out.data(), 1), DIAPASON_OK) << diapason_last_error();
  inputs[0].set_int(1, -8);
  EXPECT_EQ(diapason_run(context.get(), in.data(), 1, out.data(), 1), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(),
               "input 'indices' has -8 at element 1; it is an index there, and must be from -7 to 6");
}

TEST_F(RuntimeTest, NullsAndForeignStructuresAreRefused) {
  BuildClassifier();
  const PackageHandle package = Load();
  EXPECT_EQ(diapason_package_load(nullptr, nullptr, nullptr), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "package is null");
  diapason_package* none = package.get();
  EXPECT_EQ(diapason_package_load(nullptr, nullptr, &none), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "path is null");
  EXPECT_EQ(none, nullptr);
  diapason_port port{};
  EXPECT_EQ(diapason_package_input(package.get(), 0, &port), DIAPASON_INVALID_ARGUMENT);
  EXPECT_EQ(diapason_last_error(),
            "the struct_size of port is 0: set it to sizeof the structure, " + std::to_string(sizeof port));
  port.struct_size = sizeof port;
  EXPECT_EQ(diapason_package_input(package.get(), 2, &port), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "there is no input 2: the package has 2");
  diapason_context* context = nullptr;
  EXPECT_EQ(diapason_context_create(nullptr, nullptr, &context), DIAPASON_INVALID_ARGUMENT);
  const diapason_context_options options{sizeof options, -1};
  EXPECT_EQ(diapason_context_create(package.get(), &options, &context), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "a context cannot have -1 threads: give 1 to 4096, or 0");
  EXPECT_EQ(diapason_run(nullptr, nullptr, 0, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  const ContextHandle real = Make(package);
  EXPECT_EQ(diapason_run(real.get(), nullptr, 2, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "inputs is null");
  EXPECT_EQ(diapason_package_network(nullptr), nullptr);
  EXPECT_EQ(diapason_package_input_count(nullptr), -1);
  diapason_package_free(nullptr);
  diapason_context_free(nullptr);
}

TEST_F(RuntimeTest, AFileAndItsBytesAreLoadedAsAFolderIs) {
  ASSERT_EQ(BuildReferencePackage(Path("p.dpk"), classifier_, TestTarget(TargetKind::kCpu)), absl::OkStatus());
  const std::string bytes = ReadText(Path("p.dpk"));
  diapason_package* from_memory = nullptr;
  ASSERT_EQ(diapason_package_load_memory(bytes.data(), bytes.size(), nullptr, &from_memory), DIAPASON_OK)
      << diapason_last_error();
  PackageHandle packages[] = {Load("p.dpk"), PackageHandle(from_memory)};
  for (const PackageHandle& package : packages) {
    const ContextHandle context = Make(package);
    std::vector<Array> inputs = InputsOf(classifier_, 1), outputs = OutputsOf(classifier_);
    const std::vector<Array> want = EvaluateNetwork(classifier_, inputs).value();
    EXPECT_EQ(
        diapason_run(context.get(), BuffersOf(inputs).data(), inputs.size(), BuffersOf(outputs).data(), outputs.size()),
        DIAPASON_OK)
        << diapason_last_error();
    ExpectClose(outputs, want);
  }
  diapason_package* none = packages[0].get();
  EXPECT_EQ(diapason_package_load_memory(bytes.data(), bytes.size() / 2, nullptr, &none), DIAPASON_DATA_LOSS);
  EXPECT_STREQ(diapason_last_error(),
               "'memory' is no package: it is no zip archive, or not a whole one; name a folder or a .dpk file made by "
               "'diapason build'");
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(diapason_package_load_memory(nullptr, 1, nullptr, &none), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "bytes is null");
}

TEST_F(RuntimeTest, PackagesThatCannotBeLoadedAreNamed) {
  diapason_package* package = nullptr;
  EXPECT_EQ(diapason_package_load(Path("none").c_str(), nullptr, &package), DIAPASON_NOT_FOUND);
  EXPECT_EQ(diapason_last_error(),
            "there is no file or folder '" + Path("none") + "'; name a folder or a .dpk file made by 'diapason build'");
  BuildClassifier();
  std::string weights = ReadText(Path("p/weights.bin"));
  weights[7] = static_cast<char>(weights[7] ^ 1);
  WriteText(Path("p/weights.bin"), weights);
  EXPECT_EQ(diapason_package_load(Path("p").c_str(), nullptr, &package), DIAPASON_DATA_LOSS);
  EXPECT_EQ(diapason_last_error(),
            Path("p/weights.bin") + " is damaged: its checksum does not match; build the package again");
  std::filesystem::remove(Path("p/weights.bin"));
  EXPECT_EQ(diapason_package_load(Path("p").c_str(), nullptr, &package), DIAPASON_NOT_FOUND);
  EXPECT_EQ(package, nullptr);
}

// ---- DLPack ----

struct Borrowed {
  DLManagedTensorVersioned managed{};
  std::vector<int64_t> strides;
  explicit Borrowed(Array& array) {
    managed.version = {1, 1};
    managed.dl_tensor = {
        array.data.data(), {1, 0}, static_cast<int32_t>(array.shape.size()), {2, 32, 1}, array.shape.data(),
        nullptr,           0};
  }
};

TEST_F(RuntimeTest, DlpackTensorsGoInAndComeOut) {
  BuildRows({1, 4});
  PackageHandle package = Load();
  ContextHandle context = Make(package);
  std::vector<DLManagedTensorVersioned*> kept;
  std::vector<std::vector<Array>> wanted;
  for (int64_t batch : {4, 3}) {
    std::vector<Array> inputs = InputsOf(Rows(batch), batch);
    Borrowed x(inputs[0]);
    x.strides = {4, 1};
    x.managed.dl_tensor.strides = x.strides.data();
    DLManagedTensorVersioned *in = &x.managed, *out = nullptr;
    ASSERT_EQ(diapason_run_dlpack(context.get(), nullptr, &in, 1, &out, 1), DIAPASON_OK) << diapason_last_error();
    kept.push_back(out);
    wanted.push_back(EvaluateNetwork(Rows(batch), inputs).value());
  }
  context.reset();
  package.reset();
  for (size_t i = 0; i < kept.size(); ++i) {
    const DLTensor& tensor = kept[i]->dl_tensor;
    EXPECT_EQ(kept[i]->version.major, 1u);
    EXPECT_EQ(tensor.device.device_type, 1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 256, 0u);
    Array got(DType::kFloat32, {tensor.shape, tensor.shape + tensor.ndim});
    EXPECT_THAT(std::vector<int64_t>(tensor.strides, tensor.strides + tensor.ndim), ElementsAre(3, 1));
    std::memcpy(got.data.data(), tensor.data, got.data.size());
    ExpectClose({got}, wanted[i]);
    kept[i]->deleter(kept[i]);
  }
}

TEST_F(RuntimeTest, DlpackOutputsMayBeGiven) {
  BuildRows({2});
  const ContextHandle context = Make(Load());
  std::vector<Array> inputs = InputsOf(Rows(2), 1), outputs = OutputsOf(Rows(2));
  // Behind an offset.
  Array behind(DType::kFloat32, {3, 4});
  std::memcpy(behind.data.data() + 16, inputs[0].data.data(), inputs[0].data.size());
  Borrowed x(inputs[0]), y(outputs[0]);
  x.managed.dl_tensor.data = behind.data.data();
  x.managed.dl_tensor.byte_offset = 16;
  DLManagedTensorVersioned *in = &x.managed, *out = &y.managed;
  ASSERT_EQ(diapason_run_dlpack(context.get(), nullptr, &in, 1, &out, 1), DIAPASON_OK) << diapason_last_error();
  EXPECT_EQ(out, &y.managed);
  ExpectClose(outputs, EvaluateNetwork(Rows(2), inputs).value());
  y.managed.flags = 1;
  EXPECT_EQ(diapason_run_dlpack(context.get(), nullptr, &in, 1, &out, 1), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "output 'y' is read-only");
}

TEST_F(RuntimeTest, DlpackTensorsThatDoNotFitAreRefused) {
  BuildRows({2}, /*padding=*/false);
  const ContextHandle context = Make(Load());
  std::vector<Array> inputs = InputsOf(Rows(2), 1);
  const std::vector<int64_t> transposed = {1, 2};
  const auto refusal = [&](auto change) {
    Borrowed x(inputs[0]);
    change(x.managed);
    DLManagedTensorVersioned *in = &x.managed, *out = nullptr;
    EXPECT_EQ(diapason_run_dlpack(context.get(), nullptr, &in, 1, &out, 1), DIAPASON_INVALID_ARGUMENT);
    EXPECT_EQ(out, nullptr);
    return std::string(diapason_last_error());
  };
  EXPECT_EQ(refusal([](auto& x) { x.version.major = 2; }),
            "input 'x' is a DLPack tensor of version 2.1; give one of version 1.x");
  EXPECT_EQ(refusal([](auto& x) {
              x.dl_tensor.device = {2, 0};
            }),
            "input 'x' is on DLPack device 2:0; give tensors that are on the host");
  EXPECT_EQ(refusal([&](auto& x) { x.dl_tensor.strides = const_cast<int64_t*>(transposed.data()); }),
            "input 'x' is not dense in row-major order: give a contiguous copy");
  EXPECT_EQ(refusal([](auto& x) {
              x.dl_tensor.dtype = {4, 8, 1};
            }),
            "input 'x' has elements of DLPack type 4 with 8 bits and 1 lane, which no package has");
  EXPECT_EQ(refusal([](auto& x) {
              x.dl_tensor.dtype = {0, 32, 1};
            }),
            "input 'x' is int32 2x4; the package wants float32 batchx4");
  EXPECT_EQ(refusal([](auto& x) { x.dl_tensor.data = nullptr; }), "input 'x' has no data");
  DLManagedTensorVersioned* none = nullptr;
  EXPECT_EQ(diapason_run_dlpack(context.get(), nullptr, &none, 1, &none, 1), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(), "input 'x' is null");
  EXPECT_EQ(diapason_run_dlpack(context.get(), nullptr, &none, 1, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(),
               "1 inputs and 0 outputs were given, and the package has 1 and 1: give all of them in order");
}

// ---- Other devices ----

TEST_F(RuntimeTest, OpenClTakesMemoryOfTheHost) {
  if (const auto device = OpenDevice(TestTarget(TargetKind::kOpenCl)); !device.ok())
    GTEST_SKIP() << device.status().message();
  ASSERT_EQ(BuildReferencePackage(Path("p"), classifier_, TestTarget(TargetKind::kOpenCl)), absl::OkStatus());
  const PackageHandle package = Load();
  const ContextHandle a = Make(package), b = Make(package);
  std::thread other([&] { ExpectRight(b.get(), classifier_, 7); });
  ExpectRight(a.get(), classifier_, 8);
  other.join();
  EXPECT_EQ(diapason_run(a.get(), nullptr, 0, nullptr, 0), DIAPASON_INVALID_ARGUMENT);
  EXPECT_STREQ(diapason_last_error(),
               "input 'image' has no memory of the context's own here (OpenCL buffers have no address): give a buffer");
}

TEST_F(RuntimeTest, ACudaPackageWithoutAGpuSaysWhatIsMissing) {
  if (OpenDevice(TestTarget(TargetKind::kCuda)).ok()) GTEST_SKIP() << "this machine has a GPU";
  BuildClassifier();
  std::string manifest = ReadText(Path("p/manifest.json"));
  const std::string cpu = "\"cpu -num-cores=2\"";
  manifest.replace(manifest.find(cpu), cpu.size(), "\"cuda -arch=sm_90\"");
  WriteText(Path("p/manifest.json"), manifest);
  diapason_package* package = nullptr;
  EXPECT_EQ(diapason_package_load(Path("p").c_str(), nullptr, &package), DIAPASON_UNAVAILABLE);
  EXPECT_THAT(diapason_last_error(), HasSubstr("target 'cuda'"));
}

// On a GPU: buffers of the GPU, the default stream and one of a second context, DLPack tensors that stay there.
TEST_F(RuntimeTest, RunsOnCuda) {
  const auto device = BuildClassifierForCuda();
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const PackageHandle package = Load();
  const ContextHandle context = Make(package);
  ExpectRight(context.get(), classifier_, 1);
  std::vector<Array> inputs = InputsOf(classifier_, 2), outputs = OutputsOf(classifier_);
  const std::vector<Array> want = EvaluateNetwork(classifier_, inputs).value();
  std::vector<std::unique_ptr<DeviceBuffer>> memory;
  const auto on_gpu = [&](std::vector<Array>& arrays) {
    std::vector<diapason_buffer> buffers;
    for (Array& array : arrays) {
      memory.push_back((*device)->Allocate(array.data.size()).value());
      EXPECT_EQ((*device)->CopyIn(*memory.back(), array.data.data(), array.data.size()), absl::OkStatus());
      buffers.push_back({(*device)->AddressOf(*memory.back()), array.data.size()});
    }
    return buffers;
  };
  const std::vector<diapason_buffer> in = on_gpu(inputs), out = on_gpu(outputs);
  ASSERT_EQ(diapason_run_on_stream(context.get(), nullptr, in.data(), 2, out.data(), 2), DIAPASON_OK)
      << diapason_last_error();
  const ContextHandle second = Make(package);
  ExpectRight(second.get(), classifier_, 3);
  std::vector<DLManagedTensorVersioned> tensors(2);
  std::vector<DLManagedTensorVersioned*> given, made(2, nullptr);
  for (int i : {0, 1}) {
    tensors[i] = Borrowed(inputs[i]).managed;
    tensors[i].dl_tensor.data = in[i].data;
    tensors[i].dl_tensor.device = {2, 0};
    given.push_back(&tensors[i]);
  }
  ASSERT_EQ(diapason_run_dlpack(second.get(), nullptr, given.data(), 2, made.data(), 2), DIAPASON_OK)
      << diapason_last_error();
  int (*wait)() = nullptr;
  const std::unique_ptr<DynamicLibrary> cuda = DynamicLibrary::Open({"libcuda.so.1"});
  ASSERT_TRUE(cuda != nullptr && cuda->Find("cuCtxSynchronize", wait));
  ASSERT_EQ(wait(), 0);
  for (int i : {0, 1}) {
    EXPECT_EQ(made[i]->dl_tensor.device.device_type, 2);
    Array result = outputs[i];
    const auto from = (*device)->Wrap(made[i]->dl_tensor.data, result.data.size());
    ASSERT_EQ((*device)->CopyOut(result.data.data(), *from, result.data.size()), absl::OkStatus());
    ExpectClose({result}, {want[i]});
    ASSERT_EQ((*device)->CopyOut(outputs[i].data.data(), *memory[2 + i], outputs[i].data.size()), absl::OkStatus());
    made[i]->deleter(made[i]);
  }
  ExpectClose(outputs, want);
}

// Memory of the driver, exactly as large as it is said to be: another allocator's.
class GpuMemory {
 public:
  GpuMemory() : cuda_(DynamicLibrary::Open({"libcuda.so.1"})) {
    EXPECT_TRUE(cuda_->Find("cuMemAlloc_v2", allocate_) && cuda_->Find("cuMemFree_v2", free_) &&
                cuda_->Find("cuMemcpyHtoD_v2", to_gpu_) && cuda_->Find("cuMemcpyDtoH_v2", from_gpu_) &&
                cuda_->Find("cuCtxSynchronize", wait_));
  }
  ~GpuMemory() {
    for (const uint64_t address : addresses_) free_(address);
  }
  char* Allocate(size_t bytes) {
    uint64_t address = 0;
    EXPECT_EQ(allocate_(&address, bytes), 0);
    addresses_.push_back(address);
    return reinterpret_cast<char*>(address);
  }
  void Put(char* to, const Array& value) {
    EXPECT_EQ(to_gpu_(reinterpret_cast<uint64_t>(to), value.data.data(), value.data.size()), 0);
  }
  Array Get(const char* from, Array like) {
    EXPECT_EQ(from_gpu_(like.data.data(), reinterpret_cast<uint64_t>(from), like.data.size()), 0);
    return like;
  }
  void Wait() { ASSERT_EQ(wait_(), 0); }

 private:
  const std::unique_ptr<DynamicLibrary> cuda_;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*to_gpu_)(uint64_t, const void*, size_t) = nullptr;
  int (*from_gpu_)(void*, uint64_t, size_t) = nullptr;
  int (*wait_)() = nullptr;
  std::vector<uint64_t> addresses_;
};

// Other addresses from run to run, of two contexts at once, between runs on memory of the host and of the context.
TEST_F(RuntimeTest, RunsOnCudaUseTheMemoryThatTheyAreGiven) {
  const auto device = BuildClassifierForCuda();
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const PackageHandle package = Load();
  const ContextHandle contexts[] = {Make(package), Make(package)};
  GpuMemory gpu;
  const std::vector<Array> like = OutputsOf(classifier_);
  const auto run = [&](diapason_context* context, const std::vector<char*>& in, const std::vector<char*>& out) {
    std::vector<diapason_buffer> inputs, outputs;
    for (int i : {0, 1}) inputs.push_back({in[i], InputsOf(classifier_, 1)[i].data.size()});
    for (int i : {0, 1}) outputs.push_back({out[i], like[i].data.size()});
    ASSERT_EQ(diapason_run_on_stream(context, nullptr, inputs.data(), 2, outputs.data(), 2), DIAPASON_OK)
        << diapason_last_error();
  };
  const auto own = [](diapason_context* context, bool input, int index) {
    diapason_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    EXPECT_EQ((input ? diapason_context_input : diapason_context_output)(context, index, &tensor), DIAPASON_OK);
    return static_cast<char*>(tensor.data);
  };
  uint64_t seed = 1;
  for (int round = 0; round < 4; ++round) {
    std::vector<char*> in[2], out[2];
    std::vector<Array> inputs[2];
    for (int c : {0, 1}) {
      inputs[c] = InputsOf(classifier_, seed += 10);
      // In the third round at addresses that kernels do not take.
      const size_t offset = round == 2 ? 4 : 0;
      for (int i : {0, 1}) {
        in[c].push_back(gpu.Allocate(inputs[c][i].data.size() + offset) + offset);
        gpu.Put(in[c][i], inputs[c][i]);
        out[c].push_back(gpu.Allocate(like[i].data.size() + offset) + offset);
      }
    }
    for (int c : {0, 1}) run(contexts[c].get(), in[c], out[c]);
    gpu.Wait();
    for (int c : {0, 1})
      ExpectClose({gpu.Get(out[c][0], like[0]), gpu.Get(out[c][1], like[1])},
                  EvaluateNetwork(classifier_, inputs[c]).value());
    // An output over the input "scale" of 10 numbers, as both outputs are.
    const std::vector<Array> want = EvaluateNetwork(classifier_, inputs[0]).value();
    run(contexts[0].get(), in[0], {in[0][1], out[0][1]});
    gpu.Wait();
    ExpectClose({gpu.Get(in[0][1], like[0]), gpu.Get(out[0][1], like[1])}, want);
    ExpectRight(contexts[0].get(), classifier_, seed + 5);
    // The context's own memory, which the runs above have left alone since it was filled.
    const std::vector<Array> mine = InputsOf(classifier_, seed + 3);
    for (int i : {0, 1}) gpu.Put(own(contexts[1].get(), true, i), mine[i]);
    run(contexts[1].get(), in[1], out[1]);
    gpu.Wait();
    if (round != 2) {  // where inputs are read in place
      ASSERT_EQ(diapason_run(contexts[1].get(), nullptr, 0, nullptr, 0), DIAPASON_OK) << diapason_last_error();
      ExpectClose(
          {gpu.Get(own(contexts[1].get(), false, 0), like[0]), gpu.Get(own(contexts[1].get(), false, 1), like[1])},
          EvaluateNetwork(classifier_, mine).value());
    }
  }
}

}  // namespace
}  // namespace diapason
