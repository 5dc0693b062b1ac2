#include "compiler/codegen/object_symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/codegen/temporary.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string ObjectOf(const std::string& source) {
  const TemporaryDirectory folder = TemporaryDirectory::Create().value();
  EXPECT_TRUE(WriteFile(folder.File("a.c"), source).ok());
  EXPECT_EQ(std::system(("cc -w -O1 -fPIC -c -o " + folder.File("a.o") + " " + folder.File("a.c")).c_str()), 0);
  return ReadFile(folder.File("a.o")).value();
}

TEST(UndefinedSymbols, NamesWhatOthersHaveToDefine) {
  EXPECT_THAT(UndefinedSymbols(ObjectOf("float expf(float); void free(void*);\n"
                                        "float f(float x) { return expf(x); } void g(void* p) { free(p); }")),
              ElementsAre("expf", "free"));
}

TEST(UndefinedSymbols, WhatTheObjectDefinesItselfIsNotThere) {
  EXPECT_THAT(UndefinedSymbols(ObjectOf("int table[4]; static int g(int i) { return table[i]; }\n"
                                        "int h(int i) { return i; } int f(int i) { return g(i) + h(i); }")),
              IsEmpty());
}

TEST(UndefinedSymbols, WhatIsNoObjectIsNotKnown) {
  EXPECT_THAT(UndefinedSymbols(""), ElementsAre(""));
  EXPECT_THAT(UndefinedSymbols("int f(void);"), ElementsAre(""));
  const std::string object = ObjectOf("int f(void) { return 1; }");
  for (size_t size = 0; size < object.size(); size += 7)
    EXPECT_THAT(UndefinedSymbols(object.substr(0, size)), ::testing::AnyOf(IsEmpty(), ::testing::Contains("")));
}

}  // namespace
}  // namespace diapason
