// Errors of the library as Python exceptions (diapason/errors.py).
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace diapason::python {

// `code` is the name of a status, such as "INVALID_ARGUMENT". Needs the interpreter's lock.
[[noreturn]] inline void Raise(const char* code, const std::string& text) {
  namespace nb = nanobind;
  const nb::object sentence =
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  const nb::object error = nb::module_::import_("diapason.errors").attr("_make_error")(code, sentence);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  nb::raise_python_error();
}

}  // namespace diapason::python
