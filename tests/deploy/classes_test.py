"""deploy/check_classes.py: classes with too many methods or lines are found, however they are written."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(os.environ["DIAPASON_DEPLOY"])
sys.path.insert(0, str(DEPLOY))
import check_classes

HARD = """#pragma once
#define BODY(name) class name { \\
  void NotMine() {} \\
}
// class Comment { void No(); }
namespace diapason::inner {
class Forward;
enum class Kind { kOne, kTwo };
using Callback = std::function<void(int)>;
template <typename T, size_t kSize = (4 > 3) ? 1 : 2>
class ABSL_LOCKABLE Hard final : public Base<T, std::vector<int>>, private Other {
 public:
  Hard() = default;
  explicit Hard(int a) : Base<T, std::vector<int>>(a), b_{a, '{'}, text_("}") {
    if (a > 1) b_.clear();
  }
  Hard(const Hard&) = delete;
  ~Hard() override { Done(); }
  Hard& operator=(Hard&&) noexcept { return *this; }
  friend bool operator==(const Hard& a, const Hard& b) { return a.b_ == b.b_; }
  friend class Tester;
  static_assert(sizeof(int) == 4);
  using Table = std::map<int, std::function<int(int)>>;
  enum { kFew = 1'000 };

  int First() const;
  std::pair<int, int> Second(std::function<void(int)> call = [](int) { return; }) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return {}; }
  template <typename F>
  auto Third(F&& f) noexcept(noexcept(f())) -> decltype(f());
  virtual void Fourth() = 0;
  bool operator()(int a, int b) const { return a < b; }
  bool operator<(const Hard& other) const;
  operator bool() const;
  [[nodiscard]] absl::Status Fifth() && override;
  bool operator!=(const Hard&) const = default;
  struct Part {
    int Own() { return value; }
    int value = 0;
    int (*pointer)(int);
  };
  struct {
    int x;
  } place_;

 private:
  mutable Mutex mutex_;
  int guarded_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void(int)> call_ = [](int) {};
  std::vector<int> b_{1, 2};
  std::string text_ = R"x(class Text { void No(); )" )x";
  struct Part* next_ = nullptr;
};
}  // namespace diapason::inner
"""


def class_of(methods, lines=0, name="Many"):
    body = "".join(f"  int Get{i}() const {{ return {i}; }}\n" for i in range(methods)) + "  int a_ = 0;\n" * lines
    return f"class {name} {{\n{body}}};\n"


class ClassesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def check(self):
        run = subprocess.run([sys.executable, "-B", DEPLOY / "check_classes.py", self.root], capture_output=True, text=True, check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 1 if run.stdout else 0)
        return run.stdout

    def test_what_is_within_the_limits_is_fine(self):
        self.write("db/many.h", class_of(25, 373))
        self.assertEqual(self.check(), "")

    def test_a_method_too_many_is_named(self):
        self.write("db/many.h", "namespace diapason {\n" + class_of(26) + "}\n")
        self.assertEqual(self.check(), "db/many.h Many has 26 methods and 28 lines; 25 and 400 are allowed: "
                                       "give a part of what it does, with the members that belong to it, to a class of its own\n")

    def test_a_line_too_many_is_named(self):
        self.write("db/many.h", class_of(1, 398))
        self.assertIn("db/many.h Many has 1 methods and 401 lines;", self.check())

    def test_members_defined_elsewhere_count(self):
        self.write("db/many.h", "class Many {\n  class Impl;\n};\n")
        self.write("db/many.cc", '#include "db/many.h"\nclass Many::Impl {\n  int Long();\n};\nint Many::Impl::Long() {\n' + "  ++a_;\n" * 400 + "}\n")
        self.assertIn("db/many.cc Many::Impl has 1 methods and 405 lines;", self.check())

    def test_classes_of_one_name_are_told_apart(self):
        for folder in ("db", "worker"):
            self.write(f"{folder}/one.cc", "namespace {\n" + class_of(1, 190) + "int Many::Other() {\n" + "  ++a_;\n" * 190 + "}\n}\n")
        self.assertEqual(self.check(), "")

    def test_a_member_of_an_unknown_class_is_an_error(self):
        self.write("db/one.cc", "int Unknown::Get() { return 1; }\n")
        self.assertEqual(self.check(), "db/one.cc defines Unknown::Get, of whose class there is no definition: correct deploy/check_classes.py\n")

    def test_a_function_of_a_namespace_is_no_member(self):
        self.write("db/one.cc", "namespace diapason::inner {}\nint diapason::inner::Get() { return 1; }\n")
        self.assertEqual(self.check(), "")

    def test_every_form_of_a_declaration_is_read(self):
        self.write("db/hard.h", HARD)
        hard, part, anonymous = check_classes.read(self.root)[0]
        self.assertEqual(hard.name, "Hard")
        self.assertEqual(hard.methods, ["First", "Second", "Third", "Fourth", "operator()", "operator<", "operatorbool", "Fifth"])
        self.assertEqual((part.name, part.methods, part.lines), ("Hard::Part", ["Own"], 5))
        self.assertEqual((anonymous.name, anonymous.methods), ("Hard::", []))


if __name__ == "__main__":
    unittest.main()
