// Lines of source text, indented by the blocks around them.
#pragma once

#include <string>
#include <utility>

namespace diapason {

class SourceWriter {
 public:
  void Line(const std::string& text) { text_.append(2 * static_cast<size_t>(depth_), ' ').append(text).append("\n"); }
  // A line with the comment's text, which may hold anything.
  void Comment(const std::string& text);
  // "head {", or "{" without a head.
  void Open(const std::string& head = "") {
    Line(head.empty() ? "{" : head + " {");
    ++depth_;
  }
  void Close() {
    --depth_;
    Line("}");
  }

  // Blocks that are open.
  int depth() const { return depth_; }
  // All lines so far, which are no longer there then.
  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace diapason
