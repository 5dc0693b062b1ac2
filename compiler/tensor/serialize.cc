#include "compiler/tensor/serialize.h"

#include <cstring>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/tree_size.h"
#include "diapason/v1/program.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace diapason {
namespace {

constexpr int kVersion = 1;

absl::Status Malformed(const std::string& why) {
  return absl::DataLossError(absl::StrCat("the stored tensor program is damaged: ", why));
}

class DagWriter {
 public:
  explicit DagWriter(v1::ComputeDag& out) : out_(out) {}

  void Write(const ComputeDag& dag) {
    out_.set_version(kVersion);
    for (const Stage& stage : dag.stages()) WriteStage(stage);
    for (int output : dag.outputs()) out_.add_outputs(output);
  }

 private:
  void WriteStage(const Stage& stage) {
    v1::Stage& out = *out_.add_stages();
    out.set_name(stage.name);
    out.set_dtype(static_cast<uint32_t>(stage.dtype));
    for (const Axis& axis : stage.axes) WriteAxis(axis, *out.add_axes());
    for (const Axis& axis : stage.reduce_axes) WriteAxis(axis, *out.add_reduce_axes());
    out.set_combiner(static_cast<uint32_t>(stage.combiner));
    if (stage.body != nullptr) out.set_body(WriteExpr(stage.body) + 1);
    out.set_placeholder(stage.placeholder);
    out.set_constant(stage.constant);
    out.set_valid_min(stage.valid_min);
    out.set_valid_max(stage.valid_max);
    for (const std::string& name : stage.unroll_axes) out.add_unroll_axes(name);
  }

  void WriteAxis(const Axis& axis, v1::Axis& out) {
    out.set_var(WriteExpr(axis.var));
    out.set_extent(axis.extent);
  }

  // Equal subtrees become one entry whether or not they share a node: the bytes depend on the dag's structure alone.
  uint32_t WriteExpr(const Expr& e) {
    if (auto it = position_of_node_.find(e.get()); it != position_of_node_.end()) return it->second;
    v1::Expr node;
    node.set_kind(static_cast<uint32_t>(e->kind));
    node.set_dtype(static_cast<uint32_t>(e->dtype));
    node.set_value(e->value);
    uint64_t bits;
    std::memcpy(&bits, &e->fvalue, sizeof bits);
    node.set_fvalue_bits(bits);
    node.set_name(e->name);
    if (e->kind == ExprKind::kLoad) node.set_buffer(static_cast<uint32_t>(e->buffer));
    for (const Expr& arg : e->args) node.add_args(WriteExpr(arg));
    const uint32_t position = Append(e->kind, node);
    position_of_node_.emplace(e.get(), position);
    return position;
  }

  uint32_t Append(ExprKind kind, const v1::Expr& node) {
    const uint32_t next = static_cast<uint32_t>(out_.nodes_size());
    if (kind != ExprKind::kVar) {  // variables of the same name are different variables
      auto [it, is_new] = position_of_bytes_.emplace(node.SerializeAsString(), next);
      if (!is_new) return it->second;
    }
    *out_.add_nodes() = node;
    return next;
  }

  v1::ComputeDag& out_;
  std::unordered_map<const ExprNode*, uint32_t> position_of_node_;
  std::unordered_map<std::string, uint32_t> position_of_bytes_;
};

bool IsKnown(DType dtype) { return IsDType(static_cast<int64_t>(dtype)); }

class DagReader {
 public:
  explicit DagReader(const v1::ComputeDag& in) : in_(in) {}

  absl::StatusOr<ComputeDag> Read() {
    if (in_.version() < 1) return Malformed("it has no version");
    if (in_.version() > kVersion)
      return absl::InvalidArgumentError(absl::StrCat("the tensor program has format version ", in_.version(),
                                                     ", this program reads up to ", kVersion,
                                                     ": use a newer diapason"));
    for (const v1::Expr& node : in_.nodes()) RETURN_IF_ERROR(ReadNode(node));
    std::vector<Stage> stages;
    for (const v1::Stage& stage : in_.stages()) {
      ASSIGN_OR_RETURN(Stage read, ReadStage(stage));
      stages.push_back(std::move(read));
    }
    return ComputeDag::Create(std::move(stages), {in_.outputs().begin(), in_.outputs().end()});
  }

 private:
  // Nodes are made as they are stored, without the folding of the constructors: what was written comes back. Their
  // types are checked by ComputeDag::Create.
  absl::Status ReadNode(const v1::Expr& in) {
    const uint32_t kind = in.kind();
    if (kind < static_cast<uint32_t>(ExprKind::kIntImm) || kind > static_cast<uint32_t>(ExprKind::kLoad))
      return Malformed(absl::StrCat("unknown kind of expression ", kind));
    ASSIGN_OR_RETURN(const DType dtype, ReadDType(in.dtype()));
    ExprNode node{.kind = static_cast<ExprKind>(kind), .dtype = dtype};
    node.value = in.value();
    const uint64_t bits = in.fvalue_bits();
    std::memcpy(&node.fvalue, &bits, sizeof bits);
    node.name = in.name();
    if (node.kind == ExprKind::kLoad) node.buffer = static_cast<int>(in.buffer());
    RETURN_IF_ERROR(ReadArgs(in, node));
    nodes_.push_back(MakeNode(std::move(node)));
    return absl::OkStatus();
  }

  // A literal goes through its constructor, which brings the value into the range of the type.
  static Expr MakeNode(ExprNode node) {
    if (node.args.empty() && node.kind == ExprKind::kIntImm && !IsFloat(node.dtype))
      return IntImm(node.value, node.dtype);
    if (node.args.empty() && node.kind == ExprKind::kFloatImm && IsFloat(node.dtype))
      return FloatImm(node.fvalue, node.dtype);
    return std::make_shared<const ExprNode>(std::move(node));
  }

  absl::Status ReadArgs(const v1::Expr& in, ExprNode& node) {
    int64_t size = 1;
    int depth = 1;
    for (uint32_t arg : in.args()) {
      if (arg >= nodes_.size()) return Malformed("an expression uses one that does not come before it");
      node.args.push_back(nodes_[arg]);
      size += size_[arg];
      depth = std::max(depth, depth_[arg] + 1);
      if (size > kMaxTreeNodes || depth > kMaxTreeDepth) return Malformed("an expression is too large");
    }
    size_.push_back(size);
    depth_.push_back(depth);
    return absl::OkStatus();
  }

  static absl::StatusOr<DType> ReadDType(uint32_t number) {
    const DType dtype = static_cast<DType>(number);
    if (number > 255 || !IsKnown(dtype)) return Malformed(absl::StrCat("unknown element type ", number));
    return dtype;
  }

  absl::StatusOr<Axis> ReadAxis(const v1::Axis& in) const {
    if (in.var() >= nodes_.size()) return Malformed("an axis has no variable");
    return Axis{nodes_[in.var()], in.extent()};
  }

  absl::StatusOr<Stage> ReadStage(const v1::Stage& in) {
    Stage stage;
    stage.name = in.name();
    ASSIGN_OR_RETURN(stage.dtype, ReadDType(in.dtype()));
    for (const v1::Axis& axis : in.axes()) {
      ASSIGN_OR_RETURN(Axis read, ReadAxis(axis));
      stage.axes.push_back(std::move(read));
    }
    for (const v1::Axis& axis : in.reduce_axes()) {
      ASSIGN_OR_RETURN(Axis read, ReadAxis(axis));
      stage.reduce_axes.push_back(std::move(read));
    }
    if (in.combiner() > static_cast<uint32_t>(Combiner::kProd))
      return Malformed(absl::StrCat("unknown combiner ", in.combiner()));
    stage.combiner = static_cast<Combiner>(in.combiner());
    if (in.body() > nodes_.size()) return Malformed("a stage has no body");
    if (in.body() > 0) {
      stage.body = nodes_[in.body() - 1];
      total_size_ += size_[in.body() - 1];
      if (total_size_ > kMaxTreeNodes) return Malformed("its expressions are too large");
    }
    stage.placeholder = in.placeholder();
    stage.constant = in.constant();
    stage.valid_min = in.valid_min();
    stage.valid_max = in.valid_max();
    stage.unroll_axes = {in.unroll_axes().begin(), in.unroll_axes().end()};
    return stage;
  }

  const v1::ComputeDag& in_;
  std::vector<Expr> nodes_;
  std::vector<int64_t> size_;  // nodes of each as a tree
  std::vector<int> depth_;
  int64_t total_size_ = 0;
};

}  // namespace

std::string SerializeDag(const ComputeDag& dag) {
  v1::ComputeDag message;
  DagWriter(message).Write(dag);
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

absl::StatusOr<ComputeDag> ParseDag(const std::string& bytes) {
  v1::ComputeDag message;
  if (!message.ParseFromString(bytes)) return Malformed("it is no protobuf message of the right kind");
  return DagReader(message).Read();
}

}  // namespace diapason
