#include "compiler/runtime/cuda/library_calls.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/runtime/cpu/device.h"
#include "compiler/runtime/cuda/cublas_library.h"
#include "compiler/runtime/cuda/cudnn_library.h"
#include "compiler/runtime/executable.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;

// What was called, a line a call. Pointers are numbered by the places of kMemory; handles by what made them.
std::vector<std::string>* calls = nullptr;
char kMemory[16];
int cudnn_fails_at_algorithm = -1;
size_t cudnn_workspace = 4096;

std::string Place(const void* pointer) {
  const auto* at = static_cast<const char*>(pointer);
  if (at >= kMemory && at < kMemory + sizeof kMemory) return absl::StrCat("m", at - kMemory);
  return pointer == nullptr ? "null" : "handle";
}

template <typename... Args>
int Note(const std::string& name, const Args&... args) {
  calls->push_back(absl::StrCat(name, "(", absl::StrJoin(std::make_tuple(args...), " "), ")"));
  return 0;
}

int MakeHandle(void** handle) {
  *handle = new int;
  return 0;
}
int FreeHandle(void* handle) {
  delete static_cast<int*>(handle);
  return 0;
}
double Number(const void* factor) { return *static_cast<const float*>(factor); }

CudnnApi FakeCudnn() {
  CudnnApi api;
  api.GetVersion = [] { return size_t{91500}; };
  api.GetErrorString = [](int) { return "CUDNN_STATUS_NOT_SUPPORTED"; };
  api.Create = api.CreateTensor = api.CreateFilter = api.CreateConvolution = api.CreateActivation = MakeHandle;
  api.Destroy = api.DestroyTensor = api.DestroyFilter = api.DestroyConvolution = api.DestroyActivation = FreeHandle;
  api.SetStream = [](void*, void* stream) { return Note("stream", Place(stream)); };
  api.SetTensor = [](void*, int format, int type, int n, int c, int h, int w) {
    return Note("tensor", format, type, n, c, h, w);
  };
  api.SetFilter = [](void*, int type, int format, int k, int c, int h, int w) {
    return Note("filter", type, format, k, c, h, w);
  };
  api.SetConvolution = [](void*, int ph, int pw, int u, int v, int dh, int dw, int mode, int type) {
    return Note("convolution", ph, pw, u, v, dh, dw, mode, type);
  };
  api.SetGroups = [](void*, int groups) { return Note("groups", groups); };
  api.SetMathType = [](void*, int type) { return Note("math", type); };
  api.SetActivation = [](void*, int mode, int, double) { return Note("activation", mode); };
  api.GetWorkspaceSize = [](void*, void*, void*, void*, void*, int algorithm, size_t* size) {
    *size = cudnn_workspace;
    return algorithm == cudnn_fails_at_algorithm ? 3000 : 0;
  };
  api.Forward = [](void*, const void* alpha, void*, const void* x, void*, const void* w, void*, int algorithm,
                   void* workspace, size_t bytes, const void* beta, void*, void* y) {
    return Note("forward", Number(alpha), Place(x), Place(w), algorithm, Place(workspace), bytes, Number(beta),
                Place(y));
  };
  api.BiasActivationForward = [](void*, const void* alpha, void*, const void* x, void*, const void* w, void*,
                                 int algorithm, void* workspace, size_t bytes, const void* alpha2, void*, const void* z,
                                 void*, const void* bias, void*, void*, void* y) {
    return Note("fused", Number(alpha), Place(x), Place(w), algorithm, Place(workspace), bytes, Number(alpha2),
                Place(z), Place(bias), Place(y));
  };
  return api;
}

CublasApi FakeCublas() {
  CublasApi api;
  api.GetStatusString = [](int) { return "CUBLAS_STATUS_ALLOC_FAILED"; };
  api.Create = MakeHandle;
  api.Destroy = FreeHandle;
  api.SetStream = [](void*, void* stream) { return Note("stream", Place(stream)); };
  api.SetMathMode = [](void*, int mode) { return Note("math", mode); };
  api.SetWorkspace = [](void*, void* workspace, size_t bytes) { return Note("workspace", Place(workspace), bytes); };
  api.Gemm = [](void*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int at, int lda,
                long long sa, const void* b, int bt, int ldb, long long sb, const void* beta, void* c, int ct, int ldc,
                long long sc, int count, int compute, int algorithm) {
    return Note("gemm", ta, tb, m, n, k, Number(alpha), Place(a), at, lda, sa, Place(b), bt, ldb, sb, Number(beta),
                Place(c), ct, ldc, sc, count, compute, algorithm);
  };
  return api;
}

class LibraryCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    calls = &lines_;
    cudnn_fails_at_algorithm = -1;
    cudnn_workspace = 4096;
  }
  void TearDown() override { calls = nullptr; }
  std::vector<std::string> lines_;
};

ConvolutionCall Convolution() {
  ConvolutionCall c;
  c.nhwc = true;
  c.batch = 2, c.channels = 8, c.height = 9, c.width = 7;
  c.filters = 16, c.kernel_h = 3, c.kernel_w = 1, c.groups = 2;
  c.out_h = 5, c.out_w = 9;
  c.stride_h = 2, c.stride_w = 1, c.pad_h = 1, c.pad_w = 1;
  return c;
}

TEST_F(LibraryCallsTest, ConvolutionsAreDescribedAndCalled) {
  const CudnnApi api = FakeCudnn();
  auto cudnn = CudnnCalls::Create(api, kMemory + 15).value();
  auto call = cudnn->Prepare({6, Convolution()});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->workspace_bytes(), 4096);
  ASSERT_TRUE((*call)->Enqueue({kMemory, kMemory + 1, kMemory + 2}, kMemory + 9).ok());
  // NHWC is 1, float 0, cross-correlation 1; math 3 is plain fused multiply-adds, without TF32.
  EXPECT_THAT(lines_,
              ElementsAre("stream(m15)", "tensor(1 0 2 8 9 7)", "tensor(1 0 2 16 5 9)", "filter(0 1 16 4 3 1)",
                          "convolution(1 1 2 1 1 1 1 0)", "groups(2)", "math(3)", "forward(1 m0 m1 6 m9 4096 0 m2)"));
}

TEST_F(LibraryCallsTest, FusedConvolutionsTakeBiasResidualAndRelu) {
  const CudnnApi api = FakeCudnn();
  auto cudnn = CudnnCalls::Create(api, nullptr).value();
  ConvolutionCall convolution = Convolution();
  convolution.dtype = DType::kFloat16;
  convolution.nhwc = false;
  convolution.bias = convolution.residual = convolution.relu = true;
  auto call = cudnn->Prepare({1, convolution}).value();
  ASSERT_TRUE(call->Enqueue({kMemory, kMemory + 1, kMemory + 2, kMemory + 3, kMemory + 4}, kMemory + 9).ok());
  // NCHW is 0, half 2, sums in float (0); math 1 is tensor cores; activation 1 is relu.
  EXPECT_THAT(lines_, ElementsAre("stream(null)", "tensor(0 2 2 8 9 7)", "tensor(0 2 2 16 5 9)", "filter(2 0 16 4 3 1)",
                                  "convolution(1 1 2 1 1 1 1 0)", "groups(2)", "math(1)", "tensor(0 2 1 16 1 1)",
                                  "activation(1)", "fused(1 m0 m1 1 m9 4096 1 m3 m2 m4)"));
  lines_.clear();
  convolution.residual = convolution.relu = false;
  call = cudnn->Prepare({1, convolution}).value();
  ASSERT_TRUE(call->Enqueue({kMemory, kMemory + 1, kMemory + 2, kMemory + 4}, kMemory + 9).ok());
  EXPECT_EQ(lines_[lines_.size() - 2], "activation(5)");  // identity
  EXPECT_EQ(lines_.back(), "fused(1 m0 m1 1 m9 4096 0 m4 m2 m4)");
}

TEST_F(LibraryCallsTest, WhatCudnnCannotDoIsSaid) {
  const CudnnApi api = FakeCudnn();
  auto cudnn = CudnnCalls::Create(api, nullptr).value();
  cudnn_fails_at_algorithm = 6;
  EXPECT_EQ(cudnn->Prepare({6, Convolution()}).status().ToString(),
            "FAILED_PRECONDITION: cuDNN, asking for the workspace of a convolution: CUDNN_STATUS_NOT_SUPPORTED");
  cudnn_workspace = size_t{3} << 30;
  EXPECT_EQ(cudnn->Prepare({4, Convolution()}).status().ToString(),
            "FAILED_PRECONDITION: cuDNN: the algorithm fft wants 3221225472 bytes of workspace, more than the "
            "1073741824 that "
            "a call may have");
  EXPECT_EQ(cudnn->Prepare({0, GemmCall{}}).status().ToString(),
            "INVALID_ARGUMENT: cuDNN is not asked for matrix products");
}

TEST_F(LibraryCallsTest, ProductsAreTurnedAroundForCublas) {
  const CublasApi api = FakeCublas();
  auto cublas = CublasCalls::Create(api, kMemory + 15).value();
  GemmCall g;
  g.in = DType::kFloat16;
  g.batch = 3, g.m = 4, g.n = 5, g.k = 6;
  g.transpose_b = true;
  g.lda = 6, g.ldb = 8, g.ldc = 5, g.stride_a = 24, g.stride_c = 20;
  auto call = cublas->Prepare({0, g});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->workspace_bytes(), 32 << 20);
  ASSERT_TRUE((*call)->Enqueue({kMemory, kMemory + 1, kMemory + 2}, kMemory + 9).ok());
  // b comes first, transposed (1); half is 2, float 0; computed in float (68) by an algorithm of cuBLAS' own choice
  // (-1).
  EXPECT_THAT(lines_, ElementsAre("stream(m15)", "math(0)", "workspace(m9 33554432)",
                                  "gemm(1 0 5 4 6 1 m1 2 8 0 m0 2 6 24 0 m2 0 5 20 3 68 -1)"));
  EXPECT_EQ(cublas->Prepare({2, g}).status().ToString(), "FAILED_PRECONDITION: cuBLAS has no algorithm 2 to choose");
}

TEST_F(LibraryCallsTest, ResultsAreStatuses) {
  const CudnnApi cudnn = FakeCudnn();
  EXPECT_TRUE(cudnn.ToStatus(0, "x").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(cudnn.ToStatus(1003, "x")));
  EXPECT_TRUE(absl::IsInternal(cudnn.ToStatus(5000, "x")));
  const CublasApi cublas = FakeCublas();
  EXPECT_TRUE(cublas.ToStatus(0, "x").ok());
  EXPECT_EQ(cublas.ToStatus(3, "calling").ToString(),
            "RESOURCE_EXHAUSTED: cuBLAS, calling: CUBLAS_STATUS_ALLOC_FAILED");
  EXPECT_TRUE(absl::IsFailedPrecondition(cublas.ToStatus(15, "x")));
}

// Where real libraries are, their functions are all there; nothing is called, so no GPU is needed.
TEST(CheckLibrary, FindsEveryFunctionOrSaysWhatIsMissing) {
  const std::pair<Library, const char*> cases[] = {{Library::kCudnn,
                                                    "cuDNN (libcudnn.so.9) is not on this machine; install cuDNN 9 "
                                                    "(`pip install nvidia-cudnn-cu13`), or add its folder to "
                                                    "LD_LIBRARY_PATH"},
                                                   {Library::kCublas,
                                                    "cuBLAS (libcublas.so.13 or libcublas.so.12) is not on this "
                                                    "machine; install the CUDA toolkit's cuBLAS (`pip install "
                                                    "nvidia-cublas`), or add its folder to LD_LIBRARY_PATH"}};
  for (const auto& [library, missing] : cases) {
    const absl::Status here = CheckLibrary(library);
    EXPECT_TRUE(here.ok() || here.ToString() == absl::StrCat("UNAVAILABLE: ", missing)) << here;
  }
}

std::string home, environment_of_packages;
const char* Variable(const char* name) {
  if (std::string(name) == "CUDA_HOME") return home.c_str();
  if (std::string(name) == "VIRTUAL_ENV") return environment_of_packages.c_str();
  return nullptr;
}

TEST(LibraryPaths, LooksInKnownFolders) {
  std::string root = ::testing::TempDir() + "/diapason_paths_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  home = root + "/cuda";
  environment_of_packages = root + "/venv";
  const std::string in_home = home + "/lib64/libfoo.so.9";
  const std::string in_package = environment_of_packages + "/lib/python3.11/site-packages/nvidia/foo/lib/libfoo.so.9";
  for (const std::string& path : {in_home, in_package}) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << "x";
  }
  EXPECT_THAT(LibraryPaths("libfoo.so.9", Variable), ElementsAre("libfoo.so.9", in_home, in_package));
  EXPECT_THAT(LibraryPaths("libbar.so", Variable), ElementsAre("libbar.so"));
  std::filesystem::remove_all(root);
}

TEST(LibrariesOf, AreThoseOfTheTarget) {
  EXPECT_THAT(LibrariesOf(Target::Parse("cuda -libs=cublas,cudnn").value()),
              ElementsAre(Library::kCudnn, Library::kCublas));
  EXPECT_THAT(LibrariesOf(Target::Parse("cuda -libs=cublas").value()), ElementsAre(Library::kCublas));
  EXPECT_TRUE(LibrariesOf(Target::Parse("cpu").value()).empty());
}

// A program of one call, with buffers of the sizes given.
Program OneCall(std::vector<int64_t> elements) {
  Program program;
  GemmCall g;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 4;
  Kernel kernel;
  kernel.name = "cublas_2";
  kernel.library = std::make_shared<const LibraryCall>(LibraryCall{0, g});
  for (size_t i = 0; i < elements.size(); ++i) {
    program.buffers.push_back({.name = absl::StrCat("b", i), .elements = elements[i], .role = BufferRole::kWorkspace});
    kernel.args.push_back(static_cast<int>(i));
  }
  program.kernels.push_back(kernel);
  return program;
}

class NoModule : public Module {};

TEST(LibraryKernels, AreCheckedAgainstTheirBuffersAndRefusedWithoutLibraries) {
  Target target;
  target.num_cores = 1;
  auto device = OpenCpuDevice(target).value();
  const auto module = std::make_shared<const NoModule>();
  const std::string text =
      "INVALID_ARGUMENT: the buffers of 'cublas_2' do not fit its call: cublas product float32 4x4 by 4x4 to float32, "
      "leading "
      "dimensions 4 4 4, algorithm default";
  EXPECT_EQ(Executable::Create(*device, OneCall({16, 15, 16}), module).status().ToString(), text);
  EXPECT_EQ(Executable::Create(*device, OneCall({16, 16}), module).status().ToString(), text);
  auto executable = Executable::Create(*device, OneCall({16, 16, 16}), module);
  ASSERT_TRUE(executable.ok()) << executable.status();
  ASSERT_TRUE((*executable)->AllocateRest().ok());
  EXPECT_EQ((*executable)->MakePlan().status().ToString(),
            "INVALID_ARGUMENT: a cpu device makes no calls of cuBLAS; build for target 'cuda'");
}

}  // namespace
}  // namespace diapason
