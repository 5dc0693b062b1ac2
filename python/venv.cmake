# A virtual environment in the build tree with nanobind, and what the tests need. Made anew when the list of packages changes.
#
#   diapason_venv(FOLDER REQUIREMENTS ALONE): sets venv_python. Packages of the list ALONE come without what they need.
function(diapason_venv folder requirements alone)
  file(SHA256 ${requirements} wanted)
  file(SHA256 ${alone} wanted_alone)
  string(APPEND wanted " ${wanted_alone} ${Python_EXECUTABLE}")
  set(there "")
  if(EXISTS ${folder}/made-for.txt)
    file(READ ${folder}/made-for.txt there)
  endif()
  if(NOT there STREQUAL wanted)
    message(STATUS "Making ${folder} with the Python packages of ${requirements} and ${alone}")
    file(REMOVE_RECURSE ${folder})
    execute_process(COMMAND ${Python_EXECUTABLE} -m venv ${folder} RESULT_VARIABLE failed)
    if(NOT failed)
      execute_process(COMMAND ${folder}/bin/python -m pip install --quiet --disable-pip-version-check --retries 5 -r ${requirements}
                      RESULT_VARIABLE failed)
    endif()
    if(NOT failed)
      execute_process(COMMAND ${folder}/bin/python -m pip install --quiet --disable-pip-version-check --retries 5 --no-deps -r ${alone}
                      RESULT_VARIABLE failed)
    endif()
    if(failed)
      message(FATAL_ERROR "the Python packages of ${requirements} and ${alone} could not be installed (see above); they come from PyPI, and venv is of Debian's "
                          "python3-venv. -DDIAPASON_PYTHON=OFF builds without Python")
    endif()
    file(WRITE ${folder}/made-for.txt "${wanted}")
  endif()
  set(venv_python ${folder}/bin/python PARENT_SCOPE)
endfunction()
