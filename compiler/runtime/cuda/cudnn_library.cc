#include "compiler/runtime/cuda/cudnn_library.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/cuda/library_open.h"

namespace diapason {
namespace {

// Values of cudnn.h's enums.
enum CudnnStatus { kSuccess = 0, kAllocFailed = 1003, kBadParam = 2000, kNotSupported = 3000, kInternalError = 4000 };
enum CudnnDataType { kFloat = 0, kHalf = 2 };
enum TensorFormat { kNchw = 0, kNhwc = 1 };
enum ConvolutionMode { kCrossCorrelation = 1 };
enum MathType { kTensorOpMath = 1, kFmaMath = 3 };
enum ActivationMode { kRelu = 1, kIdentity = 5 };
enum NanPropagation { kNotPropagateNan = 0 };

// More workspace than this is not worth what it displaces: FFT asks for gigabytes at times.
constexpr size_t kMaxWorkspace = size_t{1} << 30;

struct OpenedCudnn {
  CudnnApi api;
  OpenedLibrary library;
};

class Convolution : public PreparedCall {
 public:
  Convolution(const CudnnApi& api, void* handle, const ConvolutionCall& call, int64_t algorithm)
      : api_(api), handle_(handle), call_(call), algorithm_(static_cast<int>(algorithm)) {}
  ~Convolution() override {
    for (void* tensor : {x_, y_, bias_})
      if (tensor != nullptr) api_.DestroyTensor(tensor);
    if (filter_ != nullptr) api_.DestroyFilter(filter_);
    if (convolution_ != nullptr) api_.DestroyConvolution(convolution_);
    if (activation_ != nullptr) api_.DestroyActivation(activation_);
  }

  absl::Status SetUp();
  int64_t workspace_bytes() const override { return static_cast<int64_t>(workspace_); }
  absl::Status Enqueue(absl::Span<void* const> operands, void* workspace) override;

 private:
  absl::Status Check(int result, const char* doing) const { return api_.ToStatus(result, doing); }
  int data_type() const { return call_.dtype == DType::kFloat16 ? kHalf : kFloat; }
  int format() const { return call_.nhwc ? kNhwc : kNchw; }
  absl::Status MakeTensor(void** tensor, int64_t n, int64_t c, int64_t h, int64_t w) const;
  absl::Status MakeConvolution();
  absl::Status MakeEpilogue();

  const CudnnApi& api_;
  void* const handle_;
  const ConvolutionCall call_;
  const int algorithm_;
  void *x_ = nullptr, *y_ = nullptr, *bias_ = nullptr, *filter_ = nullptr, *convolution_ = nullptr,
       *activation_ = nullptr;
  size_t workspace_ = 0;
};

absl::Status Convolution::MakeTensor(void** tensor, int64_t n, int64_t c, int64_t h, int64_t w) const {
  RETURN_IF_ERROR(Check(api_.CreateTensor(tensor), "describing a tensor"));
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return Check(api_.SetTensor(*tensor, format(), data_type(), narrow(n), narrow(c), narrow(h), narrow(w)),
               "describing a tensor");
}

absl::Status Convolution::MakeConvolution() {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  RETURN_IF_ERROR(Check(api_.CreateConvolution(&convolution_), "describing a convolution"));
  // Sums in float32 for float16 too.
  RETURN_IF_ERROR(Check(api_.SetConvolution(convolution_, narrow(call_.pad_h), narrow(call_.pad_w),
                                            narrow(call_.stride_h), narrow(call_.stride_w), narrow(call_.dilation_h),
                                            narrow(call_.dilation_w), kCrossCorrelation, kFloat),
                        "describing a convolution"));
  RETURN_IF_ERROR(Check(api_.SetGroups(convolution_, narrow(call_.groups)), "setting the groups of a convolution"));
  // The default would round float32 operands to TF32 on tensor cores.
  const int math = call_.dtype == DType::kFloat16 ? kTensorOpMath : kFmaMath;
  return Check(api_.SetMathType(convolution_, math), "setting the arithmetic of a convolution");
}

absl::Status Convolution::MakeEpilogue() {
  if (!call_.bias) return absl::OkStatus();
  RETURN_IF_ERROR(MakeTensor(&bias_, 1, call_.filters, 1, 1));
  RETURN_IF_ERROR(Check(api_.CreateActivation(&activation_), "describing an activation"));
  return Check(api_.SetActivation(activation_, call_.relu ? kRelu : kIdentity, kNotPropagateNan,
                                  std::numeric_limits<double>::max()),
               "describing an activation");
}

absl::Status Convolution::SetUp() {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  RETURN_IF_ERROR(MakeTensor(&x_, call_.batch, call_.channels, call_.height, call_.width));
  RETURN_IF_ERROR(MakeTensor(&y_, call_.batch, call_.filters, call_.out_h, call_.out_w));
  RETURN_IF_ERROR(Check(api_.CreateFilter(&filter_), "describing filters"));
  RETURN_IF_ERROR(
      Check(api_.SetFilter(filter_, data_type(), format(), narrow(call_.filters), narrow(call_.channels / call_.groups),
                           narrow(call_.kernel_h), narrow(call_.kernel_w)),
            "describing filters"));
  RETURN_IF_ERROR(MakeConvolution());
  RETURN_IF_ERROR(MakeEpilogue());
  RETURN_IF_ERROR(Check(api_.GetWorkspaceSize(handle_, x_, filter_, convolution_, y_, algorithm_, &workspace_),
                        "asking for the workspace of a convolution"));
  if (workspace_ > kMaxWorkspace)
    return absl::FailedPreconditionError(
        absl::StrCat("cuDNN: the algorithm ", AlgorithmName(Library::kCudnn, algorithm_), " wants ", workspace_,
                     " bytes of workspace, more than the ", kMaxWorkspace, " that a call may have"));
  return absl::OkStatus();
}

absl::Status Convolution::Enqueue(absl::Span<void* const> operands, void* workspace) {
  const float one = 1, zero = 0;
  void* const x = operands[0];
  void* const w = operands[1];
  void* const y = operands.back();
  if (!call_.bias) {
    return Check(
        api_.Forward(handle_, &one, x_, x, filter_, w, convolution_, algorithm_, workspace, workspace_, &zero, y_, y),
        "calling cudnnConvolutionForward");
  }
  // A residual is always named; times 0 it is not read.
  void* const residual = call_.residual ? operands[3] : y;
  const float* const factor = call_.residual ? &one : &zero;
  return Check(api_.BiasActivationForward(handle_, &one, x_, x, filter_, w, convolution_, algorithm_, workspace,
                                          workspace_, factor, y_, residual, bias_, operands[2], activation_, y_, y),
               "calling cudnnConvolutionBiasActivationForward");
}

}  // namespace

absl::StatusOr<const CudnnApi*> CudnnApi::Get() {
  static const OpenedCudnn* const opened = [] {
    auto* made = new OpenedCudnn;
    made->library = OpenLibraryFile(Library::kCudnn);
    if (made->library.file == nullptr) return made;
    CudnnApi& api = made->api;
#define DIAPASON_FIND(result, member, symbol, ...) \
  if (!made->library.file->Find(symbol, api.member)) made->library.Lacks(symbol);
    DIAPASON_CUDNN_FUNCTIONS(DIAPASON_FIND)
#undef DIAPASON_FIND
    return made;
  }();
  if (!opened->library.problem.empty()) return absl::UnavailableError(opened->library.problem);
  return &opened->api;
}

absl::Status CudnnApi::ToStatus(int result, const std::string& doing) const {
  if (result == kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("cuDNN, ", doing, ": ", GetErrorString(result));
  if (result == kAllocFailed) return absl::ResourceExhaustedError(text);
  if (result >= kBadParam && result < kInternalError) return absl::FailedPreconditionError(text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<CudnnCalls>> CudnnCalls::Create(const CudnnApi& api, void* stream) {
  std::unique_ptr<CudnnCalls> calls(new CudnnCalls(api));
  RETURN_IF_ERROR(api.ToStatus(api.Create(&calls->handle_), "starting"));
  RETURN_IF_ERROR(api.ToStatus(api.SetStream(calls->handle_, stream), "choosing a stream"));
  return calls;
}

CudnnCalls::~CudnnCalls() {
  if (handle_ != nullptr) api_.Destroy(handle_);
}

absl::StatusOr<std::shared_ptr<PreparedCall>> CudnnCalls::Prepare(const LibraryCall& call) {
  RETURN_IF_ERROR(call.Check());
  const auto* convolution = std::get_if<ConvolutionCall>(&call.what);
  if (convolution == nullptr) return absl::InvalidArgumentError("cuDNN is not asked for matrix products");
  auto prepared = std::make_shared<Convolution>(api_, handle_, *convolution, call.algorithm);
  RETURN_IF_ERROR(prepared->SetUp());
  return prepared;
}

}  // namespace diapason
