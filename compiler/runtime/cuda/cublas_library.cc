#include "compiler/runtime/cuda/cublas_library.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/cuda/library_open.h"

namespace diapason {
namespace {

// Values of the enums of cublas_api.h and library_types.h.
enum CublasStatus {
  kCublasSuccess = 0,
  kCublasAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kCublasNotSupported = 15
};
enum Operation { kPlain = 0, kTransposed = 1 };
enum CublasDataType { kCublasFloat = 0, kCublasHalf = 2 };
enum MathMode { kDefaultMath = 0 };
enum ComputeType { kCompute32F = 68 };  // float32 throughout: TF32 has types of its own
enum Algorithm { kOwnChoice = -1 };

// What NVIDIA recommends for Hopper; less makes it leave out split reductions.
constexpr int64_t kWorkspace = 32 << 20;

struct OpenedCublas {
  CublasApi api;
  OpenedLibrary library;
};

class Gemm : public PreparedCall {
 public:
  Gemm(const CublasApi& api, void* handle, const GemmCall& call) : api_(api), handle_(handle), call_(call) {}
  int64_t workspace_bytes() const override { return kWorkspace; }

  absl::Status Enqueue(absl::Span<void* const> operands, void* workspace) override {
    RETURN_IF_ERROR(api_.ToStatus(api_.SetWorkspace(handle_, workspace, kWorkspace), "taking a workspace"));
    const GemmCall& g = call_;
    const float one = 1, zero = 0;
    const auto narrow = [](int64_t value) { return static_cast<int>(value); };
    const int in = g.in == DType::kFloat16 ? kCublasHalf : kCublasFloat;
    // cuBLAS reads memory by columns, so it sees every matrix of ours transposed, and is asked for c' = b' * a'.
    return api_.ToStatus(api_.Gemm(handle_, g.transpose_b ? kTransposed : kPlain, g.transpose_a ? kTransposed : kPlain,
                                   narrow(g.n), narrow(g.m), narrow(g.k), &one, operands[1], in, narrow(g.ldb),
                                   g.stride_b, operands[0], in, narrow(g.lda), g.stride_a, &zero, operands[2],
                                   kCublasFloat, narrow(g.ldc), g.stride_c, narrow(g.batch), kCompute32F, kOwnChoice),
                         "calling cublasGemmStridedBatchedEx");
  }

 private:
  const CublasApi& api_;
  void* const handle_;
  const GemmCall call_;
};

}  // namespace

absl::StatusOr<const CublasApi*> CublasApi::Get() {
  static const OpenedCublas* const opened = [] {
    auto* made = new OpenedCublas;
    made->library = OpenLibraryFile(Library::kCublas);
    if (made->library.file == nullptr) return made;
    CublasApi& api = made->api;
#define DIAPASON_FIND(result, member, symbol, ...) \
  if (!made->library.file->Find(symbol, api.member)) made->library.Lacks(symbol);
    DIAPASON_CUBLAS_FUNCTIONS(DIAPASON_FIND)
#undef DIAPASON_FIND
    return made;
  }();
  if (!opened->library.problem.empty()) return absl::UnavailableError(opened->library.problem);
  return &opened->api;
}

absl::Status CublasApi::ToStatus(int result, const std::string& doing) const {
  if (result == kCublasSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("cuBLAS, ", doing, ": ", GetStatusString(result));
  if (result == kCublasAllocFailed) return absl::ResourceExhaustedError(text);
  if (result == kInvalidValue || result == kArchMismatch || result == kCublasNotSupported)
    return absl::FailedPreconditionError(text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<CublasCalls>> CublasCalls::Create(const CublasApi& api, void* stream) {
  std::unique_ptr<CublasCalls> calls(new CublasCalls(api));
  RETURN_IF_ERROR(api.ToStatus(api.Create(&calls->handle_), "starting"));
  RETURN_IF_ERROR(api.ToStatus(api.SetStream(calls->handle_, stream), "choosing a stream"));
  RETURN_IF_ERROR(api.ToStatus(api.SetMathMode(calls->handle_, kDefaultMath), "choosing the arithmetic"));
  return calls;
}

CublasCalls::~CublasCalls() {
  if (handle_ != nullptr) api_.Destroy(handle_);
}

absl::StatusOr<std::shared_ptr<PreparedCall>> CublasCalls::Prepare(const LibraryCall& call) {
  RETURN_IF_ERROR(call.Check());
  const auto* gemm = std::get_if<GemmCall>(&call.what);
  if (gemm == nullptr) return absl::InvalidArgumentError("cuBLAS is not asked for convolutions");
  if (call.algorithm != 0)
    return absl::FailedPreconditionError(absl::StrCat("cuBLAS has no algorithm ", call.algorithm, " to choose"));
  return std::make_shared<Gemm>(api_, handle_, *gemm);
}

}  // namespace diapason
