#include "compiler/schedule/library.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/library_gemm.h"
#include "compiler/schedule/library_parts.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

absl::Status NoConvolution(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no cuDNN call: ", why));
}

// Where the dimensions of an image and of weights stand.
struct Layout {
  bool nhwc;
  int n, c, h, w;                   // of the image
  int out, in, kernel_h, kernel_w;  // of the weights
};
constexpr Layout kNchw{false, 0, 1, 2, 3, 0, 1, 2, 3};
constexpr Layout kNhwc{true, 0, 3, 1, 2, 3, 2, 0, 1};

// How a window moves along one dimension of the image.
struct Slide {
  int64_t stride = 1, dilation = 1;
};

class ConvolutionMatcher {
 public:
  ConvolutionMatcher(LibraryParts parts, const Layout& layout) : parts_(std::move(parts)), layout_(layout) {}

  absl::StatusOr<LibraryMatch> Run(bool fused) {
    const Stage& anchor = parts_.stage(parts_.anchor());
    if (anchor.axes.size() != 4) return NoConvolution("the result has no 4 dimensions");
    if (parts_.a()->args.size() != 4 || parts_.b()->args.size() != 4)
      return NoConvolution("an operand has no 4 dimensions");
    if (parts_.a()->dtype != parts_.b()->dtype ||
        (parts_.a()->dtype != DType::kFloat32 && parts_.a()->dtype != DType::kFloat16))
      return NoConvolution("the operands are not both in float32 or float16");
    call_.dtype = parts_.a()->dtype;
    call_.nhwc = layout_.nhwc;
    RETURN_IF_ERROR(ReadWeights());
    RETURN_IF_ERROR(ReadImage());
    match_.anchor = match_.last = parts_.anchor();
    match_.operands = {TakePadding(), parts_.b()->buffer};
    RETURN_IF_ERROR(CheckWindow());
    match_.repack_weights = layout_.nhwc;
    if (fused && !TakeEpilogue()) return NoConvolution("nothing that follows can be fused");
    TakeCast();
    match_.narrow = parts_.stage(match_.last).dtype != call_.dtype;
    if (match_.narrow && parts_.is_output(match_.last)) return NoConvolution("the result is wanted in another type");
    match_.call.what = call_;
    RETURN_IF_ERROR(match_.call.Check());
    return match_;
  }

 private:
  int64_t OutExtent(int d) const { return parts_.stage(parts_.anchor()).axes[d].extent; }
  int64_t WeightExtent(int d) const { return parts_.stage(parts_.b()->buffer).axes[d].extent; }

  // weights[ky, kx, channel, filter] in the layout's order, each a loop of its own.
  absl::Status ReadWeights() {
    const Stage& anchor = parts_.stage(parts_.anchor());
    size_t used = 0;
    const auto reduce_axis = [&](int d, const Axis** axis) {
      *axis = nullptr;
      for (const Axis& r : anchor.reduce_axes)
        if (parts_.b()->args[d] == r.var) *axis = &r;
      used += *axis != nullptr;
      if (*axis != nullptr ? (*axis)->extent == WeightExtent(d) : WeightExtent(d) == 1 && IsInt(parts_.b()->args[d], 0))
        return absl::OkStatus();
      return NoConvolution("the weights are not read whole");
    };
    RETURN_IF_ERROR(reduce_axis(layout_.kernel_h, &ky_));
    RETURN_IF_ERROR(reduce_axis(layout_.kernel_w, &kx_));
    RETURN_IF_ERROR(reduce_axis(layout_.in, &channel_));
    if (used != anchor.reduce_axes.size())
      return NoConvolution("the reduction has other axes than window and channels");
    const Axis& filter = anchor.axes[layout_.c];
    if (!parts_.IsAxis(parts_.b()->args[layout_.out], filter) || WeightExtent(layout_.out) != filter.extent)
      return NoConvolution("the weights are not indexed by the channels of the result");
    call_.filters = filter.extent;
    call_.kernel_h = WeightExtent(layout_.kernel_h);
    call_.kernel_w = WeightExtent(layout_.kernel_w);
    return absl::OkStatus();
  }

  absl::Status ReadImage() {
    const Stage& anchor = parts_.stage(parts_.anchor());
    const std::vector<Expr>& index = parts_.a()->args;
    if (!parts_.IsAxis(index[layout_.n], anchor.axes[layout_.n])) return NoConvolution("the batch is moved");
    RETURN_IF_ERROR(ReadSlide(index[layout_.h], anchor.axes[layout_.h], ky_, &down_));
    RETURN_IF_ERROR(ReadSlide(index[layout_.w], anchor.axes[layout_.w], kx_, &across_));
    RETURN_IF_ERROR(ReadChannel(index[layout_.c], anchor.axes[layout_.c]));
    const Stage& image = parts_.stage(parts_.a()->buffer);
    call_.batch = OutExtent(layout_.n);
    if (image.axes[layout_.n].extent != call_.batch) return NoConvolution("the batch is cut");
    call_.channels = image.axes[layout_.c].extent;
    if (call_.channels != call_.groups * WeightExtent(layout_.in)) return NoConvolution("the channels are cut");
    call_.height = image.axes[layout_.h].extent;
    call_.width = image.axes[layout_.w].extent;
    call_.out_h = OutExtent(layout_.h);
    call_.out_w = OutExtent(layout_.w);
    return absl::OkStatus();
  }

  // stride * axis + dilation * window.
  absl::Status ReadSlide(const Expr& index, const Axis& axis, const Axis* window, Slide* slide) const {
    const Affine affine = ToAffine(index);
    if (affine.constant != 0) return NoConvolution("the window starts outside the image");
    for (const auto& [term, coefficient] : affine.terms) {
      if (coefficient < 1) return NoConvolution("the window runs backwards");
      if (term == axis.var)
        slide->stride = coefficient;
      else if (window != nullptr && term == window->var)
        slide->dilation = coefficient;
      else
        return NoConvolution("the window moves in another way than along its dimension");
    }
    if (axis.extent > 1 && affine.CoefficientOf(axis.var.get()) == 0) return NoConvolution("the window stands still");
    if (window != nullptr && window->extent > 1 && affine.CoefficientOf(window->var.get()) == 0)
      return NoConvolution("the window has no extent");
    return absl::OkStatus();
  }

  // channel; or, for groups, (filter / filters of a group) * channels of a group + channel.
  absl::Status ReadChannel(const Expr& index, const Axis& filter) {
    const int64_t in_group = WeightExtent(layout_.in);
    const Affine affine = ToAffine(index);
    bool has_channel = in_group == 1;
    if (affine.constant != 0) return NoConvolution("the channels are moved");
    for (const auto& [term, coefficient] : affine.terms) {
      if (channel_ != nullptr && term == channel_->var && coefficient == 1) {
        has_channel = true;
        continue;
      }
      int64_t filters_of_group = 0;
      if (term == filter.var) filters_of_group = 1;
      if (term->kind == ExprKind::kFloorDiv && term->args[0] == filter.var) filters_of_group = IntValue(term->args[1]);
      if (filters_of_group < 1 || coefficient != in_group || filter.extent % filters_of_group != 0)
        return NoConvolution("the channels are no groups");
      call_.groups = filter.extent / filters_of_group;
    }
    return has_channel ? absl::OkStatus() : NoConvolution("the channels are not summed");
  }

  // The image that the call reads: what is padded, when the padding can be the call's own.
  int TakePadding() {
    const int id = parts_.a()->buffer;
    const std::optional<LibraryParts::Padding> padding = parts_.PaddingOf(id);
    const bool own = padding && parts_.SoleConsumer(id) == parts_.anchor() && !parts_.is_output(id) &&
                     padding->before[layout_.n] == 0 && padding->before[layout_.c] == 0 &&
                     parts_.stage(padding->source).axes[layout_.n].extent == call_.batch &&
                     parts_.stage(padding->source).axes[layout_.c].extent == call_.channels;
    if (!own) return id;
    ConvolutionCall padded = call_;
    padded.pad_h = padding->before[layout_.h];
    padded.pad_w = padding->before[layout_.w];
    padded.height = parts_.stage(padding->source).axes[layout_.h].extent;
    padded.width = parts_.stage(padding->source).axes[layout_.w].extent;
    Settle(&padded);
    if (!LibraryCall{0, padded}.Check().ok()) return id;  // not the same on both sides
    call_ = padded;
    match_.covered.push_back(id);
    return padding->source;
  }

  // Strides along a dimension of one output, which the index does not tell: any that make no more of them.
  void Settle(ConvolutionCall* call) const {
    call->stride_h = down_.stride, call->stride_w = across_.stride;
    call->dilation_h = down_.dilation, call->dilation_w = across_.dilation;
    if (call->out_h == 1) call->stride_h = std::max(call->stride_h, call->height + 2 * call->pad_h);
    if (call->out_w == 1) call->stride_w = std::max(call->stride_w, call->width + 2 * call->pad_w);
  }

  absl::Status CheckWindow() {
    if (match_.covered.empty()) Settle(&call_);
    return LibraryCall{0, call_}.Check();
  }

  // Moves `last` over bias, residual and relu. False when there is no bias to begin with.
  bool TakeEpilogue() {
    int bias = -1, residual = -1, last = match_.last;
    std::vector<int> covered = match_.covered;
    for (int next = parts_.SoleConsumer(last); next >= 0; next = parts_.SoleConsumer(last)) {
      if (parts_.IsRelu(next, last)) {
        call_.relu = true;
      } else if (const int added = parts_.AddedTo(next, last); added < 0) {
        break;
      } else if (bias < 0 && parts_.AddsAlong(next, added, layout_.c) && parts_.stage(added).dtype == call_.dtype) {
        bias = added;
      } else if (residual < 0 && parts_.AddsPointwise(next, added) && parts_.stage(added).dtype == call_.dtype) {
        residual = added;
      } else {
        break;
      }
      covered.push_back(last);
      last = next;
      if (call_.relu) break;
    }
    if (bias < 0) {
      call_.relu = false;
      return false;
    }
    call_.bias = true;
    call_.residual = residual >= 0;
    match_.operands.push_back(bias);
    if (residual >= 0) match_.operands.push_back(residual);
    match_.covered = std::move(covered);
    match_.last = last;
    return true;
  }

  // A cast to the type in which the call writes is free.
  void TakeCast() {
    const int next = parts_.SoleConsumer(match_.last);
    if (next < 0 || parts_.stage(next).dtype != call_.dtype || !parts_.IsCast(next, match_.last)) return;
    match_.covered.push_back(match_.last);
    match_.last = next;
  }

  const LibraryParts parts_;
  const Layout& layout_;
  const Axis *ky_ = nullptr, *kx_ = nullptr,
             *channel_ = nullptr;  // of the anchor's reduction; null: extent 1, left out
  Slide down_, across_;
  ConvolutionCall call_;
  LibraryMatch match_;
};

absl::StatusOr<LibraryMatch> MatchConvolution(const LibraryParts& parts, bool fused) {
  absl::StatusOr<LibraryMatch> nhwc = ConvolutionMatcher(parts, kNhwc).Run(fused);
  if (nhwc.ok()) return nhwc;
  absl::StatusOr<LibraryMatch> nchw = ConvolutionMatcher(parts, kNchw).Run(fused);
  return nchw.ok() ? nchw : nhwc;
}

}  // namespace

absl::StatusOr<LibraryMatch> MatchLibrary(absl::Span<const Stage* const> stages, const std::vector<int>& outputs,
                                          Library library, bool fused) {
  ASSIGN_OR_RETURN(LibraryParts parts, LibraryParts::Create(stages, outputs));
  if (library == Library::kCublas) {
    if (fused) return absl::InvalidArgumentError("no cuBLAS call: it fuses nothing");
    return MatchGemm(parts);
  }
  // The operand that the result's channels index alone is the weights; which of the two it is, the roles must tell.
  absl::StatusOr<LibraryMatch> match = MatchConvolution(parts, fused);
  if (match.ok()) return match;
  absl::StatusOr<LibraryMatch> swapped = MatchConvolution(parts.Swapped(), fused);
  return swapped.ok() ? swapped : match;
}

absl::StatusOr<LibraryMatch> MatchLibrary(const ComputeDag& dag, Library library, bool fused) {
  std::vector<const Stage*> stages;
  for (const Stage& stage : dag.stages()) stages.push_back(&stage);
  return MatchLibrary(stages, dag.outputs(), library, fused);
}

std::vector<int> AlgorithmsOf(const LibraryCall& call) {
  const auto* c = std::get_if<ConvolutionCall>(&call.what);
  if (c == nullptr) return {0};
  // Numbers of cudnnConvolutionFwdAlgo_t.
  enum {
    kImplicitGemm = 0,
    kImplicitPrecompGemm = 1,
    kGemm = 2,
    kFft = 4,
    kFftTiling = 5,
    kWinograd = 6,
    kNonfused = 7
  };
  std::vector<int> algorithms = {kImplicitPrecompGemm, kImplicitGemm};
  const bool unit = c->stride_h == 1 && c->stride_w == 1 && c->dilation_h == 1 && c->dilation_w == 1;
  const bool three = c->kernel_h == 3 && c->kernel_w == 3, five = c->kernel_h == 5 && c->kernel_w == 5;
  if (unit && three) algorithms.push_back(kWinograd);
  if (unit && (three || five) && c->groups == 1) algorithms.push_back(kNonfused);
  if (c->nhwc || c->groups > 1) return algorithms;
  if (c->dilation_h == 1 && c->dilation_w == 1) algorithms.push_back(kGemm);
  if (!unit || (c->kernel_h == 1 && c->kernel_w == 1)) return algorithms;
  if (c->height + 2 * c->pad_h <= 256 && c->width + 2 * c->pad_w <= 256) algorithms.push_back(kFft);
  if (c->kernel_h <= 32 && c->kernel_w <= 32) algorithms.push_back(kFftTiling);
  return algorithms;
}

}  // namespace diapason
