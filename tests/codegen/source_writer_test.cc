#include "compiler/codegen/source_writer.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(SourceWriter, IndentsLinesByTheBlocksAroundThem) {
  SourceWriter out;
  out.Open("void f()");
  out.Open();
  EXPECT_EQ(out.depth(), 2);
  out.Line("g();");
  out.Close();
  out.Close();
  EXPECT_EQ(out.Take(), "void f() {\n  {\n    g();\n  }\n}\n");
  out.Line("h();");
  EXPECT_EQ(out.Take(), "h();\n");
}

TEST(SourceWriter, ACommentStaysOnItsLine) {
  SourceWriter out;
  out.Comment("two\nlines \\");
  EXPECT_EQ(out.Take(), "// two lines  \n");
}

}  // namespace
}  // namespace diapason
